//! The faults that a world may inject now: at most as many as the array tolerates. With more faults, the faults could
//! explain any outcome, and a run would prove nothing.
//!
//! A member is *impaired* while its drive is doomed (an I/O failed that costs the member, or hangs, or the drive is
//! removed), has unreadable blocks, or is not in sync. A fault that would impair one more member is injected only if
//! the geometry tolerates all impaired members together. After a crash no fault is injected until the resync has
//! finished: only `--consistency strict` tolerates "a crash and a lost drive in the same event". No fault is injected
//! either while all drives stall for so long that some members may be failed.
//!
//! Silently lost content (a drive that ignored flushes, or an older copy of a drive) is injected only before a clean
//! shutdown, or if a label was written since: after a crash such a drive may pass for the current one, which
//! docs/guarantees.md lists as a known defect.

mod kind;

use std::sync::{Arc, Mutex, MutexGuard};

use strake_raid::Geometry;
use strake_units::{MemberIndex, MemberSet, Nanos};

pub use kind::{Kind, Kinds};

/// Chances of a fault, per million I/Os of one drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// A block becomes unreadable until it is written again.
    pub medium: u32,
    /// An I/O fails, and the array fails the member.
    pub device: u32,
    /// The drive is removed.
    pub vanish: u32,
    /// An I/O takes longer than the time limit of the engine.
    pub hang: u32,
    /// An I/O takes milliseconds to seconds.
    pub delay: u32,
}

/// A deliberate fault of drives, or of the program that starts an array, which the oracle must detect: this proves that
/// the oracle can fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// No fault.
    #[default]
    None,
    /// Some writes complete without being executed.
    LostWrite,
    /// Flushes complete without an effect.
    IdleFlush,
    /// FUA writes stay in the cache.
    IdleFua,
    /// Some reads return the bytes of another block.
    WrongRead,
    /// An array is started before the requests of a killed daemon have ended.
    Hasty,
}

#[derive(Debug)]
struct State {
    geometry: Option<Geometry>,
    impaired: MemberSet,
    armed: bool,
    /// Whether no further member may be impaired for now.
    held: bool,
    /// I/Os that are submitted before this time complete at this time or later.
    stalled_until: Nanos,
    rates: Rates,
    without: Kinds,
    mutant: Mutant,
}

/// The permission for faults, shared by all drives of a world. Clones share it.
#[derive(Clone, Debug)]
pub struct Faults(Arc<Mutex<State>>);

impl Faults {
    /// Creates the object without faults until [`arm`](Self::arm).
    #[must_use]
    pub fn new(rates: Rates, without: Kinds, mutant: Mutant) -> Self {
        Self(Arc::new(Mutex::new(State {
            geometry: None,
            impaired: MemberSet::EMPTY,
            armed: false,
            held: false,
            stalled_until: Nanos(0),
            rates,
            without,
            mutant,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("one thread runs the world")
    }

    /// Sets the array whose limits apply.
    pub fn set_geometry(&self, geometry: Geometry) {
        self.state().geometry = Some(geometry);
    }

    /// Bytes that a drive writes atomically.
    #[must_use]
    pub fn atomic_bytes(&self) -> u64 {
        self.state().geometry.map_or(4096, |g| u64::from(g.block_size().bytes()))
    }

    /// Enables or disables faults.
    pub fn arm(&self, armed: bool) {
        self.state().armed = armed;
    }

    /// Prohibits or permits further impaired members.
    pub fn hold(&self, held: bool) {
        self.state().held = held;
    }

    /// True if no further member may be impaired for now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state().held
    }

    /// Delays all answers of all drives until `until`.
    pub fn stall(&self, until: Nanos) {
        self.state().stalled_until = until;
    }

    /// The end of the stall of all drives.
    #[must_use]
    pub fn stalled_until(&self) -> Nanos {
        self.state().stalled_until
    }

    /// Sets the impaired members.
    pub fn set_impaired(&self, members: MemberSet) {
        self.state().impaired = members;
    }

    /// The impaired members.
    #[must_use]
    pub fn impaired(&self) -> MemberSet {
        self.state().impaired
    }

    /// The rates if faults are enabled, otherwise zeroes.
    #[must_use]
    pub fn rates(&self) -> Rates {
        let state = self.state();
        if state.armed { state.rates } else { Rates::default() }
    }

    /// True if faults of `kind` happen in this run at all. The caller draws before it calls this, so that a run without
    /// a kind equals one with it until the first such fault.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        !self.state().without.has(kind)
    }

    /// The deliberate fault.
    #[must_use]
    pub fn mutant(&self) -> Mutant {
        self.state().mutant
    }

    /// Returns whether the drive of `slot` may become impaired, and if so counts it as impaired.
    pub fn may_impair(&self, slot: u8) -> bool {
        let mut state = self.state();
        let impaired = state.impaired.with(MemberIndex(slot));
        let free = state.armed && !state.held;
        let allowed = free && state.geometry.is_some_and(|g| g.tolerates(impaired));
        if allowed {
            state.impaired = impaired;
        }
        allowed
    }
}
