//! The faults that a world may inject now: at most as many as the array tolerates. With more faults, any outcome could
//! be explained by the faults, and a run would prove nothing.
//!
//! A member is *impaired* while its drive is doomed (it failed an I/O that costs the member, hangs, or is gone), has
//! unreadable blocks, or is not in sync. A fault that would impair one more member is injected only if the geometry
//! tolerates all impaired members together. After a crash none is injected until the resync is through: "crash and a
//! drive lost in the same event" is promised only by `--consistency strict`. Nor is any while all drives stall for so
//! long that some members may be failed.
//!
//! What a drive forgot without saying so (it lied about flushes, or is an older picture of itself) shows only after an
//! orderly stop, or where a label was written since: what a crash leaves of it may pass for the drive, which
//! docs/guarantees.md lists as a known defect.

mod kind;

use std::sync::{Arc, Mutex, MutexGuard};

use strake_raid::Geometry;
use strake_units::{MemberIndex, MemberSet, Nanos};

pub use kind::{Kind, Kinds};

/// Chances of a fault, per million I/Os of one drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// A block turns out to be unreadable until it is written again.
    pub medium: u32,
    /// An I/O fails, and with it the member.
    pub device: u32,
    /// The drive is pulled.
    pub vanish: u32,
    /// An I/O is not answered for longer than the engine waits.
    pub hang: u32,
    /// An I/O takes milliseconds to seconds.
    pub delay: u32,
}

/// A deliberate lie of a drive, or a mistake of the program that starts an array, which the oracle has to catch: the
/// proof that it can fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mutant {
    /// Drives keep their word.
    #[default]
    None,
    /// Some writes are acknowledged and not done.
    LostWrite,
    /// A flush is acknowledged and does nothing.
    IdleFlush,
    /// FUA writes stay in the cache.
    IdleFua,
    /// Some reads return a neighbour's bytes.
    WrongRead,
    /// An array is started before the requests of a killed daemon have ended.
    Hasty,
}

#[derive(Debug)]
struct State {
    geometry: Option<Geometry>,
    impaired: MemberSet,
    armed: bool,
    /// Nothing else may happen to members for now.
    held: bool,
    /// No I/O that is begun before is answered earlier.
    stalled_until: Nanos,
    rates: Rates,
    without: Kinds,
    mutant: Mutant,
}

/// What all drives of a world ask before they misbehave. Clones share it.
#[derive(Clone, Debug)]
pub struct Faults(Arc<Mutex<State>>);

impl Faults {
    /// Nothing happens until [`arm`](Self::arm).
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

    /// The array whose limits count.
    pub fn set_geometry(&self, geometry: Geometry) {
        self.state().geometry = Some(geometry);
    }

    /// Bytes that a drive writes completely or not at all.
    #[must_use]
    pub fn atomic_bytes(&self) -> u64 {
        self.state().geometry.map_or(4096, |g| u64::from(g.block_size().bytes()))
    }

    /// Allows faults, or stops them.
    pub fn arm(&self, armed: bool) {
        self.state().armed = armed;
    }

    /// Lets no further member be impaired, or lets it again.
    pub fn hold(&self, held: bool) {
        self.state().held = held;
    }

    /// Whether no further member may be impaired for now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state().held
    }

    /// Lets no drive answer what is asked of it from now on before `until`.
    pub fn stall(&self, until: Nanos) {
        self.state().stalled_until = until;
    }

    /// Until when no drive answers.
    #[must_use]
    pub fn stalled_until(&self) -> Nanos {
        self.state().stalled_until
    }

    /// Tells which members are impaired now.
    pub fn set_impaired(&self, members: MemberSet) {
        self.state().impaired = members;
    }

    /// Members impaired now.
    #[must_use]
    pub fn impaired(&self) -> MemberSet {
        self.state().impaired
    }

    /// The chances while armed, none otherwise.
    #[must_use]
    pub fn rates(&self) -> Rates {
        let state = self.state();
        if state.armed { state.rates } else { Rates::default() }
    }

    /// Whether faults of `kind` happen in this run at all. The caller draws before it asks, so that a run without a
    /// kind equals one with it until the first such fault.
    #[must_use]
    pub fn has(&self, kind: Kind) -> bool {
        !self.state().without.has(kind)
    }

    /// The lie that drives tell.
    #[must_use]
    pub fn mutant(&self) -> Mutant {
        self.state().mutant
    }

    /// Asks whether the drive of `slot` may become impaired, and if so counts it as such.
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
