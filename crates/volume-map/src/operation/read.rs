//! Reads.

use crate::blocks::Blocks;
use crate::error::ErrorKind;
use crate::ids::VolumeId;
use crate::operation::{Done, Entered, Progress, Step};
use crate::state::MapState;

/// A read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Read {
    pub(crate) volume: VolumeId,
    pub(crate) index: u32,
    pub(crate) blocks: Blocks,
    pub(crate) entered: Entered,
    pub(crate) is_read: bool,
}

impl Read {
    pub(crate) fn advance(&mut self, map: &mut MapState) -> Progress {
        if self.is_read {
            self.entered.leave(map);
            return Progress::Finished(Ok(Done::Done));
        }
        // The read enters its epoch before it reads the map: found clusters are not reused until it has left.
        self.entered.enter(map);
        let Some(volume) = map.tables.serving(self.volume) else {
            return self.fail(map, ErrorKind::NoVolume);
        };
        let cluster = map.tables.lookup(volume, self.index).1;
        let parts = map.tables.parts(cluster, self.blocks).collect();
        self.is_read = true;
        Progress::Do(Step::Read { parts })
    }

    pub(crate) fn fail(&mut self, map: &mut MapState, kind: ErrorKind) -> Progress {
        self.entered.leave(map);
        Progress::Finished(Err(kind.of(self.volume)))
    }
}
