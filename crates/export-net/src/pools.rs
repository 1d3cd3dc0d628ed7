//! A connection's memory for data: two sizes of buffers, fixed when the connection is taken on.

use strake_block::{BufMut, BufPool, Sg, SgMut};

/// How many buffers there are, and how large they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSizes {
    /// Bytes of a small buffer; what is no longer takes one.
    pub small_bytes: usize,
    /// Small buffers.
    pub small_buffers: usize,
    /// Bytes of a large buffer, of which longer data takes several.
    pub large_bytes: usize,
    /// Large buffers.
    pub large_buffers: usize,
}

/// Small buffers so that many small requests are in flight, large ones so that few large ones are. A connection has its
/// own: a peer that does not read what it asked for holds up nobody else.
pub struct Pools {
    small: BufPool,
    large: BufPool,
    sizes: PoolSizes,
}

impl Pools {
    /// All buffers of a connection.
    #[must_use]
    pub fn new(sizes: PoolSizes) -> Self {
        Self {
            small: BufPool::new(sizes.small_buffers, sizes.small_bytes),
            large: BufPool::new(sizes.large_buffers, sizes.large_bytes),
            sizes,
        }
    }

    /// Buffers for `bytes` bytes, at most what one list of large buffers holds; `None` until enough come back.
    pub fn take(&mut self, bytes: usize) -> Option<SgMut> {
        if bytes <= self.sizes.small_bytes
            && let Some(buf) = self.small.get(bytes)
        {
            return Some(buf.into());
        }
        if self.large.available() < bytes.div_ceil(self.sizes.large_bytes) {
            return None;
        }
        let mut list = SgMut::default();
        let mut left = bytes;
        while left > 0 {
            let part = self.large.get(left.min(self.sizes.large_bytes))?;
            left -= part.len();
            list.push(part).expect("one list of large buffers holds what is asked for");
        }
        Some(list)
    }

    /// Takes back what was taken at once. A drive that takes too long keeps buffers, and others come in their place
    /// (see [`strake_block::Completion`]): those are dropped, and new ones stand for what was lost, or a peer would
    /// have fewer with each such drive and none in the end.
    pub fn put(&mut self, list: SgMut) {
        let bytes = list.len();
        let (mut own, mut lost) = (0, 0);
        for buf in list.into_parts() {
            let is_own = self.small.owns(&buf) || self.large.owns(&buf);
            own += usize::from(is_own);
            lost += usize::from(!is_own);
            self.put_one(buf);
        }
        if lost > 0 && bytes <= self.sizes.small_bytes {
            self.small.replace_lost();
        } else if lost > 0 {
            let taken = bytes.div_ceil(self.sizes.large_bytes);
            (own..taken).for_each(|_| self.large.replace_lost());
        }
    }

    /// Takes back buffers that were written from.
    pub fn put_shared(&mut self, list: Sg) {
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
///
/// # Panics
/// Never: both kinds of list hold the same number of parts.
#[must_use]
pub fn freeze(list: SgMut) -> Sg {
    let mut shared = Sg::default();
    for part in list.into_parts() {
        shared.push(part.freeze()).expect("both kinds of list hold the same number of parts");
    }
    shared
}

#[cfg(test)]
mod tests;
