//! The Copies of a queue at one device, which are executed one after another.

use crate::limits::{COPY_PIECE_BYTES, IO_ENTRIES};
use crate::slots::SlotIndex;
use std::collections::VecDeque;
use strake_block::{BufPool, Sg, SgMut};

/// The Copies of a queue at one device.
pub(super) struct Copies {
    buffer: BufPool,
    /// The first is executed, the others wait for it.
    pub(super) line: VecDeque<SlotIndex>,
}

impl Copies {
    /// None yet, and the buffer for all that come.
    pub(super) fn new() -> Self {
        let buffer = BufPool::untouched(1, COPY_PIECE_BYTES as usize);
        Self { buffer, line: VecDeque::with_capacity(IO_ENTRIES.into()) }
    }

    /// The buffer for a piece of so many bytes. It lacks after a drive kept it permanently and none came in its place.
    pub(super) fn take(&mut self, bytes: usize) -> Option<SgMut> {
        Some(self.buffer.get(bytes)?.into())
    }

    /// Accepts the returned buffers of a read. Where other memory returned, because a drive may still write to the own,
    /// new one stands for that.
    pub(super) fn put(&mut self, data: SgMut) {
        let pool = &mut self.buffer;
        for buf in data.into_parts() {
            if pool.owns(&buf) { pool.put(buf) } else { pool.replace_lost() }
        }
    }

    /// Takes back what was written from.
    pub(super) fn put_shared(&mut self, data: Sg) {
        data.into_parts().for_each(|buf| self.buffer.put_frozen(buf));
    }
}
