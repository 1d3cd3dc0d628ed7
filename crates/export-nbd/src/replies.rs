//! Replies and their parts.

use crate::requests::SlotIndex;
use crate::wire::{
    self, CHUNK_HEADER_BYTES, ChunkHeader, Code, Filler, REPLY_FLAG_DONE, allocation, chunk,
};
use strake_block::SgMut;

/// Maximum size of the fixed part of a reply: a chunk header and an offset.
const HEAD_BYTES: usize = CHUNK_HEADER_BYTES + 8;

/// A reply, or a part of one.
pub(crate) struct Reply {
    head: [u8; HEAD_BYTES],
    head_bytes: usize,
    words: &'static str,
    pub(crate) data: SgMut,
    /// The request that ends when this has been sent.
    pub(crate) ends: Option<SlotIndex>,
}

/// The position of a reply among the replies of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// More will follow.
    Early,
    /// The last reply, after which the slot is free.
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

    /// Returns a reply of plain bytes: the end of the negotiation, or data whose header was already sent.
    pub(crate) fn raw(data: SgMut, part: Part) -> Self {
        Self::build(part, data, |_| ())
    }

    /// Returns a simple reply with the data that is available.
    pub(crate) fn simple(cookie: u64, error: Option<Code>, data: SgMut, part: Part) -> Self {
        Self::build(part, data, |put| put.bytes(&wire::simple_reply(cookie, error)))
    }

    /// Returns data of a read as a separate chunk.
    pub(crate) fn data_chunk(cookie: u64, offset: u64, data: SgMut, part: Part) -> Self {
        let length = data.len() as u32;
        Self::build(part, data, |put| {
            put.bytes(&header(part.flags(), chunk::OFFSET_DATA, cookie, 8 + length));
            put.u64(offset);
        })
    }

    /// Returns the start of the only chunk of a read, of `length` bytes. It is marked as the last chunk although its
    /// data may be in several parts, because all parts were read before the first is queued.
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

    /// Returns the last chunk of a read that failed or was empty.
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

    /// Returns a chunk of extent descriptors, which are already in `data`.
    pub(crate) fn status_chunk(cookie: u64, data: SgMut, slot: SlotIndex) -> Self {
        let length = (allocation::PREFIX_BYTES + data.len()) as u32;
        Self::build(Part::Last(slot), data, |put| {
            put.bytes(&header(REPLY_FLAG_DONE, chunk::BLOCK_STATUS, cookie, length));
            put.u32(allocation::CONTEXT);
        })
    }
}

impl strake_export_net::Message for Reply {
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
