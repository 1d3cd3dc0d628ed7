//! I/O of the control plane on all members of an array at once.
//!
//! The one place that submits to every member, collects the answers, and gives up on those that are silent. A member
//! is given up for its own silence only ([`strake_block::patience`]), never for another's time, and the rest of the
//! work on the others continues to its end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use strake_block::{
    Attention, BlockDevice, BufMut, CompletionBatch, Durability, Io, IoError, IoErrorKind, IoQueue,
    Op, Patience, Sg, SgMut, Silence, Token,
};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, MemberIndex, Nanos};

use crate::create::Drive;
use crate::error::ArrayError;
use crate::member_io::{READ_BYTES, TRANSFER_BYTES, Wait};

/// Requests under way at a time on each member.
const DEPTH: usize = 32;

/// Bytes under way at a time on each member, but for a single request: 64 members want memory too.
const WINDOW_BYTES: u64 = 1 << 20;

/// Time between two attempts to open the queue of a drive that has outstanding requests of an earlier use.
const ASK_EVERY: Nanos = Nanos::SECOND;

/// Why work on members did not succeed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Members that failed or were silent, each with why. The array may do without them.
    Members(Vec<(MemberIndex, ArrayError)>),
    /// Nothing that a member is to blame for.
    Otherwise(ArrayError),
}

impl Failed {
    /// The first reason, for work that does not go on without a member.
    pub(crate) fn into_error(self) -> ArrayError {
        match self {
            Self::Members(mut members) => members.swap_remove(0).1,
            Self::Otherwise(error) => error,
        }
    }
}

impl From<ArrayError> for Failed {
    fn from(error: ArrayError) -> Self {
        Self::Otherwise(error)
    }
}

/// Bytes to be read; offset and length are multiples of 4 KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) member: MemberIndex,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// What was read, with zeroes for what could not be.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) bytes: Vec<u8>,
    /// By blocks of 4 KiB.
    pub(crate) readable: Vec<bool>,
    /// Why the first one that is not could not be read.
    pub(crate) why: Option<ArrayError>,
}

/// Bytes to be written, stable.
#[derive(Clone, Debug)]
pub(crate) struct Writing {
    pub(crate) member: MemberIndex,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// A piece of what was read: its bytes, or why a block of 4 KiB cannot be read.
type Piece<'p> = Result<&'p [u8], IoError>;

/// One request.
#[derive(Clone, Copy, Debug)]
struct Task {
    /// Which of the readings or writings it is of.
    of: usize,
    offset: u64,
    bytes: u64,
}

/// The outcome of a request: more requests in its place, or the end of the member.
type Outcome = Result<Vec<Task>, IoError>;

/// What a run does.
struct Work<'w> {
    /// The request of a task, whose place is the second argument.
    op: &'w dyn Fn(&Task, Lba) -> Op,
    done: &'w mut dyn FnMut(Task, Result<Op, IoError>) -> Outcome,
}

/// The drives of an array, by slot.
pub(crate) struct Fleet<'a> {
    lanes: Vec<Option<Lane>>,
    wait: Wait<'a>,
    now: Nanos,
    attention: Attention,
}

impl<'a> Fleet<'a> {
    /// Queues are opened when they are needed first.
    pub(crate) fn new(drives: &[Option<Drive>], wait: Wait<'a>) -> Self {
        let lanes = drives.iter().map(|drive| drive.as_ref().map(Lane::new)).collect();
        Self { lanes, wait, now: Nanos(0), attention: Attention::default() }
    }

