//! A driver with modelled drives, which carries steps out one block at a time and crashes anywhere.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};

use super::oracle::{Oracle, Presence, Set};
use crate::{
    Blocks, ClusterId, Done, Error, Image, OperationId, Part, Progress, Record, Request, Ring,
    Shape, Source, SpacePolicy, Stability, Step, Tail, VolumeId, VolumeKind, VolumeMap, Wait,
    encode_record, scan_log,
};

/// An operation of a test.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// Volume, first block, number of blocks, core, FUA.
    Write(&'static str, u64, u16, u8, bool),
    Discard(&'static str, u64, u16),
    Read(String, u64),
    Fill(String, u32),
    Allocate(&'static str, u32),
    Create(&'static str, u64),
    Snap(Vec<(String, String)>),
    Clone(String, String),
    Delete(String),
    Sweep(VolumeId),
    Roll(String, String),
    Size(String, u64),
    Policy(String, SpacePolicy),
    Flush,
    Checkpoint,
    /// One of these, of a volume whose name is not constant.
    WriteTo(String, u64, u16, u8, bool),
    DiscardOf(String, u64, u16),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    /// Blocks land one after the other.
    Land {
        blocks: VecDeque<(ClusterId, u16, i64)>,
        is_stable: bool,
    },
    /// Parts are read, then land.
    Copy {
        parts: Vec<Part>,
        to: ClusterId,
        data: Option<Blocks>,
    },
    Read {
        parts: Vec<Part>,
        kept: Set,
    },
    Flush(Set),
    Root(u8, Vec<u8>),
    Nothing,
}

#[derive(Clone, Debug, Hash)]
pub(crate) struct Task {
    pub(crate) op: usize,
    pub(crate) what: Op,
    /// Operations that must have been answered before.
    pub(crate) after: Set,
    operation: Option<OperationId>,
    is_begun: bool,
    work: Option<Work>,
    pub(crate) wait: Option<Wait>,
    kept: Set,
}

/// A pool, its drives, its log, and what was promised.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) map: VolumeMap,
    pub(crate) disk: BTreeMap<(u32, u16), i64>,
    pub(crate) cache: BTreeMap<(u32, u16), Vec<i64>>,
    pub(crate) logs: Vec<Vec<Record>>,
    pub(crate) roots: [Option<Vec<u8>>; 2],
    pub(crate) tasks: Vec<Task>,
    pub(crate) oracle: Oracle,
    pub(crate) kept: Set,
    pub(crate) failed: Vec<Error>,
}

/// A crash: records of each ring that were stable, cached blocks that reached the drives, whether the newest root is
/// readable, and whether the caches live on.
#[derive(Clone, Debug)]
pub(crate) struct Crash {
    pub(crate) upto: Vec<usize>,
    pub(crate) caches: Vec<usize>,
    pub(crate) is_newest_lost: bool,
    pub(crate) is_kill: bool,
}

fn blocks_of(op: &Op, per: u64) -> Option<(&str, u64, u64)> {
    let _ = per;
    match op {
        Op::Write(volume, first, count, ..) | Op::Discard(volume, first, count) => {
            Some((volume, *first, u64::from(*count)))
        }
        Op::WriteTo(volume, first, count, ..) | Op::DiscardOf(volume, first, count) => {
            Some((volume, *first, u64::from(*count)))
        }
        _ => None,
    }
}

impl World {
    pub(crate) fn new(shape: Shape) -> Self {
        let blocks = |cluster| (0..shape.cluster_blocks).map(move |block| (cluster, block));
        let stranger =
            |(cluster, block): (u32, u16)| -i64::from(cluster * 1000) - i64::from(block) - 1;
        let disk = (0..shape.clusters).flat_map(blocks).map(|at| (at, stranger(at))).collect();
        let mut world = Self {
            map: VolumeMap::create(shape).expect("the shape is right"),
            disk,
            cache: BTreeMap::new(),
            logs: vec![Vec::new(); usize::from(shape.rings)],
            roots: [None, None],
            tasks: Vec::new(),
            oracle: Oracle::default(),
            kept: 0,
            failed: Vec::new(),
        };
        world.write_roots();
        world
    }

    /// Writes roots until the map serves.
    pub(crate) fn write_roots(&mut self) {
        while self.map.roots_due > 0 {
            self.run(0, Op::Checkpoint);
        }
    }

    pub(crate) fn per(&self) -> u64 {
        u64::from(self.map.shape().cluster_blocks)
    }

    pub(crate) fn id(&self, name: &str) -> Option<VolumeId> {
        self.map.volumes().find(|(_, volume)| volume.name.as_str() == name).map(|(id, _)| id)
    }

    fn get(&self, cluster: ClusterId, block: u16) -> i64 {
        let at = (cluster.0, block);
        self.cache.get(&at).and_then(|writes| writes.last()).copied().unwrap_or(self.disk[&at])
    }

    fn part_values(&self, part: &Part) -> Vec<i64> {
        let value = |block| match part.source {
            Source::Zeroes => 0,
            Source::Cluster(cluster) => self.get(cluster, block),
        };
        part.blocks.iter().map(value).collect()
    }

    pub(crate) fn value(&self, id: VolumeId, block: u64) -> i64 {
        let at = Blocks { first: (block % self.per()) as u16, count: 1 };
        let places = self.map.places(id, (block / self.per()) as u32, at);
        let part = places.expect("a volume").next().expect("a part");
        self.part_values(&part)[0]
    }

    pub(crate) fn content(&self, id: VolumeId) -> Vec<i64> {
        let blocks = self.map.volume(id).map_or(0, |volume| volume.blocks);
        (0..blocks).map(|block| self.value(id, block)).collect()
    }

    pub(crate) fn flush(&mut self) {
        for (at, writes) in std::mem::take(&mut self.cache) {
            self.disk.insert(at, *writes.last().expect("a cached write"));
        }
    }

    // -- tasks ----------------------------------------------------------------------------------------------------

    pub(crate) fn add(&mut self, op: usize, what: Op, after: Set) {
        let task = Task {
            op,
            what,
            after,
            operation: None,
            is_begun: false,
            work: None,
            wait: None,
            kept: 0,
        };
        self.tasks.push(task);
        let last = self.tasks.len() - 1;
        if after == 0 && !matches!(self.tasks[last].what, Op::Flush) {
            self.open_task(last);
        }
    }

    /// Runs an operation until nothing moves.
    pub(crate) fn run(&mut self, op: usize, what: Op) {
        self.add(op, what, 0);
        self.drain();
    }

    pub(crate) fn drain(&mut self) {
        loop {
            let moved = (0..self.moves()).any(|at| self.step(at));
            if !moved && !self.give_up_space() {
                break;
            }
        }
        assert!(self.tasks.is_empty(), "stuck: {:?}", self.tasks);
    }

    /// Operations that wait for space fail. False if none does.
    pub(crate) fn give_up_space(&mut self) -> bool {
        let waiting = self
            .tasks
            .iter()
            .filter(|task| matches!(task.wait, Some(Wait::Space | Wait::Checkpoint)));
        let ids: Vec<OperationId> = waiting.filter_map(|task| task.operation).collect();
        !ids.is_empty() && ids.into_iter().all(|id| self.map.cancel(id))
    }

    /// Tasks and rings: what can move next.
    pub(crate) fn moves(&self) -> usize {
        self.tasks.len() + self.map.rings.len()
    }

    /// One step of a task, or of a ring. False if nothing changed.
    ///
    /// The log is trimmed as soon as the map permits it.
    pub(crate) fn step(&mut self, at: usize) -> bool {
        let has_moved = self.step_one(at);
        self.trim();
        has_moved
    }

    fn step_one(&mut self, at: usize) -> bool {
        if at < self.tasks.len() {
            self.step_task(at)
        } else {
            self.step_ring(at - self.tasks.len())
        }
    }

    fn step_ring(&mut self, ring: usize) -> bool {
        let ring = Ring(ring as u8);
        let records: Vec<Record> = self.map.records(ring).cloned().collect();
        let Some(last) = records.last().map(|record| record.number) else { return false };
        self.logs[ring.at()].extend(records);
        self.map.stable(ring, last);
        true
    }

    fn request(&self, what: &Op) -> Option<Request> {
        let per = self.per();
        let at = |first: u64, count: u16| {
            ((first / per) as u32, Blocks { first: (first % per) as u16, count })
        };
        let name = |name: &str| name.parse().expect("a name");
        Some(match what {
            Op::Write(..) | Op::WriteTo(..) => {
                let (volume, first, count) = blocks_of(what, per).expect("blocks");
                let (Op::Write(_, _, _, core, fua) | Op::WriteTo(_, _, _, core, fua)) = what else {
                    unreachable!("a write")
                };
                let (index, blocks) = at(first, count as u16);
                let stability = if *fua { Stability::Stable } else { Stability::Cached };
                let core = Ring(*core % self.map.shape().rings);
                Request::Write { volume: self.id(volume)?, index, blocks, stability, core }
            }
            Op::Discard(..) | Op::DiscardOf(..) => {
                let (volume, first, count) = blocks_of(what, per).expect("blocks");
                let (index, blocks) = at(first, count as u16);
                Request::Discard { volume: self.id(volume)?, index, blocks, core: Ring(0) }
            }
            Op::Read(volume, block) => {
                let (index, blocks) = at(*block, 1);
                Request::Read { volume: self.id(volume)?, index, blocks }
            }
            Op::Fill(volume, index) => Request::Fill { volume: self.id(volume)?, index: *index },
            Op::Allocate(volume, index) => {
                Request::Allocate { volume: self.id(volume)?, index: *index }
            }
            Op::Create(volume, blocks) => {
                let policy = SpacePolicy::default();
                Request::Create { name: name(volume), blocks: *blocks, policy }
            }
            Op::Snap(pairs) => {
                let pairs =
                    pairs.iter().map(|(volume, snapshot)| Some((self.id(volume)?, name(snapshot))));
                Request::Snapshot { volumes: pairs.collect::<Option<_>>()? }
            }
            Op::Clone(snapshot, copy) => {
                Request::Clone { snapshot: self.id(snapshot)?, name: name(copy) }
            }
            Op::Delete(volume) => Request::Delete { volume: self.id(volume)? },
            Op::Sweep(volume) => Request::Sweep { volume: *volume },
            Op::Roll(volume, snapshot) => {
                Request::Rollback { volume: self.id(volume)?, snapshot: self.id(snapshot)? }
            }
            Op::Size(volume, blocks) => {
                let volume = self.id(volume)?;
                Request::Resize { volume, blocks: *blocks, tail: Tail::Discard }
            }
            Op::Policy(volume, policy) => {
                Request::SetPolicy { volume: self.id(volume)?, policy: *policy }
            }
            Op::Checkpoint => Request::Checkpoint,
            Op::Flush => return None,
        })
    }

    fn open_task(&mut self, at: usize) {
        let request = self.request(&self.tasks[at].what);
        let begun = request.map(|request| self.map.begin(request));
        match begun {
            Some(Ok(id)) => self.tasks[at].operation = Some(id),
            Some(Err(error)) => self.failed.push(error),
            None => {}
        }
    }

    /// The oracle learns what was asked for.
    fn asked(&mut self, at: usize) {
        let Task { op, what, .. } = self.tasks[at].clone();
        let acked = self.oracle.acked;
        self.tasks[at].kept = acked;
        let per = self.per();
        if let Some((volume, first, count)) = blocks_of(&what, per) {
            let is_write = matches!(what, Op::Write(..) | Op::WriteTo(..));
            let volume = volume.to_owned();
            for block in first..first + count {
                let token = if is_write { 1000 * op as i64 + block as i64 } else { 0 };
                self.oracle.wrote(op, &volume, block, token);
            }
        }
        match what {
            Op::Create(volume, size) => {
                self.oracle.must.insert(volume.into(), Presence::May);
                self.oracle.sizes.insert(volume.into(), [size].into());
            }
            Op::Snap(pairs) => {
                for (volume, snapshot) in pairs {
                    self.oracle.must.insert(snapshot.clone(), Presence::May);
                    self.oracle.asked.insert(snapshot, (volume, acked));
                }
            }
            Op::Clone(snapshot, copy) => {
                let Some(fixed) = self.oracle.fixed.get(&snapshot).cloned() else { return };
                self.oracle.must.insert(copy.clone(), Presence::May);
                self.oracle.sizes.insert(copy.clone(), [fixed.len() as u64].into());
                let initial = fixed.into_iter();
                self.oracle.initial.extend(initial.map(|(at, token)| ((copy.clone(), at), token)));
            }
            Op::Delete(volume) => {
                self.oracle.must.insert(volume, Presence::May);
            }
            Op::Roll(volume, snapshot) => {
                let Some(fixed) = self.oracle.fixed.get(&snapshot).cloned() else { return };
                for (block, token) in fixed {
                    self.oracle.wrote(op, &volume, block, token);
                }
                self.oracle.rolls.entry(volume).or_default().push(op);
            }
            Op::Size(volume, size) => {
                let Some(id) = self.id(&volume) else { return };
                let was = self.map.volume(id).map_or(0, |volume| volume.blocks);
                self.oracle.sizes.insert(volume.clone(), [was, size].into());
                for block in size..was {
                    self.oracle.wrote(op, &volume, block, 0);
                }
                for block in was..size {
                    self.oracle.history.remove(&(volume.clone(), block));
                    self.oracle.initial.insert((volume.clone(), block), 0);
                }
            }
            _ => {}
        }
    }

    fn step_task(&mut self, at: usize) -> bool {
        let after = self.tasks[at].after;
        if self.oracle.acked & after != after {
            return false;
        }
        if self.tasks[at].operation.is_none() && !self.tasks[at].is_begun {
            self.open_task(at);
        }
        if !self.tasks[at].is_begun {
            self.tasks[at].is_begun = true;
            self.asked(at);
            if matches!(self.tasks[at].what, Op::Flush) {
                self.tasks[at].work = Some(Work::Flush(self.oracle.acked));
                return true;
            }
        }
        if self.tasks[at].work.is_some() {
            self.work(at);
            return true;
        }
        let Some(id) = self.tasks[at].operation else {
            self.finish(at, Err(()));
            return true;
        };
        let before = self.map.clone();
        match self.map.advance(id) {
            Progress::Do(step) => {
                self.tasks[at].wait = None;
                self.tasks[at].work = Some(self.work_of(at, step));
                true
            }
            Progress::Wait(wait) => {
                let is_new = self.tasks[at].wait != Some(wait);
                self.tasks[at].wait = Some(wait);
                is_new || self.map != before
            }
            Progress::Finished(result) => {
                if let Err(error) = result {
                    self.failed.push(error);
                }
                self.finish(at, result.map_err(|_| ()));
                true
            }
        }
    }

    fn work_of(&self, at: usize, step: Step) -> Work {
        let op = self.tasks[at].op as i64;
        match step {
            Step::Write { cluster, blocks, stability } => {
                let (_, first, _) = blocks_of(&self.tasks[at].what, self.per()).expect("a write");
                let token = |block: u16| 1000 * op + first as i64 + i64::from(block - blocks.first);
                let landing = blocks.iter().map(|block| (cluster, block, token(block)));
                let is_stable = stability == Stability::Stable;
                Work::Land { blocks: landing.collect(), is_stable }
            }
            Step::Copy { parts, to, data } => Work::Copy { parts, to, data },
            Step::Read { parts } => Work::Read { parts, kept: self.tasks[at].kept },
            Step::Flush => Work::Flush(0),
            Step::Hold { .. } | Step::Pace => Work::Nothing,
            Step::WriteRoot { place, bytes } => Work::Root(place, bytes),
        }
    }

    fn work(&mut self, at: usize) {
        let work = self.tasks[at].work.take().expect("a step was released");
        match work {
            Work::Land { mut blocks, is_stable } => {
                if let Some((cluster, block, token)) = blocks.pop_front() {
                    self.land((cluster.0, block), token, is_stable);
                }
                if !blocks.is_empty() {
                    self.tasks[at].work = Some(Work::Land { blocks, is_stable });
                    return;
                }
            }
            Work::Copy { parts, to, data } => {
                let mut blocks = VecDeque::new();
                for part in parts {
                    let values = self.part_values(&part);
                    blocks.extend(part.blocks.iter().zip(values).map(|(block, v)| (to, block, v)));
                }
                if let Some(data) = data {
                    let (_, first, _) = blocks_of(&self.tasks[at].what, self.per()).expect("data");
                    let token = 1000 * self.tasks[at].op as i64 + first as i64;
                    let new = data.iter().zip(token..).map(|(block, token)| (to, block, token));
                    blocks.extend(new);
                }
                self.tasks[at].work = Some(Work::Land { blocks, is_stable: true });
                return;
            }
            Work::Read { parts, kept } => {
                let got: Vec<i64> = parts.iter().flat_map(|part| self.part_values(part)).collect();
                self.check_read(at, &got, kept);
            }
            Work::Flush(covers) => {
                self.flush();
                self.oracle.durable |= covers;
            }
            Work::Root(place, bytes) => {
                self.roots[usize::from(place)] = Some(bytes);
            }
            Work::Nothing => {}
        }
        match self.tasks[at].operation {
            Some(id) => self.map.completed(id),
            None => self.finish(at, Ok(Done::Done)),
        }
    }

    fn land(&mut self, at: (u32, u16), token: i64, is_stable: bool) {
        if is_stable {
            self.disk.insert(at, token);
            self.cache.remove(&at);
        } else {
            self.cache.entry(at).or_default().push(token);
        }
    }

    fn check_read(&self, at: usize, got: &[i64], kept: Set) {
        let Op::Read(volume, block) = &self.tasks[at].what else { return };
        let fixed = self.oracle.fixed.get(volume).map(|fixed| [fixed[block]].into());
        let legal = fixed.unwrap_or_else(|| self.oracle.legal(volume, *block, kept, None));
        assert!(legal.contains(&got[0]), "a read of {volume}.{block} is {got:?}, may be {legal:?}");
    }

    fn finish(&mut self, at: usize, result: Result<Done, ()>) {
        let task = self.tasks.remove(at);
        let ok = result.is_ok();
        let mut is_durable = true;
        match &task.what {
            Op::Write(_, _, _, _, fua) | Op::WriteTo(_, _, _, _, fua) => is_durable = *fua,
            Op::Discard(..) | Op::DiscardOf(..) | Op::Read(..) => is_durable = false,
            Op::Flush => is_durable = false,
            Op::Create(volume, _) if ok => {
                self.oracle.must.insert((*volume).into(), Presence::Must);
            }
            Op::Clone(_, copy) if ok => {
                self.oracle.must.insert(copy.clone(), Presence::Must);
            }
            Op::Snap(pairs) if ok => self.report(pairs),
            Op::Delete(volume) if ok => {
                self.oracle.must.insert(volume.clone(), Presence::Gone);
            }
            Op::Delete(volume) => {
                if self.id(volume).is_some() {
                    self.oracle.must.insert(volume.clone(), Presence::Must);
                }
            }
            Op::Size(volume, _) => {
                if let Some(id) = self.id(volume) {
                    let now = self.map.volume(id).map_or(0, |volume| volume.blocks);
                    self.oracle.sizes.insert(volume.clone(), [now].into());
                }
            }
            _ => {}
        }
        if let Ok(Done::Dying(volume)) = &result {
            self.add(0, Op::Sweep(*volume), 0);
        }
        if ok && task.op > 0 {
            self.oracle.acked |= 1 << task.op;
            self.oracle.durable |= Set::from(is_durable) << task.op;
        }
    }

    fn trim(&mut self) {
        let rings = self.map.rings.len();
        if self.map.roots_due == 0 {
            self.logs.resize(rings, Vec::new());
        }
        for (ring, log) in self.logs.iter_mut().enumerate().take(rings) {
            let from = self.map.keep_from(Ring(ring as u8));
            log.retain(|record| record.number >= from);
        }
    }

    fn report(&mut self, pairs: &[(String, String)]) {
        for (volume, snapshot) in pairs {
            let id = self.id(snapshot).expect("a reported snapshot");
            let content = self.content(id);
            self.oracle.must.insert(snapshot.clone(), Presence::Must);
            self.oracle.sizes.insert(snapshot.clone(), [content.len() as u64].into());
            let acked = self.oracle.asked[snapshot].1;
            for (block, token) in (0..).zip(&content) {
                let legal = self.oracle.legal(volume, block, acked, None);
                assert!(legal.contains(token), "{snapshot}.{block} is {token}, may be {legal:?}");
            }
            self.oracle.fixed.insert(snapshot.clone(), (0..).zip(content).collect());
        }
        self.oracle.check_instant(pairs);
    }

    // -- checks ---------------------------------------------------------------------------------------------------

    /// After a start, or at rest: everything that was promised.
    pub(crate) fn check(&self) {
        for (volume, presence) in &self.oracle.must {
            let is_there = self.id(volume).is_some();
            match presence {
                Presence::May => {}
                Presence::Must => assert!(is_there, "{volume} is missing"),
                Presence::Gone => assert!(!is_there, "{volume} is back after it was deleted"),
            }
        }
        for (id, volume) in self.map.volumes() {
            let name = volume.name.as_str();
            let sizes = self.oracle.sizes.get(name);
            let is_size = sizes.is_none_or(|sizes| sizes.contains(&volume.blocks));
            assert!(is_size, "{name} has {} blocks, may have {sizes:?}", volume.blocks);
            let content = self.content(id);
            for (block, got) in (0..).zip(&content) {
                let parent = self.oracle.asked.get(name);
                let (of, kept) =
                    parent.map_or((name, self.kept), |(of, acked)| (of, self.kept & acked));
                let fixed = self.oracle.fixed.get(name).map(|fixed| [fixed[&block]].into());
                let legal = fixed.unwrap_or_else(|| self.oracle.legal(of, block, kept, None));
                assert!(legal.contains(got), "{name}.{block} is {got}, may be {legal:?}");
            }
            self.oracle.check_rolls(name, &content, self.kept);
        }
        self.check_counts();
    }

    /// Counts are the references, and space adds up.
    pub(crate) fn check_counts(&self) {
        if self.map.given_up.is_empty() {
            assert_eq!(self.map.tables.recount(), self.map.tables.counts, "counts are references");
        }
        let space = self.map.space();
        let all = u64::from(self.map.shape().clusters);
        assert_eq!(space.free + space.in_use + space.in_transit, all);
        let used = self.map.tables.counts.iter().filter(|count| **count > 0).count() as u64;
        assert_eq!(space.in_use, used);
        for (id, volume) in self.map.volumes() {
            let space = self.map.volume_space(id).expect("a volume");
            let walked =
                volume.root.iter().flatten().flat_map(|slot| &*self.map.tables.leaf(*slot).entries);
            assert_eq!(space.mapped, walked.filter(|entry| **entry != u32::MAX).count() as u64);
        }
    }

    /// What a start shows is what is there from now on.
    pub(crate) fn adopt(&mut self) {
        let mut oracle = Oracle { acked: self.oracle.acked, ..Oracle::default() };
        oracle.durable = oracle.acked;
        for volume in self.oracle.must.keys() {
            oracle.must.insert(volume.clone(), Presence::Gone);
        }
        for (id, volume) in self.map.volumes() {
            let name = volume.name.to_string();
            let content = self.content(id);
            oracle.must.insert(name.clone(), Presence::Must);
            oracle.sizes.insert(name.clone(), [volume.blocks].into());
            if volume.kind == VolumeKind::Snapshot {
                oracle.fixed.insert(name.clone(), (0..).zip(content.iter().copied()).collect());
            }
            oracle
                .initial
                .extend((0..).zip(content).map(|(at, token)| ((name.clone(), at), token)));
        }
        self.oracle = oracle;
    }

    // -- crashes --------------------------------------------------------------------------------------------------

    /// The number of choices of each part of a crash: records of each ring, cached writes of each block, roots.
    pub(crate) fn crash_choices(&self) -> Vec<usize> {
        let rings = (0..self.map.rings.len()).map(|ring| self.map.records(Ring(ring as u8)).len());
        let caches = self.cache.values().map(Vec::len);
        rings.chain(caches).map(|most| most + 1).chain([2]).collect()
    }

    pub(crate) fn crash_of(&self, pick: &[usize], is_kill: bool) -> Crash {
        let rings = self.map.rings.len();
        let full = self.cache.values().map(Vec::len).collect();
        let caches = pick[rings..pick.len() - 1].to_vec();
        let is_newest_lost = !is_kill && pick[pick.len() - 1] == 1;
        let caches = if is_kill { full } else { caches };
        Crash { upto: pick[..rings].to_vec(), caches, is_newest_lost, is_kill }
    }

    /// The world after a start that follows a crash.
    pub(crate) fn start(&self, crash: &Crash, rings: u8) -> Result<Self, Error> {
        let mut disk = self.disk.clone();
        for ((at, writes), count) in self.cache.iter().zip(&crash.caches) {
            if *count > 0 {
                disk.insert(*at, writes[count - 1]);
            }
        }
        let mut logs = self.logs.clone();
        for (ring, upto) in crash.upto.iter().enumerate() {
            logs[ring].extend(self.map.records(Ring(ring as u8)).take(*upto).cloned());
        }
        let (image, roots) = self.readable_roots(crash.is_newest_lost)?;
        logs.resize(image.floors.len().max(logs.len()), Vec::new());
        let shape = image.shape();
        let bytes = |log: &Vec<Record>| -> Vec<u8> {
            log.iter().flat_map(|record| encode_record(record, shape)).collect()
        };
        let read: Vec<Vec<Record>> = (0..image.floors.len())
            .map(|ring| scan_log(&bytes(&logs[ring]), Ring(ring as u8), shape).records)
            .collect();
        assert_eq!(read, logs[..image.floors.len()], "records are read as they were written");
        let map = VolumeMap::open(&image, &read, rings)?;
        let again = VolumeMap::open(&image, &read, rings)?;
        assert_eq!(map, again, "a start that is repeated has the same result");
        let tasks = Vec::new();
        let kept = if crash.is_kill { self.oracle.acked } else { self.oracle.durable };
        let (oracle, cache) = (self.oracle.clone(), BTreeMap::new());
        let mut world =
            Self { map, disk, cache, logs, roots, tasks, oracle, kept, failed: Vec::new() };
        world.logs.resize(world.logs.len().max(usize::from(rings)), Vec::new());
        Ok(world)
    }

    fn readable_roots(&self, is_newest_lost: bool) -> Result<(Image, [Option<Vec<u8>>; 2]), Error> {
        let decode = |bytes: &Vec<u8>| Image::decode(bytes);
        let mut images: Vec<(usize, Image)> = Vec::new();
        for (place, bytes) in self.roots.iter().enumerate() {
            if let Some(bytes) = bytes {
                images.push((place, decode(bytes)?));
            }
        }
        images.sort_by_key(|(_, image)| image.sequence());
        let mut roots = self.roots.clone();
        if is_newest_lost && images.len() > 1 {
            let (place, _) = images.pop().expect("two roots");
            roots[place] = None;
        }
        let (_, image) = images.pop().expect("a root");
        Ok((image, roots))
    }

    /// A hash of what survives a crash.
    pub(crate) fn remains(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.disk, &self.cache, &self.logs, &self.roots, &self.oracle).hash(&mut hasher);
        for ring in &self.map.rings {
            ring.records.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// A hash of everything.
    pub(crate) fn key(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.remains(), &self.map, &self.tasks).hash(&mut hasher);
        hasher.finish()
    }
}
