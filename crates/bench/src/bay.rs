//! An array on data cores of its own whose member is lost and rebuilt onto a new drive, over and over.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_block::BlockDevice;
use strake_engine::{Array, Consistency, Drive, Maintenance, prepare_drive};
use strake_raid::{Level, MemberState};
use strake_reactor::monotonic;
use strake_units::{MemberIndex, Nanos, Uuid};

use crate::rig::{Rig, Running, Sample, Shape, fail, pass};
use crate::scenario::{Case, Made, Off};
use strake_load::{Order, Pattern};

const STRIP: u32 = 128 << 10;
/// Longest that one rebuild, or the first filling of the array, may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// The array. Its cores sleep while nothing happens on it.
pub struct Bay {
    // Dropped before the cores it runs on.
    array: Array,
    device: Arc<dyn BlockDevice>,
    rig: Rig,
    made: Made,
    member_bytes: u64,
    /// The member that is lost.
    lost: u8,
    replaced: Cell<u8>,
}

impl Bay {
    /// An array on one core, of `count` drives of `member_bytes`, which will lose member `lost`.
    ///
    /// # Errors
    /// What is wrong with it, or with the machine.
    pub fn new(
        made: Made,
        level: Level,
        count: usize,
        member_bytes: u64,
        lost: u8,
    ) -> Result<Self, String> {
        let rig = Rig::start(1)?;
        let array = array_on(&rig, made, level, count, member_bytes)?;
        let replaced = Cell::new(0);
        Ok(Self { device: array.device(), array, rig, made, member_bytes, lost, replaced })
    }

    /// The array.
    #[must_use]
    pub const fn array(&self) -> &Array {
        &self.array
    }

    /// The core it runs on.
    #[must_use]
    pub const fn rig(&self) -> &Rig {
        &self.rig
    }

    /// Requests like those of `case`.
    #[must_use]
    pub fn pattern(&self, case: &Case) -> Pattern {
        let info = self.device.info();
        let block_bytes = info.block_size.bytes();
        let blocks = (case.bytes as u64 / u64::from(block_bytes)).max(1);
        Pattern {
            write_percent: case.write_percent,
            blocks: blocks as u32,
            block_bytes,
            order: case.order,
            depth: case.depth,
            places: info.blocks / blocks,
            source: case.source,
            ..Pattern::default()
        }
    }

    /// Puts load on it.
    ///
    /// # Errors
    /// When the device has no queue.
    pub fn load(&self, pattern: &Pattern) -> Result<Running, String> {
        self.rig.load(&self.device, &[*pattern])
    }

    /// Puts load on it for a third of `span`, so that it is warm, and then takes a sample, calling `beat` ten times a
    /// second meanwhile.
    ///
    /// # Errors
    /// When requests fail or do not come back: such a run has no number.
    pub fn sample(
        &self,
        case: &Case,
        span: Duration,
        beat: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Sample, String> {
        let running = self.load(&self.pattern(case))?;
        pass(span / 3);
        let sample = running.sample_with(span, beat)?;
        match running.stop()? {
            0 => Ok(sample),
            failed => Err(format!("{failed} requests failed")),
        }
    }

    /// Writes everything once: what was never written is not rebuilt.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn fill(&self) -> Result<(), String> {
        let stripe = (self.array.status().geometry.stripe_data_blocks()
            << self.device.info().block_size.shift()) as usize;
        let order = Order::Sequential;
        let case = Case { write_percent: 100, bytes: stripe, depth: 32, order, ..Case::RAW };
        let pattern = self.pattern(&case);
        let running = self.load(&pattern)?;
        self.until("the array was not filled", || running.done() >= pattern.places)?;
        running.stop().map(|_| ())
    }

    /// Takes the member out of use.
    ///
    /// # Errors
    /// When the array refuses.
    pub fn lose(&self) -> Result<(), String> {
        fail(&self.array, self.lost)
    }

    /// Puts a new drive in the place of the member: the rebuild begins, or the copy when the member is in use.
    ///
    /// # Errors
    /// When the array refuses.
    pub fn replace(&self) -> Result<(), String> {
        self.replaced.set(self.replaced.get().wrapping_add(1));
        replace(&self.array, self.lost, self.made, self.member_bytes, self.replaced.get())
    }

    /// Lets rebuilds and copies begin nothing from now on, or go on.
    pub fn pause(&self, paused: bool) {
        self.array.set_maintenance(Maintenance { paused, ..Maintenance::default() });
    }

    /// Bytes of a member that hold data.
    #[must_use]
    pub fn bytes_of_member(&self) -> u64 {
        self.device.info().bytes() / self.data_members()
    }

    /// Bytes that the replacement has.
    #[must_use]
    pub fn rebuilt(&self) -> u64 {
        let progress = self.array.status().rebuild;
        progress
            .map_or(self.bytes_of_member(), |progress| progress.done_bytes / self.data_members())
    }

    /// Whether the member is in use.
    #[must_use]
    pub fn is_in_sync(&self) -> bool {
        let members = self.array.status().members;
        members.get(usize::from(self.lost)).is_some_and(|m| m.state == MemberState::InSync)
    }

    /// Whether a rebuild is under way.
    #[must_use]
    pub fn is_rebuilding(&self) -> bool {
        self.array.status().rebuild.is_some()
    }

    /// Waits until no rebuild is under way.
    ///
    /// # Errors
    /// When that takes too long.
    pub fn settle(&self) -> Result<(), String> {
        self.until("the rebuild did not end", || !self.is_rebuilding())
    }

    fn data_members(&self) -> u64 {
        let geometry = self.array.status().geometry;
        let strip_blocks = u64::from(STRIP >> self.device.info().block_size.shift());
        (geometry.stripe_data_blocks() / strip_blocks).max(1)
    }

    fn until(&self, otherwise: &str, is_true: impl Fn() -> bool) -> Result<(), String> {
        let since = Instant::now();
        while !is_true() {
            if since.elapsed() > PATIENCE {
                return Err(format!("{otherwise} within {PATIENCE:?}"));
            }
            pass(LOOK);
        }
        Ok(())
    }
}

/// An array of `count` drives on the cores of `rig`.
///
/// # Errors
/// What is wrong with it.
pub fn array_on(
    rig: &Rig,
    made: Made,
    level: Level,
    count: usize,
    member_bytes: u64,
) -> Result<Array, String> {
    let drive = |at| Ok(Drive { device: made.drive(member_bytes)?, path: format!("drive{at}") });
    let drives = (0..count).map(drive).collect::<Result<_, String>>()?;
    rig.array(
        &Shape {
            level,
            strip_bytes: STRIP,
            overwrite: true,
            consistency: Consistency::Safe,
            off: Off::NOTHING,
        },
        drives,
    )
}

/// Puts the `nth` new drive in the place of `member`.
///
/// # Errors
/// When the array refuses.
pub fn replace(
    array: &Array,
    member: u8,
    made: Made,
    member_bytes: u64,
    nth: u8,
) -> Result<(), String> {
    let drive = Drive { device: made.drive(member_bytes)?, path: format!("replacement{nth}") };
    let uuid = Uuid([200, nth, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
    let until = monotonic().plus(Nanos(PATIENCE.as_nanos() as u64));
    let mut wait = || Some(monotonic()).filter(|now| *now < until);
    prepare_drive(&drive, uuid, &mut wait).map_err(|e| e.to_string())?;
    let replacing = array.begin_replace(MemberIndex(member), &drive, uuid);
    replacing.and_then(|replacing| replacing.wait()).map_err(|e| e.to_string())
}
