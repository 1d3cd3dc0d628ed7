//! Requests of hosts: their division by cluster, reads and writes in place, and their answers.

use strake_block::{
    Completion, Durability, Io, IoError, IoErrorKind, Op, Reunion, Sg, SgMut, Token,
};
use strake_units::{Lba, LbaRange};
use strake_volume_map::{Blocks, Part, Request, Ring, Source, Stability, VolumeId};

use super::steps::{Owner, Running};
use super::{Driver, Transfer, io_error};
use crate::limits::{DISCARD_WINDOW, DISCARDS_PER_TURN, OPERATIONS_MAX};

/// The content of a request.
enum Content {
    /// The address, and the buffer when the only part of the read has completed.
    Read { at: Lba, data: SgMut },
    /// The address, and the pieces of the buffer that are back.
    SplitRead { at: Lba, back: Reunion },
    /// The address, the data and the durability of the write.
    Write { at: Lba, data: Sg, durability: Durability },
    /// A deallocation or a write of zeroes.
    Discard { op: Op },
    /// A flush.
    Flush,
}

/// A request of a host in progress.
pub(super) struct HostRequest {
    port: u32,
    token: Token,
    volume: VolumeId,
    content: Content,
    /// Blocks of the volume that were not begun.
    rest: LbaRange,
    /// Parts in progress, and one while the request is being begun.
    parts: u32,
    error: Option<IoError>,
}

impl HostRequest {
    /// Returns the data of a part of a write.
    pub(super) fn data(&self, part: HostPart, shift: u32) -> Sg {
        match &self.content {
            Content::Write { data, .. } => data.slice(part.offset << shift, part.count << shift),
            Content::Read { .. }
            | Content::SplitRead { .. }
            | Content::Discard { .. }
            | Content::Flush => Sg::default(),
        }
    }
}

/// A part of a request, in blocks from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostPart {
    pub(super) offset: usize,
    pub(super) count: usize,
}

impl Driver {
    /// Begins a request of a queue.
    pub(super) fn begin(&mut self, port: u32, volume: VolumeId, io: Io) {
        let size = self.layout.block_size;
        let rest = io.op.range(size);
        let bytes = match &io.op {
            Op::Read { data, .. } => data.len(),
            Op::Write { data, .. } => data.len(),
            Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => 0,
        };
        let refusal = if !self.is_serving() {
            Some(IoErrorKind::Aborted)
        } else if bytes & (size.bytes() as usize - 1) != 0 {
            Some(IoErrorKind::Misaligned)
        } else {
            match (&io.op, self.map.volume(volume)) {
                (_, None) => Some(IoErrorKind::Gone),
                (Op::Flush, Some(_)) => None,
                (_, Some(known)) if rest.blocks == 0 || !rest.fits(known.blocks) => {
                    Some(IoErrorKind::OutOfRange)
                }
                (_, Some(_)) => None,
            }
        };
        if let Some(kind) = refusal {
            return self.answer(port, io.token, io.op, Err(IoError::new(kind)));
        }
        match io.op {
            Op::Read { at, data } => self.begin_read(port, io.token, volume, at, data),
            Op::Write { at, data, durability } => {
                self.insert(port, io.token, volume, Content::Write { at, data, durability }, rest);
            }
            Op::Flush => self.insert(port, io.token, volume, Content::Flush, rest),
            op @ (Op::Deallocate { .. } | Op::WriteZeroes { .. }) => {
                self.insert(port, io.token, volume, Content::Discard { op }, rest);
            }
        }
    }

    fn insert(
        &mut self,
        port: u32,
        token: Token,
        volume: VolumeId,
        content: Content,
        rest: LbaRange,
    ) {
        let is_flush = matches!(content, Content::Flush);
        let (parts, error) = (1, None);
        let request = HostRequest { port, token, volume, content, rest, parts, error };
        let request = self.requests.insert(request);
        if is_flush {
            self.send(Transfer::Flush { request }, Op::Flush);
        } else if !self.continue_request(request, DISCARD_WINDOW) {
            self.unfinished.push_back(request);
        }
    }

    /// Reads all clusters of a request at once: a read never waits. Most reads have one part.
    fn begin_read(&mut self, port: u32, token: Token, volume: VolumeId, at: Lba, mut data: SgMut) {
        let per = u64::from(self.map.shape().cluster_blocks);
        let count = data.len() as u64 >> self.layout.block_size.shift();
        let (index, first) = (at.0 / per, at.0 % per);
        if first + count <= per {
            let blocks = Blocks { first: first as u16, count: count as u16 };
            match self.map.enter_read(volume, index as u32, blocks) {
                Ok((epoch, Part { blocks: found, source: Source::Cluster(cluster) }))
                    if found == blocks =>
                {
                    let content = Content::Read { at, data: SgMut::default() };
                    let rest = LbaRange::default();
                    let request =
                        HostRequest { port, token, volume, content, rest, parts: 1, error: None };
                    let request = self.requests.insert(request);
                    self.directs.show(&self.map, volume, index as u32);
                    let at = self.layout.cluster(cluster, blocks);
                    return self.send(Transfer::Read { request, epoch }, Op::Read { at, data });
                }
                Ok((epoch, _)) => self.map.leave(epoch),
                Err(error) => {
                    let op = Op::Read { at, data };
                    return self.answer(port, token, op, Err(io_error(error.kind)));
                }
            }
        }
        let content = Content::SplitRead { at, back: Reunion::of(&data) };
        let rest = LbaRange::default();
        let request = HostRequest { port, token, volume, content, rest, parts: 1, error: None };
        let request = self.requests.insert(request);
        let Ok(clusters) = self.map.shape().parts(at.0, count) else {
            self.give_back(request, data);
            return self.part_completed(request, Err(IoError::new(IoErrorKind::OutOfRange)));
        };
        for (index, blocks) in clusters {
            self.read_cluster(request, volume, index, blocks, &mut data);
        }
        self.part_completed(request, Ok(()));
    }

