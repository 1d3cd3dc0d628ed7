//! Writes, discards and allocations of blocks of one cluster.
//!
//! ```text
//! Start -> InPlace ---------------------------------------------------------> end
//!   |      (any core; the cluster is whole and not shared)
//!   v
//! Change -> Landing (data stable) -> Recorded (record stable) --------------> end
//!   ^          |  the map changed, or a cut began
//!   +----------+
//! ```
//!
//! Only the owner enters `Change` and later states, for one operation at a time per cluster of a volume. A waiting
//! operation is in no epoch.

use crate::blocks::{BlockSet, Blocks, Partial};
use crate::error::ErrorKind;
use crate::found::Found;
use crate::ids::{ClusterId, Number, Ring, VolumeId};
use crate::operation::{Done, Entered, Progress, Stability, Step, Wait};
use crate::record::Change;
use crate::state::{Allocation, MapState};

/// The effect of an I/O on its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IoKind {
    Write(Stability),
    Discard,
    Allocate,
}

/// The owner's action for the state that it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Plan {
    /// No action.
    Nothing,
    /// Write to own blocks, without a record.
    InPlace(ClusterId),
    /// Write or discard blocks of the cluster; record the blocks.
    Mark(ClusterId),
    /// Give the cluster up.
    Unmap,
    /// Take a cluster for the blocks; the other blocks are those of a base, or zero.
    New { base: Option<ClusterId> },
    /// Take a cluster and copy the other blocks to it.
    Copy(ClusterId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Start,
    InPlace { is_locked: bool },
    Change,
    Landing { found: Found, plan: Plan, taken: Option<ClusterId> },
    Recorded(Ring, Number),
    Cancelled(ErrorKind),
}

/// A write, discard or allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Io {
    pub(crate) kind: IoKind,
    pub(crate) volume: VolumeId,
    pub(crate) index: u32,
    pub(crate) blocks: Blocks,
    pub(crate) core: Ring,
    /// Whether the operation is part of a resize that holds all other writes.
    pub(crate) is_of_resize: bool,
    entered: Entered,
    is_starved: bool,
    stage: Stage,
}

impl Io {
    pub(crate) fn new(
        kind: IoKind,
        volume: VolumeId,
        index: u32,
        blocks: Blocks,
        core: Ring,
    ) -> Self {
        let (entered, stage) = (Entered::default(), Stage::Start);
        let (is_of_resize, is_starved) = (false, false);
        Self { kind, volume, index, blocks, core, is_of_resize, entered, is_starved, stage }
    }

    pub(crate) fn cancel(&mut self, kind: ErrorKind) -> bool {
        if self.is_starved {
            self.stage = Stage::Cancelled(kind);
        }
        self.is_starved
    }

    /// True if a record was appended: the operation then ends when the record is stable.
    pub(crate) fn is_recorded(&self) -> bool {
        matches!(self.stage, Stage::Recorded(..))
    }

    pub(crate) fn advance(&mut self, map: &mut MapState) -> Progress {
        match self.stage {
            Stage::Start => self.start(map),
            Stage::InPlace { is_locked } => {
                if is_locked {
                    map.unlock(self.volume, self.index);
                }
                self.end(map)
            }
            Stage::Change => self.change(map),
            Stage::Landing { found, plan, taken } => self.landed(map, found, plan, taken),
            Stage::Recorded(ring, number) => self.recorded(map, ring, number),
            Stage::Cancelled(kind) => self.fail(map, kind),
        }
    }

    fn end(&mut self, map: &mut MapState) -> Progress {
        self.entered.leave(map);
        Progress::Finished(Ok(Done::Done))
    }

