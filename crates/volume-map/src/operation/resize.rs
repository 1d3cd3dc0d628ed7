//! A smaller size: the blocks beyond it are discarded first, and the size is recorded when the discard is stable.

use crate::blocks::Blocks;
use crate::error::{Error, ErrorKind};
use crate::found::Found;
use crate::ids::{Number, Ring, VolumeId};
use crate::operation::io::{Io, IoKind};
use crate::operation::snapshot::Held;
use crate::operation::{Done, Progress, Step, Wait};
use crate::record::{Change, VolumesChange};
use crate::state::{Allocation, MapState};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Start,
    Holding,
    Older,
    Cluster(Box<Io>),
    Leaves,
    Freed(Vec<Number>),
    Recorded(Number),
    /// The operation fails when its records of the tail are stable.
    Failing(Vec<Number>, Error),
}

/// A resize that discards the tail of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resize {
    volume: VolumeId,
    blocks: u64,
    held: Held,
    /// The first block that is not discarded yet.
    at: u64,
    /// The error of an operation that the driver cancelled.
    cancelled: Option<ErrorKind>,
    stage: Stage,
}

impl Resize {
    pub(crate) fn new(volume: VolumeId, blocks: u64) -> Self {
        let (held, stage) = (Held::default(), Stage::Start);
        Self { volume, blocks, held, at: blocks, cancelled: None, stage }
    }

    pub(crate) fn cancel(&mut self, kind: ErrorKind) -> bool {
        if let Stage::Recorded(_) | Stage::Failing(..) = self.stage {
            return false;
        }
        self.cancelled = Some(kind);
        true
    }

    pub(crate) fn advance(&mut self, map: &mut MapState) -> Progress {
        if let Some(kind) = self.cancelled.take() {
            return self.end_cancelled(map, kind);
        }
        match &mut self.stage {
            Stage::Start if map.is_led => Progress::Wait(Wait::Leader),
            Stage::Start => {
                if let Some(wait) = map.wait_for_growth(self.volume) {
                    return Progress::Wait(wait);
                }
                if let Err(progress) = self.check(map) {
                    return progress;
                }
                map.is_led = true;
                self.stage = Stage::Holding;
                self.advance(map)
            }
            Stage::Holding => {
                if let Some(progress) = self.held.advance(map) {
                    return progress;
                }
                self.stage = Stage::Older;
                self.advance(map)
            }
            Stage::Older if !self.held.older_are_back(map) => Progress::Wait(self.held.wait()),
            Stage::Older => {
                self.stage = Stage::Leaves;
                self.advance(map)
            }
            Stage::Cluster(io) => match io.advance(map) {
                Progress::Finished(Ok(_)) => {
                    self.stage = Stage::Leaves;
                    self.advance(map)
                }
                Progress::Finished(Err(error)) => self.give_up(map, error),
                // A write took the cluster before its core held. No operation waits for space while all cores hold.
                Progress::Wait(Wait::Space | Wait::Checkpoint) => {
                    map.release_writes();
                    (self.held, self.at, self.stage) = (Held::default(), self.blocks, Stage::Start);
                    self.advance(map)
                }
                progress => progress,
            },
            Stage::Leaves => self.free_next(map),
            Stage::Freed(upto) if !map.are_stable(upto) => Progress::Wait(map.wait_for(upto)),
            Stage::Freed(_) => {
                let (volume, blocks) = (self.volume, self.blocks);
                let number = map.put_of_leader(VolumesChange::Size { volume, blocks });
                self.stage = Stage::Recorded(number);
                self.advance(map)
            }
            Stage::Recorded(number) => {
                if !map.is_stable(Ring::LEADER, *number) {
                    return Progress::Wait(Wait::Records { ring: Ring::LEADER, number: *number });
                }
                // A reserved volume needed its unmapped tail until now: an earlier crash restores the previous size. A
                // recount may have begun earlier, but all cores hold writes, so none has taken a cluster since then.
                map.needs.reference_ended();
                map.needs.begin_recount();
                map.release_writes();
                Progress::Finished(Ok(Done::Done))
            }
            Stage::Failing(upto, _) if !map.are_stable(upto) => Progress::Wait(map.wait_for(upto)),
            Stage::Failing(_, error) => {
                let error = *error;
                map.release_writes();
                Progress::Finished(Err(error))
            }
        }
    }

