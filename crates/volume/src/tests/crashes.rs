//! Random histories of a pool that end with kill -9 or a power loss at any turn. After each start, every block of every
//! volume must be one that the history permits.

use std::collections::{BTreeMap, BTreeSet};

use strake_block::{Durability, Op};
use strake_raid::Level;
use strake_testkit::Chance;
use strake_units::{Lba, LbaRange, Name};
use strake_volume_map::{Error, Tail, VolumeId, VolumeKind};

use super::below::{Below, Raid};
use super::world::{World, drive, name, read_op, small, values_of, write_op};
use crate::pool::Pending;
use crate::request::{Answer, Request};

/// What a block may contain after a power loss: the last is the newest.
type Values = Vec<u64>;

/// What a read shows about a block.
#[derive(Clone, Copy)]
enum Pin {
    /// Nothing else can appear later.
    Only,
    /// Nothing newer can appear later, but a power loss may show something older.
    Newest,
}

/// What a volume may contain.
#[derive(Clone, Debug)]
struct Content {
    kind: VolumeKind,
    blocks: Vec<Values>,
}

impl Content {
    fn zero(count: u64) -> Self {
        Self { kind: VolumeKind::Writable, blocks: vec![vec![0]; count as usize] }
    }
}

/// A write or discard in progress.
struct Writing {
    token: u64,
    volume: VolumeId,
    first: u64,
    count: u64,
    /// Whether the blocks are stable when it is answered.
    is_stable: bool,
}

/// A change of whole volumes in progress.
struct Changing {
    answer: Pending<Result<Answer, Error>>,
    what: Request,
    /// Of a snapshot: what it may contain. Writes beside it may be on either side.
    copy: Option<(VolumeId, Content)>,
}

/// A flush in progress, and the blocks that it makes stable.
struct Flushing {
    token: u64,
    upto: BTreeMap<(VolumeId, u64), u64>,
}

struct History<B> {
    world: World<B>,
    chance: Chance,
    volumes: BTreeMap<VolumeId, Content>,
    /// The names of volumes, as far as they were reported.
    names: BTreeMap<VolumeId, Name>,
    /// Blocks with a write in progress: they are left alone by others.
    busy: BTreeSet<(VolumeId, u64)>,
    writing: Vec<Writing>,
    flushing: Vec<Flushing>,
    changing: Option<Changing>,
    next_value: u64,
    next_name: u64,
    seed: u64,
}

const BLOCKS_MAX: u64 = 300;
const CLUSTERS: u32 = 24;

impl<B: Below> History<B> {
    fn new(device: B, seed: u64) -> Self {
        let layout = small(&*device.device(), CLUSTERS, 24);
        let world = World::create(device, &layout);
        Self {
            world,
            chance: Chance::new(seed),
            volumes: BTreeMap::new(),
            names: BTreeMap::new(),
            busy: BTreeSet::new(),
            writing: Vec::new(),
            flushing: Vec::new(),
            changing: None,
            next_value: 1,
            next_name: 1,
            seed,
        }
    }

    fn pick(&mut self, kind: Option<VolumeKind>) -> Option<VolumeId> {
        let is_of = |content: &Content| kind.is_none_or(|kind| content.kind == kind);
        let all = self.volumes.iter().filter(|(_, content)| is_of(content));
        let all: Vec<_> = all.map(|(id, _)| *id).collect();
        (!all.is_empty()).then(|| self.chance.pick(&all))
    }

