//! The regions of one shard that rebuilding members lack, and the task that fills them.
//!
//! A rebuilding member is written everywhere from the start, so a rebuilt band never becomes stale again. The member is
//! read only in regions that it does not lack. Regions of other shards do not matter here, because only the owner of a
//! region reads from such a member.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;

use strake_block::{IoError, IoErrorKind};
use strake_ondisk::{Bits, MEMBERS_MAX};
use strake_raid::Band;
use strake_reactor::Scheduler;

use super::wait::WaitQueue;
use strake_units::{MemberIndex, MemberSet, Nanos, PositionSet, RegionIndex, StripeIndex};

use super::{Shard, scrub};
use crate::message::{Origin, Peer, Span, ToLeader, View, Work};
use crate::pacing::{self, Allowed, Came};
use crate::shared_status::{HALTED_REBUILD, HALTED_RESYNC};

pub(crate) struct RebuildTable {
    core: u32,
    cores: u32,
    /// For each own region, the rebuilding members that lack the region. Other members are irrelevant.
    lacking: Vec<MemberSet>,
    /// For each member, the number of its rebuilds. The number distinguishes work for an earlier device from work for
    /// the present device.
    started: [u32; MEMBERS_MAX],
    /// Members whose lacking regions are not yet known. They count as lacking everything, and their rebuild waits.
    unknown: MemberSet,
    /// The region that was rebuilt last, and the members that lacked it. The search for the next region with the same
    /// members starts there.
    last: Option<(u32, MemberSet)>,
}

impl RebuildTable {
    /// `lacking` contains all regions of the array.
    pub(crate) fn new(core: u16, cores: u16, lacking: &[MemberSet]) -> Self {
        let own = lacking.iter().skip(usize::from(core)).step_by(usize::from(cores));
        Self {
            core: u32::from(core),
            cores: u32::from(cores),
            lacking: own.copied().collect(),
            started: [0; MEMBERS_MAX],
            unknown: MemberSet::EMPTY,
            last: None,
        }
    }

    fn own_region(&self, ordinal: u32) -> RegionIndex {
        RegionIndex(ordinal * self.cores + self.core)
    }

    fn ordinal(&self, region: RegionIndex) -> usize {
        (region.0 / self.cores) as usize
    }

    /// `member` comes into use and counts as lacking everything until [`keep_only`](Self::keep_only).
    pub(crate) fn start(&mut self, member: MemberIndex) {
        self.lacking.iter_mut().for_each(|members| members.insert(member));
        self.started[member.at()] += 1;
        self.unknown.insert(member);
        self.last = None;
    }

    /// Limits the regions that `member` lacks to the regions in `bitmap`.
    pub(crate) fn keep_only(&mut self, member: MemberIndex, bitmap: &Bits) {
        for ordinal in 0..self.lacking.len() as u32 {
            if !bitmap.get(self.own_region(ordinal).0) {
                self.lacking[ordinal as usize].remove(member);
            }
        }
        self.unknown.remove(member);
        self.last = None;
    }

    /// False if the rebuilding `member` has valid data in `region`, a region of this shard.
    pub(crate) fn lacks(&self, member: MemberIndex, region: RegionIndex) -> bool {
        self.lacking[self.ordinal(region)].contains(member)
    }

    /// Number of own regions that at least one member in `rebuilding` lacks.
    fn left(&self, rebuilding: MemberSet) -> usize {
        self.lacking.iter().filter(|members| members.intersects(rebuilding)).count()
    }

    /// Returns the next region to rebuild, and the members that lack the region. `redundancy` computes the remaining
    /// redundancy without these members. The first region with the least redundancy is chosen.
    fn next(
        &mut self,
        rebuilding: MemberSet,
        redundancy: impl Fn(MemberSet) -> Option<u8>,
    ) -> Option<(RegionIndex, MemberSet)> {
        let wanted = rebuilding - self.unknown;
        let like =
            |members: MemberSet, other: MemberSet| members & wanted == other && !other.is_empty();
        let found = self.last.and_then(|(from, lacked)| {
            let behind = self.lacking.iter().skip(from as usize);
            behind
                .take_while(|members| (**members & wanted).is_subset(lacked))
                .position(|members| like(*members, lacked))
                .map(|at| from as usize + at)
        });
        let at = match found {
            Some(at) => at,
            None => {
                let lacked = self.most_endangered(wanted, redundancy)?;
                self.lacking.iter().position(|members| like(*members, lacked))?
            }
        };
        let lacked = self.lacking[at] & wanted;
        self.last = Some((at as u32, lacked));
        Some((self.own_region(at as u32), lacked))
    }

    /// Returns the set of lacking members with the least remaining redundancy.
    fn most_endangered(
        &self,
        wanted: MemberSet,
        redundancy: impl Fn(MemberSet) -> Option<u8>,
    ) -> Option<MemberSet> {
        let mut worst: Option<(Option<u8>, MemberSet)> = None;
        let mut before = MemberSet::EMPTY;
        let lacked = self.lacking.iter().map(|members| *members & wanted);
        for lacked in lacked.filter(|lacked| !lacked.is_empty()) {
            if lacked == before || worst.is_some_and(|(_, worst)| worst == lacked) {
                continue;
            }
            before = lacked;
            let left = redundancy(lacked);
            if worst.is_none_or(|(least, _)| left < least) {
                worst = Some((left, lacked));
            }
        }
        worst.map(|(_, lacked)| lacked)
    }

