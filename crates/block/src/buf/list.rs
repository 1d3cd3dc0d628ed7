//! Scatter lists of buffers, and the way back from a split read to the buffer it was split from.

use super::arena::{Buf, BufMut, ChunkRange};
use super::parts::Parts;
use arrayvec::ArrayVec;
use std::ops::Range;

/// Most buffers in one scatter list. The builder of a longer list splits it.
pub const SEGMENTS_MAX: usize = 4;

/// Bytes to write, in up to [`SEGMENTS_MAX`] shared pieces.
#[derive(Clone, Debug, Default)]
pub struct Sg {
    parts: Parts<Buf>,
}

impl From<Buf> for Sg {
    #[inline]
    fn from(buf: Buf) -> Self {
        Self { parts: Parts::one(buf) }
    }
}

impl Sg {
    /// Total bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// True when it holds no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in order.
    #[inline]
    #[must_use]
    pub fn parts(&self) -> &[Buf] {
        self.parts.as_slice()
    }

    /// Appends a piece.
    ///
    /// # Errors
    /// The piece, when the list is full.
    pub fn push(&mut self, buf: Buf) -> Result<(), Buf> {
        self.parts.push(buf)
    }

    /// The bytes `offset .. offset + bytes`, sharing memory.
    ///
    /// # Panics
    /// When the part is not inside.
    #[must_use]
    pub fn slice(&self, mut offset: usize, mut bytes: usize) -> Self {
        let mut list = Self::default();
        for part in self.parts.as_slice() {
            if offset >= part.len() {
                offset -= part.len();
                continue;
            }
            let take = bytes.min(part.len() - offset);
            if take > 0 {
                list.append(part.slice(offset, take));
            }
            bytes -= take;
            offset = 0;
        }
        assert!(bytes == 0, "a slice reaches {bytes} bytes past its list");
        list
    }

    /// The only piece, when there is exactly one.
    #[inline]
    #[must_use]
    pub fn into_single(self) -> Option<Buf> {
        self.parts.into_one()
    }

    /// Takes the pieces out.
    pub fn into_parts(mut self) -> impl Iterator<Item = Buf> {
        std::iter::from_fn(move || self.parts.pop_front())
    }

    /// Adds a part of a list that had no more parts than this may have.
    fn append(&mut self, buf: Buf) {
        self.parts.push(buf).expect("a part of a list has no more parts than the list");
    }

    /// Copies everything into `target`, which must be as long.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn copy_to(&self, mut target: &mut [u8]) {
        assert_eq!(target.len(), self.len(), "copy between lists of different length");
        for part in self.parts.as_slice() {
            let (head, tail) = target.split_at_mut(part.len());
            head.copy_from_slice(part.as_slice());
            target = tail;
        }
    }
}

/// Memory to read into, in up to [`SEGMENTS_MAX`] exclusive pieces.
#[derive(Debug, Default)]
pub struct SgMut {
    parts: Parts<BufMut>,
}

impl From<BufMut> for SgMut {
    #[inline]
    fn from(buf: BufMut) -> Self {
        Self { parts: Parts::one(buf) }
    }
}

impl SgMut {
    /// Total bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// True when it holds no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pieces in order.
    #[inline]
    #[must_use]
    pub fn parts(&self) -> &[BufMut] {
        self.parts.as_slice()
    }

    /// The pieces in order, writable.
    pub fn parts_mut(&mut self) -> &mut [BufMut] {
        self.parts.as_mut_slice()
    }

    /// Appends a piece.
    ///
    /// # Errors
    /// The piece, when the list is full.
    pub fn push(&mut self, buf: BufMut) -> Result<(), BufMut> {
        self.parts.push(buf)
    }

    /// The only piece, when there is exactly one.
    #[inline]
    #[must_use]
    pub fn into_single(self) -> Option<BufMut> {
        self.parts.into_one()
    }

    /// Takes the pieces out.
    pub fn into_parts(mut self) -> impl Iterator<Item = BufMut> {
        std::iter::from_fn(move || self.parts.pop_front())
    }

    /// Adds a part of a list that had no more parts than this may have.
    fn extend(&mut self, buf: Option<BufMut>) {
        let added = buf.map_or(Ok(()), |buf| self.parts.push(buf));
        added.expect("a part of a list has no more parts than the list");
    }

