//! Host requests: accepted from queues, split into spans, and completed with the last span.

mod traced;

use std::collections::VecDeque;
use std::sync::Arc;

use strake_block::{
    BufMut, Completion, Durability, Io, IoError, IoErrorKind, Op, Reunion, Sg, SgMut, Token,
};
use strake_units::{BlockSize, Lba, LbaRange, MemberIndex, Nanos};

use super::members::DirectRead;
use super::small::{Caller, DirectWrite};
use crate::histogram::{CoreTimes, Timed};
use crate::limits::{ACCEPT_PER_TURN, MAINTENANCE_WINDOW};
use crate::message::Fill;
use crate::pacing::{Came, Class, Pacer};
use crate::port::Port;
use crate::slab::Slab;
use crate::trace::{Retried, Stages, Tracer};

/// The part of a request that is not yet handed out.
pub(crate) enum Body {
    /// A read. The buffer shrinks from the front with each piece.
    Read { data: SgMut },
    /// A write, in the order of its bands.
    Write { fill: Fill, durability: Durability },
    /// A flush, which one task executes.
    Flush,
}

/// The buffer of a completed read.
enum Answer {
    /// The read has several pieces, whose buffers are joined again.
    Pieces(Reunion),
    /// The read has one piece, which returns the buffer.
    Whole(Option<SgMut>),
}

pub(crate) struct Request {
    port: usize,
    token: Token,
    pub(crate) body: Body,
    /// The range of the whole request.
    pub(crate) range: LbaRange,
    /// Reads: the first block not yet handed out. Writes: the first block of a stripe not wholly handed out.
    pub(crate) next: Lba,
    /// Writes: bands of that block's stripe already handed out.
    pub(crate) bands_done: usize,
    pub(crate) handed_out: bool,
    outstanding: u32,
    error: Option<IoError>,
    answer: Answer,
    /// The time at which the request was accepted, and the state of maintenance at this time.
    since: Nanos,
    came: Came,
    retried: Retried,
}

impl Request {
    /// Spans that were handed out and have not completed.
    pub(crate) const fn outstanding(&self) -> u32 {
        self.outstanding
    }
}

/// A user of the array on this core.
struct User {
    port: Port,
    /// Accepted requests of the user that are not yet answered. The index is not reused before these requests are
    /// answered.
    live: u32,
    /// End of the last write of the user.
    wrote_to: Lba,
}

/// Requests accepted since the start.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
}

pub(crate) struct Requests {
    pub(crate) counts: Counts,
    /// Adapts the speed of maintenance to the latency of requests.
    pub(crate) pacer: Pacer,
    /// Latencies of requests.
    times: Arc<CoreTimes>,
    /// Records where the time of some requests went.
    tracer: Tracer,
    /// The time of the turn, and the state of maintenance in it.
    now: Nanos,
    came: Came,
    users: Vec<Option<User>>,
    /// Set when the array stops or fails: new requests are answered with this error.
    refusing: Option<IoErrorKind>,
    live: Slab<Request>,
    /// The user whose requests are accepted first.
    first: usize,
    /// True if there is no room for all waiting requests.
    crowded: bool,
    /// Number of direct reads and direct writes in progress.
    direct: usize,
    /// Direct requests that were answered last and have the same class and arrival, for common accounting.
    alike: (Came, Class, Nanos),
    alikes: u32,
    /// Requests with spans left to hand out, in order of arrival.
    pub(crate) splitting: VecDeque<u32>,
    block_size: BlockSize,
    capacity_blocks: u64,
    io_bytes_max: u32,
}

impl Requests {
    pub(crate) fn new(
        capacity: usize,
        block_size: BlockSize,
        capacity_blocks: u64,
        io_bytes_max: u32,
        (times, tracer): (Arc<CoreTimes>, Tracer),
    ) -> Self {
        Self {
            counts: Counts::default(),
            pacer: Pacer::new(MAINTENANCE_WINDOW),
            times,
            tracer,
            now: Nanos(0),
            came: Came::default(),
            users: Vec::new(),
            refusing: None,
            live: Slab::new(capacity),
            first: 0,
            crowded: false,
            direct: 0,
            alike: (Came::default(), Class::SmallRead, Nanos(0)),
            alikes: 0,
            splitting: VecDeque::with_capacity(capacity),
            block_size,
            capacity_blocks,
            io_bytes_max,
        }
    }