    /// Begins a write or discard of blocks that are not busy.
    fn begin_write(&mut self) {
        let Some(volume) = self.pick(Some(VolumeKind::Writable)) else { return };
        let size = self.volumes[&volume].blocks.len();
        let first = self.chance.below(size) as u64;
        let most = (size as u64 - first).min(if self.chance.one_in(8) { 130 } else { 9 });
        let count = 1 + self.chance.below(most as usize) as u64;
        let blocks: Vec<_> = (first..first + count).map(|block| (volume, block)).collect();
        if self.changes_size(volume) || blocks.iter().any(|block| self.busy.contains(block)) {
            return;
        }
        let is_discard = self.chance.one_in(4);
        let values: Vec<u64> = (0..count)
            .map(|_| {
                self.next_value += 1;
                if is_discard { 0 } else { self.next_value }
            })
            .collect();
        let is_fua = self.chance.one_in(3);
        let durability = if is_fua { Durability::Fua } else { Durability::Normal };
        let range = LbaRange::new(Lba(first), count);
        let op = if is_discard {
            Op::Deallocate { range }
        } else {
            write_op(first, &values, durability)
        };
        let content = self.volumes.get_mut(&volume).expect("it was picked");
        for (block, value) in (first..).zip(&values) {
            content.blocks[block as usize].push(*value);
        }
        if let Some((source, copy)) = self.changing.as_mut().and_then(|c| c.copy.as_mut())
            && *source == volume
        {
            for (block, value) in (first..).zip(&values) {
                copy.blocks[block as usize].push(*value);
            }
        }
        self.busy.extend(blocks);
        let token = self.world.submit(volume, op);
        let is_stable = is_fua || is_discard;
        self.writing.push(Writing { token, volume, first, count, is_stable });
    }

    /// True while an operation changes the size or the whole content of a volume.
    fn changes_size(&self, volume: VolumeId) -> bool {
        let what = self.changing.as_ref().map(|changing| &changing.what);
        match what {
            Some(
                Request::Resize { volume: of, .. }
                | Request::Rollback { volume: of, .. }
                | Request::Delete { volume: of },
            ) => *of == volume,
            _ => false,
        }
    }

    fn begin_flush(&mut self) {
        let Some(volume) = self.pick(None) else { return };
        if self.changes_size(volume) {
            return;
        }
        let mut upto = BTreeMap::new();
        for (id, content) in &self.volumes {
            for (block, values) in (0..).zip(&content.blocks) {
                if values.len() > 1 && !self.busy.contains(&(*id, block)) {
                    upto.insert((*id, block), *values.last().expect("a value"));
                }
            }
        }
        let token = self.world.submit(volume, Op::Flush);
        self.flushing.push(Flushing { token, upto });
    }

    /// Begins a change of whole volumes, one at a time. Changes of size and content have no writes beside them here.
    fn begin_change(&mut self) {
        if self.changing.is_some() {
            return;
        }
        let text = format!("v{}", self.next_name);
        self.next_name += 1;
        let writable = self.pick(Some(VolumeKind::Writable));
        let snapshot = self.pick(Some(VolumeKind::Snapshot));
        let is_quiet =
            |this: &Self, id: VolumeId| !this.busy.iter().any(|(volume, _)| *volume == id);
        let what = match (self.chance.below(9), writable, snapshot) {
            (0 | 1, ..) if self.volumes.len() < 6 => {
                let blocks = 1 + self.chance.below(BLOCKS_MAX as usize) as u64;
                let reserved = self.chance.one_in(5);
                let policy = crate::SpacePolicy { reserved, quota: None };
                Request::Create { name: name(&text), blocks, policy }
            }
            (2 | 3, Some(volume), _) if self.volumes.len() < 6 => {
                Request::Snapshot { volumes: vec![(volume, name(&text))] }
            }
            (4, _, Some(snapshot)) if self.volumes.len() < 6 => {
                Request::Clone { snapshot, name: name(&text) }
            }
            (5, Some(volume), Some(snapshot)) if is_quiet(self, volume) => {
                Request::Rollback { volume, snapshot }
            }
            (6, Some(volume), _) if is_quiet(self, volume) => {
                let blocks = 1 + self.chance.below(BLOCKS_MAX as usize) as u64;
                Request::Resize { volume, blocks, tail: Tail::Discard }
            }
            (7, ..) => {
                let Some(volume) = self.pick(None) else { return };
                if !is_quiet(self, volume) {
                    return;
                }
                Request::Delete { volume }
            }
            (8, ..) => {
                let Some(volume) = self.pick(None) else { return };
                Request::Rename { volume, name: name(&text) }
            }
            _ => Request::Checkpoint,
        };
        let copy = match &what {
            Request::Snapshot { volumes } => {
                let source = volumes[0].0;
                Some((
                    source,
                    Content { kind: VolumeKind::Snapshot, ..self.volumes[&source].clone() },
                ))
            }
            _ => None,
        };
        let answer = self.world.send(what.clone());
        self.changing = Some(Changing { answer, what, copy });
    }

