//! A pool of equal chunks. Its size is fixed at the start.

use super::arena::{Arena, Buf, BufMut};
use std::sync::Arc;

/// A last-in-first-out pool of buffers of one size. An empty pool means back-pressure; the pool never allocates.
pub struct BufPool {
    free: Vec<BufMut>,
    arena: Arc<Arena>,
    chunk_bytes: usize,
    chunks: usize,
    /// The arenas of buffers that replace lost buffers.
    replacements: Vec<Arc<Arena>>,
}

impl BufPool {
    /// Creates a pool of `chunks` buffers of `chunk_bytes` bytes, in one arena, which is announced to drivers
    /// ([`follow`]).
    ///
    /// [`follow`]: crate::follow
    #[must_use]
    pub fn new(chunks: usize, chunk_bytes: usize) -> Self {
        Self::of(Arena::carve_announced(chunks, chunk_bytes), chunk_bytes)
    }

    /// Creates a pool whose pages the kernel allocates at the first write, for buffers that are rarely needed. Such a
    /// pool must not be registered.
    #[must_use]
    pub fn untouched(chunks: usize, chunk_bytes: usize) -> Self {
        Self::of(Arena::carve_untouched(chunks, chunk_bytes), chunk_bytes)
    }

    fn of(free: Vec<BufMut>, chunk_bytes: usize) -> Self {
        let chunks = free.len();
        let arena = Arc::clone(free[0].arena());
        Self { free, arena, chunk_bytes, chunks, replacements: Vec::new() }
    }

    /// Bytes in each buffer.
    #[must_use]
    pub const fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Total number of buffers.
    #[must_use]
    pub const fn chunks(&self) -> usize {
        self.chunks
    }

    /// Buffers free now.
    #[must_use]
    #[inline]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Returns the memory of the pool, for registration.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Takes a buffer of `bytes` bytes, or returns `None` if the pool is empty.
    ///
    /// # Panics
    /// If `bytes` is larger than a chunk.
    #[inline(always)]
    pub fn get(&mut self, bytes: usize) -> Option<BufMut> {
        assert!(
            bytes <= self.chunk_bytes,
            "{bytes} bytes asked of {}-byte chunks",
            self.chunk_bytes
        );
        self.free.pop().map(|buf| buf.shortened(bytes))
    }

    /// Returns a buffer to the pool. A buffer that is still shared, or that is not from this pool, is dropped: its
    /// memory is freed with its arena, and [`available`](Self::available) shows the leak.
    #[inline]
    pub fn put(&mut self, buf: BufMut) {
        if let Err(buf) = self.put_own(buf) {
            self.put_other(buf);
        }
    }

    /// Returns a buffer of the pool's own memory to the pool.
    ///
    /// # Errors
    /// If the buffer is shared, or is not from this memory, or the pool has no room. The error contains the buffer, for
    /// [`put`](Self::put).
    #[inline(always)]
    pub fn put_own(&mut self, buf: BufMut) -> Result<(), BufMut> {
        if !self.is_own(&buf) || self.free.len() >= self.chunks {
            return Err(buf);
        }
        let whole = buf.reclaim()?;
        self.free.push(whole.shortened(self.chunk_bytes));
        Ok(())
    }

    /// True if the buffer is not a replacement.
    #[inline]
    fn is_own(&self, buf: &BufMut) -> bool {
        Arc::ptr_eq(buf.arena(), &self.arena)
    }

    /// Returns a replacement, a buffer for which there is no room, or a buffer that is dropped.
    #[cold]
    fn put_other(&mut self, buf: BufMut) {
        if let Ok(mut whole) = buf.reclaim()
            && self.owns(&whole)
        {
            whole.truncate(self.chunk_bytes);
            if self.free.len() < self.chunks {
                self.free.push(whole);
            } else {
                self.put_late(whole);
            }
        }
    }

    /// Accepts a buffer for which the pool has no room, because a replaced buffer returned. A replacement is dropped
    /// instead, so that the pool does not grow.
    fn put_late(&mut self, whole: BufMut) {
        if self.is_own(&whole)
            && let Some(at) = self.free.iter().position(|buf| !self.is_own(buf))
        {
            self.free[at] = whole;
        } else {
            drop(whole);
        }
        self.replacements.retain(|arena| Arc::strong_count(arena) > 1);
    }

    /// True if the buffer is from this pool.
    #[inline]
    #[must_use]
    pub fn owns(&self, buf: &BufMut) -> bool {
        self.is_in(buf.arena())
    }

    /// True if the arena belongs to this pool.
    #[inline]
    #[must_use]
    pub fn is_in(&self, arena: &Arc<Arena>) -> bool {
        Arc::ptr_eq(arena, &self.arena)
            || self.replacements.iter().any(|known| Arc::ptr_eq(known, arena))
    }

    /// Returns the memory of an [`untouched`](Self::untouched) pool to the kernel, if every buffer is in the pool and
    /// none was ever lost. The kernel allocates the pages again at the next write. This is a system call.
    pub fn give_back(&mut self) {
        if self.free.len() == self.chunks && self.replacements.is_empty() {
            // SAFETY: without replacements, every buffer in the pool is a different whole chunk of the arena, so as
            // many buffers as chunks are the complete arena. Such a pool is not registered.
            unsafe { self.arena.give_back() };
        }
    }

    /// Creates a new buffer as a replacement of a buffer that is not expected to return. The replacement has separate
    /// memory, so this function is not for a data path. If the other buffer returns, one of them is dropped as soon as
    /// every buffer is in the pool.
    pub fn replace_lost(&mut self) {
        let buf = BufMut::alone(self.chunk_bytes);
        // The lost buffer may be an earlier replacement. Then no handle to its memory exists.
        self.replacements.retain(|arena| Arc::strong_count(arena) > 1);
        self.replacements.push(Arc::clone(buf.arena()));
        self.free.push(buf);
    }

    /// Returns a frozen buffer to the pool, like [`put`](Self::put).
    pub fn put_frozen(&mut self, buf: Buf) {
        if let Ok(whole) = buf.reclaim() {
            self.put(whole);
        }
    }
}
