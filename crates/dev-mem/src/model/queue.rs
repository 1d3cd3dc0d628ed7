//! Holding completions back until they are due.

use super::pipes::{LANES, Load, Pipes};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use strake_block::{Completion, CompletionBatch, Io, IoQueue, Op, Readiness, Token};
use strake_units::Nanos;

/// An I/O inside the drive.
///
/// ```text
/// Free --admitted--> Moving --inner device done--> Done --due--> Free
///                      \--due first--> Overdue --inner device done--> Free
/// ```
#[derive(Debug)]
enum State {
    Free,
    Moving,
    Done(Completion),
    Overdue,
}

#[derive(Debug)]
struct Slot {
    token: Token,
    due: Nanos,
    state: State,
}

pub(super) struct ModelledQueue {
    inner: Box<dyn IoQueue>,
    pipes: Arc<Mutex<Pipes>>,
    depth: usize,
    /// In front of the drive; the first `rung` of them had their doorbell rung.
    waiting: VecDeque<Io>,
    rung: usize,
    slots: Vec<Slot>,
    free: Vec<u32>,
    lanes: [VecDeque<u32>; LANES],
    /// Due and done, for when the caller's batch has room.
    ready: VecDeque<Completion>,
    overdue: usize,
    batch: CompletionBatch,
    arrived: Nanos,
}

fn load(op: &Op) -> Load {
    match op {
        Op::Read { data, .. } => Load::Read(data.len() as u64),
        Op::Write { data, .. } => Load::Write(data.len() as u64),
        Op::Flush => Load::Flush,
        // Both only change the drive's map; they cost a write command without data.
        Op::Deallocate { .. } | Op::WriteZeroes { .. } => Load::Write(0),
    }
}

impl ModelledQueue {
    pub(super) fn new(
        inner: Box<dyn IoQueue>,
        pipes: Arc<Mutex<Pipes>>,
        depth: u32,
        inside: u32,
    ) -> Self {
        let depth = depth.max(1) as usize;
        let slot = |_| Slot { token: Token(0), due: Nanos(0), state: State::Free };
        Self {
            inner,
            pipes,
            depth,
            waiting: VecDeque::with_capacity(depth),
            rung: 0,
            slots: (0..inside).map(slot).collect(),
            free: (0..inside).rev().collect(),
            lanes: std::array::from_fn(|_| VecDeque::with_capacity(inside as usize)),
            ready: VecDeque::with_capacity(inside as usize),
            overdue: 0,
            batch: CompletionBatch::new(inside as usize),
            arrived: Nanos(0),
        }
    }

    /// Lets waiting I/Os into the drive while it has room; they arrive at `now`.
    fn admit(&mut self, now: Nanos) {
        if self.rung == 0 || self.free.is_empty() {
            return;
        }
        // Completions are looked at lane by lane, so the times at which room appears may come unsorted; lanes
        // need them sorted.
        self.arrived = self.arrived.max(now);
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        while self.rung > 0
            && let Some(index) = self.free.pop()
        {
            self.rung -= 1;
            let io = self.waiting.pop_front().expect("rung requests are waiting");
            let (lane, due) = pipes.admit(self.arrived, load(&io.op));
            self.slots[index as usize] = Slot { token: io.token, due, state: State::Moving };
            self.lanes[lane as usize].push_back(index);
            let refused = self.inner.submit(Io { token: Token(u64::from(index)), op: io.op });
            assert!(refused.is_ok(), "the inner queue takes as many requests as it was opened for");
        }
    }

    /// Takes what the inner device has finished.
    fn gather(&mut self, now: Nanos) {
        self.inner.poll(now, &mut self.batch);
        for done in self.batch.drain() {
            let index = done.token.0 as u32;
            let slot = &mut self.slots[index as usize];
            match slot.state {
                State::Moving => slot.state = State::Done(done),
                State::Overdue => {
                    slot.state = State::Free;
                    self.overdue -= 1;
                    self.free.push(index);
                    self.ready.push_back(Completion { token: slot.token, ..done });
                }
                State::Free | State::Done(_) => panic!("the inner queue completed {index} twice"),
            }
        }
    }

    /// Lets go of what is due.
    fn release(&mut self, now: Nanos) {
        for lane in 0..LANES {
            while let Some(&index) = self.lanes[lane].front() {
                let slot = &mut self.slots[index as usize];
                if slot.due > now {
                    break;
                }
                self.lanes[lane].pop_front();
                match std::mem::replace(&mut slot.state, State::Free) {
                    State::Done(done) => {
                        self.ready.push_back(Completion { token: slot.token, ..done });
                        let due = slot.due;
                        self.free.push(index);
                        self.admit(due);
                    }
                    State::Moving => {
                        slot.state = State::Overdue;
                        self.overdue += 1;
                    }
                    State::Free | State::Overdue => {
                        panic!("a lane holds I/Os that are not due yet")
                    }
                }
            }
        }
    }

    fn outstanding(&self) -> usize {
        self.waiting.len() + (self.slots.len() - self.free.len()) + self.ready.len()
    }
}

impl IoQueue for ModelledQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.outstanding() >= self.depth {
            return Err(io);
        }
        self.waiting.push_back(io);
        Ok(())
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        self.rung = self.waiting.len();
        self.admit(now);
        self.inner.ring_doorbell(now);
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        self.gather(now);
        self.release(now);
        // Room that an overdue I/O left, and requests that moved up during `release`.
        self.admit(now);
        self.inner.ring_doorbell(now);
        let count = batch.room().min(self.ready.len());
        self.ready.drain(..count).for_each(|done| batch.push(done));
    }

    fn readiness(&self) -> Readiness {
        if self.outstanding() == 0 {
            return Readiness::Idle;
        }
        if !self.ready.is_empty() || self.rung < self.waiting.len() {
            return Readiness::Poll;
        }
        let heads = self.lanes.iter().filter_map(|lane| lane.front());
        let next = heads.map(|index| self.slots[*index as usize].due).min();
        match (next, self.overdue) {
            (Some(due), 0) => Readiness::At(due),
            (None, _) => self.inner.readiness(),
            (Some(due), _) => match self.inner.readiness() {
                Readiness::Idle => Readiness::At(due),
                Readiness::At(other) => Readiness::At(due.min(other)),
                Readiness::Poll | Readiness::Fd(_) => Readiness::Poll,
            },
        }
    }
}