    /// Accepts requests from `port` from now on. Returns the index of the port.
    pub(crate) fn connect(&mut self, port: Port) -> usize {
        let user = Some(User { port, live: 0, wrote_to: Lba(0) });
        match self.users.iter().position(Option::is_none) {
            Some(at) => {
                self.users[at] = user;
                at
            }
            None => {
                self.users.push(user);
                self.users.len() - 1
            }
        }
    }

    /// Starts a turn at `now`. Requests of this turn arrive in the state `came`.
    pub(crate) fn begin_turn(&mut self, now: Nanos, came: Came) {
        self.now = now;
        self.came = came;
        self.tracer.begin_turn(now);
    }

    /// Refuses all further requests with `kind`.
    pub(crate) fn refuse(&mut self, kind: IoErrorKind) {
        self.refusing = Some(kind);
    }

    pub(crate) fn live(&self) -> usize {
        self.live.live() + self.direct
    }

    /// Number of requests that may be sent directly to members. The number is 0 unless the array serves and no earlier
    /// request waits for members, and it is limited to the number that could still become ordinary requests.
    #[inline]
    pub(crate) fn room_for_direct(&self) -> usize {
        if self.crowded || self.refusing.is_some() || !self.splitting.is_empty() {
            return 0;
        }
        self.live.room().saturating_sub(self.direct)
    }

    /// The state of maintenance at the start of the turn.
    #[inline]
    pub(crate) fn came(&self) -> Came {
        self.came
    }

    /// Counts `reads` direct reads with `bytes` bytes in total.
    #[inline]
    pub(crate) fn went_directly(&mut self, port: u16, reads: u32, bytes: usize) {
        self.counts.reads += u64::from(reads);
        self.counts.read_bytes += bytes as u64;
        self.direct += reads as usize;
        if let Some(user) = &mut self.users[usize::from(port)] {
            user.live += reads;
        }
    }

    /// Counts a direct write of `range`.
    #[inline(always)]
    pub(crate) fn wrote_directly(&mut self, port: u16, range: LbaRange, bytes: usize) {
        self.counts.writes += 1;
        self.counts.write_bytes += bytes as u64;
        self.direct += 1;
        if let Some(user) = &mut self.users[usize::from(port)] {
            user.live += 1;
            user.wrote_to = range.end();
        }
    }

    /// True if a write of `range` starts at the end of the user's last write while requests of the user are in
    /// progress. More writes will follow, and writes that wait for a band are merged.
    #[inline]
    pub(crate) fn continues(&self, port: u16, range: LbaRange) -> bool {
        let user = self.users[usize::from(port)].as_ref();
        user.is_some_and(|user| user.live > 0 && user.wrote_to == range.start)
    }

    /// True if requests of the user wait to be accepted.
    #[inline(never)]
    pub(crate) fn has_unaccepted(&self, port: u16) -> bool {
        let user = self.users[usize::from(port)].as_ref();
        user.is_some_and(|user| user.port.has_waiting())
    }

    /// Answers a successful direct read, or a degraded read. Its I/Os were issued at `issued`. The last one was an I/O
    /// of `member`.
    pub(crate) fn answer_direct(
        &mut self,
        read: &DirectRead,
        data: SgMut,
        (issued, member): (Nanos, MemberIndex),
    ) {
        let mut one = Some(data);
        self.answer_alike(read, (issued, member), || Some((read.token, read.at, one.take()?)));
    }