    /// Ends with an error, and releases the resources of the operation. A cluster that it took is free: no record names
    /// it. Blocks of a cluster in use are old or new, and blocks that no record marks as own are not read.
    pub(crate) fn fail(&mut self, map: &mut MapState, kind: ErrorKind) -> Progress {
        let (is_locked, taken) = match self.stage {
            Stage::InPlace { is_locked } => (is_locked, None),
            Stage::Landing { taken, .. } => (true, taken),
            Stage::Start | Stage::Change | Stage::Cancelled(_) => (false, None),
            Stage::Recorded(..) => unreachable!("what is recorded does not fail"),
        };
        if let Some(cluster) = taken {
            map.give_back(cluster);
        }
        if is_locked {
            map.unlock(self.volume, self.index);
        }
        self.entered.leave(map);
        Progress::Finished(Err(kind.of(self.volume)))
    }

    /// Leaves the epoch and waits, so that an operation cannot wait for itself.
    fn wait(&mut self, map: &mut MapState, wait: Wait) -> Progress {
        self.entered.leave(map);
        Progress::Wait(wait)
    }

    fn is_held(&self, map: &MapState, ring: Ring) -> bool {
        !self.is_of_resize && map.is_held(ring)
    }

    fn start(&mut self, map: &mut MapState) -> Progress {
        if self.is_held(map, self.core) {
            return self.wait(map, Wait::Hold);
        }
        self.entered.enter(map);
        if let IoKind::Write(stability) = self.kind
            && let Some(cluster) = map.in_place(self.volume, self.index, self.blocks)
        {
            self.stage = Stage::InPlace { is_locked: false };
            return Progress::Do(Step::Write { cluster, blocks: self.blocks, stability });
        }
        self.stage = Stage::Change;
        self.change(map)
    }

    fn plan(&self, map: &MapState, found: Found) -> Plan {
        let is_whole = self.blocks.count == map.tables.shape.cluster_blocks;
        if self.kind == IoKind::Discard && !is_whole && self.are_zero(map, found) {
            return Plan::Nothing;
        }
        match (self.kind, found) {
            (_, Found::Gone)
            | (IoKind::Discard, Found::Unmapped)
            | (
                IoKind::Allocate,
                Found::Own(_) | Found::Partial(_) | Found::Shared(_) | Found::SharedPartial(_),
            ) => Plan::Nothing,
            (IoKind::Write(_), Found::Own(cluster)) => Plan::InPlace(cluster),
            (
                IoKind::Discard,
                Found::Own(_) | Found::Partial(_) | Found::Shared(_) | Found::SharedPartial(_),
            ) if is_whole => Plan::Unmap,
            (IoKind::Write(_), Found::Partial(cluster))
            | (IoKind::Discard, Found::Own(cluster) | Found::Partial(cluster)) => {
                Plan::Mark(cluster)
            }
            (IoKind::Write(_), Found::Unmapped | Found::Shared(_) | Found::SharedPartial(_))
                if is_whole =>
            {
                Plan::New { base: None }
            }
            (IoKind::Write(_) | IoKind::Allocate, Found::Unmapped) => Plan::New { base: None },
            (IoKind::Write(_) | IoKind::Discard, Found::Shared(cluster)) => {
                Plan::New { base: Some(cluster) }
            }
            (IoKind::Write(_) | IoKind::Discard, Found::SharedPartial(cluster)) => {
                Plan::Copy(cluster)
            }
        }
    }

    /// True if the blocks are zero already. Blocks whose zero state is in an unstable record are locked.
    fn are_zero(&self, map: &MapState, found: Found) -> bool {
        let (Found::Partial(cluster) | Found::SharedPartial(cluster)) = found else { return false };
        let partial = map.tables.partial(cluster);
        partial.is_some_and(|partial| partial.zero.has_all(&BlockSet::of(self.blocks)))
    }

