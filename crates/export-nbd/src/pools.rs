//! A connection's memory for data: two sizes of buffers, fixed when the client is taken on.

use crate::limits::{LARGE_BUFFERS, LARGE_BYTES, SMALL_BUFFERS, SMALL_BYTES};
use std::sync::Arc;
use strake_block::{BufMut, BufPool, Sg, SgMut};

/// Small buffers so that many small requests are in flight, large ones so that few large ones are. A
/// connection has its own: a client that does not read its replies holds up nobody else.
pub(crate) struct Pools {
    small: BufPool,
    large: BufPool,
}

impl Pools {
    pub(crate) fn new() -> Self {
        Self {
            small: BufPool::new(SMALL_BUFFERS, SMALL_BYTES),
            large: BufPool::new(LARGE_BUFFERS, LARGE_BYTES),
        }
    }

    /// Buffers for `bytes` bytes, at most [`PIECE_BYTES_MAX`](crate::limits::PIECE_BYTES_MAX); `None` until
    /// enough come back.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<SgMut> {
        if bytes <= SMALL_BYTES
            && let Some(buf) = self.small.get(bytes)
        {
            return Some(buf.into());
        }
        if self.large.available() < bytes.div_ceil(LARGE_BYTES) {
            return None;
        }
        let mut list = SgMut::default();
        let mut left = bytes;
        while left > 0 {
            let part = self.large.get(left.min(LARGE_BYTES))?;
            left -= part.len();
            list.push(part).expect("a piece is at most what one list of large buffers holds");
        }
        Some(list)
    }

    /// Takes buffers back. What is not from here (see [`strake_block::Completion`]) is dropped.
    pub(crate) fn put(&mut self, list: SgMut) {
        for buf in list.into_parts() {
            self.put_one(buf);
        }
    }

    /// Takes back buffers that were written from.
    pub(crate) fn put_shared(&mut self, list: Sg) {
        for buf in list.into_parts() {
            if let Ok(buf) = buf.reclaim() {
                self.put_one(buf);
            }
        }
    }

    fn put_one(&mut self, buf: BufMut) {
        if Arc::ptr_eq(buf.arena(), self.small.arena()) {
            self.small.put(buf);
        } else {
            self.large.put(buf);
        }
    }
}

/// Gives up writing to received data in exchange for handing it to a device.
pub(crate) fn freeze(list: SgMut) -> Sg {
    let mut shared = Sg::default();
    for part in list.into_parts() {
        shared.push(part.freeze()).expect("both kinds of list hold the same number of parts");
    }
    shared
}
