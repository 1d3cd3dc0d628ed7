//! Snapshots and rollbacks: every core holds new writes, one record has the cut, and older writes are waited for.

use crate::epoch::Epoch;
use crate::error::Error;
use crate::ids::{Number, Ring, VolumeId};
use crate::operation::{Done, Progress, Step, Wait};
use crate::record::{Change, Cut, VolumesChange};
use crate::state::MapState;

use strake_units::Name;

/// What is recorded with the cut.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CutKind {
    Snapshot(Vec<(VolumeId, Name)>),
    Rollback { volume: VolumeId, snapshot: VolumeId },
}

/// The cores that hold new writes, and the cut so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    is_asked: bool,
    cut: Cut,
    before: Option<Epoch>,
}

impl Held {
    /// Holds one core after the other; `None` when all hold.
    pub(crate) fn advance(&mut self, map: &mut MapState) -> Option<Progress> {
        if self.is_asked {
            self.is_asked = false;
            let ring = Ring(self.cut.len() as u8);
            map.held |= 1 << ring.0;
            self.cut.push(map.rings[ring.at()].next);
            let epoch = map.epochs.close();
            self.before = Some(epoch);
            map.before_cut = epoch;
        }
        if self.cut.len() == map.rings.len() {
            return None;
        }
        self.is_asked = true;
        Some(Progress::Do(Step::Hold { core: Ring(self.cut.len() as u8) }))
    }

    /// True if every I/O from before the last core held is back.
    pub(crate) fn older_are_back(&self, map: &MapState) -> bool {
        self.before.is_none_or(|epoch| map.epochs.are_back(epoch))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Start,
    Holding,
    Recorded(Number),
    Released,
    Flushing,
}

/// A snapshot or a rollback.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cutting {
    kind: CutKind,
    held: Held,
    stage: Stage,
    made: Vec<VolumeId>,
}

impl Cutting {
    pub(crate) fn new(kind: CutKind) -> Self {
        Self { kind, held: Held::default(), stage: Stage::Start, made: Vec::new() }
    }

    pub(crate) fn advance(&mut self, map: &mut MapState) -> Progress {
        match self.stage {
            Stage::Start if map.is_led => Progress::Wait(Wait::Leader),
            Stage::Start => {
                if let Err(error) = self.check(map) {
                    return Progress::Finished(Err(error));
                }
                map.is_led = true;
                self.stage = Stage::Holding;
                self.advance(map)
            }
            Stage::Holding => {
                if let Some(progress) = self.held.advance(map) {
                    return progress;
                }
                self.record(map)
            }
            Stage::Recorded(number) => {
                if !map.is_stable(Ring::LEADER, number) {
                    return Progress::Wait(Wait::Records);
                }
                map.release_writes();
                self.stage = Stage::Released;
                self.advance(map)
            }
            Stage::Released => {
                if !self.held.older_are_back(map) {
                    return Progress::Wait(Wait::OlderIo);
                }
                // A write that was answered before the cut may be in a cache, and a snapshot survives a power loss.
                self.stage = Stage::Flushing;
                Progress::Do(Step::Flush)
            }
            Stage::Flushing => self.report(map),
        }
    }

    fn check(&self, map: &MapState) -> Result<(), Error> {
        match &self.kind {
            CutKind::Snapshot(pairs) => {
                let entries = pairs.iter().map(|(volume, _)| map.entries_of(*volume)).sum();
                map.check_room(pairs.len(), entries)?;
                let mut needs = Vec::new();
                for (volume, name) in pairs {
                    let known = map.writable(*volume)?;
                    map.check_name(name)?;
                    // Two snapshots of one volume need its clusters once.
                    let is_counted = needs.iter().any(|(id, _)| id == volume);
                    if known.policy.reserved && !is_counted {
                        needs.push((*volume, map.tables.shape.clusters_of(known.blocks)));
                    }
                }
                Ok(map.check_need(&needs)?)
            }
            CutKind::Rollback { volume, snapshot } => {
                map.check_snapshot(*snapshot)?;
                map.check_room(1, map.entries_of(*snapshot))?;
                let known = map.writable(*volume)?;
                map.check_source(*volume, *snapshot)?;
                if known.policy.reserved {
                    let clusters = map.tables.shape.clusters_of(known.blocks);
                    map.check_need(&[(*volume, clusters)])?;
                }
                Ok(())
            }
        }
    }

    fn record(&mut self, map: &mut MapState) -> Progress {
        if let Err(error) = self.check(map) {
            map.release_writes();
            return Progress::Finished(Err(error));
        }
        let next = map.tables.next_volume;
        let change = match &self.kind {
            CutKind::Snapshot(pairs) => {
                let ids = (next..).map(VolumeId);
                let named = pairs.iter().zip(ids);
                let pairs = named.map(|((volume, name), id)| (*volume, id, name.clone()));
                let pairs: Vec<_> = pairs.collect();
                self.made = pairs.iter().map(|(_, id, _)| *id).collect();
                map.unreported.extend(&self.made);
                VolumesChange::Snapshot(pairs)
            }
            CutKind::Rollback { volume, snapshot } => {
                let (volume, snapshot, old) = (*volume, *snapshot, VolumeId(next));
                self.made = vec![old];
                VolumesChange::Rollback { volume, snapshot, old }
            }
        };
        let cut = std::mem::take(&mut self.held.cut);
        let number = map.put(Ring::LEADER, Change::Volumes(change, cut));
        if let CutKind::Rollback { .. } = self.kind {
            map.deletions.insert(VolumeId(next), number);
        }
        map.recount_needs();
        self.stage = Stage::Recorded(number);
        self.advance(map)
    }

    fn report(&mut self, map: &mut MapState) -> Progress {
        let made = std::mem::take(&mut self.made);
        made.iter().for_each(|id| {
            map.unreported.remove(id);
        });
        Progress::Finished(Ok(match self.kind {
            CutKind::Snapshot(_) => Done::Made(made),
            CutKind::Rollback { .. } => Done::Dying(made[0]),
        }))
    }
}

impl MapState {
    /// Ends the hold of all cores, and the turn of the leader.
    pub(crate) fn release_writes(&mut self) {
        self.held = 0;
        self.is_led = false;
    }
}