    fn complete(&mut self, member: MemberIndex, region: RegionIndex) {
        let ordinal = self.ordinal(region);
        self.lacking[ordinal].remove(member);
    }
}

/// Maintenance bands in progress.
pub(crate) struct Window {
    outstanding: usize,
    error: Option<IoError>,
    waiting: WaitQueue,
    handed_out: u64,
    /// The time of the last start of a band while no other was in progress, the time of the last completion, and the
    /// duration of a band.
    out_since: Nanos,
    back: Nanos,
    took: Nanos,
    /// Time of the next check if a pause delays the next band.
    look_at: Option<Nanos>,
}

impl Window {
    pub(crate) fn new(scheduler: &Scheduler) -> Self {
        Self {
            outstanding: 0,
            error: None,
            waiting: WaitQueue::new(scheduler),
            handed_out: 0,
            out_since: Nanos(0),
            back: Nanos(0),
            took: Nanos(0),
            look_at: None,
        }
    }

    /// Wakes the task, because the allowed number of bands has changed.
    pub(crate) fn look_again(&mut self) {
        self.look_at = None;
        self.waiting.wake_all();
    }

    /// Returns the time at which [`look_again`](Self::look_again) is due.
    pub(crate) fn look_at(&self) -> Option<Nanos> {
        self.look_at
    }

    fn hand_out(&mut self, now: Nanos) {
        if self.outstanding == 0 {
            self.out_since = now;
        }
        self.outstanding += 1;
        self.handed_out += 1;
    }

    /// Removes and returns the error of completed bands.
    pub(super) fn take_error(&mut self) -> Option<IoError> {
        self.error.take()
    }

    /// Records the completion of a band.
    pub(crate) fn back(&mut self, now: Nanos, result: Result<(), IoError>) {
        self.outstanding -= 1;
        self.back = now;
        if self.outstanding == 0 {
            self.took = now.since(self.out_since);
        }
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
        self.waiting.wake_all();
    }
}

/// Waits until no band is in progress.
pub(super) async fn all_back(window: &RefCell<Window>) {
    poll_fn(|_| {
        let mut window = window.borrow_mut();
        if window.outstanding == 0 {
            return Poll::Ready(());
        }
        window.waiting.register();
        Poll::Pending
    })
    .await;
}

/// Waits until one more band may start, the shard stops, or `moot` returns true because the band is no longer needed.
pub(super) async fn may_go(shard: &Shard, moot: impl Fn() -> bool) {
    poll_fn(|_| {
        if moot() {
            return Poll::Ready(());
        }
        let allowed = shard.allowed();
        let mut window = shard.window.borrow_mut();
        window.look_at = None;
        match allowed {
            Allowed::Bands(bands) if window.outstanding < bands => return Poll::Ready(()),
            Allowed::Bands(_) | Allowed::Paused => {}
            Allowed::NotBefore(time) => window.look_at = Some(time),
        }
        window.waiting.register();
        Poll::Pending
    })
    .await;
}

/// Resynchronizes untrusted regions, then rebuilds members, then scrubs, until no work is left.
pub(crate) async fn run(shard: Rc<Shard>) {
    shard.counters().halted.store(0, Relaxed);
    while !shard.stopping() {
        if let Some(region) = shard.next_untrusted() {
            if !resync_region(&shard, region).await {
                break;
            }
            continue;
        }
        if let Some((region, targets)) = shard.next_to_rebuild() {
            if !rebuild_region(&shard, region, targets).await {
                break;
            }
            continue;
        }
        if !scrub::go_on(&shard).await {
            break;
        }
    }
    shard.maintenance_ended();
}

async fn resync_region(shard: &Shard, region: RegionIndex) -> bool {
    if !whole_region(shard, region, || Work::Resync).await {
        shard.halt(HALTED_RESYNC);
        return false;
    }
    shard.shared.trust(region);
    let left = {
        let mut table = shard.region_table.borrow_mut();
        table.trust(region);
        table.untrusted()
    };
    shard.counters().resync_regions_left.store(left as u64, Relaxed);
    if left == 0 {
        shard.post(0, Peer::Lead(ToLeader::Resynced));
    }
    true
}

async fn rebuild_region(shard: &Shard, region: RegionIndex, targets: MemberSet) -> bool {
    let started = shard.rebuild.borrow().started;
    if !whole_region(shard, region, || Work::Rebuild).await {
        shard.halt(HALTED_REBUILD);
        return false;
    }
    for member in targets {
        // The rebuild of a member that failed meanwhile restarts after its replacement.
        let same = shard.rebuild.borrow().started[member.at()] == started[member.at()];
        if !same || shard.members.borrow().view(member) != View::Rebuilding {
            continue;
        }
        shard.rebuild.borrow_mut().complete(member, region);
        shard.post(0, Peer::Lead(ToLeader::Rebuilt { member, region }));
    }
    shard.show_rebuild();
    true
}