    /// Answers successful direct reads that are like `first`. Returns their number. `issued` and `member` as in
    /// [`answer_direct`](Self::answer_direct).
    #[inline(always)]
    pub(crate) fn answer_alike(
        &mut self,
        first: &DirectRead,
        (issued, member): (Nanos, MemberIndex),
        next: impl FnMut() -> Option<(Token, Lba, SgMut)>,
    ) -> u32 {
        let user = self.users[usize::from(first.port)].as_mut();
        let user = user.expect("a user stays as long as it has requests");
        let count = user.port.send_reads(next);
        user.live -= count;
        self.direct -= count as usize;
        self.count((first.came, Class::read(first.bytes.into()), first.since), count);
        if self.tracer.picks(first.since, count) {
            self.trace_direct(first, issued, member);
        }
        count
    }

    /// Answers a direct write.
    #[inline]
    pub(crate) fn answer_write(
        &mut self,
        write: &DirectWrite,
        (at, data, durability): (Lba, Sg, Durability),
        result: Result<(), IoError>,
        stages: impl FnOnce() -> Stages,
    ) {
        self.direct -= 1;
        let bytes = data.len() as u64;
        self.count((write.came, Class::write(bytes), write.since), 1);
        if self.tracer.picks(write.since, 1) {
            self.trace_write(write, (at, bytes), result, stages);
        }
        if let Some(user) = &mut self.users[usize::from(write.port)] {
            user.live -= 1;
            user.port.send_made(write.token, result, || Op::Write { at, data, durability });
        }
    }

    #[inline]
    fn count(&mut self, alike: (Came, Class, Nanos), more: u32) {
        if self.alike != alike {
            self.count_alike();
            self.alike = alike;
        }
        self.alikes += more;
    }

    /// Counts the direct requests that were answered and arrived together.
    pub(crate) fn count_alike(&mut self) {
        let (came, class, since) = self.alike;
        let count = std::mem::take(&mut self.alikes);
        if count > 0 {
            let took = self.now.since(since);
            self.times.request(class.timed(), took, count);
            self.pacer.answered(came, class, took, count);
        }
    }

    /// Turns a direct read into an ordinary request with one outstanding part.
    pub(crate) fn make_ordinary(&mut self, read: &DirectRead) -> (u32, LbaRange) {
        self.direct -= 1;
        let range = LbaRange::new(read.at, u64::from(read.bytes) >> self.block_size.shift());
        let request = self.live.insert(Request {
            port: usize::from(read.port),
            token: read.token,
            body: Body::Read { data: SgMut::default() },
            range,
            next: range.end(),
            bands_done: 0,
            handed_out: true,
            outstanding: 1,
            error: None,
            answer: Answer::Whole(None),
            since: read.since,
            came: read.came,
            retried: Retried::NEVER,
        });
        (request, range)
    }

    /// Turns a direct write into an ordinary request with one outstanding part.
    pub(crate) fn make_ordinary_write(
        &mut self,
        write: &DirectWrite,
        range: LbaRange,
        fill: Fill,
        durability: Durability,
    ) -> u32 {
        self.direct -= 1;
        self.live.insert(Request {
            port: usize::from(write.port),
            token: write.token,
            body: Body::Write { fill, durability },
            range,
            next: range.end(),
            bands_done: 0,
            handed_out: true,
            outstanding: 1,
            error: None,
            answer: Answer::Whole(Some(SgMut::default())),
            since: write.since,
            came: write.came,
            retried: Retried::NEVER,
        })
    }

    pub(crate) fn get(&mut self, request: u32) -> &mut Request {
        self.live.get_mut(request).expect("a span outlived its request")
    }

    /// Accepts new requests from all queues, a few from each queue in turn, so that no queue starves. Returns their
    /// number.
    pub(crate) fn accept(&mut self) -> usize {
        let mut taken = 0;
        for at in (self.first..self.users.len()).chain(0..self.first) {
            if self.live.room() <= self.direct {
                // If there is too little room, the next turn starts with the next queue.
                self.first = at;
                break;
            }
            for _ in 0..ACCEPT_PER_TURN.min(self.live.room() - self.direct) {
                let Some(user) = &mut self.users[at] else { break };
                let Some(Io { token, op }) = user.port.recv() else {
                    if user.live == 0 && user.port.is_over() {
                        self.users[at] = None;
                    }
                    break;
                };
                taken += 1;
                self.take_in(at, token, op);
            }
        }
        // Direct requests must not overtake waiting requests.
        self.crowded = self.live.room() <= self.direct;
        taken
    }