    /// Reads blocks of one cluster into the front of the buffer.
    fn read_cluster(
        &mut self,
        request: u32,
        volume: VolumeId,
        index: u32,
        blocks: Blocks,
        data: &mut SgMut,
    ) {
        let mut rest = blocks;
        while rest.count > 0 {
            let (epoch, part) = match self.map.enter_read(volume, index, rest) {
                Ok(entered) => entered,
                Err(error) => {
                    let piece = data.split_to(self.layout.bytes_of(rest.count));
                    self.give_back(request, piece);
                    self.requests.get_mut(request).error.get_or_insert(io_error(error.kind));
                    return;
                }
            };
            let mut piece = data.split_to(self.layout.bytes_of(part.blocks.count));
            match part.source {
                Source::Cluster(cluster) => {
                    self.requests.get_mut(request).parts += 1;
                    let at = self.layout.cluster(cluster, part.blocks);
                    self.send(Transfer::Read { request, epoch }, Op::Read { at, data: piece });
                }
                Source::Zeroes => {
                    self.map.leave(epoch);
                    let bytes = piece.len();
                    piece.slices_mut(0, bytes).for_each(|slice| slice.fill(0));
                    self.give_back(request, piece);
                }
            }
            rest.first += part.blocks.count;
            rest.count -= part.blocks.count;
        }
    }

    /// Returns a piece of the buffer of a read.
    fn give_back(&mut self, request: u32, piece: SgMut) {
        let request = self.requests.get_mut(request);
        match &mut request.content {
            Content::Read { data, .. } => *data = piece,
            Content::SplitRead { back, .. } => {
                if back.absorb(piece).is_err() {
                    // The device returned other memory after a time-out: the buffer stays incomplete.
                    request.error.get_or_insert(IoError::new(IoErrorKind::Timeout));
                }
            }
            Content::Write { .. } | Content::Discard { .. } | Content::Flush => {}
        }
    }

    pub(super) fn read_completed(&mut self, request: u32, op: Op, result: Result<(), IoError>) {
        if let Op::Read { data, .. } = op {
            self.give_back(request, data);
        }
        self.part_completed(request, result);
    }

    /// Continues requests whose clusters were not all begun. Returns the number of begun clusters.
    pub(super) fn continue_unfinished(&mut self) -> usize {
        let mut count = 0;
        for _ in 0..self.unfinished.len() {
            if count >= DISCARDS_PER_TURN || self.has_no_room() {
                break;
            }
            let Some(request) = self.unfinished.pop_front() else { break };
            let before = self.requests.get_mut(request).rest.blocks;
            let is_begun = self.continue_request(request, DISCARD_WINDOW);
            if !is_begun {
                let after = self.requests.get_mut(request).rest.blocks;
                let per = u64::from(self.map.shape().cluster_blocks);
                count += (before - after).div_ceil(per) as usize;
                self.unfinished.push_back(request);
            } else {
                count += 1;
            }
        }
        count
    }

    /// True if no operation may begin: the number of operations or the log is at its limit. Without a log, the map
    /// refuses the operation.
    fn has_no_room(&self) -> bool {
        if self.map.is_read_only() {
            return false;
        }
        self.operations.len() >= OPERATIONS_MAX || self.is_log_nearly_full()
    }

