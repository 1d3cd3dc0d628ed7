//! Host requests: taken in from queues, cut into spans, answered when the last span is.

use std::collections::VecDeque;

use strake_block::{
    BufMut, Completion, Durability, IoError, IoErrorKind, Op, Reunion, Sg, SgMut, Token,
};
use strake_reactor::{Receiver, Sender};
use strake_units::{BlockSize, Lba, LbaRange, Nanos};

use crate::limits::{ACCEPT_PER_TURN, MAINTENANCE_WINDOW};
use crate::message::Fill;
use crate::pacing::{Came, Class, Pacer};
use crate::queue::{PortReply, PortRequest};
use crate::slab::Slab;

/// What is left to hand out of a request.
pub(crate) enum Body {
    /// The buffer shrinks from the front as pieces are cut off.
    Read { data: SgMut },
    /// A write, in the order of its bands.
    Write { fill: Fill, durability: Durability },
    /// One task does it.
    Flush,
}

pub(crate) struct Request {
    port: usize,
    token: Token,
    pub(crate) body: Body,
    /// The whole request.
    pub(crate) range: LbaRange,
    /// Reads: the first block not yet handed out. Writes: the first block of a stripe not wholly handed out.
    pub(crate) next: Lba,
    /// Writes: bands of that block's stripe already handed out.
    pub(crate) bands_done: usize,
    pub(crate) handed_out: bool,
    outstanding: u32,
    error: Option<IoError>,
    reunion: Reunion,
    /// When it was taken in, and what was going on then.
    since: Nanos,
    came: Came,
}

impl Request {
    /// Spans handed out and not back.
    pub(crate) const fn outstanding(&self) -> u32 {
        self.outstanding
    }
}

/// A user of the array on this core.
struct Port {
    requests: Receiver<PortRequest>,
    replies: Sender<PortReply>,
    /// Requests taken in from it and not answered. Its number is not given to another port before these are gone.
    live: u32,
}

/// Requests taken in since the start.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
}