    #[inline(always)]
    fn take_in(&mut self, port: usize, token: Token, op: Op) {
        let refused = self.refusing.map_or_else(|| self.check(&op), Err);
        if let Err(kind) = refused {
            self.answer(port, Completion { token, op, result: Err(IoError::new(kind)) });
            return;
        }
        let range = op.range(self.block_size);
        let mut answer = Answer::Whole(Some(SgMut::default()));
        let writes = matches!(op, Op::Write { .. });
        let body = match op {
            Op::Read { data, .. } => {
                self.counts.reads += 1;
                self.counts.read_bytes += data.len() as u64;
                answer = Answer::Pieces(Reunion::of(&data));
                Body::Read { data }
            }
            Op::Write { data, durability, .. } => {
                self.counts.writes += 1;
                self.counts.write_bytes += data.len() as u64;
                Body::Write { fill: Fill::Data(data), durability }
            }
            Op::Flush => Body::Flush,
            Op::Deallocate { .. } => {
                Body::Write { fill: Fill::Deallocate, durability: Durability::Normal }
            }
            Op::WriteZeroes { durability, .. } => Body::Write { fill: Fill::Zeroes, durability },
        };
        let request = self.live.insert(Request {
            port,
            token,
            body,
            range,
            next: range.start,
            bands_done: 0,
            handed_out: false,
            outstanding: 0,
            error: None,
            answer,
            since: self.now,
            came: self.came,
            retried: Retried::NEVER,
        });
        self.splitting.push_back(request);
        if let Some(user) = &mut self.users[port] {
            user.live += 1;
            if writes {
                user.wrote_to = range.end();
            }
        }
    }

    fn check(&self, op: &Op) -> Result<(), IoErrorKind> {
        let bytes = match op {
            Op::Read { data, .. } => data.len(),
            Op::Write { data, .. } => data.len(),
            Op::Flush => return Ok(()),
            Op::Deallocate { .. } | Op::WriteZeroes { .. } => self.block_size.bytes() as usize,
        };
        let whole = bytes % self.block_size.bytes() as usize == 0 && bytes > 0;
        if !whole || bytes > self.io_bytes_max as usize {
            return Err(IoErrorKind::Misaligned);
        }
        if op.range(self.block_size).fits(self.capacity_blocks) {
            Ok(())
        } else {
            Err(IoErrorKind::OutOfRange)
        }
    }

    /// Counts one more span of `request` in progress.
    pub(crate) fn span_out(&mut self, request: u32) {
        self.get(request).outstanding += 1;
    }

    /// Records that all spans of `request` are handed out. Answers the request if all spans have completed. Their
    /// stages are then unknown, and a trace shows one wait.
    pub(crate) fn all_out(&mut self, request: u32) {
        self.get(request).handed_out = true;
        self.settle(request, &Stages::NONE);
    }

    /// Records that an attempt to execute a span of `request` failed after `took`, because of `member` if known.
    pub(crate) fn retries(&mut self, request: u32, took: Nanos, member: Option<MemberIndex>) {
        self.get(request).retried.add(took, member);
    }

    /// Records the completion of a span of `request`, with the stages of the span.
    pub(crate) fn span_back(
        &mut self,
        request: u32,
        result: Result<(), IoError>,
        data: Option<SgMut>,
        stages: &Stages,
    ) {
        let place = self.get(request);
        place.outstanding -= 1;
        if let Err(error) = result {
            place.error.get_or_insert(error);
        }
        if let Some(data) = data {
            match &mut place.answer {
                // A piece with another buffer leaves the buffer incomplete, which `settle` handles.
                Answer::Pieces(reunion) => drop(reunion.absorb(data)),
                Answer::Whole(whole) => *whole = Some(data),
            }
        }
        self.settle(request, stages);
    }

