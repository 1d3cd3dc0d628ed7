//! A smaller size: the blocks beyond it are discarded first, and the size is recorded when this is stable.

use crate::blocks::Blocks;
use crate::error::{Error, ErrorKind};
use crate::ids::{Number, Ring, VolumeId};
use crate::operation::io::{Io, IoKind};
use crate::operation::snapshot::Held;
use crate::operation::{Done, Progress, Step, Wait};
use crate::record::{Change, VolumesChange};
use crate::state::MapState;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Start,
    Holding,
    Older,
    Cluster(Box<Io>),
    Leaves,
    Freed(Vec<Number>),
    Recorded(Number),
}

/// A resize that discards the tail of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resize {
    volume: VolumeId,
    blocks: u64,
    held: Held,
    /// The first block that is not discarded yet.
    at: u64,
    stage: Stage,
}

impl Resize {
    pub(crate) fn new(volume: VolumeId, blocks: u64) -> Self {
        Self { volume, blocks, held: Held::default(), at: blocks, stage: Stage::Start }
    }

    pub(crate) fn cancel(&mut self) -> bool {
        match &mut self.stage {
            Stage::Cluster(io) => io.cancel(),
            Stage::Start
            | Stage::Holding
            | Stage::Older
            | Stage::Leaves
            | Stage::Freed(_)
            | Stage::Recorded(_) => false,
        }
    }

    pub(crate) fn advance(&mut self, map: &mut MapState) -> Progress {
        match &mut self.stage {
            Stage::Start if map.is_led => Progress::Wait(Wait::Leader),
            Stage::Start if map.is_growing(self.volume) => Progress::Wait(Wait::Records),
            Stage::Start => {
                let writable = map.writable(self.volume).map(|volume| volume.blocks);
                match writable {
                    Err(error) => return Progress::Finished(Err(error)),
                    Ok(blocks) if blocks < self.blocks => {
                        return Progress::Finished(Err(ErrorKind::OutOfRange.of(self.volume)));
                    }
                    Ok(_) => {}
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
            Stage::Older if !self.held.older_are_back(map) => Progress::Wait(Wait::OlderIo),
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
                // All cores hold: nothing would end this wait.
                Progress::Wait(Wait::Space) if io.cancel() => self.advance(map),
                progress => progress,
            },
            Stage::Leaves => self.free_next(map),
            Stage::Freed(upto) if !map.are_stable(upto) => Progress::Wait(Wait::Records),
            Stage::Freed(_) => {
                let (volume, blocks) = (self.volume, self.blocks);
                let number = map.put_of_leader(VolumesChange::Size { volume, blocks });
                map.recount_needs();
                self.stage = Stage::Recorded(number);
                self.advance(map)
            }
            Stage::Recorded(number) => {
                if !map.is_stable(Ring::LEADER, *number) {
                    return Progress::Wait(Wait::Records);
                }
                map.release_writes();
                Progress::Finished(Ok(Done::Done))
            }
        }
    }

    /// Nothing is lost of the size: a part of the tail is discarded, as the request permits.
    fn give_up(&mut self, map: &mut MapState, error: Error) -> Progress {
        map.recount_needs();
        map.release_writes();
        Progress::Finished(Err(error))
    }

    /// Discards the next part of the tail: blocks of one cluster, or a whole leaf. Each leaf is a step.
    fn free_next(&mut self, map: &mut MapState) -> Progress {
        let shape = map.tables.shape;
        let volume = &map.tables.volumes[&self.volume];
        let (end, seed) = (volume.blocks, volume.seed);
        let parts = shape.parts(self.at, end.saturating_sub(self.at));
        let Some((index, blocks)) = parts.ok().and_then(|mut parts| parts.next()) else {
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
        // The last cluster of a volume is given up whole, although the volume ends within it.
        let whole = Blocks { first: 0, count: shape.cluster_blocks };
        let blocks = if blocks.first == 0 { whole } else { blocks };
        let core = shape.owner(seed, leaf);
        let mut io = Io::new(IoKind::Discard, self.volume, index, blocks, core);
        io.is_of_resize = true;
        self.stage = Stage::Cluster(Box::new(io));
        self.advance(map)
    }
}
