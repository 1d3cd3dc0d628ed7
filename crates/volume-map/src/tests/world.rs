//! A driver with modelled drives, which executes steps one block at a time and crashes at any point.

use std::collections::{BTreeMap, VecDeque};

use super::oracle::{Oracle, Presence, Set};
use crate::{
    Blocks, ClusterId, Done, Error, OperationId, Part, Progress, Record, Request, Ring, Shape,
    Source, SpacePolicy, Stability, Step, Tail, VolumeId, VolumeMap, Wait,
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
    /// As the operations above, for a volume whose name is not constant.
    WriteTo(String, u64, u16, u8, bool),
    DiscardOf(String, u64, u16),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    /// Blocks are written one after the other.
    Land {
        blocks: VecDeque<(ClusterId, u16, i64)>,
        is_stable: bool,
    },
    /// Parts are read, then written.
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
    /// Operations that must have ended before this one.
    pub(crate) after: Set,
    operation: Option<OperationId>,
    is_begun: bool,
    work: Option<Work>,
    pub(crate) wait: Option<Wait>,
    pub(crate) kept: Set,
}

/// A pool, its drives, its log, and the guarantees.
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
    /// Steps that may fail in an enumeration.
    pub(crate) faults: u8,
    /// Bytes of one piece of a root. Other operations continue between the pieces.
    pub(crate) root_piece: usize,
}

/// The state that a failed step leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// The blocks that were written before the failure. A root is unreadable.
    Part,
    /// All blocks, in caches.
    All,
}