    /// Answers a request without outstanding spans. `stages` are those of the span that completed last.
    fn settle(&mut self, request: u32, stages: &Stages) {
        let place = self.get(request);
        if place.outstanding > 0 || !place.handed_out {
            return;
        }
        let data = match &mut place.answer {
            Answer::Pieces(reunion) => std::mem::take(reunion).complete().ok(),
            Answer::Whole(data) => data.take(),
        };
        let data = match data {
            Some(data) => data,
            None if place.error.is_none() => return self.restart(request, stages),
            None => SgMut::default(),
        };
        let result = place.error.map_or(Ok(()), Err);
        self.take_time(request, stages);
        self.conclude(request, data, result);
    }

    /// Records the latency of a request for the statistics and for the speed of maintenance.
    fn take_time(&mut self, request: u32, stages: &Stages) {
        let request = self.live.get(request).expect("it is being answered");
        let bytes = request.range.blocks << self.block_size.shift();
        let (what, class) = match request.body {
            Body::Read { .. } => (Timed::Read, Some(Class::read(bytes))),
            Body::Write { fill: Fill::Data(_), .. } => (Timed::Write, Some(Class::write(bytes))),
            Body::Write { fill: Fill::Zeroes | Fill::Deallocate, .. } => (Timed::Write, None),
            Body::Flush => (Timed::Flush, None),
        };
        let took = self.now.since(request.since);
        self.times.request(what, took, 1);
        if let Some(class) = class {
            self.pacer.answered(request.came, class, took, 1);
        }
        if self.tracer.picks(request.since, 1) {
            traced::request(&mut self.tracer, self.now, request, bytes, stages);
        }
    }

    /// Completes a request; `data` is the buffer of a read.
    fn conclude(&mut self, request: u32, data: SgMut, result: Result<(), IoError>) {
        let place = self.get(request);
        let (port, token, range) = (place.port, place.token, place.range);
        let body = std::mem::replace(&mut place.body, Body::Flush);
        self.live.release(request);
        let op = match body {
            Body::Read { .. } => Op::Read { at: range.start, data },
            Body::Write { fill: Fill::Data(data), durability } => {
                Op::Write { at: range.start, data, durability }
            }
            Body::Write { fill: Fill::Zeroes, durability } => Op::WriteZeroes { range, durability },
            Body::Write { fill: Fill::Deallocate, .. } => Op::Deallocate { range },
            Body::Flush => Op::Flush,
        };
        if let Some(user) = &mut self.users[port] {
            user.live -= 1;
        }
        self.answer(port, Completion { token, op, result });
    }

    /// Reads again from the start into new memory, because a drive that timed out keeps a part of the request's buffer.
    fn restart(&mut self, request: u32, stages: &Stages) {
        let (shift, now) = (self.block_size.shift(), self.now);
        let place = self.get(request);
        place.retried = stages.all_failed(place.retried, now.since(place.since));
        let data = SgMut::from(BufMut::alone((place.range.blocks << shift) as usize));
        place.answer = Answer::Pieces(Reunion::of(&data));
        place.body = Body::Read { data };
        place.next = place.range.start;
        place.handed_out = false;
        self.splitting.push_back(request);
    }

    fn answer(&mut self, port: usize, completion: Completion) {
        if let Some(user) = &mut self.users[port] {
            user.port.send(completion);
        }
    }

    /// Answers all requests when the shard ends. Buffers of reads in progress stay with the queues of the members.
    pub(crate) fn abandon(
        &mut self,
        direct: impl Iterator<Item = DirectRead>,
        small: impl Iterator<Item = (Caller, LbaRange)>,
    ) {
        let aborted = Err(IoError::new(IoErrorKind::Aborted));
        direct.for_each(|read| {
            self.make_ordinary(&read);
        });
        for (caller, range) in small {
            match caller {
                Caller::User(write) => {
                    let fill = Fill::Data(Sg::default());
                    self.make_ordinary_write(&write, range, fill, Durability::Normal);
                }
                Caller::Span(..) => {}
            }
        }
        while let Some(request) = self.live.any() {
            self.conclude(request, SgMut::default(), aborted);
        }
        for user in self.users.iter_mut().flatten() {
            while let Some(Io { token, op }) = user.port.recv() {
                user.port.send(Completion { token, op, result: aborted });
            }
            user.port.close();
        }
    }
}
