//! Write-intent regions as their owner shard sees them.
//!
//! Before the first write to a clean region its bit must be in the bitmap on the members; the leader does that
//! and answers. A region whose parity cannot be trusted (after a crash, or before initialization) is written
//! by reconstruct-write or full stripes only, until it is resynchronized.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;

use strake_block::{IoError, IoErrorKind};
use strake_reactor::Scheduler;

use super::wait::WaitQueue;
use strake_units::RegionIndex;

/// The leader has the region's bit on the members.
const INTENDED: u8 = 1;
/// The leader has been asked.
const ASKED: u8 = 2;
/// Parity or copies may disagree with the data.
const UNTRUSTED: u8 = 4;
/// Written since the last sweep.
const TOUCHED: u8 = 8;

#[derive(Clone, Copy, Default)]
struct Region {
    flags: u8,
    writes: u16,
}

pub(crate) struct RegionTable {
    regions: Vec<Region>,
    waiting: WaitQueue,
    /// Set when the array has stopped: no write may begin then.
    stopped: Option<IoErrorKind>,
    untrusted: usize,
    /// Writes need no write intent.
    careless: bool,
    /// Regions this shard owns that are intended, so that a sweep need not look at all.
    intended: Vec<RegionIndex>,
}

/// What a write must do before it may begin.
enum Entry {
    Go,
    Ask,
    Wait,
    Refuse(IoErrorKind),
}

impl RegionTable {
    pub(crate) fn new(scheduler: &Scheduler, count: u32) -> Self {
        Self {
            regions: vec![Region::default(); count as usize],
            waiting: WaitQueue::new(scheduler),
            stopped: None,
            untrusted: 0,
            careless: false,
            intended: Vec::new(),
        }
    }

    /// Marks a region of ours whose bit was set when the array was assembled.
    pub(crate) fn distrust(&mut self, region: RegionIndex) {
        let place = &mut self.regions[region.at()];
        place.flags |= UNTRUSTED | INTENDED;
        self.untrusted += 1;
        self.intended.push(region);
    }

    /// Whether writes begin without a mark of their region.
    pub(crate) fn be_careless(&mut self, careless: bool) {
        self.careless = careless;
    }

    pub(crate) fn trusted(&self, region: RegionIndex) -> bool {
        self.regions[region.at()].flags & UNTRUSTED == 0
    }

    /// Regions of ours that still need a resync.
    pub(crate) fn untrusted(&self) -> usize {
        self.untrusted
    }

    /// The region was resynchronized.
    pub(crate) fn trust(&mut self, region: RegionIndex) {
        let place = &mut self.regions[region.at()];
        if place.flags & UNTRUSTED != 0 {
            place.flags &= !UNTRUSTED;
            self.untrusted -= 1;
        }
    }

    fn enter(&mut self, region: RegionIndex) -> Entry {
        if let Some(kind) = self.stopped {
            return Entry::Refuse(kind);
        }
        let place = &mut self.regions[region.at()];
        if self.careless || place.flags & INTENDED != 0 {
            place.writes += 1;
            place.flags |= TOUCHED;
            return Entry::Go;
        }
        self.waiting.register();
        if place.flags & ASKED != 0 {
            return Entry::Wait;
        }
        place.flags |= ASKED;
        Entry::Ask
    }

    /// A write in `region` begins, if it may do so at once. Pair with [`leave`](Self::leave).
    pub(crate) fn enter_now(&mut self, region: RegionIndex) -> bool {
        let place = &mut self.regions[region.at()];
        let marked = self.careless || place.flags & INTENDED != 0;
        let may = marked && self.stopped.is_none();
        if may {
            place.writes += 1;
            place.flags |= TOUCHED;
        }
        may
    }

    /// A write in `region` ended.
    pub(crate) fn leave(&mut self, region: RegionIndex) {
        self.regions[region.at()].writes -= 1;
    }

    /// The leader's answer.
    pub(crate) fn intended(&mut self, region: RegionIndex, result: Result<(), IoErrorKind>) {
        let place = &mut self.regions[region.at()];
        place.flags &= !ASKED;
        match result {
            Ok(()) => {
                place.flags |= INTENDED;
                self.intended.push(region);
            }
            Err(kind) => self.stopped = Some(kind),
        }
        self.waiting.wake_all();
    }

    /// No write may begin from now on.
    pub(crate) fn stop(&mut self, kind: IoErrorKind) {
        self.stopped = Some(kind);
        self.waiting.wake_all();
    }

    /// Regions that saw no write since the last sweep; they count as clean from here on, so the next write to
    /// one asks the leader again.
    pub(crate) fn sweep(&mut self) -> Vec<RegionIndex> {
        let mut idle = Vec::new();
        let regions = &mut self.regions;
        self.intended.retain(|region| {
            let place = &mut regions[region.at()];
            let quiet = place.flags & (TOUCHED | UNTRUSTED) == 0 && place.writes == 0;
            place.flags &= !TOUCHED;
            if quiet {
                place.flags &= !INTENDED;
                idle.push(*region);
            }
            !quiet
        });
        idle
    }
}

/// Waits until a write to `region` may begin; `ask` is called when the leader must be asked. Pair with
/// [`RegionTable::leave`].
pub(crate) async fn enter(
    table: &RefCell<RegionTable>,
    region: RegionIndex,
    ask: impl Fn(),
) -> Result<(), IoError> {
    poll_fn(|_| match table.borrow_mut().enter(region) {
        Entry::Go => Poll::Ready(Ok(())),
        Entry::Refuse(kind) => Poll::Ready(Err(IoError::new(kind))),
        Entry::Wait => Poll::Pending,
        Entry::Ask => {
            ask();
            Poll::Pending
        }
    })
    .await
}
