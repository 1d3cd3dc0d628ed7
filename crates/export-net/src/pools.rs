//! Memory for data: buffers of two sizes, in fixed numbers.

use std::sync::Arc;
use strake_block::{Arena, BufMut, BufPool, Sg, SgMut};

/// The numbers and sizes of buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSizes {
    /// Bytes of a small buffer; data up to this size takes one.
    pub small_bytes: usize,
    /// Small buffers.
    pub small_buffers: usize,
    /// Bytes of a large buffer; longer data takes several.
    pub large_bytes: usize,
    /// Large buffers.
    pub large_buffers: usize,
}

/// The size class of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

/// The buffers that data needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) size: Size,
    pub(crate) buffers: usize,
}

/// Many small buffers for many small requests in flight, and a few large ones for large requests. Each connection has
/// separate buffers: a peer that does not read its data delays no other peer. A core lends further buffers, see
/// [`Supply`](crate::Supply).
pub struct Pools {
    small: BufPool,
    large: BufPool,
    sizes: PoolSizes,
}

impl Pools {
    /// Creates all buffers in resident memory.
    #[must_use]
    pub fn new(sizes: PoolSizes) -> Self {
        Self::of(sizes, BufPool::new)
    }

    /// Creates all buffers in memory that becomes resident when it is first written: for buffers that are rarely used.
    #[must_use]
    pub fn untouched(sizes: PoolSizes) -> Self {
        Self::of(sizes, BufPool::untouched)
    }

    fn of(sizes: PoolSizes, pool: fn(usize, usize) -> BufPool) -> Self {
        Self {
            small: pool(sizes.small_buffers, sizes.small_bytes),
            large: pool(sizes.large_buffers, sizes.large_bytes),
            sizes,
        }
    }

    /// Takes buffers for `bytes` bytes, at most the size of one list of large buffers; `None` until enough are
    /// returned.
    pub fn take(&mut self, bytes: usize) -> Option<SgMut> {
        if bytes <= self.sizes.small_bytes
            && let Some(buf) = self.small.get(bytes)
        {
            return Some(buf.into());
        }
        self.take_large(bytes)
    }

    fn take_large(&mut self, bytes: usize) -> Option<SgMut> {
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

    /// Accepts the returned list of one call. A drive that takes too long keeps buffers, and other buffers return in
    /// their place (see [`strake_block::Completion`]): those are dropped, and new buffers replace the lost ones.
    /// Otherwise a peer would lose buffers with each such drive until none is left.
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

    /// Accepts returned buffers that were the source of a write. New buffers replace those that are still being read.
    pub fn put_shared(&mut self, list: Sg) {
        for buf in list.into_parts() {
            match buf.reclaim() {
                Ok(buf) => self.put_one(buf),
                Err(shared) if self.small.is_in(shared.arena()) => self.small.replace_lost(),
                Err(shared) if self.large.is_in(shared.arena()) => self.large.replace_lost(),
                Err(_) => {}
            }
        }
    }

    /// True if buffers in this memory belong to these pools.
    pub(crate) fn are_in(&self, arena: &Arc<Arena>) -> bool {
        self.small.is_in(arena) || self.large.is_in(arena)
    }

    /// The buffers for this number of bytes, if there are enough small ones.
    pub(crate) const fn need(&self, bytes: usize) -> Need {
        if bytes <= self.sizes.small_bytes {
            Need { size: Size::Small, buffers: 1 }
        } else {
            Need { size: Size::Large, buffers: bytes.div_ceil(self.sizes.large_bytes) }
        }
    }

    fn pool(&self, size: Size) -> &BufPool {
        match size {
            Size::Small => &self.small,
            Size::Large => &self.large,
        }
    }

    /// The number of available buffers of a size.
    pub(crate) fn available(&self, size: Size) -> usize {
        self.pool(size).available()
    }

    /// Creates replacements for lost buffers.
    pub(crate) fn replace(&mut self, lost: Need) {
        let pool = match lost.size {
            Size::Small => &mut self.small,
            Size::Large => &mut self.large,
        };
        (0..lost.buffers).for_each(|_| pool.replace_lost());
    }

    /// True if all buffers are available.
    pub(crate) fn is_whole(&self) -> bool {
        !self.misses(Size::Small) && !self.misses(Size::Large)
    }

    /// True if a buffer of a size is in use.
    pub(crate) fn misses(&self, size: Size) -> bool {
        self.available(size) < self.pool(size).chunks()
    }

    /// Returns memory that was [`untouched`](Self::untouched) to the operating system, for pools whose buffers are all
    /// available.
    pub(crate) fn give_back(&mut self) {
        self.small.give_back();
        self.large.give_back();
    }

    fn put_one(&mut self, buf: BufMut) {
        if self.small.owns(&buf) {
            self.small.put(buf);
        } else {
            self.large.put(buf);
        }
    }
}

/// Converts received data to shared data that can be submitted to a device.
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