    fn change(&mut self, map: &mut MapState) -> Progress {
        self.is_starved = false;
        let Some(volume) = map.tables.serving(self.volume) else {
            return self.fail(map, ErrorKind::NoVolume);
        };
        let ring = map.owner(volume.seed, self.index);
        if map.is_locked(self.volume, self.index) {
            return self.wait(map, Wait::Cluster { volume: self.volume, index: self.index });
        }
        if self.is_held(map, ring) {
            return self.wait(map, Wait::Hold);
        }
        self.entered.enter(map);
        let found = self.find(map);
        let plan = self.plan(map, found);
        if let Err(kind) = self.check_leaf(map, plan) {
            return self.fail(map, kind);
        }
        match plan {
            Plan::Nothing if found == Found::Gone => self.fail(map, ErrorKind::OutOfRange),
            Plan::Nothing => self.end(map),
            Plan::InPlace(cluster) => {
                map.lock(self.volume, self.index);
                self.stage = Stage::InPlace { is_locked: true };
                let stability = self.stability();
                Progress::Do(Step::Write { cluster, blocks: self.blocks, stability })
            }
            Plan::Copy(_) if self.waits_for_older(map) => {
                let epoch = map.before_cut;
                self.wait(map, Wait::OlderIo { epoch })
            }
            Plan::Mark(_) => self.land(map, found, plan, None),
            Plan::Unmap => self.land(map, found, plan, None),
            Plan::New { .. } | Plan::Copy(_) => {
                if let Some(wait) = map.wait_for_leaf(self.volume, self.index, ring) {
                    return self.wait(map, wait);
                }
                self.take(map, ring, found, plan)
            }
        }
    }

    fn take(&mut self, map: &mut MapState, ring: Ring, found: Found, plan: Plan) -> Progress {
        match map.allocate(self.volume, ring, found) {
            Allocation::Taken(cluster) => self.land(map, found, plan, Some(cluster)),
            Allocation::Refused(kind) => self.fail(map, kind),
            Allocation::Later(wait) => {
                self.is_starved = true;
                self.wait(map, wait)
            }
        }
    }

    /// Refuses a change of an entry that would exceed the limit of leaves.
    fn check_leaf(&self, map: &MapState, plan: Plan) -> Result<(), ErrorKind> {
        match plan {
            Plan::Unmap | Plan::New { .. } | Plan::Copy(_) => {
                map.check_leaf(self.volume, self.index)
            }
            Plan::Nothing | Plan::InPlace(_) | Plan::Mark(_) => Ok(()),
        }
    }

    fn find(&self, map: &MapState) -> Found {
        let per = u64::from(map.tables.shape.cluster_blocks);
        let first = u64::from(self.index) * per + u64::from(self.blocks.first);
        let end = map.tables.serving(self.volume).map_or(0, |volume| volume.blocks);
        let within = end.saturating_sub(first).min(u64::from(self.blocks.count)) as u16;
        // A resize gives up the whole last cluster, although the volume ends within it.
        let count = if self.is_of_resize { within } else { self.blocks.count };
        map.find(self.volume, self.index, Blocks { first: self.blocks.first, count })
    }

    fn stability(&self) -> Stability {
        match self.kind {
            IoKind::Write(stability) => stability,
            IoKind::Discard | IoKind::Allocate => Stability::Stable,
        }
    }

    /// A copy waits until writes older than the last cut have completed: otherwise it would lose them.
    fn waits_for_older(&mut self, map: &mut MapState) -> bool {
        self.entered.leave(map);
        let waits = !map.older_are_back();
        self.entered.enter(map);
        waits
    }

    /// Returns the data step, if there is one. Its data are stable before a record refers to them.
    fn land(
        &mut self,
        map: &mut MapState,
        found: Found,
        plan: Plan,
        taken: Option<ClusterId>,
    ) -> Progress {
        map.lock(self.volume, self.index);
        self.stage = Stage::Landing { found, plan, taken };
        let all = Blocks { first: 0, count: map.tables.shape.cluster_blocks };
        let is_write = matches!(self.kind, IoKind::Write(_));
        let stability = Stability::Stable;
        match (plan, taken) {
            (Plan::Mark(cluster), _) | (Plan::New { .. }, Some(cluster)) if is_write => {
                Progress::Do(Step::Write { cluster, blocks: self.blocks, stability })
            }
            (Plan::Copy(from), Some(to)) => {
                let rest = self.copied_parts(map, from, all);
                let data = is_write.then_some(self.blocks);
                Progress::Do(Step::Copy { parts: rest, to, data })
            }
            _ => self.landed(map, found, plan, taken),
        }
    }