    /// The members that have a drive.
    pub(crate) fn here(&self) -> impl Iterator<Item = MemberIndex> + use<'_> {
        let here = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_some());
        here.map(|(at, _)| MemberIndex(at as u8))
    }

    /// Reads a piece at a time, in any order: `each` gets the number of the reading, the byte offset on the member,
    /// and what is there. What a device knows to be zeroes is left out.
    ///
    /// # Errors
    /// When members fail, but for blocks that cannot be read; the others have been read to the end.
    pub(crate) fn read_pieces(
        &mut self,
        readings: &[Reading],
        doing: &str,
        each: &mut dyn FnMut(usize, u64, Piece<'_>),
    ) -> Result<(), Failed> {
        for (of, reading) in readings.iter().enumerate() {
            let lane = self.lanes[reading.member.at()].as_mut().expect("a member that is here");
            lane.plan_read(of, reading);
        }
        // Buffers of pieces that were looked at: the next reads fill them again.
        let spare = RefCell::new(Vec::<BufMut>::new());
        let op = |task: &Task, at: Lba| {
            let bytes = task.bytes as usize;
            let mut spare = spare.borrow_mut();
            let place = spare.iter().position(|buffer| buffer.len() == bytes);
            let buffer = place.map(|place| spare.swap_remove(place));
            Op::Read { at, data: SgMut::from(buffer.unwrap_or_else(|| BufMut::alone(bytes))) }
        };
        let mut done = |task: Task, result: Result<Op, IoError>| match result {
            Ok(Op::Read { data, .. }) => {
                let data = data.into_single().ok_or(IoError::new(IoErrorKind::Device))?;
                each(task.of, task.offset, Ok(data.as_slice()));
                spare.borrow_mut().push(data);
                Ok(Vec::new())
            }
            Err(error) if error.kind == IoErrorKind::Medium => {
                if task.bytes <= READ_BYTES as u64 {
                    each(task.of, task.offset, Err(error));
                    return Ok(Vec::new());
                }
                Ok(task.blocks().collect())
            }
            Ok(_) => Err(IoError::new(IoErrorKind::Device)),
            Err(error) => Err(error),
        };
        self.run(doing, &mut Work { op: &op, done: &mut done })
    }

    /// Reads all of `readings`, in whole, except for blocks that cannot be read.
    ///
    /// # Errors
    /// As [`read_pieces`](Self::read_pieces).
    pub(crate) fn read(&mut self, readings: &[Reading], doing: &str) -> Result<Vec<Read>, Failed> {
        let empty = |reading: &Reading| Read {
            bytes: vec![0; reading.bytes as usize],
            readable: vec![true; reading.bytes as usize / READ_BYTES],
            why: None,
        };
        let mut found: Vec<Read> = readings.iter().map(empty).collect();
        let paths: Vec<String> = self
            .lanes
            .iter()
            .map(|l| l.as_ref().map(|l| l.path.clone()).unwrap_or_default())
            .collect();
        let mut each = |of: usize, offset: u64, piece: Piece<'_>| {
            let Reading { member, offset: start, .. } = readings[of];
            let (read, at) = (&mut found[of], (offset - start) as usize);
            match piece {
                Ok(bytes) => read.bytes[at..][..bytes.len()].copy_from_slice(bytes),
                Err(error) => {
                    read.readable[at / READ_BYTES] = false;
                    read.why
                        .get_or_insert_with(|| ArrayError::io(&paths[member.at()], doing, error));
                }
            }
        };
        self.read_pieces(readings, doing, &mut each)?;
        Ok(found)
    }

    /// Writes all of `writings`, stable, in any order.
    ///
    /// # Errors
    /// When members fail; the others have been written to the end.
    pub(crate) fn write(&mut self, writings: &[Writing], doing: &str) -> Result<(), Failed> {
        self.write_noting(writings, doing, &mut |_| {})
    }

    /// The same; `stable` gets the number of each writing that has been written in whole.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub(crate) fn write_noting(
        &mut self,
        writings: &[Writing],
        doing: &str,
        stable: &mut dyn FnMut(usize),
    ) -> Result<(), Failed> {
        for (of, writing) in writings.iter().enumerate() {
            let lane = self.lanes[writing.member.at()].as_mut().expect("a member that is here");
            lane.plan_write(of, writing);
        }
        let op = |task: &Task, at: Lba| {
            let Writing { offset, bytes, .. } = &writings[task.of];
            let from = (task.offset - offset) as usize;
            let mut buf = BufMut::alone(task.bytes as usize);
            buf.as_mut_slice().copy_from_slice(&bytes[from..from + task.bytes as usize]);
            Op::Write { at, data: Sg::from(buf.freeze()), durability: Durability::Fua }
        };
        let mut left: Vec<u64> = writings.iter().map(|w| w.bytes.len() as u64).collect();
        let mut done = |task: Task, result: Result<Op, IoError>| {
            result?;
            left[task.of] -= task.bytes;
            if left[task.of] == 0 {
                stable(task.of);
            }
            Ok(Vec::new())
        };
        self.run(doing, &mut Work { op: &op, done: &mut done })
    }

    /// Does what is planned, on all members at once.
    fn run(&mut self, doing: &str, work: &mut Work<'_>) -> Result<(), Failed> {
        let mut time = self.look();
        let mut failed = Vec::new();
        loop {
            let (mut open, mut moved) = (false, false);
            for (at, lane) in self.lanes.iter_mut().enumerate() {
                let Some(lane) = lane.as_mut().filter(|lane| lane.has_work()) else { continue };
                let turn = match time {
                    Some(at) => lane.turn(self.now, at, work),
                    None => Err(Trouble::Io(IoError::new(IoErrorKind::Timeout))),
                };
                match turn {
                    Ok(answers) => moved |= answers,
                    Err(trouble) => {
                        let error = lane.give_up(trouble, doing);
                        failed.push((MemberIndex(at as u8), error));
                    }
                }
                open |= lane.has_work();
            }
            if !open {
                break;
            }
            if !moved {
                time = self.look();
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(Failed::Members(failed)) }
    }

    /// The time; `None` when the caller has given up.
    fn look(&mut self) -> Option<Nanos> {
        self.now = (self.wait)()?;
        Some(self.attention.at(self.now))
    }
}

