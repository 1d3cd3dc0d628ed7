//! What a client has sent and nobody has looked at yet.

use crate::limits::{INPUT_BYTES, OPTION_BYTES_MAX};
use crate::wire::OPTION_HEADER_BYTES;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use strake_block::SgMut;
use strake_block::buf::SEGMENTS_MAX;

/// Large enough for the longest option that is looked at and for a burst of request headers.
const CAPACITY: usize = if INPUT_BYTES > OPTION_BYTES_MAX + OPTION_HEADER_BYTES {
    INPUT_BYTES
} else {
    OPTION_BYTES_MAX + OPTION_HEADER_BYTES
};

/// What came of asking the socket for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Bytes, as many as there was room for: there may be more.
    Full(usize),
    /// Bytes, and no more for now.
    Short(usize),
    /// Nothing for now.
    Blocked,
    /// The client will send nothing any more.
    Ended,
    /// The connection is broken.
    Broken,
}

fn received(result: Result<usize, Errno>, room: usize) -> Received {
    match result {
        Ok(0) => Received::Ended,
        Ok(bytes) if bytes == room => Received::Full(bytes),
        Ok(bytes) => Received::Short(bytes),
        Err(Errno::AGAIN | Errno::INTR) => Received::Blocked,
        Err(_) => Received::Broken,
    }
}

/// A fixed buffer of bytes in the order they came.
pub(crate) struct Input {
    buf: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self { buf: vec![0; CAPACITY].into_boxed_slice(), start: 0, end: 0 }
    }

    /// What is there.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// Forgets the first `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Receives behind what is there. Whoever asks has found an incomplete item, which is always shorter than
    /// the buffer, so there is room.
    pub(crate) fn fill(&mut self, socket: BorrowedFd<'_>) -> Received {
        if self.start > 0 {
            self.buf.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = self.buf.len() - self.end;
        let result = rustix::net::recv(socket, &mut self.buf[self.end..], RecvFlags::DONTWAIT);
        let received = received(result.map(|(_, bytes)| bytes), room);
        if let Received::Full(bytes) | Received::Short(bytes) = received {
            self.end += bytes;
        }
        received
    }

    /// Moves what is there into `data` from byte `filled` on and returns how many bytes that were.
    pub(crate) fn move_to(&mut self, data: &mut SgMut, filled: usize) -> usize {
        let count = self.bytes().len().min(data.len() - filled);
        data.copy_from(filled, &self.buf[self.start..self.start + count]);
        self.consume(count);
        count
    }

    /// Receives into `data` from byte `filled` on, and what follows into this buffer, which is empty; one
    /// system call takes a payload and the headers behind it. Returns how the payload fared; bytes beyond it
    /// are in the buffer.
    pub(crate) fn fill_through(
        &mut self,
        socket: BorrowedFd<'_>,
        data: &mut SgMut,
        filled: usize,
    ) -> Received {
        debug_assert!(self.bytes().is_empty());
        let wanted = data.len() - filled;
        let room = wanted + self.buf.len();
        let mut slices: [IoSliceMut<'_>; SEGMENTS_MAX + 1] =
            std::array::from_fn(|_| IoSliceMut::new(&mut []));
        let mut skip = filled;
        let mut used = 0;
        for part in data.parts_mut() {
            let over = skip.min(part.len());
            skip -= over;
            if over < part.len() {
                slices[used] = IoSliceMut::new(&mut part.as_mut_slice()[over..]);
                used += 1;
            }
        }
        slices[used] = IoSliceMut::new(&mut self.buf);
        let result = rustix::io::readv(socket, &mut slices[..=used]);
        let received = received(result, room);
        if let Received::Full(bytes) | Received::Short(bytes) = received {
            self.end = bytes.saturating_sub(wanted);
        }
        received
    }
}

impl Received {
    /// Bytes received.
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Full(bytes) | Self::Short(bytes) => bytes,
            Self::Blocked | Self::Ended | Self::Broken => 0,
        }
    }
}