    /// Takes the answers that have arrived.
    fn take_answers(&mut self) {
        for writing in std::mem::take(&mut self.writing) {
            let Some(done) = self.world.take(writing.token) else {
                self.writing.push(writing);
                continue;
            };
            let Writing { volume, first, count, is_stable, .. } = writing;
            let is_written = done.result.is_ok();
            for block in first..first + count {
                self.busy.remove(&(volume, block));
                let Some(content) = self.volumes.get_mut(&volume) else { continue };
                let values = &mut content.blocks[block as usize];
                if is_written && is_stable {
                    *values = vec![*values.last().expect("a value")];
                }
            }
            if !is_written {
                // A failed write may have been executed in part, but what it has not changed never changes later.
                let read = self.read(volume, first, count);
                self.pin(volume, first, &read, Pin::Newest);
            }
        }
        for flushing in std::mem::take(&mut self.flushing) {
            let Some(done) = self.world.take(flushing.token) else {
                self.flushing.push(flushing);
                continue;
            };
            if done.result.is_err() {
                // The volume of the flush was deleted in between.
                continue;
            }
            for ((volume, block), value) in flushing.upto {
                let Some(content) = self.volumes.get_mut(&volume) else { continue };
                let Some(values) = content.blocks.get_mut(block as usize) else { continue };
                if let Some(at) = values.iter().position(|known| *known == value) {
                    values.drain(..at);
                }
            }
        }
        if let Some(changing) = self.changing.take() {
            match changing.answer.poll().expect("the pool runs") {
                Some(answer) => self.changed(changing.what, changing.copy, answer),
                None => self.changing = Some(changing),
            }
        }
    }

    fn changed(
        &mut self,
        what: Request,
        copy: Option<(VolumeId, Content)>,
        answer: Result<Answer, Error>,
    ) {
        let what = &what;
        let answer = match (what, answer) {
            (_, Ok(answer)) => answer,
            (Request::Resize { volume, blocks, .. }, Err(_)) => {
                // A part of the tail may have been discarded.
                let Some(content) = self.volumes.get_mut(volume) else { return };
                content.blocks.iter_mut().skip(*blocks as usize).for_each(|values| values.push(0));
                return self.pin_all(*volume, Pin::Newest);
            }
            (_, Err(_)) => return,
        };
        match (what, answer) {
            (Request::Create { blocks, .. }, Answer::Created(made)) => {
                self.volumes.insert(made[0], Content::zero(*blocks));
            }
            (Request::Snapshot { .. }, Answer::Created(made)) => {
                self.volumes.insert(made[0], copy.expect("a snapshot has a source").1);
                self.pin_all(made[0], Pin::Only);
            }
            (Request::Clone { snapshot, .. }, Answer::Created(made)) => {
                let mut copy = self.volumes[snapshot].clone();
                copy.kind = VolumeKind::Writable;
                self.volumes.insert(made[0], copy);
            }
            (Request::Rollback { volume, snapshot }, Answer::Done) => {
                let blocks = self.volumes[snapshot].blocks.clone();
                self.volumes.insert(*volume, Content { kind: VolumeKind::Writable, blocks });
            }
            (Request::Resize { volume, blocks, .. }, Answer::Done) => {
                let content = self.volumes.get_mut(volume).expect("it exists");
                content.blocks.resize(*blocks as usize, vec![0]);
            }
            (Request::Delete { volume }, Answer::Done) => drop(self.volumes.remove(volume)),
            (Request::Rename { volume, name }, Answer::Done) => {
                self.names.insert(*volume, name.clone());
            }
            (Request::Checkpoint, Answer::Done) => {}
            (what, answer) => panic!("{what:?} gave {answer:?}"),
        }
    }

    fn read(&mut self, volume: VolumeId, first: u64, count: u64) -> Vec<u64> {
        let op = self.world.run(volume, read_op(first, count));
        values_of(op.unwrap_or_else(|error| panic!("volume {volume} is readable: {error}")))
    }