/// Why a member is given up.
enum Trouble {
    Open(ArrayError),
    Io(IoError),
}

/// One member.
struct Lane {
    device: Arc<dyn BlockDevice>,
    path: String,
    queue: Option<Box<dyn IoQueue>>,
    block_size: BlockSize,
    io_bytes_max: u64,
    silence: Silence,
    /// When its queue is asked for next, after it was refused.
    ask_at: Nanos,
    batch: CompletionBatch,
    todo: VecDeque<Task>,
    /// What is under way, by token.
    out: Vec<(u64, Task)>,
    next: u64,
}

impl Lane {
    fn new(drive: &Drive) -> Self {
        let info = drive.device.info();
        // However odd what the drive takes at a time is.
        let most = TRANSFER_BYTES.min(u64::from(info.io_bytes_max) & !4095).max(4096);
        Self {
            device: Arc::clone(&drive.device),
            path: drive.path.clone(),
            queue: None,
            block_size: info.block_size,
            io_bytes_max: most,
            silence: Silence::new(Patience::of(drive.device.hold())),
            ask_at: Nanos(0),
            batch: CompletionBatch::new(DEPTH),
            todo: VecDeque::new(),
            out: Vec::new(),
            next: 0,
        }
    }

    fn plan_read(&mut self, of: usize, reading: &Reading) {
        let (mut at, end) = (reading.offset, reading.offset + reading.bytes);
        while at < end {
            let range = LbaRange::new(self.lba(at), (end - at) >> self.block_size.shift());
            let Some(data) = self.device.data_within(range) else { break };
            let from = data.start.bytes(self.block_size);
            let until = from + (data.blocks << self.block_size.shift());
            let (from, until) = (from & !4095, until.next_multiple_of(4096).min(end));
            self.plan(of, from, until);
            at = until;
        }
    }

    fn plan_write(&mut self, of: usize, writing: &Writing) {
        self.plan(of, writing.offset, writing.offset + writing.bytes.len() as u64);
    }

