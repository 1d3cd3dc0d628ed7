//! Snapshots and rollbacks: every core holds new writes, one record contains the cut, and older writes must complete.

use std::collections::BTreeMap;

use crate::epoch::Epoch;
use crate::error::{Error, ErrorKind};
use crate::ids::{Number, Ring, VolumeId};
use crate::operation::{Done, Progress, Step, Wait};
use crate::record::{Change, Cut, VolumesChange};
use crate::state::MapState;

use strake_units::Name;

/// The change that is recorded with the cut.
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
    /// Makes the cores hold writes one after the other. Returns `None` when all hold writes.
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

    pub(crate) fn wait(&self) -> Wait {
        Wait::OlderIo { epoch: self.before.unwrap_or(Epoch(0)) }
    }

    /// True if every I/O that started before the last core held writes has completed.
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
    /// The operation was cancelled before its record.
    Cancelled {
        is_holding: bool,
    },
    /// The flush failed: the snapshots are deleted.
    Undo(ErrorKind),
    Undone(ErrorKind, Number),
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

    pub(crate) fn cancel(&mut self) -> bool {
        let is_holding = self.stage == Stage::Holding;
        let is_before_record = is_holding || self.stage == Stage::Start;
        if is_before_record {
            self.stage = Stage::Cancelled { is_holding };
        }
        is_before_record
    }

    pub(crate) fn advance(&mut self, map: &mut MapState) -> Progress {
        match self.stage {
            Stage::Cancelled { is_holding } => {
                if is_holding {
                    map.release_writes();
                }
                Progress::Finished(Err(ErrorKind::Cancelled.into()))
            }
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
                    return Progress::Wait(Wait::Records { ring: Ring::LEADER, number });
                }
                map.release_writes();
                self.stage = Stage::Released;
                self.advance(map)
            }
            Stage::Released => {
                if !self.held.older_are_back(map) {
                    return Progress::Wait(self.held.wait());
                }
                match self.kind {
                    // An acknowledged write before the cut may be in a cache, and a snapshot must survive a power loss.
                    CutKind::Snapshot(_) => {
                        self.stage = Stage::Flushing;
                        Progress::Do(Step::Flush)
                    }
                    // The content of a snapshot was stable when it was reported.
                    CutKind::Rollback { .. } => Progress::Finished(Ok(Done::Dying(self.made[0]))),
                }
            }
            Stage::Flushing => self.report(map),
            Stage::Undo(_) if map.is_led => Progress::Wait(Wait::Leader),
            Stage::Undo(kind) => {
                self.stage = Stage::Undone(kind, self.undo(map));
                self.advance(map)
            }
            Stage::Undone(_, number) if !map.is_stable(Ring::LEADER, number) => {
                Progress::Wait(Wait::Records { ring: Ring::LEADER, number })
            }
            Stage::Undone(kind, _) => Progress::Finished(Err(kind.into())),
        }
    }

    /// Handles a failed step: a hold, which ends, or the flush of a recorded snapshot. The content of the snapshot may
    /// be lost with the caches, so it is deleted before the request fails.
    pub(crate) fn fail(&mut self, map: &mut MapState, kind: ErrorKind) -> Progress {
        if self.stage == Stage::Flushing {
            self.stage = Stage::Undo(kind);
            return self.advance(map);
        }
        map.release_writes();
        Progress::Finished(Err(kind.into()))
    }

    /// Deletes the snapshots. Returns the number of the last record.
    fn undo(&mut self, map: &mut MapState) -> Number {
        let mut last = Number(0);
        for id in std::mem::take(&mut self.made) {
            last = map.put_of_leader(VolumesChange::Delete(id));
            map.deletions.insert(id, last);
            map.unreported.remove(&id);
        }
        last
    }

    fn check(&self, map: &MapState) -> Result<(), Error> {
        match &self.kind {
            CutKind::Snapshot(pairs) => {
                let entries = pairs.iter().map(|(volume, _)| map.entries_of(*volume)).sum();
                map.check_room(pairs.len(), entries)?;
                let mut needs = BTreeMap::new();
                for (volume, name) in pairs {
                    let known = map.writable(*volume)?;
                    map.check_name(name)?;
                    // Several snapshots of a volume need its clusters only once.
                    if known.policy.reserved {
                        needs.insert(*volume, map.tables.shape.clusters_of(known.blocks));
                    }
                }
                let needs: Vec<_> = needs.into_iter().collect();
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
        self.raise_needs(map);
        self.stage = Stage::Recorded(number);
        self.advance(map)
    }

    /// Raises the needs of the volumes: all their clusters are now shared.
    fn raise_needs(&self, map: &mut MapState) {
        let volumes = match &self.kind {
            CutKind::Snapshot(pairs) => pairs.iter().map(|(volume, _)| *volume).collect(),
            CutKind::Rollback { volume, .. } => vec![*volume],
        };
        for id in volumes {
            let volume = &map.tables.volumes[&id];
            if volume.policy.reserved {
                map.needs.set(id, map.tables.shape.clusters_of(volume.blocks));
            }
        }
    }

    fn report(&mut self, map: &mut MapState) -> Progress {
        let made = std::mem::take(&mut self.made);
        made.iter().for_each(|id| {
            map.unreported.remove(id);
        });
        Progress::Finished(Ok(Done::Made(made)))
    }
}

impl MapState {
    /// Ends the hold of all cores, and the turn of the leader.
    pub(crate) fn release_writes(&mut self) {
        self.held = 0;
        self.is_led = false;
        self.changes.is_hold_over = true;
        self.changes.is_leader_free = true;
    }
}