/// Starts every band of a region and waits for all of them. Returns false if the work must stop.
async fn whole_region(shard: &Shard, region: RegionIndex, work: impl Fn() -> Work) -> bool {
    let stripes = shard.regions.stripes(region);
    'region: for stripe in stripes.start..stripes.end.min(shard.geometry.stripes()) {
        for index in 0..shard.geometry.bands_per_stripe() {
            may_go(shard, || false).await;
            if shard.stopping() || shard.window.borrow().error.is_some() {
                break 'region;
            }
            hand_out(shard, Band { stripe: StripeIndex(stripe), index }, work());
        }
    }
    all_back(&shard.window).await;
    let error = shard.window.borrow_mut().error.take();
    error.is_none_or(|e| e.kind == IoErrorKind::Aborted) && !shard.stopping()
}

/// Starts the work on one band.
pub(super) fn hand_out(shard: &Shard, band: Band, work: Work) {
    shard.window.borrow_mut().hand_out(shard.now.get());
    let span = Span { band, work, origin: Origin::Maintenance };
    shard.bands.borrow_mut().enqueue(span, shard.now.get());
}

impl Shard {
    /// Number of maintenance bands that may be in progress now.
    fn allowed(&self) -> Allowed {
        if self.stopping() {
            // The waiting task must notice the stop.
            return Allowed::Bands(usize::MAX);
        }
        let window = self.window.borrow();
        let in_force = self.shared.window(self.now.get());
        pacing::allowed(&pacing::Load {
            now: self.now.get(),
            maintenance: self.shared.maintenance(),
            clients: in_force.is_some(),
            window: in_force.unwrap_or_default(),
            handed_out: window.handed_out,
            back: window.back,
            took: window.took,
        })
    }

    /// Called at the start of a turn: determines whether requests of this turn measure the baseline or the effect of
    /// maintenance, and adapts the window of maintenance.
    pub(crate) fn pace(&self, now: Nanos) {
        let mut window = self.window.borrow_mut();
        if window.look_at.is_some_and(|time| time <= now) {
            window.look_again();
        }
        let mut requests = self.requests.borrow_mut();
        if requests.pacer.adapt(now, || self.shared.window(now)) {
            self.counters().window.store(requests.pacer.window().to_bits(), Relaxed);
            self.maintained.set(self.shared.maintains() && !self.shared.maintenance().paused);
        }
        let active = self.maintained.get() || window.outstanding > 0;
        requests.begin_turn(now, Came::at(now, active, window.outstanding));
    }

    /// Publishes at the end of a turn whether clients are active.
    pub(crate) fn show_clients(&self, now: Nanos) {
        let live = self.requests.borrow().live() > 0;
        if self.clients_shown.replace(live) != live {
            let until = if live { u64::MAX } else { now.plus(pacing::CLIENTS_HOLD).0 };
            self.counters().clients_until.store(until, Relaxed);
        }
    }

    /// The control plane changes the settings of maintenance.
    pub(crate) fn pace_changed(&self) {
        let mut requests = self.requests.borrow_mut();
        requests.pacer.set_priority(self.shared.maintenance().priority);
        self.counters().window.store(requests.pacer.window().to_bits(), Relaxed);
        self.window.borrow_mut().look_again();
    }

    /// Publishes that maintenance halted, and reports it to the leader.
    fn halt(&self, what: u64) {
        if !self.stopping() {
            self.counters().halted.store(what, Relaxed);
            self.post(0, Peer::Lead(ToLeader::Halted { what }));
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

    /// Returns the region with the least remaining redundancy, and the members that lack it.
    pub(crate) fn next_to_rebuild(&self) -> Option<(RegionIndex, MemberSet)> {
        let (rebuilding, absent) = {
            let members = self.members.borrow();
            (
                members.viewed(View::Rebuilding) | members.paired.filled(),
                members.viewed(View::Absent),
            )
        };
        if rebuilding.is_empty() {
            return None;
        }
        let own = self.geometry.all_members();
        let redundancy = |lacked: MemberSet| self.geometry.redundancy(absent | (lacked & own));
        self.rebuild.borrow_mut().next(rebuilding, redundancy)
    }

    /// Publishes the number of regions left to rebuild on this shard.
    pub(crate) fn show_rebuild(&self) {
        let rebuilding = self.members.borrow().viewed(View::Rebuilding);
        let left = if rebuilding.is_empty() { 0 } else { self.rebuild.borrow().left(rebuilding) };
        let counter = &self.counters().rebuild_regions_left;
        counter.store(left as u64, Relaxed);
    }

    /// Positions in the band's stripe that a rebuild fills: rebuilding members that lack its region.
    pub(crate) fn rebuild_targets(&self, band: Band) -> PositionSet {
        let region = self.regions.region_of(band.stripe);
        let members = self.members.borrow();
        let table = self.rebuild.borrow();
        (0..self.geometry.width())
            .filter(|position| {
                let member = self.geometry.member(band.stripe, *position);
                members.view(member) == View::Rebuilding && table.lacks(member, region)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
