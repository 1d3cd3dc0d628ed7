//! What was received from a socket and is not parsed yet.

use crate::limits::AHEAD_BYTES_MIN;
use crate::wire::{Wire, WireError};
use rustix::io::Errno;
use std::io::IoSliceMut;
use strake_block::SgMut;
use strake_block::buf::SEGMENTS_MAX;

/// What came of asking the socket for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes, as many as there was room for: there may be more.
    Full(usize),
    /// Bytes, and no more for now.
    Short(usize),
    /// No bytes are available, or the turn has reached its limit.
    Blocked,
    /// The peer will send nothing more.
    Ended,
    /// The connection is broken.
    Broken(WireError),
}

fn received(result: Result<usize, WireError>, room: usize) -> Received {
    match result {
        Ok(0) => Received::Ended,
        Ok(bytes) if bytes == room => Received::Full(bytes),
        Ok(bytes) => Received::Short(bytes),
        Err(WireError::Socket(Errno::AGAIN | Errno::INTR)) => Received::Blocked,
        Err(error) => Received::Broken(error),
    }
}

impl Received {
    /// Bytes received.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Full(bytes) | Self::Short(bytes) => bytes,
            Self::Blocked | Self::Ended | Self::Broken(_) => 0,
        }
    }
}

/// A place in data that bytes belong to.
pub struct Place<'a> {
    /// The data.
    pub data: &'a mut SgMut,
    /// From which byte on.
    pub at: usize,
    /// How many at most; they lie inside the data.
    pub most: usize,
}

/// A fixed buffer of bytes in the order they came.
pub struct Input {
    buf: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    /// Room for `bytes` bytes, more than any header of the protocol has.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { buf: vec![0; bytes].into_boxed_slice(), start: 0, end: 0 }
    }

    /// What is there.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// Forgets everything.
    #[inline]
    pub const fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Forgets the first `count` bytes.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            self.clear();
        }
    }

    /// Moves what is there into its place and returns how many bytes that were.
    pub fn move_to(&mut self, place: Place<'_>) -> usize {
        let count = self.bytes().len().min(place.most);
        place.data.copy_from(place.at, &self.buf[self.start..self.start + count]);
        self.consume(count);
        count
    }

    /// Receives behind what is there. The caller has found an incomplete item, which is always shorter than the buffer,
    /// so there is room.
    pub fn fill(&mut self, wire: &mut Wire) -> Received {
        if self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = self.buf.len() - self.end;
        let received = received(wire.receive_one(&mut self.buf[self.end..]), room);
        self.end += received.bytes();
        received
    }

    /// Receives into the place, and what follows into this buffer, which is empty; one system call takes data and the
    /// headers behind it. Returns how that went; bytes beyond the place are in the buffer.
    ///
    /// Behind little data much is read ahead, so that a call is made for many items. Behind much data hardly more than
    /// the next header is, since what is read ahead has to be copied to its place.
    pub fn fill_through(&mut self, wire: &mut Wire, place: Place<'_>) -> Received {
        let ahead = self.buf.len().saturating_sub(place.most);
        self.fill_ahead(wire, place, ahead.max(AHEAD_BYTES_MIN).min(self.buf.len()))
    }

    /// Receives into the place, and nothing that follows it.
    pub fn fill_to(&mut self, wire: &mut Wire, place: Place<'_>) -> Received {
        self.fill_ahead(wire, place, 0)
    }

    fn fill_ahead(&mut self, wire: &mut Wire, place: Place<'_>, ahead: usize) -> Received {
        debug_assert!(self.bytes().is_empty());
        let room = place.most + ahead;
        let mut slices: [IoSliceMut<'_>; SEGMENTS_MAX + 1] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut used = 0;
        for slice in place.data.slices_mut(place.at, place.most) {
            slices[used] = IoSliceMut::new(slice);
            used += 1;
        }
        slices[used] = IoSliceMut::new(&mut self.buf[..ahead]);
        let received = received(wire.receive(&mut slices[..=used]), room);
        self.end = received.bytes().saturating_sub(place.most);
        received
    }
}
