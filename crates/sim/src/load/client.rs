//! Clients that load an array and measure every completion.

use strake_block::{BufMut, CompletionBatch, Durability, Io, IoQueue, Op, Sg, SgMut, Token};
use strake_units::{Lba, Nanos};

use crate::rng::Rng;

/// The requests of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reads of 4 KiB anywhere.
    RandomRead,
    /// Accesses of 4 KiB anywhere, seven reads to three writes.
    Mixed,
    /// Writes of 4 KiB anywhere.
    RandomWrite,
    /// Sequential reads of 128 KiB.
    SequentialRead,
    /// Sequential writes of 128 KiB.
    SequentialWrite,
}

/// The timing of a client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A completion triggers the next request; this number of requests is outstanding.
    Closed {
        /// Requests outstanding.
        depth: u32,
    },
    /// Requests arrive at random, with this average rate, independent of completions. Beyond the depth of a queue they
    /// wait; their latency counts from their arrival.
    Open {
        /// Requests a second.
        per_s: u32,
    },
}

/// The behaviour of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habit {
    /// The requests.
    pub work: Work,
    /// The timing.
    pub pace: Pace,
}

/// Largest number of outstanding requests of an open client.
const OPEN_DEPTH: u32 = 1024;

impl Habit {
    /// The required depth of the queue.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        match self.pace {
            Pace::Closed { depth } => depth,
            Pace::Open { .. } => OPEN_DEPTH,
        }
    }

    /// A short description for reports.
    #[must_use]
    pub fn describe(&self) -> String {
        let work = match self.work {
            Work::RandomRead => "4 KiB random read",
            Work::Mixed => "4 KiB random 70/30",
            Work::RandomWrite => "4 KiB random write",
            Work::SequentialRead => "128 KiB sequential read",
            Work::SequentialWrite => "128 KiB sequential write",
        };
        match self.pace {
            Pace::Closed { depth } => format!("{work}, depth {depth}"),
            Pace::Open { per_s } => format!("{work}, {per_s}/s"),
        }
    }

    fn blocks(&self) -> u64 {
        match self.work {
            Work::RandomRead | Work::Mixed | Work::RandomWrite => 1,
            Work::SequentialRead | Work::SequentialWrite => 32,
        }
    }
}

const BLOCK_BYTES: usize = 4096;

/// One client on one queue. The array's blocks must be 4 KiB.
pub struct Client {
    habit: Habit,
    queue: Box<dyn IoQueue>,
    batch: CompletionBatch,
    rng: Rng,
    capacity_blocks: u64,
    cursor: u64,
    /// The arrival time of each outstanding request, by token; and the free tokens.
    came: Vec<Nanos>,
    free: Vec<u64>,
    /// For an open client: the arrival of the next request.
    next: Nanos,
    /// Whether the client submits no further requests.
    resting: bool,
    bytes: Sg,
    /// The latencies in nanoseconds since the last [`take`](Self::take).
    latencies: Vec<u64>,
}

impl Client {
    /// A client on `queue`, which has the required depth.
    #[must_use]
    pub fn new(
        habit: Habit,
        queue: Box<dyn IoQueue>,
        capacity_blocks: u64,
        rng: Rng,
        now: Nanos,
    ) -> Self {
        let depth = habit.depth();
        let bytes = BufMut::alone(habit.blocks() as usize * BLOCK_BYTES).freeze();
        let mut client = Self {
            habit,
            queue,
            batch: CompletionBatch::new(depth.max(1) as usize),
            rng,
            capacity_blocks,
            cursor: 0,
            came: vec![Nanos(0); depth as usize],
            free: (0..u64::from(depth)).collect(),
            next: now,
            resting: false,
            bytes: Sg::from(bytes),
            latencies: Vec::new(),
        };
        client.cursor = client.rng.below(capacity_blocks / client.habit.blocks());
        client
    }

    /// Stops further requests; outstanding ones still complete.
    pub fn rest(&mut self) {
        self.resting = true;
    }

    /// True if no request is outstanding.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.free.len() == self.came.len()
    }

    /// The latencies of completions since the last call, in nanoseconds.
    pub fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.latencies)
    }

    /// The time of the next request of an open client.
    #[must_use]
    pub fn next_time(&self) -> Option<Nanos> {
        match self.habit.pace {
            Pace::Closed { .. } => None,
            Pace::Open { .. } => (!self.resting && !self.free.is_empty()).then_some(self.next),
        }
    }

    /// Takes completions and submits requests. Returns whether there was work.
    ///
    /// Returns an error if a request failed.
    pub fn turn(&mut self, now: Nanos) -> Result<bool, String> {
        self.queue.poll(now, &mut self.batch);
        let mut work = !self.batch.is_empty();
        for answer in self.batch.drain() {
            answer.result.map_err(|error| format!("a client's request failed: {error}"))?;
            self.latencies.push(now.since(self.came[answer.token.0 as usize]).0);
            self.free.push(answer.token.0);
        }
        while !self.resting && !self.free.is_empty() && self.comes(now) {
            self.request(now);
            work = true;
        }
        self.queue.ring_doorbell(now);
        Ok(work)
    }

    fn comes(&self, now: Nanos) -> bool {
        match self.habit.pace {
            Pace::Closed { .. } => true,
            Pace::Open { .. } => self.next <= now,
        }
    }

    fn request(&mut self, now: Nanos) {
        let token = self.free.pop().expect("the caller looked");
        self.came[token as usize] = match self.habit.pace {
            Pace::Closed { .. } => now,
            Pace::Open { per_s } => {
                let came = self.next;
                self.next = came.plus(self.gap(per_s));
                came
            }
        };
        let op = self.op();
        assert!(self.queue.submit(Io { token: Token(token), op }).is_ok(), "the queue has room");
    }

    /// The time between two random arrivals: exponentially distributed, with a resolution of 1/4096.
    fn gap(&mut self, per_s: u32) -> Nanos {
        let chance = (self.rng.below(4096) as f64 + 0.5) / 4096.0;
        Nanos((-chance.ln() * 1e9 / f64::from(per_s.max(1))) as u64)
    }

    fn op(&mut self) -> Op {
        let blocks = self.habit.blocks();
        let slots = self.capacity_blocks / blocks;
        let (at, write) = match self.habit.work {
            Work::RandomRead => (self.rng.below(slots), false),
            Work::Mixed => (self.rng.below(slots), self.rng.below(10) < 3),
            Work::RandomWrite => (self.rng.below(slots), true),
            Work::SequentialRead => (self.onward(slots), false),
            Work::SequentialWrite => (self.onward(slots), true),
        };
        let at = Lba(at * blocks);
        if write {
            let data = self.bytes.clone();
            return Op::Write { at, data, durability: Durability::Normal };
        }
        Op::Read { at, data: SgMut::from(BufMut::alone(blocks as usize * BLOCK_BYTES)) }
    }

    fn onward(&mut self, slots: u64) -> u64 {
        self.cursor = (self.cursor + 1) % slots;
        self.cursor
    }
}
