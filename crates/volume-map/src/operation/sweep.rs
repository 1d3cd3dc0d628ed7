//! Gives up the leaves of a deleted volume, one step at a time.

use crate::error::ErrorKind;
use crate::ids::{Number, Ring, VolumeId};
use crate::limits::SWEEP_LEAVES;
use crate::operation::{Done, Progress, Step, Wait};
use crate::record::{Change, VolumesChange};
use crate::state::MapState;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Start,
    Leaves(usize),
    Recorded(Vec<Number>),
    Gone(Number),
}

/// A deletion in steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sweep {
    volume: VolumeId,
    stage: Stage,
}

impl Sweep {
    pub(crate) fn new(volume: VolumeId) -> Self {
        Self { volume, stage: Stage::Start }
    }

    pub(crate) fn advance(&mut self, map: &mut MapState) -> Progress {
        match &self.stage {
            Stage::Start => self.start(map),
            Stage::Leaves(at) => self.give_up(map, *at),
            Stage::Recorded(upto) if !map.are_stable(upto) => Progress::Wait(map.wait_for(upto)),
            Stage::Recorded(_) => self.remove(map),
            Stage::Gone(number) if !map.is_stable(Ring::LEADER, *number) => {
                Progress::Wait(Wait::Records { ring: Ring::LEADER, number: *number })
            }
            Stage::Gone(_) => Progress::Finished(Ok(Done::Done)),
        }
    }

    /// The volume is still being deleted: another sweep continues the deletion.
    pub(crate) fn fail(&self, kind: ErrorKind) -> Progress {
        Progress::Finished(Err(kind.of(self.volume)))
    }

    /// Gives up leaves when the record of the deletion is stable. Before that, a crash may restore the volume.
    fn start(&mut self, map: &mut MapState) -> Progress {
        if !map.tables.volumes.get(&self.volume).is_some_and(|volume| volume.is_dying) {
            return Progress::Finished(Err(ErrorKind::NoVolume.of(self.volume)));
        }
        let deletion = map.deletions.get(&self.volume).copied();
        if deletion.is_some_and(|number| !map.is_stable(Ring::LEADER, number)) {
            let number = deletion.unwrap_or(Number(0));
            return Progress::Wait(Wait::Records { ring: Ring::LEADER, number });
        }
        self.stage = Stage::Leaves(0);
        Progress::Do(Step::Pace)
    }

    fn give_up(&mut self, map: &mut MapState, from: usize) -> Progress {
        let Some(volume) = map.tables.volumes.get(&self.volume) else {
            return Progress::Finished(Err(ErrorKind::NoVolume.of(self.volume)));
        };
        let seed = volume.seed;
        let root = volume.root.iter().enumerate().skip(from);
        let leaves = root.filter(|(_, slot)| slot.is_some()).map(|(at, _)| at);
        let leaves: Vec<usize> = leaves.take(SWEEP_LEAVES).collect();
        let Some(last) = leaves.last().copied() else {
            self.stage = Stage::Recorded(map.next_numbers());
            return self.advance(map);
        };
        for at in leaves {
            let ring = map.tables.shape.owner(seed, at);
            if map.is_held(ring) {
                return Progress::Wait(Wait::Hold);
            }
            map.put(ring, Change::DropLeaf { volume: self.volume, at: at as u32 });
        }
        self.stage = Stage::Leaves(last + 1);
        Progress::Do(Step::Pace)
    }

    fn remove(&mut self, map: &mut MapState) -> Progress {
        if map.is_led {
            return Progress::Wait(Wait::Leader);
        }
        map.deletions.remove(&self.volume);
        if !map.tables.volumes.contains_key(&self.volume) {
            return Progress::Finished(Ok(Done::Done));
        }
        let number = map.put_of_leader(VolumesChange::Gone(self.volume));
        // Volumes of the family may now be the only users of shared clusters.
        map.needs.reference_ended();
        map.needs.begin_recount();
        self.stage = Stage::Gone(number);
        self.advance(map)
    }
}
