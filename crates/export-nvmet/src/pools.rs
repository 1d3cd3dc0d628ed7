//! A connection's memory for data: two sizes of buffers, fixed when the connection is taken on.

use crate::limits::{
    ADMIN_ENTRIES, ADMIN_LARGE_BUFFERS, LARGE_BUFFERS, LARGE_BYTES, SMALL_BUFFERS, SMALL_BYTES,
};
use strake_block::{BufMut, BufPool, Sg, SgMut};

/// Small buffers so that many small commands are in flight, large ones so that few large ones are. A connection has
/// its own: a host that does not read what it asked for holds up nobody else.
pub(crate) struct Pools {
    small: BufPool,
    large: BufPool,
}

impl Pools {
    pub(crate) fn of_io_queue() -> Self {
        Self {
            small: BufPool::new(SMALL_BUFFERS, SMALL_BYTES),
            large: BufPool::new(LARGE_BUFFERS, LARGE_BYTES),
        }
    }

    pub(crate) fn of_admin_queue() -> Self {
        Self {
            small: BufPool::new(usize::from(ADMIN_ENTRIES), SMALL_BYTES),
            large: BufPool::new(ADMIN_LARGE_BUFFERS, LARGE_BYTES),
        }
    }

    /// Buffers for `bytes` bytes, at most [`TRANSFER_BYTES_MAX`](crate::limits::TRANSFER_BYTES_MAX); `None` until
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
            list.push(part).expect("a command is at most what one list of large buffers holds");
        }
        Some(list)
    }

    /// Takes back what was taken at once. A drive that takes too long keeps buffers, and others come in their place
    /// (see [`strake_block::Completion`]): those are dropped, and new ones stand for what was lost.
    pub(crate) fn put(&mut self, list: SgMut) {
        let bytes = list.len();
        let (mut own, mut lost) = (0, 0);
        for buf in list.into_parts() {
            let is_own = self.small.owns(&buf) || self.large.owns(&buf);
            own += usize::from(is_own);
            lost += usize::from(!is_own);
            self.put_one(buf);
        }
        if lost > 0 && bytes <= SMALL_BYTES {
            self.small.replace_lost();
        } else if lost > 0 {
            (own..bytes.div_ceil(LARGE_BYTES)).for_each(|_| self.large.replace_lost());
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
        if self.small.owns(&buf) {
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