    /// Returns the parts of a shared partial cluster around the blocks of this operation.
    fn copied_parts(
        &self,
        map: &MapState,
        from: ClusterId,
        all: Blocks,
    ) -> Vec<crate::tables::Part> {
        let before = Blocks { first: 0, count: self.blocks.first };
        let end = self.blocks.end();
        let after = Blocks { first: end as u16, count: (u32::from(all.count) - end) as u16 };
        let parts = |blocks| map.tables.parts(Some(from), blocks);
        parts(before).chain(parts(after)).collect()
    }

    fn landed(
        &mut self,
        map: &mut MapState,
        found: Found,
        plan: Plan,
        taken: Option<ClusterId>,
    ) -> Progress {
        let ring = map.tables.serving(self.volume).map(|volume| map.owner(volume.seed, self.index));
        let now = self.find(map);
        let is_same = now == found;
        let is_cut = ring.is_some_and(|ring| self.is_held(map, ring));
        if !is_same || is_cut {
            if let Some(cluster) = taken {
                map.give_back(cluster);
            }
            map.unlock(self.volume, self.index);
            self.stage = Stage::Change;
            return self.change(map);
        }
        let ring = ring.expect("what was found again is in a volume");
        if let Err(kind) = self.check_leaf(map, plan) {
            return self.fail(map, kind);
        }
        let number = self.append(map, ring, plan, taken);
        self.stage = Stage::Recorded(ring, number);
        self.recorded(map, ring, number)
    }

    fn append(
        &self,
        map: &mut MapState,
        ring: Ring,
        plan: Plan,
        taken: Option<ClusterId>,
    ) -> Number {
        let (volume, index, blocks) = (self.volume, self.index, self.blocks);
        match (plan, taken) {
            (Plan::Mark(cluster), _) => {
                let is_write = matches!(self.kind, IoKind::Write(_));
                let write = Change::Own { cluster, blocks };
                let change = if is_write { write } else { Change::Zero { cluster, blocks } };
                map.put(ring, change)
            }
            (Plan::New { .. } | Plan::Copy(_), Some(cluster)) => {
                let partial = self.partial(map, plan);
                map.own_leaf(volume, index, ring);
                map.put(ring, Change::Map { volume, index, cluster, partial })
            }
            (
                Plan::Unmap | Plan::Nothing | Plan::InPlace(_) | Plan::New { .. } | Plan::Copy(_),
                _,
            ) => {
                map.own_leaf(volume, index, ring);
                map.put(ring, Change::Unmap { volume, index })
            }
        }
    }

    /// Returns the state of the blocks of the new cluster.
    fn partial(&self, map: &MapState, plan: Plan) -> Option<Box<Partial>> {
        let cluster_blocks = map.tables.shape.cluster_blocks;
        let all = Blocks { first: 0, count: cluster_blocks };
        let rest = match plan {
            Plan::New { base } => Partial::over(base, cluster_blocks),
            _ => Partial { own: BlockSet::of(all), zero: BlockSet::EMPTY, base: None },
        };
        let partial = match self.kind {
            IoKind::Write(_) => rest.owning(self.blocks),
            IoKind::Discard => rest.zeroing(self.blocks),
            IoKind::Allocate => rest,
        };
        (!partial.is_whole(cluster_blocks)).then(|| Box::new(partial))
    }

    fn recorded(&mut self, map: &mut MapState, ring: Ring, number: Number) -> Progress {
        if !map.is_stable(ring, number) {
            return Progress::Wait(Wait::Records { ring, number });
        }
        map.unlock(self.volume, self.index);
        self.end(map)
    }
}
