//! Replies on their way out, in the order they became ready.

use crate::limits::{REPLIES_MAX, SENDS_PER_TURN, SLICES_PER_SEND};
use crate::requests::SlotIndex;
use crate::wire::{
    self, CHUNK_HEADER_BYTES, ChunkHeader, Code, Filler, REPLY_FLAG_DONE, allocation, chunk,
};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use strake_block::SgMut;
use strake_block::buf::SEGMENTS_MAX;

/// Longest fixed part of a reply: a chunk header and an offset.
const HEAD_BYTES: usize = CHUNK_HEADER_BYTES + 8;

/// A reply, or a part of one.
pub(crate) struct Reply {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    words: &'static str,
    data: SgMut,
    /// The request that ends when this has been sent.
    ends: Option<SlotIndex>,
}

/// Which reply of its request this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// More will follow.
    Early,
    /// The last, after which the slot is free.
    Last(SlotIndex),
}

impl Part {
    const fn flags(self) -> u16 {
        match self {
            Self::Early => 0,
            Self::Last(_) => REPLY_FLAG_DONE,
        }
    }
}

impl Reply {
    fn build(part: Part, data: SgMut, fill: impl FnOnce(&mut Filler<'_>)) -> Self {
        let mut head = [0; HEAD_BYTES];
        let mut put = Filler::new(&mut head);
        fill(&mut put);
        let head_bytes = put.len();
        let ends = match part {
            Part::Early => None,
            Part::Last(slot) => Some(slot),
        };
        Self { head, head_bytes, words: "", data, ends }
    }

    /// Bytes as they are: the end of the negotiation, or data whose header went before.
    pub(crate) fn raw(data: SgMut, part: Part) -> Self {
        Self::build(part, data, |_| ())
    }

    /// A simple reply with whatever data of it is there.
    pub(crate) fn simple(cookie: u64, error: Option<Code>, data: SgMut, part: Part) -> Self {
        Self::build(part, data, |put| put.bytes(&wire::simple_reply(cookie, error)))
    }

    /// Data of a read, as a chunk of its own.
    pub(crate) fn data_chunk(cookie: u64, offset: u64, data: SgMut, part: Part) -> Self {
        let length = data.len() as u32;
        Self::build(part, data, |put| {
            put.bytes(&header(part.flags(), chunk::OFFSET_DATA, cookie, 8 + length));
            put.u64(offset);
        })
    }

    /// The beginning of a read's only chunk, of `length` bytes. It is marked as the last although its data may
    /// be in several parts here, because all of them were read when the first is queued.
    pub(crate) fn only_chunk(
        cookie: u64,
        offset: u64,
        length: u32,
        data: SgMut,
        part: Part,
    ) -> Self {
        Self::build(part, data, |put| {
            put.bytes(&header(REPLY_FLAG_DONE, chunk::OFFSET_DATA, cookie, 8 + length));
            put.u64(offset);
        })
    }

    /// The end of a read that failed or was empty, in chunks.
    pub(crate) fn last_chunk(
        cookie: u64,
        failure: Option<(Code, &'static str)>,
        slot: SlotIndex,
    ) -> Self {
        let part = Part::Last(slot);
        let Some((code, words)) = failure else {
            return Self::build(part, SgMut::default(), |put| {
                put.bytes(&header(REPLY_FLAG_DONE, chunk::NONE, cookie, 0));
            });
        };
        let mut reply = Self::build(part, SgMut::default(), |put| {
            put.bytes(&header(REPLY_FLAG_DONE, chunk::ERROR, cookie, 6 + words.len() as u32));
            put.u32(code as u32);
            put.u16(words.len() as u16);
        });
        reply.words = words;
        reply
    }

    /// Descriptors of extents, which are in `data` already.
    pub(crate) fn status_chunk(cookie: u64, data: SgMut, slot: SlotIndex) -> Self {
        let length = (allocation::PREFIX_BYTES + data.len()) as u32;
        Self::build(Part::Last(slot), data, |put| {
            put.bytes(&header(REPLY_FLAG_DONE, chunk::BLOCK_STATUS, cookie, length));
            put.u32(allocation::CONTEXT);
        })
    }

    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let fixed = [&self.head[..self.head_bytes], self.words.as_bytes()];
        fixed.into_iter().chain(self.data.parts().iter().map(|part| part.as_slice()))
    }

    fn bytes(&self) -> usize {
        self.head_bytes + self.words.len() + self.data.len()
    }
}

fn header(flags: u16, kind: u16, cookie: u64, length: u32) -> [u8; CHUNK_HEADER_BYTES] {
    ChunkHeader { flags, kind, cookie, length }.bytes()
}

/// What came of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// There was nothing to send.
    Nothing,
    /// Something went out, and the socket takes more.
    Some,
    /// The socket takes no more for now.
    Blocked,
    /// The connection is broken.
    Broken,
}

/// The queue. Its length is bounded by what replies consist of: each holds a buffer or the end of a request.
pub(crate) struct Replies {
    queue: VecDeque<Reply>,
    /// Bytes of the first reply that went out already.
    sent: usize,
}

impl Replies {
    pub(crate) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(REPLIES_MAX), sent: 0 }
    }

    pub(crate) fn push(&mut self, reply: Reply) {
        assert!(self.queue.len() < REPLIES_MAX, "more replies than buffers and requests");
        self.queue.push_back(reply);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends what the socket takes; `done` gets the buffers and requests of what went out whole.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        mut done: impl FnMut(SgMut, Option<SlotIndex>),
    ) -> Sent {
        let mut outcome = Sent::Nothing;
        for _ in 0..SENDS_PER_TURN {
            if self.queue.is_empty() {
                break;
            }
            match self.send_once(socket) {
                Ok(bytes) => {
                    self.retire(bytes, &mut done);
                    outcome = Sent::Some;
                }
                Err(Errno::AGAIN | Errno::NOBUFS) => return Sent::Blocked,
                Err(Errno::INTR) => {}
                Err(_) => return Sent::Broken,
            }
        }
        outcome
    }

    fn send_once(&self, socket: BorrowedFd<'_>) -> Result<usize, Errno> {
        let mut slices = [IoSlice::new(&[]); SLICES_PER_SEND];
        let mut used = 0;
        let mut skip = self.sent;
        for reply in &self.queue {
            // A reply has up to two fixed parts and its data; it goes into this call whole or not at all.
            if used + 2 + SEGMENTS_MAX > SLICES_PER_SEND {
                break;
            }
            for part in reply.parts() {
                let over = skip.min(part.len());
                skip -= over;
                if over < part.len() {
                    slices[used] = IoSlice::new(&part[over..]);
                    used += 1;
                }
            }
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        rustix::net::sendmsg(socket, &slices[..used], &mut SendAncillaryBuffer::default(), flags)
    }

    fn retire(&mut self, bytes: usize, done: &mut impl FnMut(SgMut, Option<SlotIndex>)) {
        self.sent += bytes;
        while let Some(first) = self.queue.front()
            && self.sent >= first.bytes()
        {
            self.sent -= first.bytes();
            if let Some(reply) = self.queue.pop_front() {
                done(reply.data, reply.ends);
            }
        }
    }

    /// Gives everything up.
    pub(crate) fn abandon(&mut self, mut done: impl FnMut(SgMut)) {
        self.sent = 0;
        for reply in self.queue.drain(..) {
            done(reply.data);
        }
    }
}
