//! Write-intent regions on the shard that owns them.
//!
//! Before the first write to a clean region, the leader writes the bit of the region to the bitmap on the members, and
//! answers. A region with untrusted parity (after a crash, or before initialization) is written only by
//! reconstruct-write or full-stripe writes until it is resynchronized.

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;

use strake_block::{IoError, IoErrorKind};
use strake_reactor::Scheduler;

use super::wait::WaitQueue;
use strake_units::RegionIndex;

/// The bit of the region is set in the bitmap on the members.
const INTENDED: u8 = 1;
/// The leader has got the request to set the bit.
const ASKED: u8 = 2;
/// Parity or copies may be inconsistent.
const UNTRUSTED: u8 = 4;
/// The region was written since the last sweep.
const TOUCHED: u8 = 8;

#[derive(Clone, Copy, Default)]
struct Region {
    flags: u8,
    writes: u16,
}

pub(crate) struct RegionTable {
    regions: Vec<Region>,
    waiting: WaitQueue,
    /// Set when the array has stopped. No write may start then.
    stopped: Option<IoErrorKind>,
    untrusted: usize,
    /// True if writes need no write-intent bit.
    careless: bool,
    /// Own regions with a set bit, so that a sweep need not check all regions.
    intended: Vec<RegionIndex>,
}

/// The step before a write may start.
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

    /// Marks an own region as untrusted, because its bit was set at assembly.
    pub(crate) fn distrust(&mut self, region: RegionIndex) {
        let place = &mut self.regions[region.at()];
        place.flags |= UNTRUSTED | INTENDED;
        self.untrusted += 1;
        self.intended.push(region);
    }

    /// Sets whether writes may start without a write-intent bit.
    pub(crate) fn be_careless(&mut self, careless: bool) {
        self.careless = careless;
    }

    pub(crate) fn trusted(&self, region: RegionIndex) -> bool {
        self.regions[region.at()].flags & UNTRUSTED == 0
    }

    /// Number of own regions that still need a resync.
    pub(crate) fn untrusted(&self) -> usize {
        self.untrusted
    }

    /// Marks a region as trusted after its resync.
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

    /// Starts a write in `region` and returns true, if it may start immediately. Pairs with [`leave`](Self::leave).
    #[inline(always)]
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

    /// Records the end of a write in `region`.
    pub(crate) fn leave(&mut self, region: RegionIndex) {
        self.regions[region.at()].writes -= 1;
    }

    /// Handles the answer of the leader.
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

    /// Prevents further writes.
    pub(crate) fn stop(&mut self, kind: IoErrorKind) {
        self.stopped = Some(kind);
        self.waiting.wake_all();
    }

    /// Returns regions without writes since the last sweep. They count as clean from now on, so the next write to such
    /// a region sends a request to the leader.
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

/// Waits until a write to `region` may start. Calls `ask` if a request to the leader is necessary. Pairs with
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
