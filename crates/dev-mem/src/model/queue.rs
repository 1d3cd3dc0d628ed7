//! The queue that delays I/Os until they are due and then forwards them to the inner device.
//!
//! An I/O waits in its lane until it is due, and is then submitted to the inner device, whose completions are passed to
//! the caller unchanged. This costs one move per I/O. The time of the inner device is additional; memory drives take no
//! time.

use super::Profile;
use super::pipes::{LANES, Lane, Load, Pipes, Tail};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_block::{CompletionBatch, Io, IoQueue, Op, Readiness};
use strake_units::Nanos;

/// I/Os of one kind in the order of their submission, with their due times. Only the first `dated` I/Os have entered
/// the drive and therefore have a due time.
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
    /// The maximum number of I/Os in the drive, and their current number.
    inside_max: usize,
    inside: usize,
    lines: [Line; LANES],
    /// The lanes of I/Os that have not entered the drive, in the order of submission. The doorbell was rung for the
    /// first `rung` I/Os.
    fresh: VecDeque<Lane>,
    rung: usize,
    /// The number of I/Os in the inner device.
    below: usize,
    /// The time at which the last I/O entered the drive.
    entered: Nanos,
}

/// A panic of a thread with this lock can leave outdated times, but not an invalid structure.
fn lock(pipes: &Mutex<Pipes>) -> MutexGuard<'_, Pipes> {
    pipes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn load(op: &Op) -> Load {
    match op {
        Op::Read { data, .. } => Load::Read(data.len() as u64),
        Op::Write { data, .. } => Load::Write(data.len() as u64),
        Op::Flush => Load::Flush,
        // Both operations change only the mapping of the drive and cost the same as a write command without data.
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

    /// Moves waiting I/Os into the drive while it has space. They enter at `now`.
    fn admit(&mut self, now: Nanos) {
        if self.rung == 0 || self.inside == self.inside_max {
            return;
        }
        // Space is found lane by lane, so that its times may not be sorted. The lanes need sorted times.
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

    /// Submits the due I/Os to the inner device.
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
