//! The Copies of a queue at one device, which are executed one after another.

use crate::limits::{COPY_PIECE_BYTES, IO_ENTRIES};
use crate::slots::SlotIndex;
use std::collections::VecDeque;
use strake_block::{BufPool, Sg, SgMut};

/// The Copies of a queue at one device.
pub(super) struct Copies {
    buffer: BufPool,
    /// The first is executed; the others wait.
    pub(super) line: VecDeque<SlotIndex>,
}

impl Copies {
    /// Creates an empty list, with the buffer for all Copies.
    pub(super) fn new() -> Self {
        let buffer = BufPool::untouched(1, COPY_PIECE_BYTES as usize);
        Self { buffer, line: VecDeque::with_capacity(IO_ENTRIES.into()) }
    }

    /// The buffer for a piece of `bytes` bytes. There is none after a drive kept the buffer permanently and no
    /// replacement could be allocated.
    pub(super) fn take(&mut self, bytes: usize) -> Option<SgMut> {
        Some(self.buffer.get(bytes)?.into())
    }

    /// Accepts the returned buffers of a read. If a drive may still write to the original buffer, other memory returns
    /// and a new buffer replaces the original.
    pub(super) fn put(&mut self, data: SgMut) {
        let pool = &mut self.buffer;
        for buf in data.into_parts() {
            if pool.owns(&buf) { pool.put(buf) } else { pool.replace_lost() }
        }
    }

    /// Accepts the returned buffers of a write.
    pub(super) fn put_shared(&mut self, data: Sg) {
        data.into_parts().for_each(|buf| self.buffer.put_frozen(buf));
    }
}