    fn plan(&mut self, of: usize, from: u64, until: u64) {
        let mut offset = from;
        while offset < until {
            let bytes = self.io_bytes_max.min(until - offset);
            self.todo.push_back(Task { of, offset, bytes });
            offset += bytes;
        }
    }

    fn lba(&self, bytes: u64) -> Lba {
        Lba(bytes >> self.block_size.shift())
    }

    fn has_work(&self) -> bool {
        !self.todo.is_empty() || !self.out.is_empty()
    }

    /// Submits, and takes the answers. True when there were any.
    fn turn(&mut self, now: Nanos, at: Nanos, work: &mut Work<'_>) -> Result<bool, Trouble> {
        if self.queue.is_none() && !self.open(at)? {
            return Ok(false);
        }
        self.submit(work);
        // A queue that takes nothing although it has nothing to do is silent too.
        self.silence.owed(at);
        let Some(queue) = &mut self.queue else { return Ok(false) };
        queue.ring_doorbell(now);
        queue.poll(now, &mut self.batch);
        if self.batch.is_empty() {
            let silent = self.silence.is_over(at, false);
            return if silent {
                Err(Trouble::Io(IoError::new(IoErrorKind::Timeout)))
            } else {
                Ok(false)
            };
        }
        for done in self.batch.drain() {
            let Some(place) = self.out.iter().position(|(token, _)| *token == done.token.0) else {
                continue;
            };
            let (_, task) = self.out.swap_remove(place);
            let more = (work.done)(task, done.result.map(|()| done.op)).map_err(Trouble::Io)?;
            more.into_iter().rev().for_each(|task| self.todo.push_front(task));
        }
        self.silence.answered(at, self.has_work(), false);
        Ok(true)
    }

    /// Opens its queue. False while the drive still has outstanding requests of an earlier use: those are waited for
    /// like any answer, and asking costs the time of the others, so it is done now and then.
    fn open(&mut self, at: Nanos) -> Result<bool, Trouble> {
        if at < self.ask_at {
            return Ok(false);
        }
        match self.device.open_queue(CoreIndex(0), DEPTH as u32) {
            Ok(queue) => {
                self.queue = Some(queue);
                self.silence.answered(at, true, false);
                Ok(true)
            }
            Err(error) => {
                self.silence.owed(at);
                self.ask_at = at.plus(ASK_EVERY);
                if error.kind == IoErrorKind::Timeout && !self.silence.is_over(at, false) {
                    return Ok(false);
                }
                Err(Trouble::Open(error.into()))
            }
        }
    }

    fn submit(&mut self, work: &Work<'_>) {
        while let Some(task) = self.todo.front().copied() {
            let bytes: u64 = self.out.iter().map(|(_, task)| task.bytes).sum();
            let crowded = !self.out.is_empty() && bytes + task.bytes > WINDOW_BYTES;
            let (token, at) = (self.next, self.lba(task.offset));
            let Some(queue) = self.queue.as_mut().filter(|_| !crowded && self.out.len() < DEPTH)
            else {
                return;
            };
            let io = Io { token: Token(token), op: (work.op)(&task, at) };
            if queue.submit(io).is_err() {
                return;
            }
            self.next += 1;
            self.out.push((token, task));
            self.todo.pop_front();
        }
    }

    /// Leaves the member alone from now on. What it still owes is its queue's to wait for.
    fn give_up(&mut self, trouble: Trouble, doing: &str) -> ArrayError {
        self.todo.clear();
        self.out.clear();
        self.queue = None;
        match trouble {
            Trouble::Open(error) => error,
            Trouble::Io(error) => ArrayError::io(&self.path, doing, error),
        }
    }
}

impl Task {
    /// The same, a block of 4 KiB at a time.
    fn blocks(self) -> impl Iterator<Item = Self> {
        let step = READ_BYTES as u64;
        (0..self.bytes / step).map(move |nth| Self {
            of: self.of,
            offset: self.offset + nth * step,
            bytes: step,
        })
    }
}

#[cfg(test)]
mod tests;