    /// Returns the progress that ends the operation, or makes it wait, before it holds writes.
    fn check(&self, map: &mut MapState) -> Result<(), Progress> {
        let fail = |kind: ErrorKind| Err(Progress::Finished(Err(kind.of(self.volume))));
        let known = map.writable(self.volume).map_err(|error| Progress::Finished(Err(error)))?;
        let (end, seed) = (known.blocks, known.seed);
        if end < self.blocks {
            return fail(ErrorKind::OutOfRange);
        }
        let Some((index, blocks)) = first_part(map, self.at, end) else { return Ok(()) };
        if map.is_locked(self.volume, index) {
            return Err(Progress::Wait(Wait::Cluster { volume: self.volume, index }));
        }
        let found = map.find(self.volume, index, blocks);
        if blocks.first == 0 || !matches!(found, Found::Shared(_) | Found::SharedPartial(_)) {
            return Ok(());
        }
        match map.allocate(self.volume, map.owner(seed, index), found) {
            Allocation::Taken(cluster) => {
                map.give_back(cluster);
                Ok(())
            }
            Allocation::Refused(kind) => fail(kind),
            Allocation::Later(wait) => Err(Progress::Wait(wait)),
        }
    }

    fn end_cancelled(&mut self, map: &mut MapState, kind: ErrorKind) -> Progress {
        match &mut self.stage {
            Stage::Start => Progress::Finished(Err(kind.of(self.volume))),
            Stage::Cluster(io) if io.is_recorded() => {
                let progress = io.advance(map);
                if let Progress::Finished(_) = progress {
                    return self.give_up(map, kind.of(self.volume));
                }
                self.cancelled = Some(kind);
                progress
            }
            Stage::Cluster(_)
            | Stage::Holding
            | Stage::Older
            | Stage::Leaves
            | Stage::Freed(_)
            | Stage::Recorded(_)
            | Stage::Failing(..) => self.fail(map, kind),
        }
    }

    /// Handles a failed step: a hold, the copy of the last cluster, or a pace step.
    pub(crate) fn fail(&mut self, map: &mut MapState, kind: ErrorKind) -> Progress {
        if let Stage::Cluster(io) = &mut self.stage {
            io.fail(map, kind);
        }
        self.give_up(map, kind.of(self.volume))
    }

    /// The size does not change: a part of the tail is discarded, as the request permits. Writes continue when this is
    /// stable, because a discard that finds no cluster is answered immediately.
    fn give_up(&mut self, map: &mut MapState, error: Error) -> Progress {
        let upto = match self.stage {
            Stage::Leaves | Stage::Freed(_) => map.next_numbers(),
            Stage::Start
            | Stage::Holding
            | Stage::Older
            | Stage::Cluster(_)
            | Stage::Recorded(_)
            | Stage::Failing(..) => Vec::new(),
        };
        self.stage = Stage::Failing(upto, error);
        self.advance(map)
    }

    /// Discards the next part of the tail: blocks of one cluster, or a whole leaf. Each leaf is a step.
    fn free_next(&mut self, map: &mut MapState) -> Progress {
        let shape = map.tables.shape;
        let volume = &map.tables.volumes[&self.volume];
        let (end, seed) = (volume.blocks, volume.seed);
        let Some((index, blocks)) = first_part(map, self.at, end) else {
            self.stage = Stage::Freed(map.next_numbers());
            return self.advance(map);
        };
        let (leaf, entry) = shape.entry(index);
        if entry == 0 && blocks.first == 0 {
            let per = u64::from(shape.leaf_entries) * u64::from(shape.cluster_blocks);
            let known = volume.root.iter().enumerate().skip(leaf);
            let next = known.filter(|(_, slot)| slot.is_some()).map(|(at, _)| at).next();
            self.at = next.map_or(end, |at| (at as u64 + 1) * per);
            if let Some(at) = next {
                let (volume, ring) = (self.volume, shape.owner(seed, at));
                map.put(ring, Change::DropLeaf { volume, at: at as u32 });
            }
            return Progress::Do(Step::Pace);
        }
        self.at += u64::from(blocks.count);
        // The whole last cluster of a volume is given up, although the volume ends within it.
        let whole = Blocks { first: 0, count: shape.cluster_blocks };
        let blocks = if blocks.first == 0 { whole } else { blocks };
        let core = shape.owner(seed, leaf);
        let mut io = Io::new(IoKind::Discard, self.volume, index, blocks, core);
        io.is_of_resize = true;
        self.stage = Stage::Cluster(Box::new(io));
        self.advance(map)
    }
}

/// Returns the blocks from `at` to `end` that are in their first cluster.
fn first_part(map: &MapState, at: u64, end: u64) -> Option<(u32, Blocks)> {
    map.tables.shape.parts(at, end.saturating_sub(at)).ok()?.next()
}
