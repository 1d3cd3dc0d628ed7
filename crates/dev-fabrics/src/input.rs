//! What was received from a target and is not parsed yet.

use crate::error::Reason;
use crate::limits::{AHEAD_BYTES_MIN, INPUT_BYTES};
use rustix::io::Errno;
use std::io::IoSliceMut;
use strake_block::SgMut;
use strake_block::buf::SEGMENTS_MAX;
use strake_tls::{Wire, WireError};

/// Bytes that came, or `None` when there are none for now.
pub(crate) type Received = Result<Option<usize>, Reason>;

fn received(result: Result<usize, WireError>) -> Received {
    match result {
        Ok(0) => Err(Reason::Closed),
        Ok(bytes) => Ok(Some(bytes)),
        Err(WireError::Socket(Errno::AGAIN | Errno::INTR)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A place in the data of a read that bytes belong to.
pub(crate) struct Place<'a> {
    pub(crate) data: &'a mut SgMut,
    /// From which byte on.
    pub(crate) at: usize,
    /// How many at most; they lie inside the data.
    pub(crate) most: usize,
}

/// A fixed buffer of bytes in the order they came.
pub(crate) struct Input {
    buf: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self { buf: vec![0; INPUT_BYTES].into_boxed_slice(), start: 0, end: 0 }
    }

    /// What is there.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    pub(crate) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Forgets the first `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            self.clear();
        }
    }

    /// Receives behind what is there. The caller has found an incomplete header, which is always shorter than the
    /// buffer, so there is room.
    pub(crate) fn fill(&mut self, wire: &mut Wire) -> Received {
        if self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let received = received(wire.receive_one(&mut self.buf[self.end..]))?;
        self.end += received.unwrap_or(0);
        Ok(received)
    }

    /// Moves what is there into its place and returns how many bytes that were.
    pub(crate) fn move_to(&mut self, place: &mut Place<'_>) -> usize {
        let count = self.bytes().len().min(place.most);
        place.data.copy_from(place.at, &self.buf[self.start..self.start + count]);
        self.consume(count);
        count
    }

    /// Receives into the place, and what follows into this buffer, which is empty: one system call takes data and the
    /// headers behind it. Returns the bytes that came for the place.
    ///
    /// Behind little data much is read ahead, so that a call is made for many answers. Behind much data hardly more
    /// than the next header is, since what is read ahead has to be copied to its place.
    pub(crate) fn fill_through(&mut self, wire: &mut Wire, place: Place<'_>) -> Received {
        debug_assert!(self.bytes().is_empty());
        let mut slices: [IoSliceMut<'_>; SEGMENTS_MAX + 1] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut used = 0;
        for slice in place.data.slices_mut(place.at, place.most) {
            slices[used] = IoSliceMut::new(slice);
            used += 1;
        }
        let ahead = INPUT_BYTES.saturating_sub(place.most).max(AHEAD_BYTES_MIN);
        slices[used] = IoSliceMut::new(&mut self.buf[..ahead]);
        let received = received(wire.receive(&mut slices[..=used]))?;
        self.end = received.unwrap_or(0).saturating_sub(place.most);
        Ok(received.map(|bytes| bytes.min(place.most)))
    }
}
