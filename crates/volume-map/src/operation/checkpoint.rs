//! A checkpoint: a root that contains exactly the records of each ring below its floor.

use crate::error::ErrorKind;
use crate::ids::Number;
use crate::image::Image;
use crate::limits::ROOTS;
use crate::operation::{Done, Progress, Step, Wait};
use crate::state::MapState;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Start,
    Taken { floors: Vec<Number>, bytes: Vec<u8> },
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
                map.recount_needs(|_, _| true);
                let floors = map.next_numbers();
                let bytes = Image::of(map, &floors).encode();
                self.stage = Stage::Taken { floors, bytes };
                self.advance(map)
            }
            // A root must not be ahead of a ring: it would contain records that the log lacks.
            Stage::Taken { floors, .. } if !map.are_stable(floors) => {
                Progress::Wait(map.wait_for(floors))
            }
            Stage::Taken { floors, bytes } => {
                let (floors, bytes) = (std::mem::take(floors), std::mem::take(bytes));
                self.stage = Stage::Writing { floors: floors.clone() };
                let place = (map.sequence % ROOTS as u64) as u8;
                Progress::Do(Step::WriteRoot { place, bytes, floors })
            }
            Stage::Writing { floors } => {
                map.floors.insert(0, std::mem::take(floors));
                map.floors.truncate(ROOTS);
                map.sequence += 1;
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
        map.is_checkpointing = false;
        map.changes.is_leader_free = true;
        Progress::Finished(Err(kind.into()))
    }
}