/// The volume, the first block and the number of blocks of a write or discard.
pub(crate) fn blocks_of(op: &Op) -> Option<(&str, u64, u64)> {
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
            map: VolumeMap::create(shape, 1).expect("the shape is right"),
            disk,
            cache: BTreeMap::new(),
            logs: vec![Vec::new(); usize::from(shape.rings)],
            roots: [None, None],
            tasks: Vec::new(),
            oracle: Oracle::default(),
            kept: 0,
            failed: Vec::new(),
            faults: 0,
            root_piece: usize::MAX,
        };
        world.write_roots();
        world
    }

    /// Writes roots until the map serves.
    pub(crate) fn write_roots(&mut self) {
        while self.map.state.roots_due > 0 {
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

    pub(crate) fn part_values(&self, part: &Part) -> Vec<i64> {
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

    /// Runs an operation until no operation can continue.
    pub(crate) fn run(&mut self, op: usize, what: Op) {
        self.add(op, what, 0);
        self.drain();
    }

    pub(crate) fn drain(&mut self) {
        self.drain_tasks();
        assert!(self.map.state.is_idle(), "an operation holds something after its end");
    }

    /// Runs until all tasks end. The test may have other operations in progress.
    pub(crate) fn drain_tasks(&mut self) {
        loop {
            let moved = (0..self.moves()).any(|at| self.step(at));
            if !moved && !self.give_up_space() {
                break;
            }
        }
        assert!(self.tasks.is_empty(), "stuck: {:?}", self.tasks);
    }

    /// When no operation can continue, operations that wait for space fail. Returns false if there is none.
    pub(crate) fn give_up_space(&mut self) -> bool {
        assert!(!self.map.state.has_given_up(), "stuck: {:?}", self.tasks);
        let waiting = self
            .tasks
            .iter()
            .filter(|task| matches!(task.wait, Some(Wait::Space | Wait::Checkpoint)));
        let ids: Vec<OperationId> = waiting.filter_map(|task| task.operation).collect();
        !ids.is_empty() && ids.into_iter().all(|id| self.map.cancel(id))
    }

    /// The number of possible moves: of tasks, of rings, and of tasks that may fail or be cancelled.
    pub(crate) fn moves(&self) -> usize {
        let failing = if self.faults > 0 { 3 * self.tasks.len() } else { 0 };
        self.tasks.len() + self.map.state.rings.len() + failing
    }

    /// Executes one step of a task or of a ring. Returns false if nothing changed.
    ///
    /// The log is trimmed as soon as the map permits it.
    pub(crate) fn step(&mut self, at: usize) -> bool {
        let has_moved = self.step_one(at);
        self.trim();
        self.sweep();
        has_moved
    }

    /// Sweeps a volume as soon as it is being deleted.
    pub(crate) fn sweep(&mut self) {
        let is_serving = self.map.state.roots_due == 0 && !self.map.is_read_only();
        let dying: Vec<VolumeId> = self.map.dying().filter(|_| is_serving).collect();
        for volume in dying {
            if !self.tasks.iter().any(|task| task.what == Op::Sweep(volume)) {
                self.add(0, Op::Sweep(volume), 0);
            }
        }
    }

    fn step_one(&mut self, at: usize) -> bool {
        let (tasks, rings) = (self.tasks.len(), self.map.state.rings.len());
        if at < tasks {
            return self.step_task(at);
        }
        if at < tasks + rings {
            return self.step_ring(at - tasks);
        }
        let at = at - tasks - rings;
        let has_failed = match at % 3 {
            0 => self.fail_step(at / 3, Left::Part),
            1 => self.fail_step(at / 3, Left::All),
            _ => self.cancel(at / 3),
        };
        self.faults -= u8::from(has_failed);
        has_failed
    }

    /// Fails the released step of a task. Returns false if it has none.
    pub(crate) fn fail_step(&mut self, at: usize, left: Left) -> bool {
        let task = &self.tasks[at];
        let Some((id, work)) = task.operation.zip(task.work.clone()) else { return false };
        match (work, left) {
            (Work::Root(place, _), Left::Part) => self.roots[usize::from(place)] = None,
            (Work::Root(place, mut bytes), Left::All) => {
                while !self.map.root_piece(&mut bytes, usize::MAX) {}
                self.roots[usize::from(place)] = Some(bytes);
            }
            (_, Left::Part) => {}
            (Work::Flush(_), Left::All) => self.flush(),
            (Work::Land { blocks, .. }, Left::All) => self.land_all(blocks),
            (Work::Copy { parts, to, data }, Left::All) => {
                let blocks = self.copied(at, &parts, to, data);
                self.land_all(blocks);
            }
            (Work::Read { .. } | Work::Nothing, Left::All) => return false,
        }
        self.tasks[at].work = None;
        self.map.failed(id);
        true
    }

    /// Cancels a task. Returns false if it cannot be cancelled.
    pub(crate) fn cancel(&mut self, at: usize) -> bool {
        let Some(id) = self.tasks[at].operation else { return false };
        let is_cancelled = self.map.cancel(id);
        if is_cancelled && self.tasks[at].work == Some(Work::Nothing) {
            self.tasks[at].work = None;
        }
        is_cancelled
    }

    fn land_all(&mut self, blocks: VecDeque<(ClusterId, u16, i64)>) {
        for (cluster, block, token) in blocks {
            self.land((cluster.0, block), token, false);
        }
    }

    /// Returns the blocks of a copy with their new contents.
    fn copied(
        &self,
        at: usize,
        parts: &[Part],
        to: ClusterId,
        data: Option<Blocks>,
    ) -> VecDeque<(ClusterId, u16, i64)> {
        let mut blocks = VecDeque::new();
        for part in parts {
            let values = self.part_values(part);
            blocks.extend(part.blocks.iter().zip(values).map(|(block, v)| (to, block, v)));
        }
        if let Some(data) = data {
            let (_, first, _) = blocks_of(&self.tasks[at].what).expect("data");
            let token = 1000 * self.tasks[at].op as i64 + first as i64;
            blocks.extend(data.iter().zip(token..).map(|(block, token)| (to, block, token)));
        }
        blocks
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
                let (volume, first, count) = blocks_of(what).expect("blocks");
                let (Op::Write(_, _, _, core, fua) | Op::WriteTo(_, _, _, core, fua)) = what else {
                    unreachable!("a write")
                };
                let (index, blocks) = at(first, count as u16);
                let stability = if *fua { Stability::Stable } else { Stability::Cached };
                let core = Ring(*core % self.map.shape().rings);
                Request::Write { volume: self.id(volume)?, index, blocks, stability, core }
            }
            Op::Discard(..) | Op::DiscardOf(..) => {
                let (volume, first, count) = blocks_of(what).expect("blocks");
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

    pub(crate) fn step_task(&mut self, at: usize) -> bool {
        let has_continued = self.continue_task(at);
        // The driver continues a recount in each turn.
        let is_whole = self.root_piece == usize::MAX;
        self.map.recount(if is_whole { usize::MAX } else { 1 });
        has_continued
    }

    pub(crate) fn continue_task(&mut self, at: usize) -> bool {
        let after = self.tasks[at].after;
        if self.oracle.ended & after != after {
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
        let progress = self.map.advance(id);
        check_woken(&self.tasks[at], id, &before, &progress);
        match progress {
            Progress::Do(step) => {
                self.tasks[at].wait = None;
                self.tasks[at].work = Some(self.work_of(at, step));
                true
            }
            Progress::Wait(wait) => {
                let is_new = self.tasks[at].wait != Some(wait);
                self.tasks[at].wait = Some(wait);
                is_new || !self.map.is_same(&before)
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
                let (_, first, _) = blocks_of(&self.tasks[at].what).expect("a write");
                let token = |block: u16| 1000 * op + first as i64 + i64::from(block - blocks.first);
                let landing = blocks.iter().map(|block| (cluster, block, token(block)));
                let is_stable = stability == Stability::Stable;
                Work::Land { blocks: landing.collect(), is_stable }
            }
            Step::Copy { parts, to, data } => Work::Copy { parts, to, data },
            Step::Read { parts } => Work::Read { parts, kept: self.tasks[at].kept },
            Step::Flush => Work::Flush(0),
            Step::Hold { .. } | Step::Pace => Work::Nothing,
            Step::WriteRoot { place, .. } => Work::Root(place, Vec::new()),
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
                let blocks = self.copied(at, &parts, to, data);
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
            Work::Root(place, mut bytes) => {
                let is_last = self.map.root_piece(&mut bytes, self.root_piece);
                self.roots[usize::from(place)] = is_last.then(|| bytes.clone());
                if !is_last {
                    self.tasks[at].work = Some(Work::Root(place, bytes));
                    return;
                }
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
            // After a failure of the log, the next start shows whether the record of the deletion is stable.
            Op::Snap(pairs) if !self.map.is_read_only() => self.unmade(pairs),
            Op::Delete(volume) if ok => {
                self.oracle.must.insert(volume.clone(), Presence::Gone);
            }
            Op::Delete(volume) if self.id(volume).is_some() => {
                self.oracle.must.insert(volume.clone(), Presence::Must);
            }
            // After a failure of the log, the next start shows the size.
            Op::Size(volume, _) if !self.map.is_read_only() => {
                if let Some(id) = self.id(volume) {
                    let now = self.map.volume(id).map_or(0, |volume| volume.blocks);
                    self.oracle.sizes.insert(volume.clone(), [now].into());
                }
            }
            _ => {}
        }
        if task.op > 0 {
            self.oracle.ended |= 1 << task.op;
        }
        if ok && task.op > 0 {
            self.oracle.acked |= 1 << task.op;
            self.oracle.durable |= Set::from(is_durable) << task.op;
        }
    }

    fn trim(&mut self) {
        for (ring, log) in self.logs.iter_mut().enumerate() {
            match self.map.keep_from(Ring(ring as u8)) {
                Some(from) => log.retain(|record| record.number >= from),
                None => log.clear(),
            }
        }
    }
}

/// Checks that an operation continues only if it was woken, or, for a cluster, if an earlier operation was woken: a
/// driver that advances no other operation misses none. An operation that was not woken may wait for a different
/// condition, or fail before its wait ends. A change of its cluster may make the wait for older I/Os unnecessary: it
/// may continue while they are in progress, because their end wakes it.
fn check_woken(task: &Task, id: OperationId, before: &VolumeMap, progress: &Progress) {
    let will_be_woken = match task.wait {
        Some(Wait::Cluster { .. }) => before.woken().is_some(),
        Some(Wait::OlderIo { epoch }) => !before.state.epochs.are_back(epoch),
        _ => false,
    };
    let goes_on = matches!(progress, Progress::Do(_) | Progress::Finished(Ok(_)));
    assert!(before.is_woken(id) || will_be_woken || !goes_on, "not woken: {task:?}");
}
