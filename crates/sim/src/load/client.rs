//! Clients that load an array and take the time of every answer.

use strake_block::{BufMut, CompletionBatch, Durability, Io, IoQueue, Op, Sg, SgMut, Token};
use strake_units::{Lba, Nanos};

use crate::rng::Rng;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Reads of 4 KiB anywhere.
    RandomRead,
    /// Accesses of 4 KiB anywhere, seven reads to three writes.
    Mixed,
    /// Writes of 4 KiB anywhere.
    RandomWrite,
    /// Reads of 128 KiB, one behind the other.
    SequentialRead,
    /// Writes of 128 KiB, one behind the other.
    SequentialWrite,
}

/// When a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The next request follows the answer to one of so many that are outstanding.
    Closed {
        /// Requests outstanding.
        depth: u32,
    },
    /// Requests come at random, so many a second on average, whether or not answers come (up to the depth of a
    /// queue, behind which they wait; their time counts from when they came).
    Open {
        /// Requests a second.
        per_s: u32,
    },
}

/// A client's habit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habit {
    /// What it asks for.
    pub work: Work,
    /// When.
    pub pace: Pace,
}

/// Requests an open client may have outstanding.
const OPEN_DEPTH: u32 = 1024;

impl Habit {
    /// The depth of the queue it needs.
    #[must_use]
    pub const fn depth(&self) -> u32 {
        match self.pace {
            Pace::Closed { depth } => depth,
            Pace::Open { .. } => OPEN_DEPTH,
        }
    }

    /// A word or two for reports.
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
    /// When each outstanding request came, by token; free tokens.
    came: Vec<Nanos>,
    free: Vec<u64>,
    /// Open: when the next request comes.
    next: Nanos,
    /// Asks for nothing more.
    resting: bool,
    bytes: Sg,
    /// Nanoseconds that each answer took, since the last [`take`](Self::take).
    latencies: Vec<u64>,
}

impl Client {
    /// A client on `queue`, which is as deep as the habit asks for.
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

    /// Asks for nothing more; what is outstanding is still answered.
    pub fn rest(&mut self) {
        self.resting = true;
    }

    /// True when nothing is outstanding.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.free.len() == self.came.len()
    }

    /// What the answers since the last call took, in nanoseconds.
    pub fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.latencies)
    }

    /// When it wants to do something although nothing happens.
    #[must_use]
    pub fn next_time(&self) -> Option<Nanos> {
        match self.habit.pace {
            Pace::Closed { .. } => None,
            Pace::Open { .. } => (!self.resting && !self.free.is_empty()).then_some(self.next),
        }
    }

    /// Takes answers and makes requests. True when there was anything to do.
    ///
    /// # Errors
    /// When a request failed.
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

    /// Time between two requests that come at random: exponentially distributed, in whole 1/4096ths of it.
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
