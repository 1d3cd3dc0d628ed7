//! A pool on a drive in memory that the test drives itself, and what its volumes may contain after a crash.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use strake_block::{
    BlockDevice, BufMut, Completion, CompletionBatch, Durability, Io, IoError, IoQueue, Op, Sg,
    SgMut, Token,
};
use strake_dev_mem::{FaultPlan, Faulty, MemSpec, RamDevice};
use strake_reactor::Poller;
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, Name, Nanos, Uuid};
use strake_volume_map::{Error, VolumeId};

use super::below::Below;
use crate::pool::{Pending, Pool};
use crate::request::{Answer, PoolStatus, Request};
use crate::{Layout, PoolError, SpacePolicy, store};

pub(super) const BLOCK: usize = 4096;

/// A drive in memory with a volatile cache.
pub(super) type Drive = Arc<Faulty<RamDevice>>;

/// A short wait of a control thread.
pub(super) fn wait() -> impl FnMut() -> Option<Nanos> {
    let mut now = 0;
    move || {
        now += 1000;
        Some(Nanos(now))
    }
}

pub(super) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Returns a drive for a pool with this number of clusters of 256 KiB.
pub(super) fn drive(clusters: u64, seed: u64) -> Drive {
    let spec = MemSpec::new((64 << 20) / BLOCK as u64 + clusters * 64, BlockSize::B4096);
    Arc::new(Faulty::new(RamDevice::with_spec(spec), FaultPlan::new(seed).with_cache()))
}

/// Returns the layout of a small pool: its log has few blocks, so that it goes around.
pub(super) fn small(device: &dyn BlockDevice, clusters: u32, log_blocks: u64) -> Layout {
    let mut layout = Layout::new(&device.info(), &name("tank"), Uuid([7; 16])).expect("room");
    layout.header.log_bytes = log_blocks * BLOCK as u64;
    layout.header.clusters = clusters;
    layout.shape.clusters = clusters;
    layout
}

pub(super) struct World<B = Drive> {
    pub(super) device: B,
    pub(super) pool: Option<Pool>,
    poller: Option<Box<dyn Poller>>,
    queues: BTreeMap<VolumeId, Box<dyn IoQueue>>,
    now: u64,
    nonce: u64,
    next_token: u64,
    batch: CompletionBatch,
    done: BTreeMap<u64, Completion>,
}

/// A wait during which the device below takes turns.
fn turning<B: Below>(below: &B) -> impl FnMut() -> Option<Nanos> {
    let mut wait = wait();
    move || {
        let now = wait()?;
        below.turn(now);
        Some(now)
    }
}

impl<B: Below> World<B> {
    pub(super) fn create(device: B, layout: &Layout) -> Self {
        let created = store::create_as(device.device(), layout.clone(), 1, &mut turning(&device));
        Self::run_on(device, created.expect("the pool is created"), 1).expect("the pool starts")
    }

    pub(super) fn open(device: B, nonce: u64) -> Result<Self, PoolError> {
        let opened = store::open(device.device(), nonce, &mut turning(&device))?;
        Self::run_on(device, opened, nonce)
    }

    fn run_on(device: B, opened: crate::Opened, nonce: u64) -> Result<Self, PoolError> {
        let (pool, poller) = Pool::start_here(opened)?;
        Ok(Self {
            device,
            pool: Some(pool),
            poller: Some(poller),
            queues: BTreeMap::new(),
            now: 0,
            nonce,
            next_token: 0,
            batch: CompletionBatch::new(256),
            done: BTreeMap::new(),
        })
    }

    /// Removes the pool, whose users remain.
    pub(super) fn end_pool(&mut self) {
        (self.poller, self.pool) = (None, None);
    }

    /// Ends the pool as kill -9 does.
    pub(super) fn end(&mut self) {
        self.queues.clear();
        (self.poller, self.pool) = (None, None);
        self.device.end();
    }

    /// Ends the pool as kill -9 does, and opens it again.
    pub(super) fn reopen(mut self) -> Result<Self, PoolError> {
        self.end();
        self.start()
    }

    /// Opens the pool again after its end.
    pub(super) fn start(mut self) -> Result<Self, PoolError> {
        self.device.start();
        Self::open(self.device, self.nonce + 1)
    }

