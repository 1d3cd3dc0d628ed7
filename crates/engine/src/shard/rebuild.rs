//! How far members being rebuilt have come, in regions of one shard; and the task that takes them further.
//!
//! A member being rebuilt is written everywhere from the start, so a band that was rebuilt never falls behind
//! again; it is read only in regions that this shard has finished. Regions of other shards do not matter here:
//! only a region's owner reads from such a member.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use strake_block::{IoError, IoErrorKind};
use strake_raid::Band;
use strake_reactor::Scheduler;

use super::wait::WaitQueue;
use strake_units::{MemberIndex, RegionIndex, StripeIndex};

use super::Shard;
use crate::limits::{MAINTENANCE_WINDOW_BUSY, MAINTENANCE_WINDOW_IDLE};
use crate::message::{Origin, Peer, Span, View, Work};

pub(crate) struct RebuildTable {
    core: u32,
    cores: u32,
    /// Per member: how many of this shard's regions, in order, are complete on it.
    passed: Vec<u32>,
    /// Per member: how often its rebuild was started, so that work for a device that was replaced meanwhile does
    /// not count for its successor.
    started: Vec<u32>,
}

impl RebuildTable {
    pub(crate) fn new(core: u16, cores: u16, members: usize) -> Self {
        Self {
            core: u32::from(core),
            cores: u32::from(cores),
            passed: vec![0; members],
            started: vec![0; members],
        }
    }

    /// Regions of this shard among the first `regions` of the array.
    pub(crate) fn own_below(&self, regions: u32) -> u32 {
        (regions + self.cores - 1 - self.core) / self.cores
    }

    fn own_region(&self, ordinal: u32) -> RegionIndex {
        RegionIndex(ordinal * self.cores + self.core)
    }

    fn ordinal(&self, region: RegionIndex) -> u32 {
        region.0 / self.cores
    }

    /// Starts `member` at `regions` complete regions of the array.
    pub(crate) fn start(&mut self, member: MemberIndex, regions: u32) {
        self.passed[member.at()] = self.own_below(regions);
        self.started[member.at()] += 1;
    }

    /// True when `member` holds good data in `region`, one of this shard's.
    pub(crate) fn has_passed(&self, member: MemberIndex, region: RegionIndex) -> bool {
        self.ordinal(region) < self.passed[member.at()]
    }
}

/// Bands that the maintenance task has handed out and not got back.
pub(crate) struct Window {
    outstanding: usize,
    error: Option<IoError>,
    waiting: WaitQueue,
}

impl Window {
    pub(crate) fn new(scheduler: &Scheduler) -> Self {
        Self { outstanding: 0, error: None, waiting: WaitQueue::new(scheduler) }
    }

    /// A band came back.
    pub(crate) fn back(&mut self, result: Result<(), IoError>) {
        self.outstanding -= 1;
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
        self.waiting.wake_all();
    }
}

/// Waits until fewer than `limit()` bands are out.
async fn below(window: &RefCell<Window>, limit: impl Fn() -> usize) {
    poll_fn(|_| {
        let mut window = window.borrow_mut();
        if window.outstanding < limit() {
            return Poll::Ready(());
        }
        window.waiting.register();
        Poll::Pending
    })
    .await;
}

/// Resynchronizes what is untrusted, then rebuilds who is rebuilding, until nothing is left to do.
pub(crate) async fn run(shard: Rc<Shard>) {
    while !shard.stopping() {
        if let Some(region) = shard.next_untrusted() {
            if !resync_region(&shard, region).await {
                break;
            }
            continue;
        }
        let Some((ordinal, targets)) = shard.next_to_rebuild() else { break };
        if !rebuild_region(&shard, ordinal, targets).await {
            break;
        }
    }
    shard.maintenance_ended();
}

async fn resync_region(shard: &Shard, region: RegionIndex) -> bool {
    if !whole_region(shard, region, || Work::Resync).await {
        return false;
    }
    shard.board.trust(region);
    let left = {
        let mut table = shard.region_table.borrow_mut();
        table.trust(region);
        table.untrusted()
    };
    shard.counters().resync_regions_left.store(left as u64, std::sync::atomic::Ordering::Relaxed);
    if left == 0 {
        shard.post(0, Peer::Resynced);
    }
    true
}

