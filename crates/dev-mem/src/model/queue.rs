//! Holding I/Os back until they are due, then letting the inner device do them.
//!
//! An I/O waits in its lane until its time has come and only then goes to the inner device, whose completions
//! pass straight to the caller. That costs one move per I/O. The inner device's own time comes on top; drives
//! made of memory take none.

use super::Profile;
use super::pipes::{LANES, Lane, Load, Pipes, Tail};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_block::{CompletionBatch, Io, IoQueue, Op, Readiness};
use strake_units::Nanos;

/// I/Os of one kind in the order they were submitted, with the times at which they are due. Only the first
/// `dated` have entered the drive and so have a time.
struct Line {
    ios: VecDeque<(Nanos, Io)>,
    dated: usize,
}

impl Line {
    fn due(&self) -> Option<Nanos> {
        if self.dated == 0 { None } else { self.ios.front().map(|(due, _)| *due) }
    }
}

pub(super) struct ModelledQueue {
    inner: Box<dyn IoQueue>,
    pipes: Arc<Mutex<Pipes>>,
    tail: Tail,
    depth: usize,
    /// How many may be in the drive, and how many are.
    inside_max: usize,
    inside: usize,
    lines: [Line; LANES],
    /// The lanes of I/Os that have not entered the drive, in the order they were submitted. The first `rung`
    /// had their doorbell rung.
    fresh: VecDeque<Lane>,
    rung: usize,
    /// I/Os the inner device has.
    below: usize,
    /// When the last I/O entered the drive.
    entered: Nanos,
}

/// A thread that panicked while holding the pipes leaves times behind, not a broken structure.
fn lock(pipes: &Mutex<Pipes>) -> MutexGuard<'_, Pipes> {
    pipes.lock().unwrap_or_else(PoisonError::into_inner)
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
        profile: &Profile,
        depth: u32,
    ) -> Self {
        let inside = depth.clamp(1, profile.queue_depth);
        let depth = depth.max(1) as usize;
        let tail = Tail::new(profile, lock(&pipes).next_queue());
        let line = |_| Line { ios: VecDeque::with_capacity(depth), dated: 0 };
        Self {
            inner,
            pipes,
            tail,
            depth,
            inside_max: inside as usize,
            inside: 0,
            lines: std::array::from_fn(line),
            fresh: VecDeque::with_capacity(depth),
            rung: 0,
            below: 0,
            entered: Nanos(0),
        }
    }

    /// Lets waiting I/Os into the drive while it has room; they enter at `now`.
    fn admit(&mut self, now: Nanos) {
        if self.rung == 0 || self.inside == self.inside_max {
            return;
        }
        // Room is found lane by lane, so the times at which it appeared may come unsorted; lanes need them
        // sorted.
        self.entered = self.entered.max(now);
        let mut pipes = lock(&self.pipes);
        while self.rung > 0 && self.inside < self.inside_max {
            let lane = self.fresh.pop_front().expect("rung requests are fresh");
            let line = &mut self.lines[lane.at()];
            let (due, io) = &mut line.ios[line.dated];
            *due = pipes.admit(self.entered, lane, load(&io.op));
            line.dated += 1;
            self.rung -= 1;
            self.inside += 1;
        }
    }

    /// Sends what is due on its way.
    fn release(&mut self, now: Nanos) {
        for lane in 0..LANES {
            while let Some(due) = self.lines[lane].due()
                && due <= now
            {
                let line = &mut self.lines[lane];
                line.dated -= 1;
                let (_, io) = line.ios.pop_front().expect("a line with a due time has a head");
                let refused = self.inner.submit(io);
                assert!(
                    refused.is_ok(),
                    "the inner queue takes as many requests as it was opened for"
                );
                self.below += 1;
                self.inside -= 1;
                self.admit(due);
            }
        }
    }

    fn outstanding(&self) -> usize {
        self.fresh.len() + self.inside + self.below
    }
}

impl IoQueue for ModelledQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        if self.outstanding() == self.depth {
            return Err(io);
        }
        let lane = self.tail.lane(load(&io.op));
        self.lines[lane.at()].ios.push_back((Nanos(0), io));
        self.fresh.push_back(lane);
        Ok(())
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        self.rung = self.fresh.len();
        self.admit(now);
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        self.release(now);
        if self.below > 0 {
            self.inner.ring_doorbell(now);
            let before = batch.len();
            self.inner.poll(now, batch);
            self.below -= batch.len() - before;
        }
    }

    fn readiness(&self) -> Readiness {
        if self.outstanding() == 0 {
            return Readiness::Idle;
        }
        if self.rung < self.fresh.len() {
            return Readiness::Poll;
        }
        let due = self.lines.iter().filter_map(Line::due).min();
        let below = if self.below > 0 { self.inner.readiness() } else { Readiness::Idle };
        match (due, below) {
            (None, below) => below,
            (Some(due), Readiness::Idle) => Readiness::At(due),
            (Some(due), Readiness::At(other)) => Readiness::At(due.min(other)),
            (Some(_), Readiness::Poll | Readiness::Fd(_)) => Readiness::Poll,
        }
    }
}