    /// Checks blocks that were read.
    fn pin(&mut self, volume: VolumeId, first: u64, read: &[u64], pin: Pin) {
        let Some(content) = self.volumes.get_mut(&volume) else { return };
        for (block, value) in (first..).zip(read) {
            let values = &mut content.blocks[block as usize];
            assert!(
                values.contains(value),
                "seed {}: block {block} of volume {volume} has {value}, not one of {values:?}",
                self.seed
            );
            match pin {
                Pin::Only => *values = vec![*value],
                Pin::Newest => {
                    let at = values.iter().rposition(|known| known == value);
                    values.truncate(at.map_or(0, |at| at + 1));
                }
            }
        }
    }

    fn pin_all(&mut self, volume: VolumeId, pin: Pin) {
        let count = self.volumes[&volume].blocks.len() as u64;
        let read = self.read(volume, 0, count);
        self.pin(volume, 0, &read, pin);
    }

    /// Reads blocks without a write in progress: they have their newest value.
    fn check_newest(&mut self) {
        let Some(volume) = self.pick(None) else { return };
        if self.changes_size(volume) {
            return;
        }
        let size = self.volumes[&volume].blocks.len();
        let first = self.chance.below(size) as u64;
        let count = 1 + self.chance.below((size as u64 - first).min(70) as usize) as u64;
        let before = self.busy.clone();
        let read = self.read(volume, first, count);
        for (block, value) in (first..).zip(&read) {
            let values = &self.volumes[&volume].blocks[block as usize];
            let is_busy = before.contains(&(volume, block));
            let is_right =
                if is_busy { values.contains(value) } else { values.last() == Some(value) };
            assert!(
                is_right,
                "seed {}: block {block} of volume {volume} has {value}, not {values:?}",
                self.seed
            );
        }
    }

    fn step(&mut self) {
        match self.chance.below(16) {
            0..8 if self.writing.len() < 12 => self.begin_write(),
            8 => self.begin_flush(),
            9 | 10 => self.begin_change(),
            11 => self.check_newest(),
            _ => {}
        }
        self.world.turn();
        self.take_answers();
    }

    /// Ends the run at this turn, and checks what the next start finds.
    fn crash(mut self, is_power_loss: bool) -> Self {
        let changing = self.changing.take().map(|changing| (changing.what, changing.copy));
        let seed = self.chance.bits();
        if !is_power_loss {
            // What was answered is in the caches: only writes in progress may be missing.
            for (id, content) in &mut self.volumes {
                for (block, values) in (0..).zip(&mut content.blocks) {
                    if !self.busy.contains(&(*id, block)) {
                        *values = vec![*values.last().expect("a value")];
                    }
                }
            }
        }
        self.world.end();
        if is_power_loss {
            self.world.device.power_cut(seed);
        } else if !self.writing.is_empty() {
            self.world.device.settle();
        }
        let world = self.world.start();
        self.world = world.unwrap_or_else(|error| panic!("seed {}: {error}", self.seed));
        (self.writing, self.flushing) = (Vec::new(), Vec::new());
        self.busy.clear();
        self.find_changed(changing);
        for volume in self.volumes.keys().copied().collect::<Vec<_>>() {
            self.pin_all(volume, Pin::Only);
        }
        self
    }

