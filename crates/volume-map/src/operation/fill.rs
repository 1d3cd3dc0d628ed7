//! Completes a partial cluster with copies of its missing blocks.

use crate::blocks::{Blocks, Partial};
use crate::error::ErrorKind;
use crate::ids::{ClusterId, Number, Ring, VolumeId};
use crate::operation::{Done, Entered, Progress, Step, Wait};
use crate::record::Change;
use crate::state::MapState;
use crate::tables::{Part, Source};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Start,
    Copying { ring: Ring, cluster: ClusterId, partial: Box<Partial> },
    Recorded(Ring, Number),
}

/// A fill.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fill {
    volume: VolumeId,
    index: u32,
    entered: Entered,
    stage: Stage,
}

impl Fill {
    pub(crate) fn new(volume: VolumeId, index: u32) -> Self {
        Self { volume, index, entered: Entered::default(), stage: Stage::Start }
    }

    pub(crate) fn advance(&mut self, map: &mut MapState) -> Progress {
        match self.stage.clone() {
            Stage::Start => self.start(map),
            Stage::Copying { ring, cluster, partial } => self.copied(map, ring, cluster, &partial),
            Stage::Recorded(ring, number) => self.recorded(map, ring, number),
        }
    }

    fn start(&mut self, map: &mut MapState) -> Progress {
        if map.is_locked(self.volume, self.index) {
            let (volume, index) = (self.volume, self.index);
            return Progress::Wait(Wait::Cluster { volume, index });
        }
        if !map.older_are_back() {
            return Progress::Wait(Wait::OlderIo { epoch: map.before_cut });
        }
        let Some(volume) = map.tables.serving(self.volume) else {
            return Progress::Finished(Err(ErrorKind::NoVolume.of(self.volume)));
        };
        let ring = map.owner(volume.seed, self.index);
        if map.is_held(ring) {
            return Progress::Wait(Wait::Hold);
        }
        let cluster = map.tables.lookup(volume, self.index).1;
        let partial = cluster.and_then(|cluster| map.tables.partial(cluster)).copied();
        let (Some(cluster), Some(partial)) = (cluster, partial) else {
            return Progress::Finished(Ok(Done::Done));
        };
        self.entered.enter(map);
        map.lock(self.volume, self.index);
        let all = Blocks { first: 0, count: map.tables.shape.cluster_blocks };
        let lacks = |part: &Part| part.source != Source::Cluster(cluster);
        let parts = map.tables.parts(Some(cluster), all).filter(lacks).collect();
        self.stage = Stage::Copying { ring, cluster, partial: Box::new(partial) };
        Progress::Do(Step::Copy { parts, to: cluster, data: None })
    }

    fn copied(
        &mut self,
        map: &mut MapState,
        ring: Ring,
        cluster: ClusterId,
        partial: &Partial,
    ) -> Progress {
        self.entered.leave(map);
        if map.is_held(ring) {
            // The holder may itself change this cluster.
            map.unlock(self.volume, self.index);
            self.stage = Stage::Start;
            return Progress::Wait(Wait::Hold);
        }
        let volume = map.tables.serving(self.volume);
        let now = volume.and_then(|volume| map.tables.lookup(volume, self.index).1);
        if now != Some(cluster) || map.tables.partial(cluster) != Some(partial) {
            map.unlock(self.volume, self.index);
            return Progress::Finished(Ok(Done::Done));
        }
        let number = map.put(ring, Change::Filled { cluster });
        self.stage = Stage::Recorded(ring, number);
        self.recorded(map, ring, number)
    }

    /// The copy failed: its writes reached only blocks that no record marks as own.
    pub(crate) fn fail(&mut self, map: &mut MapState, kind: ErrorKind) -> Progress {
        self.entered.leave(map);
        map.unlock(self.volume, self.index);
        Progress::Finished(Err(kind.of(self.volume)))
    }

    fn recorded(&mut self, map: &mut MapState, ring: Ring, number: Number) -> Progress {
        if !map.is_stable(ring, number) {
            return Progress::Wait(Wait::Records { ring, number });
        }
        map.unlock(self.volume, self.index);
        Progress::Finished(Ok(Done::Done))
    }
}