async fn rebuild_region(shard: &Shard, ordinal: u32, targets: u64) -> bool {
    let (region, own, started) = {
        let table = shard.rebuild.borrow();
        (table.own_region(ordinal), table.own_below(shard.regions.count()), table.started.clone())
    };
    if ordinal < own && !whole_region(shard, region, || Work::Rebuild).await {
        shard.board.set_rebuild_halted(!shard.stopping());
        return false;
    }
    for member in members_of(targets) {
        // A member that failed meanwhile starts over when it is replaced.
        let same = shard.rebuild.borrow().started[member.at()] == started[member.at()];
        if !same || shard.members.borrow().view(member) != View::Rebuilding {
            continue;
        }
        let passed = {
            let mut table = shard.rebuild.borrow_mut();
            table.passed[member.at()] = ordinal + 1;
            ordinal + 1
        };
        shard
            .counters()
            .rebuilt_regions
            .store(u64::from(passed), std::sync::atomic::Ordering::Relaxed);
        shard.post(0, Peer::Rebuilt { from: shard.core, member, ordinal: passed });
    }
    true
}

/// Hands out every band of a region and waits for all of them. False when the work has to stop.
async fn whole_region(shard: &Shard, region: RegionIndex, work: impl Fn() -> Work) -> bool {
    let stripes = shard.regions.stripes(region);
    'region: for stripe in stripes.start..stripes.end.min(shard.geometry.stripes()) {
        for index in 0..shard.geometry.bands_per_stripe() {
            below(&shard.window, || shard.maintenance_limit()).await;
            if shard.stopping() || shard.window.borrow().error.is_some() {
                break 'region;
            }
            let band = Band { stripe: StripeIndex(stripe), index };
            shard.window.borrow_mut().outstanding += 1;
            shard.bands.borrow_mut().enqueue(Span {
                band,
                work: work(),
                origin: Origin::Maintenance,
            });
        }
    }
    below(&shard.window, || 1).await;
    let error = shard.window.borrow_mut().error.take();
    error.is_none_or(|e| e.kind == IoErrorKind::Aborted) && !shard.stopping()
}

fn members_of(mask: u64) -> impl Iterator<Item = MemberIndex> {
    (0..64u8).filter(move |i| mask & 1 << i != 0).map(MemberIndex)
}

impl Shard {
    fn maintenance_limit(&self) -> usize {
        if self.requests.borrow().live() > 0 {
            MAINTENANCE_WINDOW_BUSY
        } else {
            MAINTENANCE_WINDOW_IDLE
        }
    }

    fn next_untrusted(&self) -> Option<RegionIndex> {
        let mut queue = self.untrusted.borrow_mut();
        while let Some(region) = queue.front() {
            if !self.region_table.borrow().trusted(*region) {
                return Some(*region);
            }
            queue.pop_front();
        }
        None
    }

    /// The least advanced region of the members being rebuilt, and those that stand there.
    fn next_to_rebuild(&self) -> Option<(u32, u64)> {
        let members = self.members.borrow();
        let table = self.rebuild.borrow();
        let own = table.own_below(self.regions.count()).max(1);
        let rebuilding = |i: &u8| members.view(MemberIndex(*i)) == View::Rebuilding;
        let slots = || (0..self.geometry.members() as u8).filter(rebuilding);
        let ordinal = slots().map(|i| table.passed[usize::from(i)]).filter(|p| *p < own).min()?;
        let targets = slots().filter(|i| table.passed[usize::from(*i)] == ordinal);
        Some((ordinal, targets.fold(0, |mask, i| mask | 1 << i)))
    }

    /// Positions in the band's stripe that a rebuild fills: rebuilding members that are not past its region.
    pub(crate) fn rebuild_targets(&self, band: Band) -> u64 {
        let region = self.regions.region_of(band.stripe);
        let members = self.members.borrow();
        let table = self.rebuild.borrow();
        (0..self.geometry.width())
            .filter(|position| {
                let member = self.geometry.member(band.stripe, *position);
                members.view(member) == View::Rebuilding && !table.has_passed(member, region)
            })
            .fold(0, |mask, position| mask | 1 << position)
    }
}