    /// Cuts off and returns the first `bytes` bytes; `self` keeps the rest.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn split_to(&mut self, mut bytes: usize) -> Self {
        let mut head = Self::default();
        while bytes > 0 {
            let first =
                self.parts.as_mut_slice().first_mut().expect("a split reaches past its list");
            if first.len() <= bytes {
                bytes -= first.len();
                head.extend(self.parts.pop_front());
            } else {
                head.extend(Some(first.split_to(bytes)));
                bytes = 0;
            }
        }
        head
    }

    /// The bytes `offset .. offset + bytes` in order, or those of them that the list has, without empty slices.
    pub fn slices(&self, offset: usize, bytes: usize) -> impl Iterator<Item = &[u8]> {
        let mut within = Within { offset, bytes };
        let parts = self.parts.as_slice().iter();
        parts.map(move |part| &part.as_slice()[within.next(part.len())]).filter(|s| !s.is_empty())
    }

    /// The same, writable.
    pub fn slices_mut(&mut self, offset: usize, bytes: usize) -> impl Iterator<Item = &mut [u8]> {
        let mut within = Within { offset, bytes };
        let parts = self.parts.as_mut_slice().iter_mut();
        let slices = parts.map(move |part| {
            let range = within.next(part.len());
            &mut part.as_mut_slice()[range]
        });
        slices.filter(|s| !s.is_empty())
    }

    /// Copies `source` over the bytes from `offset` on.
    ///
    /// # Panics
    /// When it does not fit.
    pub fn copy_from(&mut self, offset: usize, mut source: &[u8]) {
        for slice in self.slices_mut(offset, source.len()) {
            let (head, tail) = source.split_at(slice.len());
            slice.copy_from_slice(head);
            source = tail;
        }
        assert!(source.is_empty(), "a copy reaches past its list");
    }
}

/// A range of bytes, on its way through the pieces of a list.
struct Within {
    /// Where it begins in what is left of the list.
    offset: usize,
    /// How long what is left of it is.
    bytes: usize,
}

impl Within {
    /// What of the next piece, which has `len` bytes, is in the range.
    fn next(&mut self, len: usize) -> Range<usize> {
        let start = self.offset.min(len);
        let end = start + self.bytes.min(len - start);
        self.offset -= start;
        self.bytes -= end - start;
        start..end
    }
}

/// Puts the buffers of a split-up read together again.
///
/// Made from the list before it is split; takes the pieces back in any order; when every byte was returned it
/// yields the list as it was. Pieces that belong elsewhere (a driver may return other memory after a time-out)
/// are refused, and the reunion then stays incomplete.
#[derive(Default)]
pub struct Reunion {
    ranges: ArrayVec<ChunkRange, SEGMENTS_MAX>,
    missing: usize,
}

impl Reunion {
    /// Remembers where the pieces of `list` came from.
    #[must_use]
    pub fn of(list: &SgMut) -> Self {
        Self {
            ranges: list.parts.as_slice().iter().map(BufMut::chunk_range).collect(),
            missing: list.len(),
        }
    }

    /// Takes back all pieces of `list`.
    ///
    /// # Errors
    /// The first piece that was never part of the original list.
    pub fn absorb(&mut self, list: SgMut) -> Result<(), BufMut> {
        for part in list.into_parts() {
            if !self.ranges.iter().any(|range| part.same_chunk(range)) {
                return Err(part);
            }
            // Pieces are exclusive and lie inside ranges that were exclusive, so no byte can be counted twice.
            self.missing -= part.len();
        }
        Ok(())
    }

    /// The list as it was, after every byte was returned.
    ///
    /// # Errors
    /// The reunion itself, while bytes are missing.
    pub fn complete(self) -> Result<SgMut, Self> {
        if self.missing > 0 {
            return Err(self);
        }
        // SAFETY: handles to exactly `missing` = total bytes inside these disjoint exclusive ranges were given
        // up in `absorb`, which means all of them.
        let parts = self.ranges.into_iter().map(|range| unsafe { range.into_buf() });
        let mut list = SgMut::default();
        parts.for_each(|part| list.extend(Some(part)));
        Ok(list)
    }

    /// Bytes the original list had.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.iter().map(ChunkRange::len).sum()
    }

    /// True when the original list held no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
