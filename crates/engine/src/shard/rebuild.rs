//! What members being rebuilt lack, in regions of one shard; and the task that fills them.
//!
//! A member being rebuilt is written everywhere from the start, so a band that was rebuilt never falls behind
//! again; it is read only in regions that it does not lack. Regions of other shards do not matter here: only a
//! region's owner reads from such a member.

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
    /// By own region: the members that lack it. Says nothing about members that are not being rebuilt.
    lacking: Vec<MemberSet>,
    /// Per member: how often its rebuild was started, so that work for a device that was replaced meanwhile does
    /// not count for its successor.
    started: [u32; MEMBERS_MAX],
    /// Members of which is not known yet what they lack: they count as lacking everything, and wait.
    unknown: MemberSet,
    /// The region rebuilt last and who lacked it: the next one like it is looked for behind it.
    last: Option<(u32, MemberSet)>,
}

impl RebuildTable {
    /// `lacking` is about all regions of the array.
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

    /// `member` comes into use and may lack everything, until [`keep_only`](Self::keep_only) says better.
    pub(crate) fn start(&mut self, member: MemberIndex) {
        self.lacking.iter_mut().for_each(|members| members.insert(member));
        self.started[member.at()] += 1;
        self.unknown.insert(member);
        self.last = None;
    }

    /// `member` lacks no region that is not in `bitmap`.
    pub(crate) fn keep_only(&mut self, member: MemberIndex, bitmap: &Bits) {
        for ordinal in 0..self.lacking.len() as u32 {
            if !bitmap.get(self.own_region(ordinal).0) {
                self.lacking[ordinal as usize].remove(member);
            }
        }
        self.unknown.remove(member);
        self.last = None;
    }

    /// False when `member`, which is being rebuilt, holds good data in `region`, one of this shard's.
    pub(crate) fn lacks(&self, member: MemberIndex, region: RegionIndex) -> bool {
        self.lacking[self.ordinal(region)].contains(member)
    }

    /// Own regions that one of the members `rebuilding` lacks.
    fn left(&self, rebuilding: MemberSet) -> usize {
        self.lacking.iter().filter(|members| members.intersects(rebuilding)).count()
    }

    /// The region to rebuild next, and who lacks it: of those for which `redundancy` of the members that lack it is
    /// least the first one.
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

    /// The set of members that leaves the least redundancy in the regions that all of them lack.
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

/// Bands that the maintenance task has handed out and not got back.
pub(crate) struct Window {
    outstanding: usize,
    error: Option<IoError>,
    waiting: WaitQueue,
    handed_out: u64,
    /// When the last band went out while no other was, when the last one came back, and how long a band takes.
    out_since: Nanos,
    back: Nanos,
    took: Nanos,
    /// When to look again whether a band may go out, if only time will tell.
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

    /// How many bands may be out has changed.
    pub(crate) fn look_again(&mut self) {
        self.look_at = None;
        self.waiting.wake_all();
    }

    /// When [`look_again`](Self::look_again) is due.
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

    /// Takes what went wrong with bands that came back.
    pub(super) fn take_error(&mut self) -> Option<IoError> {
        self.error.take()
    }

    /// A band came back.
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

/// Waits until no band is out.
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

/// Waits until one more band may go out, the shard stops, or `moot` says that the band is no longer to go out.
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

/// Resynchronizes what is untrusted, then rebuilds who is rebuilding, then scrubs, until nothing is left to do.
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
        // A member that failed meanwhile starts over when it is replaced.
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

/// Hands out every band of a region and waits for all of them. False when the work has to stop.
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

/// Hands out one band.
pub(super) fn hand_out(shard: &Shard, band: Band, work: Work) {
    shard.window.borrow_mut().hand_out(shard.now.get());
    shard.bands.borrow_mut().enqueue(Span { band, work, origin: Origin::Maintenance });
}

impl Shard {
    /// Bands of maintenance that may be out now.
    fn allowed(&self) -> Allowed {
        if self.stopping() {
            // The waiting task has to see that.
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

    /// A turn ends: says whether clients are there.
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

    /// Maintenance cannot go on: shows it, and tells.
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

    /// The region to rebuild next and the members that lack it: where the least redundancy is left.
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

    /// Shows how much is left to rebuild here.
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
