//! Scatter lists of buffers, and the reunion of the pieces of a split read.

use super::arena::{Buf, BufMut, ChunkRange};
use super::parts::Parts;
use arrayvec::ArrayVec;
use std::ops::Range;

/// Maximum number of buffers in a scatter list. Callers split longer lists.
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

impl From<[Buf; 2]> for Sg {
    #[inline]
    fn from(bufs: [Buf; 2]) -> Self {
        Self { parts: Parts::two(bufs) }
    }
}

impl Sg {
    /// Total bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// True if the list has no bytes.
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
    /// If the list is full. The error contains the piece.
    pub fn push(&mut self, buf: Buf) -> Result<(), Buf> {
        self.parts.push(buf)
    }

    /// Returns the bytes `offset .. offset + bytes`, which share memory with this list.
    ///
    /// # Panics
    /// If the part is not inside the list.
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

    /// Returns the only piece, if there is exactly one.
    #[inline(always)]
    #[must_use]
    pub fn into_single(self) -> Option<Buf> {
        self.parts.into_one()
    }

    /// Returns the pieces.
    pub fn into_parts(mut self) -> impl Iterator<Item = Buf> {
        std::iter::from_fn(move || self.parts.pop_front())
    }

    /// Adds a part of a list whose number of parts fits in this list.
    fn append(&mut self, buf: Buf) {
        self.parts.push(buf).expect("a part of a list has no more parts than the list");
    }

    /// Copies all bytes into `target`, which must have the same length.
    ///
    /// # Panics
    /// If the lengths differ.
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

    /// True if the list has no bytes.
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
    /// If the list is full. The error contains the piece.
    pub fn push(&mut self, buf: BufMut) -> Result<(), BufMut> {
        self.parts.push(buf)
    }

    /// Returns the only piece, if there is exactly one.
    #[inline(always)]
    #[must_use]
    pub fn into_single(self) -> Option<BufMut> {
        self.parts.into_one()
    }

    /// Returns the pieces.
    pub fn into_parts(mut self) -> impl Iterator<Item = BufMut> {
        std::iter::from_fn(move || self.parts.pop_front())
    }

    /// Adds a part of a list whose number of parts fits in this list.
    fn extend(&mut self, buf: Option<BufMut>) {
        let added = buf.map_or(Ok(()), |buf| self.parts.push(buf));
        added.expect("a part of a list has no more parts than the list");
    }

    /// Cuts off and returns the first `bytes` bytes; `self` keeps the rest.
    ///
    /// # Panics
    /// If the list has fewer bytes.
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

    /// Returns the bytes `offset .. offset + bytes` in order, as far as the list has them, without empty slices.
    pub fn slices(&self, offset: usize, bytes: usize) -> impl Iterator<Item = &[u8]> {
        let mut within = Within { offset, bytes };
        let parts = self.parts.as_slice().iter();
        parts.map(move |part| &part.as_slice()[within.next(part.len())]).filter(|s| !s.is_empty())
    }

    /// Returns the bytes like [`slices`](Self::slices), writable.
    pub fn slices_mut(&mut self, offset: usize, bytes: usize) -> impl Iterator<Item = &mut [u8]> {
        let mut within = Within { offset, bytes };
        let parts = self.parts.as_mut_slice().iter_mut();
        let slices = parts.map(move |part| {
            let range = within.next(part.len());
            &mut part.as_mut_slice()[range]
        });
        slices.filter(|s| !s.is_empty())
    }

    /// Overwrites the bytes from `offset` with `source`.
    ///
    /// # Panics
    /// If `source` does not fit.
    pub fn copy_from(&mut self, offset: usize, mut source: &[u8]) {
        for slice in self.slices_mut(offset, source.len()) {
            let (head, tail) = source.split_at(slice.len());
            slice.copy_from_slice(head);
            source = tail;
        }
        assert!(source.is_empty(), "a copy reaches past its list");
    }
}

/// A range of bytes during an iteration over the pieces of a list.
struct Within {
    /// Start of the range in the remaining list.
    offset: usize,
    /// Remaining length of the range.
    bytes: usize,
}

impl Within {
    /// Returns the part of the next piece, which has `len` bytes, inside the range.
    fn next(&mut self, len: usize) -> Range<usize> {
        let start = self.offset.min(len);
        let end = start + self.bytes.min(len - start);
        self.offset -= start;
        self.bytes -= end - start;
        start..end
    }
}

/// Joins the buffers of a split read.
///
/// The reunion is created from the list before the split, and accepts the pieces in any order. When every byte was
/// returned, it yields the original list. Foreign pieces are refused (a driver may return other memory after a
/// time-out), and the reunion then stays incomplete.
#[derive(Default)]
pub struct Reunion {
    ranges: ArrayVec<ChunkRange, SEGMENTS_MAX>,
    missing: usize,
}

impl Reunion {
    /// Records the ranges of the pieces of `list`.
    #[must_use]
    pub fn of(list: &SgMut) -> Self {
        Self {
            ranges: list.parts.as_slice().iter().map(BufMut::chunk_range).collect(),
            missing: list.len(),
        }
    }

    /// Accepts all pieces of `list`.
    ///
    /// # Errors
    /// If a piece is not a part of the original list. The error contains the first such piece.
    pub fn absorb(&mut self, list: SgMut) -> Result<(), BufMut> {
        for part in list.into_parts() {
            if !self.ranges.iter().any(|range| part.same_chunk(range)) {
                return Err(part);
            }
            // Pieces are exclusive and inside exclusive ranges, so no byte can be counted twice.
            self.missing -= part.len();
        }
        Ok(())
    }

    /// Returns the original list, after every byte was returned.
    ///
    /// # Errors
    /// If bytes are missing. The error contains the reunion.
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

    /// Returns the bytes of the original list.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.iter().map(ChunkRange::len).sum()
    }

    /// True if the original list had no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
