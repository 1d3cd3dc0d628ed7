//! A pool of equal chunks: memory a core may use, fixed at start.

use super::arena::{Arena, Buf, BufMut};
use std::sync::Arc;

/// A last-in-first-out pool of buffers of one size. Empty means back-pressure, never allocation.
pub struct BufPool {
    free: Vec<BufMut>,
    arena: Arc<Arena>,
    chunk_bytes: usize,
    chunks: usize,
    /// The memory of buffers that stand for such as were lost.
    replacements: Vec<Arc<Arena>>,
}

impl BufPool {
    /// A pool of `chunks` buffers of `chunk_bytes` bytes, in one arena, which is announced to drivers ([`follow`]).
    ///
    /// [`follow`]: crate::follow
    #[must_use]
    pub fn new(chunks: usize, chunk_bytes: usize) -> Self {
        Self::of(Arena::carve_announced(chunks, chunk_bytes), chunk_bytes)
    }

    /// The same in memory of which only as much is taken from the machine as is written to, page by page: for buffers
    /// that are there in case of need. Not for registration.
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

    /// Buffers in the pool when none is out.
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

    /// The memory behind the pool, for registration.
    #[must_use]
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Takes a buffer of `bytes` bytes, or `None` when the pool is empty.
    ///
    /// # Panics
    /// When `bytes` is more than a chunk holds.
    #[inline]
    pub fn get(&mut self, bytes: usize) -> Option<BufMut> {
        assert!(
            bytes <= self.chunk_bytes,
            "{bytes} bytes asked of {}-byte chunks",
            self.chunk_bytes
        );
        self.free.pop().map(|buf| buf.shortened(bytes))
    }

    /// Gives a buffer back. One that others still share, or that is not of this pool, is dropped: its memory
    /// returns when the arena goes, and [`available`](Self::available) shows the leak.
    #[inline]
    pub fn put(&mut self, buf: BufMut) {
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

    /// Takes a buffer that the pool has no room for, because one that was replaced came back. A replacement is dropped
    /// instead, so that the pool does not grow.
    #[cold]
    fn put_late(&mut self, whole: BufMut) {
        let is_own = |buf: &BufMut| Arc::ptr_eq(buf.arena(), &self.arena);
        if is_own(&whole)
            && let Some(at) = self.free.iter().position(|buf| !is_own(buf))
        {
            self.free[at] = whole;
        } else {
            drop(whole);
        }
        self.replacements.retain(|arena| Arc::strong_count(arena) > 1);
    }

    /// True when the buffer is one of this pool's.
    #[inline]
    #[must_use]
    pub fn owns(&self, buf: &BufMut) -> bool {
        self.is_in(buf.arena())
    }

    /// The same of the memory that a buffer is in.
    #[inline]
    #[must_use]
    pub fn is_in(&self, arena: &Arc<Arena>) -> bool {
        Arc::ptr_eq(arena, &self.arena)
            || self.replacements.iter().any(|known| Arc::ptr_eq(known, arena))
    }

    /// Gives the memory of a pool that was made [`untouched`](Self::untouched) back to the machine, if every buffer is
    /// here and none was ever lost: it comes again as it is written to. A system call.
    pub fn give_back(&mut self) {
        if self.free.len() == self.chunks && self.replacements.is_empty() {
            // SAFETY: without replacements every buffer here is a whole chunk of the arena, and no two are the same, so
            // as many as there are chunks are all of it. Such a pool is not registered.
            unsafe { self.arena.give_back() };
        }
    }

    /// Makes a new buffer in place of one that does not come back, as far as is known. Memory of its own, so not for a
    /// data path. If the other one does come back, one of them is dropped once every buffer is here.
    pub fn replace_lost(&mut self) {
        let buf = BufMut::alone(self.chunk_bytes);
        // The lost buffer may be an earlier replacement: then nothing holds its memory.
        self.replacements.retain(|arena| Arc::strong_count(arena) > 1);
        self.replacements.push(Arc::clone(buf.arena()));
        self.free.push(buf);
    }

    /// Gives a frozen buffer back, on the same terms.
    pub fn put_frozen(&mut self, buf: Buf) {
        if let Ok(whole) = buf.reclaim() {
            self.put(whole);
        }
    }
}