    /// Compares the volumes after a start with those before, except for the change that was in progress.
    fn find_changed(&mut self, changing: Option<(Request, Option<(VolumeId, Content)>)>) {
        let (changing, copy) = changing.unzip();
        let (changing, copy) = (changing.as_ref(), copy.flatten());
        let rows = self.world.status().volumes;
        for row in &rows {
            let renamed = match changing {
                Some(Request::Rename { volume, name }) if *volume == row.id => Some(name),
                _ => None,
            };
            let before = self.names.insert(row.id, row.name.clone());
            let is_known = before.is_none_or(|name| name == row.name);
            let is_new = renamed == Some(&row.name);
            assert!(is_known || is_new, "seed {}: {} has a wrong name", self.seed, row.id);
        }
        let known: BTreeSet<_> = self.volumes.keys().copied().collect();
        let found: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
        for gone in known.difference(&found) {
            let is_deleted = matches!(changing, Some(Request::Delete { volume }) if volume == gone);
            assert!(is_deleted, "seed {}: volume {gone} is lost", self.seed);
            self.volumes.remove(gone);
        }
        for new in found.difference(&known) {
            let content = match changing {
                Some(Request::Create { blocks, .. }) => Content::zero(*blocks),
                Some(Request::Snapshot { .. }) => {
                    copy.as_ref().expect("a snapshot has a source").1.clone()
                }
                Some(Request::Clone { snapshot, .. }) => {
                    let mut copy = self.volumes[snapshot].clone();
                    copy.kind = VolumeKind::Writable;
                    copy
                }
                other => panic!("seed {}: volume {new} appeared during {other:?}", self.seed),
            };
            self.volumes.insert(*new, content);
        }
        if let Some(Request::Resize { volume, blocks, .. }) = changing {
            let size = rows.iter().find(|row| row.id == *volume).map(|row| row.blocks);
            let content = self.volumes.get_mut(volume).expect("it exists");
            if size == Some(*blocks) {
                content.blocks.resize(*blocks as usize, vec![0]);
            } else {
                // A part of the tail may have been discarded.
                content.blocks.iter_mut().skip(*blocks as usize).for_each(|values| values.push(0));
            }
        }
        if let Some(Request::Rollback { volume, snapshot }) = changing {
            let count = self.volumes[volume].blocks.len() as u64;
            let read = self.read(*volume, 0, count);
            let new = self.volumes[snapshot].blocks.clone();
            let is_new = new.len() == read.len()
                && new.iter().zip(&read).all(|(values, value)| values.contains(value));
            if is_new {
                self.volumes.insert(*volume, Content { kind: VolumeKind::Writable, blocks: new });
            }
        }
    }

    /// Ends everything, deletes all volumes, and checks that all space returns.
    fn end(mut self) {
        for _ in 0..100_000 {
            self.world.turn();
            self.take_answers();
            if self.writing.is_empty() && self.flushing.is_empty() && self.changing.is_none() {
                break;
            }
        }
        let space = self.world.settle().space;
        assert_eq!(space.free + space.in_use, u64::from(CLUSTERS), "seed {}", self.seed);
        // Clones and snapshots in any order.
        for volume in self.volumes.keys().copied().collect::<Vec<_>>() {
            self.world.ask(Request::Delete { volume }).expect("it is deleted");
        }
        assert_eq!(self.world.settle().space.in_use, 0, "seed {}: space is lost", self.seed);
    }
}

/// Runs a history with four crashes.
fn run<B: Below>(device: B, seed: u64) {
    let mut history = History::new(device, seed);
    for round in 0..4 {
        // Later, a resync after a crash may be in progress: the array then refuses to start, as it must.
        if round == 0 && seed % 4 < 3 {
            history.world.device.lose_member();
        }
        let steps = 20 + history.chance.below(400);
        for _ in 0..steps {
            history.step();
        }
        let is_power_loss = history.chance.one_in(2);
        history = history.crash(is_power_loss);
    }
    history.end();
}

/// `STRAKE_VOLUME_SEEDS=FIRST..LAST` selects other seeds.
fn seeds(usual: u64) -> std::ops::Range<u64> {
    let seeds = std::env::var("STRAKE_VOLUME_SEEDS").ok();
    let range = seeds.as_deref().and_then(|text| text.split_once(".."));
    let range = range.and_then(|(first, last)| Some(first.parse().ok()?..last.parse().ok()?));
    range.unwrap_or(0..usual)
}

#[test]
fn every_block_is_permitted_after_every_crash() {
    seeds(200).for_each(|seed| run(drive(u64::from(CLUSTERS), seed), seed));
}

#[test]
fn every_block_is_permitted_after_every_crash_of_an_array_that_loses_a_member() {
    for seed in seeds(24) {
        let (level, members) =
            [(Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid1, 2)][seed as usize % 3];
        run(Raid::new(level, members, 80 << 20, seed), seed);
    }
}
