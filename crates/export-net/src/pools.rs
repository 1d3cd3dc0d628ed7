//! Memory for data: two sizes of buffers, fixed when it is made.

use std::sync::Arc;
use strake_block::{Arena, BufMut, BufPool, Sg, SgMut};

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

/// One of the two sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

/// What data needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) size: Size,
    pub(crate) buffers: usize,
}

/// Small buffers so that many small requests are in flight, large ones so that few large ones are. A connection has its
/// own: a peer that does not read what it asked for holds up no other peer. What a core has besides is lent, see
/// [`Supply`](crate::Supply).
pub struct Pools {
    small: BufPool,
    large: BufPool,
    sizes: PoolSizes,
}

impl Pools {
    /// All buffers, in memory.
    #[must_use]
    pub fn new(sizes: PoolSizes) -> Self {
        Self::of(sizes, BufPool::new)
    }

    /// The same in memory that is taken from the machine as it is written to: for buffers that are there in case of
    /// need.
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

    /// Buffers for `bytes` bytes, at most what one list of large buffers holds; `None` until enough come back.
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

    /// Accepts returned buffers that were written from. New ones replace those that are still being read.
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

    /// Whether buffers in this memory are of these.
    pub(crate) fn are_in(&self, arena: &Arc<Arena>) -> bool {
        self.small.is_in(arena) || self.large.is_in(arena)
    }

    /// Which buffers data of so many bytes is in, unless small ones lack.
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

    /// Buffers of a size that are here.
    pub(crate) fn available(&self, size: Size) -> usize {
        self.pool(size).available()
    }

    /// Makes new buffers for as many that do not come back.
    pub(crate) fn replace(&mut self, lost: Need) {
        let pool = match lost.size {
            Size::Small => &mut self.small,
            Size::Large => &mut self.large,
        };
        (0..lost.buffers).for_each(|_| pool.replace_lost());
    }

    /// Whether all of them are here.
    pub(crate) fn is_whole(&self) -> bool {
        !self.misses(Size::Small) && !self.misses(Size::Large)
    }

    /// Whether any of a size is not here.
    pub(crate) fn misses(&self, size: Size) -> bool {
        self.available(size) < self.pool(size).chunks()
    }

    /// Gives memory that was [`untouched`](Self::untouched) back to the machine, as far as all of it is here.
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