    /// Begins clusters of a write or discard. Returns true if all were begun; the request may then have ended.
    fn continue_request(&mut self, at: u32, window: u32) -> bool {
        let per = u64::from(self.map.shape().cluster_blocks);
        if self.needs_root() {
            return false;
        }
        loop {
            let request = self.requests.get_mut(at);
            if request.rest.blocks == 0 || request.error.is_some() {
                self.part_completed(at, Ok(()));
                return true;
            }
            let is_discard = matches!(request.content, Content::Discard { .. });
            if is_discard && request.parts > window {
                return false;
            }
            let first = request.rest.start.0;
            if is_discard
                && let Some(end) = self.map.unmapped_until(request.volume, (first / per) as u32)
            {
                // A leaf that does not exist is zero already.
                let rest = &mut request.rest;
                let skipped = (u64::from(end) * per - first).min(rest.blocks);
                *rest = LbaRange::new(Lba(first + skipped), rest.blocks - skipped);
                continue;
            }
            let count = (per - first % per).min(request.rest.blocks);
            let blocks = Blocks { first: (first % per) as u16, count: count as u16 };
            let volume = request.volume;
            let begun = if is_discard {
                let (index, core) = ((first / per) as u32, Ring::LEADER);
                let discard = Request::Discard { volume, index, blocks, core };
                self.begin_part(at, discard, HostPart { offset: 0, count: 0 })
            } else {
                self.write_cluster(at, volume, (first / per) as u32, blocks)
            };
            if !begun {
                return false;
            }
            let rest = &mut self.requests.get_mut(at).rest;
            *rest = LbaRange::new(Lba(first + count), rest.blocks - count);
        }
    }

    /// Begins the write of blocks of one cluster. False if there is no room for an operation.
    fn write_cluster(&mut self, at: u32, volume: VolumeId, index: u32, blocks: Blocks) -> bool {
        let shift = self.layout.block_size.shift();
        let request = self.requests.get_mut(at);
        let Content::Write { at: start, durability, .. } = &request.content else {
            unreachable!("only writes have data")
        };
        let offset = (request.rest.start.0 - start.0) as usize;
        let part = HostPart { offset, count: usize::from(blocks.count) };
        let durability = *durability;
        match self.map.enter_write(volume, index, blocks, Ring::LEADER) {
            Err(error) => {
                self.requests.get_mut(at).error.get_or_insert(io_error(error.kind));
                true
            }
            Ok(Some((epoch, cluster))) => {
                let request = self.requests.get_mut(at);
                request.parts += 1;
                let data = request.data(part, shift);
                self.directs.show(&self.map, volume, index);
                let transfer = Transfer::Write { request: at, epoch };
                let lba = self.layout.cluster(cluster, blocks);
                self.send(transfer, Op::Write { at: lba, data, durability });
                true
            }
            Ok(None) => {
                let stability = match durability {
                    Durability::Normal => Stability::Cached,
                    Durability::Fua => Stability::Stable,
                };
                let core = Ring::LEADER;
                let write = Request::Write { volume, index, blocks, stability, core };
                self.begin_part(at, write, part)
            }
        }
    }

    fn begin_part(&mut self, request: u32, what: Request, part: HostPart) -> bool {
        if self.has_no_room() {
            return false;
        }
        match self.map.begin(what) {
            Ok(id) => {
                self.requests.get_mut(request).parts += 1;
                self.operations.insert(id, Running::new(Owner::Host { request, part }));
            }
            Err(error) => {
                self.requests.get_mut(request).error.get_or_insert(io_error(error.kind));
            }
        }
        true
    }

    /// Ends a part of a request, and the request with its last part.
    pub(super) fn part_completed(&mut self, at: u32, result: Result<(), IoError>) {
        let request = self.requests.get_mut(at);
        if let Err(error) = result {
            request.error.get_or_insert(error);
        }
        request.parts -= 1;
        if request.parts > 0 {
            return;
        }
        let HostRequest { port, token, content, error, .. } = self.requests.remove(at);
        let op = match content {
            Content::Read { at, data } => Op::Read { at, data },
            // Memory to which a drive may still write does not return.
            Content::SplitRead { at, back } => {
                Op::Read { at, data: back.complete().unwrap_or_default() }
            }
            Content::Write { at, data, durability } => Op::Write { at, data, durability },
            Content::Discard { op } => op,
            Content::Flush => Op::Flush,
        };
        self.answer(port, token, op, error.map_or(Ok(()), Err));
    }

    /// Answers all requests as aborted, after the end of the pool. Buffers that the device may still use do not return.
    pub(super) fn abort_requests(&mut self) {
        let aborted = || Err(IoError::new(IoErrorKind::Aborted));
        for request in self.requests.take_all() {
            let HostRequest { port, token, content, .. } = request;
            let op = match content {
                Content::Read { at, .. } => Op::Read { at, data: SgMut::default() },
                Content::SplitRead { at, .. } => Op::Read { at, data: SgMut::default() },
                Content::Write { at, durability, .. } => {
                    Op::Write { at, data: Sg::default(), durability }
                }
                Content::Discard { op } => op,
                Content::Flush => Op::Flush,
            };
            self.answer(port, token, op, aborted());
        }
        for at in 0..self.ports.len() {
            while let Some(port) = &mut self.ports[at]
                && let Some(io) = port.requests.recv()
            {
                port.outstanding += 1;
                self.answer(at as u32, io.token, io.op, aborted());
            }
        }
    }

    fn answer(&mut self, port: u32, token: Token, op: Op, result: Result<(), IoError>) {
        let Some(port) = &mut self.ports[port as usize] else { return };
        port.outstanding -= 1;
        port.has_answers = true;
        // The mailbox has room for as many answers as the user has requests. A user that is gone needs none.
        let _ = port.replies.send(Completion { token, op, result });
    }
}