    pub(super) fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("the pool runs")
    }

    /// Takes one turn, and collects completions.
    pub(super) fn turn(&mut self) {
        self.now += 200_000;
        let now = Nanos(self.now);
        self.device.turn(now);
        if let Some(poller) = &mut self.poller {
            poller.turn(now);
        }
        for queue in self.queues.values_mut() {
            queue.poll(now, &mut self.batch);
            for completion in self.batch.drain() {
                self.done.insert(completion.token.0, completion);
            }
        }
    }

    /// True if the pool core may sleep without an end.
    pub(super) fn sleeps_forever(&mut self) -> bool {
        let mut sleep = strake_reactor::Sleep::new();
        self.poller.as_mut().expect("the pool runs").sleep(&mut sleep);
        !sleep.is_never() && sleep.deadline().is_none() && sleep.fds() == 0
    }

    /// Takes turns until `get` has a value.
    pub(super) fn until<T>(&mut self, mut get: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..2_000_000 {
            if let Some(value) = get(self) {
                return value;
            }
            self.turn();
        }
        panic!("nothing happens any more");
    }

    pub(super) fn send(&self, request: Request) -> Pending<Result<Answer, Error>> {
        self.pool().ask(request)
    }

    pub(super) fn ask(&mut self, request: Request) -> Result<Answer, Error> {
        let pending = self.send(request);
        self.until(|_| pending.poll().expect("the pool runs"))
    }

    pub(super) fn status(&mut self) -> PoolStatus {
        match self.ask(Request::Status) {
            Ok(Answer::Status(status)) => status,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn create_volume(&mut self, text: &str, blocks: u64) -> VolumeId {
        self.create_with(text, blocks, SpacePolicy::default()).expect("the volume is created")
    }

    pub(super) fn create_with(
        &mut self,
        text: &str,
        blocks: u64,
        policy: SpacePolicy,
    ) -> Result<VolumeId, Error> {
        match self.ask(Request::Create { name: name(text), blocks, policy })? {
            Answer::Created(volumes) => Ok(volumes[0]),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn snapshot(&mut self, volume: VolumeId, text: &str) -> VolumeId {
        let volumes = vec![(volume, name(text))];
        match self.ask(Request::Snapshot { volumes }) {
            Ok(Answer::Created(volumes)) => volumes[0],
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn device_of(&mut self, volume: VolumeId) -> Arc<dyn BlockDevice> {
        let pending = self.pool().open(volume);
        let facts = self.until(|_| pending.poll().expect("the volume exists"));
        self.pool().device_of(volume, facts)
    }

    /// Submits an I/O, and returns its number.
    pub(super) fn submit(&mut self, volume: VolumeId, op: Op) -> u64 {
        if !self.queues.contains_key(&volume) {
            let device = self.device_of(volume);
            let queue = device.open_queue(CoreIndex(0), 64).expect("the pool runs");
            self.queues.insert(volume, queue);
        }
        let token = self.next_token;
        self.next_token += 1;
        let queue = self.queues.get_mut(&volume).expect("it was opened");
        let io = Io { token: Token(token), op };
        if token.is_multiple_of(2) {
            queue.submit(io).expect("the queue has room");
        } else {
            let mut batch = VecDeque::from([io]);
            queue.submit_batch(&mut batch);
            assert!(batch.is_empty(), "the queue has room");
        }
        queue.ring_doorbell(Nanos(self.now));
        token
    }

    /// Returns the completion of an I/O if it has arrived.
    pub(super) fn take(&mut self, token: u64) -> Option<Completion> {
        self.done.remove(&token)
    }

    pub(super) fn run(&mut self, volume: VolumeId, op: Op) -> Result<Op, IoError> {
        let token = self.submit(volume, op);
        let completion = self.until(|world| world.take(token));
        completion.result.map(|()| completion.op)
    }

    pub(super) fn write(
        &mut self,
        volume: VolumeId,
        block: u64,
        values: &[u64],
        durability: Durability,
    ) -> Result<(), IoError> {
        self.run(volume, write_op(block, values, durability)).map(drop)
    }

    pub(super) fn read(&mut self, volume: VolumeId, block: u64, count: u64) -> Vec<u64> {
        let op = self.run(volume, read_op(block, count)).expect("blocks are readable");
        values_of(op)
    }

    pub(super) fn discard(&mut self, volume: VolumeId, block: u64, count: u64) {
        let range = LbaRange::new(Lba(block), count);
        self.run(volume, Op::Deallocate { range }).expect("blocks are discarded");
    }

    /// Takes turns until nothing is being deleted.
    pub(super) fn settle(&mut self) -> PoolStatus {
        for _ in 0..10_000 {
            let status = self.status();
            if status.deleting == 0 && status.space.in_transit == 0 {
                return status;
            }
            self.turn();
        }
        panic!("volumes are deleted for ever");
    }
}

/// Returns a write of one value per block, repeated in the whole block.
pub(super) fn write_op(block: u64, values: &[u64], durability: Durability) -> Op {
    let mut buffer = BufMut::alone(values.len() * BLOCK);
    let blocks = buffer.as_mut_slice().chunks_exact_mut(BLOCK);
    for (block, value) in blocks.zip(values) {
        block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
    }
    Op::Write { at: Lba(block), data: Sg::from(buffer.freeze()), durability }
}

pub(super) fn read_op(block: u64, count: u64) -> Op {
    // What a read does not fill is noticed.
    let mut buffer = BufMut::alone(count as usize * BLOCK);
    buffer.as_mut_slice().fill(0xee);
    Op::Read { at: Lba(block), data: SgMut::from(buffer) }
}

/// Returns the value of each block of a read.
pub(super) fn values_of(op: Op) -> Vec<u64> {
    let Op::Read { data, .. } = op else { panic!("a read returns its buffer") };
    let buffer = data.into_single().expect("one buffer");
    let value = |block: &[u8]| {
        let first = block[..8].to_vec();
        assert!(block.chunks_exact(8).all(|word| word == first), "a block has one value");
        u64::from_le_bytes(first.try_into().expect("8 bytes"))
    };
    buffer.as_slice().chunks_exact(BLOCK).map(value).collect()
}