pub(crate) struct Requests {
    pub(crate) counts: Counts,
    /// What the latency of requests means for maintenance.
    pub(crate) pacer: Pacer,
    /// The turn's time, and what is going on in it.
    now: Nanos,
    came: Came,
    ports: Vec<Option<Port>>,
    /// Set when the array stops or is lost: what comes in from then on is answered with this.
    refusing: Option<IoErrorKind>,
    live: Slab<Request>,
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
    ) -> Self {
        Self {
            counts: Counts::default(),
            pacer: Pacer::new(MAINTENANCE_WINDOW),
            now: Nanos(0),
            came: Came::default(),
            ports: Vec::new(),
            refusing: None,
            live: Slab::new(capacity),
            splitting: VecDeque::with_capacity(capacity),
            block_size,
            capacity_blocks,
            io_bytes_max,
        }
    }

    pub(crate) fn connect(&mut self, requests: Receiver<PortRequest>, replies: Sender<PortReply>) {
        let port = Port { requests, replies, live: 0 };
        match self.ports.iter_mut().find(|p| p.is_none()) {
            Some(place) => *place = Some(port),
            None => self.ports.push(Some(port)),
        }
    }

    /// A turn begins at `now`; requests that come in it come as `came`.
    pub(crate) fn begin_turn(&mut self, now: Nanos, came: Came) {
        self.now = now;
        self.came = came;
    }

    /// Takes nothing in any more: requests are answered with `kind`.
    pub(crate) fn refuse(&mut self, kind: IoErrorKind) {
        self.refusing = Some(kind);
    }

    pub(crate) fn live(&self) -> usize {
        self.live.live()
    }

    pub(crate) fn get(&mut self, request: u32) -> &mut Request {
        self.live.get_mut(request).expect("a span outlived its request")
    }

    /// Takes new requests in from every queue, a few from each in turn so that none starves. Returns how many.
    pub(crate) fn accept(&mut self) -> usize {
        let mut taken = 0;
        for at in 0..self.ports.len() {
            for _ in 0..ACCEPT_PER_TURN.min(self.live.room()) {
                let Some(port) = &mut self.ports[at] else { break };
                let Some(PortRequest { token, op }) = port.requests.recv() else {
                    if port.requests.abandoned() && port.requests.is_empty() && port.live == 0 {
                        self.ports[at] = None;
                    }
                    break;
                };
                taken += 1;
                self.take_in(at, token, op);
            }
        }
        taken
    }

    fn take_in(&mut self, port: usize, token: Token, op: Op) {
        let refused = self.refusing.map_or_else(|| self.check(&op), Err);
        if let Err(kind) = refused {
            self.answer(port, Completion { token, op, result: Err(IoError::new(kind)) });
            return;
        }
        let range = op.range(self.block_size);
        let mut reunion = Reunion::default();
        let body = match op {
            Op::Read { data, .. } => {
                self.counts.reads += 1;
                self.counts.read_bytes += data.len() as u64;
                reunion = Reunion::of(&data);
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
            reunion,
            since: self.now,
            came: self.came,
        });
        self.splitting.push_back(request);
        if let Some(port) = &mut self.ports[port] {
            port.live += 1;
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

    /// One more span of `request` is under way.
    pub(crate) fn span_out(&mut self, request: u32) {
        self.get(request).outstanding += 1;
    }

    /// All spans of `request` are handed out; answers it if they are all back already.
    pub(crate) fn all_out(&mut self, request: u32) {
        self.get(request).handed_out = true;
        self.settle(request);
    }

    /// One span of `request` is back.
    pub(crate) fn span_back(
        &mut self,
        request: u32,
        result: Result<(), IoError>,
        data: Option<SgMut>,
    ) {
        let place = self.get(request);
        place.outstanding -= 1;
        if let Err(error) = result {
            place.error.get_or_insert(error);
        }
        if let Some(data) = data {
            // A stranger among the pieces leaves the reunion incomplete, which `settle` deals with.
            let _ = place.reunion.absorb(data);
        }
        self.settle(request);
    }

    fn settle(&mut self, request: u32) {
        let place = self.get(request);
        if place.outstanding > 0 || !place.handed_out {
            return;
        }
        let reunion = std::mem::take(&mut place.reunion);
        let data = match reunion.complete() {
            Ok(data) => data,
            Err(_) if place.error.is_none() => return self.restart(request),
            Err(_) => SgMut::default(),
        };
        let result = place.error.map_or(Ok(()), Err);
        let request = self.live.remove(request);
        self.take_time(&request);
        self.conclude(request, data, result);
    }

    /// Notes how long a request took, if it is of a kind that is compared.
    fn take_time(&mut self, request: &Request) {
        let bytes = request.range.blocks << self.block_size.shift();
        let class = match request.body {
            Body::Read { .. } => Class::read(bytes),
            Body::Write { fill: Fill::Data(_), .. } => Class::write(bytes),
            Body::Write { fill: Fill::Zeroes | Fill::Deallocate, .. } | Body::Flush => return,
        };
        self.pacer.answered(request.came, class, self.now.since(request.since));
    }

    /// Sends a request home; `data` is a read's buffer.
    fn conclude(&mut self, request: Request, data: SgMut, result: Result<(), IoError>) {
        let Request { port, token, body, range, .. } = request;
        let op = match body {
            Body::Read { .. } => Op::Read { at: range.start, data },
            Body::Write { fill: Fill::Data(data), durability } => {
                Op::Write { at: range.start, data, durability }
            }
            Body::Write { fill: Fill::Zeroes, durability } => Op::WriteZeroes { range, durability },
            Body::Write { fill: Fill::Deallocate, .. } => Op::Deallocate { range },
            Body::Flush => Op::Flush,
        };
        if let Some(port) = &mut self.ports[port] {
            port.live -= 1;
        }
        self.answer(port, Completion { token, op, result });
    }

    /// Reads once more from the beginning into fresh memory: a drive that timed out keeps part of the buffer
    /// the request came with.
    fn restart(&mut self, request: u32) {
        let shift = self.block_size.shift();
        let place = self.get(request);
        let data = SgMut::from(BufMut::alone((place.range.blocks << shift) as usize));
        place.reunion = Reunion::of(&data);
        place.body = Body::Read { data };
        place.next = place.range.start;
        place.handed_out = false;
        self.splitting.push_back(request);
    }

    fn answer(&mut self, port: usize, completion: Completion) {
        if let Some(port) = &mut self.ports[port] {
            // The ring has room for every request its queue may have outstanding; a queue that was dropped
            // does not want its answers.
            let _ = port.replies.send(completion);
        }
    }

    /// Answers everything there is, when the shard ends. Buffers of reads that are under way stay with the members'
    /// queues.
    pub(crate) fn abandon(&mut self) {
        let aborted = Err(IoError::new(IoErrorKind::Aborted));
        while let Some(request) = self.live.pop() {
            self.conclude(request, SgMut::default(), aborted);
        }
        for at in 0..self.ports.len() {
            while let Some(PortRequest { token, op }) =
                self.ports[at].as_mut().and_then(|p| p.requests.recv())
            {
                self.answer(
                    at,
                    Completion { token, op, result: Err(IoError::new(IoErrorKind::Aborted)) },
                );
            }
        }
    }
}

/// The data of `request` at `segment_lba`, as far as `blocks` go.
pub(crate) fn slice(
    fill_range: LbaRange,
    data: &Sg,
    from: Lba,
    blocks: u64,
    block_size: BlockSize,
) -> Sg {
    let offset = (from.0 - fill_range.start.0) << block_size.shift();
    data.slice(offset as usize, (blocks << block_size.shift()) as usize)
}
