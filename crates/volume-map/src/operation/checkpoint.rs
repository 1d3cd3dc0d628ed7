//! A checkpoint: a root that contains exactly the records of each ring below its floor.

use crate::error::ErrorKind;
use crate::ids::Number;
use crate::image::Head;
use crate::limits::ROOTS;
use crate::operation::{Done, Progress, Step, Wait};
use crate::state::{MapState, Reference};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Start,
    Taken { floors: Vec<Number> },
    Writing { floors: Vec<Number> },
}

/// A checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Checkpoint {
    stage: Stage,
}

impl Checkpoint {
    pub(crate) fn new() -> Self {
        Self { stage: Stage::Start }
    }

    pub(crate) fn advance(&mut self, map: &mut MapState) -> Progress {
        match &mut self.stage {
            Stage::Start if map.is_checkpointing => Progress::Wait(Wait::Leader),
            Stage::Start => {
                map.is_checkpointing = true;
                map.needs.begin_recount();
                let floors = map.next_numbers();
                map.freeze(&floors);
                self.stage = Stage::Taken { floors };
                self.advance(map)
            }
            // A root must not be ahead of a ring: it would contain records that the log lacks.
            Stage::Taken { floors } if !map.are_stable(floors) => {
                Progress::Wait(map.wait_for(floors))
            }
            Stage::Taken { floors } => {
                let floors = std::mem::take(floors);
                self.stage = Stage::Writing { floors: floors.clone() };
                let sequence = map.sequence;
                let place = (sequence % ROOTS as u64) as u8;
                Progress::Do(Step::WriteRoot { place, sequence, floors })
            }
            Stage::Writing { floors } => {
                map.floors.insert(0, std::mem::take(floors));
                map.floors.truncate(ROOTS);
                map.sequence += 1;
                map.tables.thaw();
                map.roots_due = map.roots_due.saturating_sub(1);
                map.is_checkpointing = false;
                map.changes.is_leader_free = true;
                map.changes.has_space = true;
                Progress::Finished(Ok(Done::Done))
            }
        }
    }

    /// The slot of the root contains the old root, the new root, or no readable root. The other root exists, and the
    /// log starts at its floors. The next checkpoint writes the same slot.
    pub(crate) fn fail(map: &mut MapState, kind: ErrorKind) -> Progress {
        map.tables.thaw();
        map.is_checkpointing = false;
        map.changes.is_leader_free = true;
        Progress::Finished(Err(kind.into()))
    }
}

impl MapState {
    /// Begins a root with the present tables.
    fn freeze(&mut self, floors: &[Number]) {
        let head = Head { sequence: self.sequence, start: self.start.number, floors };
        let head = head.encode(self.floors.first().map(Vec::as_slice), &self.tables);
        #[cfg(test)]
        let expected = crate::image::Image::of(self, floors).encode();
        let given_up = self.given_up.iter().flatten().filter_map(|given_up| match given_up.what {
            Reference::Cluster(cluster) => Some((cluster, given_up.by)),
            Reference::Leaf(_) => None,
        });
        self.tables.freeze(head, floors, given_up);
        #[cfg(test)]
        if let Some(frozen) = &mut self.tables.frozen {
            frozen.expect(expected);
        }
    }
}
