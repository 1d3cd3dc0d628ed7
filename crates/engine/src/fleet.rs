//! I/O of the control plane on all members of an array at once.
//!
//! This module alone submits to every member, collects the answers, and abandons unresponsive members. A member is
//! abandoned only for its own silence ([`strake_block::patience`]), never because of the time of another member. The
//! work on the other members continues to its end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use strake_block::{
    Attention, BlockDevice, BufMut, CompletionBatch, Durability, Io, IoError, IoErrorKind, IoQueue,
    Op, Patience, Sg, SgMut, Silence, Token,
};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, MemberIndex, Nanos};

use crate::drive::Drive;
use crate::error::ArrayError;
use crate::member_io::{READ_BYTES, TRANSFER_BYTES, Wait};

/// Maximum number of requests in progress on each member.
const DEPTH: usize = 32;

/// Maximum number of bytes in progress on each member, except for a single larger request. The limit bounds the memory
/// for 64 members.
const WINDOW_BYTES: u64 = 1 << 20;

/// Time between two attempts to open the queue of a drive that has outstanding requests of an earlier use.
const ASK_EVERY: Nanos = Nanos::SECOND;

/// Failure of work on members.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Members that failed or were unresponsive, with their errors. The array may work without these members.
    Members(Vec<(MemberIndex, ArrayError)>),
    /// A failure that no member caused.
    Otherwise(ArrayError),
}

impl Failed {
    /// Returns the first error, for work that needs every member.
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

/// A range of bytes to read. Offset and length are multiples of 4 KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) member: MemberIndex,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// The bytes that were read, with zeroes for unreadable blocks.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) bytes: Vec<u8>,
    /// For each block of 4 KiB, true if the block was readable.
    pub(crate) readable: Vec<bool>,
    /// The error of the first unreadable block.
    pub(crate) why: Option<ArrayError>,
}

/// Bytes for a stable write.
#[derive(Clone, Debug)]
pub(crate) struct Writing {
    pub(crate) member: MemberIndex,
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

/// A piece of a read: its bytes, or the error of an unreadable block of 4 KiB.
type Piece<'p> = Result<&'p [u8], IoError>;

/// One request.
#[derive(Clone, Copy, Debug)]
struct Task {
    /// Index of the reading or writing to which the request belongs.
    of: usize,
    offset: u64,
    bytes: u64,
}

/// The outcome of a request: further requests, or the failure of the member.
type Outcome = Result<Vec<Task>, IoError>;

/// The work of a run.
struct Work<'w> {
    /// Builds the operation of a task at the given block.
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
    /// A queue is opened when it is first needed.
    pub(crate) fn new(drives: &[Option<Drive>], wait: Wait<'a>) -> Self {
        let lanes = drives.iter().map(|drive| drive.as_ref().map(Lane::new)).collect();
        Self { lanes, wait, now: Nanos(0), attention: Attention::default() }
    }

    /// Returns the members that have a drive.
    pub(crate) fn here(&self) -> impl Iterator<Item = MemberIndex> + use<'_> {
        let here = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_some());
        here.map(|(at, _)| MemberIndex(at as u8))
    }

    /// Reads in pieces, in any order. `each` receives the index of the reading, the byte offset on the member, and the
    /// content. Ranges that read as zeroes according to a device are left out.
    ///
    /// # Errors
    /// If members fail; unreadable blocks are not a failure. The other members have been read to the end.
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
        // Buffers of processed pieces, which the next reads use again.
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

    /// Reads all of `readings` completely, except for unreadable blocks.
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
    /// If members fail. The other members have been written to the end.
    pub(crate) fn write(&mut self, writings: &[Writing], doing: &str) -> Result<(), Failed> {
        self.write_noting(writings, doing, &mut |_| {})
    }

    /// Writes like [`write`](Self::write). `stable` receives the index of each writing that is complete and stable.
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

    /// Flushes the caches of all members, so that everything that can be read there is stable.
    ///
    /// # Errors
    /// If members fail. The other members have been flushed.
    pub(crate) fn flush(&mut self, doing: &str) -> Result<(), Failed> {
        let once = Task { of: 0, offset: 0, bytes: 0 };
        self.lanes.iter_mut().flatten().for_each(|lane| lane.todo.push_back(once));
        let op = |_: &Task, _: Lba| Op::Flush;
        let mut done = |_: Task, result: Result<Op, IoError>| result.map(|_| Vec::new());
        self.run(doing, &mut Work { op: &op, done: &mut done })
    }

    /// Executes the tasks on all members concurrently.
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

    /// Returns the time; `None` if the caller has stopped waiting.
    fn look(&mut self) -> Option<Nanos> {
        self.now = (self.wait)()?;
        Some(self.attention.at(self.now))
    }
}

/// The reason why a member is abandoned.
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
    /// Time of the next attempt to open the queue, after a refusal.
    ask_at: Nanos,
    batch: CompletionBatch,
    todo: VecDeque<Task>,
    /// Requests in progress, by token.
    out: Vec<(u64, Task)>,
    next: u64,
}

impl Lane {
    fn new(drive: &Drive) -> Self {
        let info = drive.device.info();
        // The transfer limit of a drive need not be a multiple of 4 KiB.
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

    /// Submits requests and collects completions. Returns true if there were completions.
    fn turn(&mut self, now: Nanos, at: Nanos, work: &mut Work<'_>) -> Result<bool, Trouble> {
        if self.queue.is_none() && !self.open(at)? {
            return Ok(false);
        }
        self.submit(work);
        // An idle queue that accepts no requests counts as unresponsive too.
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

    /// Opens the queue. Returns false while the drive still has outstanding requests of an earlier use. Their
    /// completion is awaited like any answer. Attempts are rare, because each attempt takes time from the other
    /// members.
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

    /// Stops using the member. The queue waits for the outstanding requests.
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
    /// Splits the request into blocks of 4 KiB.
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
