//! The allocation, its chunks, and the two kinds of handle to a range of a chunk.

use std::fmt;
use std::ops::Range;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::announce;
use super::memory::{Memory, Pages};

/// Alignment of chunks, which satisfies every direct-I/O and PRP alignment in use.
pub const CHUNK_ALIGN: usize = 4096;

/// Whether drivers may have mapped an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Announced {
    Yes,
    No,
}

/// One zeroed, page-aligned allocation that outlives every handle into it.
pub struct Arena {
    memory: Memory,
    announced: Announced,
}

impl Drop for Arena {
    fn drop(&mut self) {
        if self.announced == Announced::Yes {
            announce::removed(self.address_range());
        }
    }
}

impl Arena {
    /// Allocates an arena and divides it into `chunks` exclusive buffers of `chunk_bytes` each, rounded up to
    /// [`CHUNK_ALIGN`]. Both counts must be at least 1.
    ///
    /// # Panics
    /// If the size overflows or memory is exhausted. Arenas are created at the start, where a stop is acceptable.
    #[must_use]
    pub fn carve(chunks: usize, chunk_bytes: usize) -> Vec<BufMut> {
        Self::carve_of(chunks, chunk_bytes, Memory::new, Announced::No)
    }

    /// Allocates an arena that is announced to drivers.
    pub(super) fn carve_announced(chunks: usize, chunk_bytes: usize) -> Vec<BufMut> {
        Self::carve_of(chunks, chunk_bytes, Memory::new, Announced::Yes)
    }

    /// Allocates an arena whose pages are allocated by the kernel at the first write.
    pub(super) fn carve_untouched(chunks: usize, chunk_bytes: usize) -> Vec<BufMut> {
        Self::carve_of(chunks, chunk_bytes, Memory::untouched, Announced::No)
    }

    fn carve_of(
        chunks: usize,
        chunk_bytes: usize,
        memory: fn(usize) -> Memory,
        announced: Announced,
    ) -> Vec<BufMut> {
        assert!(chunks > 0 && chunk_bytes > 0, "an arena holds at least one byte");
        let stride = chunk_bytes.next_multiple_of(CHUNK_ALIGN);
        let bytes = stride.checked_mul(chunks).expect("arena size overflows");
        assert!(u32::try_from(stride).is_ok(), "a chunk is addressed with 32 bits");
        let arena = Arc::new(Self { memory: memory(bytes), announced });
        if announced == Announced::Yes {
            announce::added(arena.address_range());
        }
        (0..chunks)
            .map(|i| BufMut {
                chunk: Arc::new(Chunk {
                    arena: Arc::clone(&arena),
                    start: i * stride,
                    bytes: stride,
                }),
                range: Extent::new(0, chunk_bytes as u32),
            })
            .collect()
    }

    /// Returns the addresses of the arena, for registration with a driver.
    #[must_use]
    pub fn address_range(&self) -> Range<usize> {
        let start = self.memory.base().as_ptr() as usize;
        start..start + self.memory.len()
    }

    /// Returns the pages to the kernel.
    ///
    /// # Safety
    /// The caller must own every chunk of the arena exclusively, and no driver may have it registered.
    pub(super) unsafe fn give_back(&self) {
        assert!(self.announced == Announced::No, "drivers have mapped its pages");
        // SAFETY: the caller owns all chunks exclusively, so no other code can read the memory.
        unsafe { self.memory.give_back() };
    }

    /// Returns the kind of its pages.
    #[must_use]
    pub fn pages(&self) -> Pages {
        self.memory.pages()
    }
}

/// A fixed part of an arena. Handles share it; together they never own a byte twice exclusively.
struct Chunk {
    arena: Arc<Arena>,
    start: usize,
    bytes: usize,
}

impl Chunk {
    fn pointer(&self, offset: u32) -> *mut u8 {
        debug_assert!(offset as usize <= self.bytes);
        // SAFETY: chunks are carved inside their arena and every handle's range lies inside its chunk, so the
        // result stays within (or one past) the arena's allocation.
        unsafe { self.arena.memory.base().as_ptr().add(self.start + offset as usize) }
    }
}

/// A range of a chunk in one word. Together with the chunk, this makes two words, which the compiler keeps in
/// registers. Three words would be in memory, stored in parts and loaded as a whole (decision 13).
#[derive(Clone, Copy)]
struct Extent(u64);

impl Extent {
    #[inline]
    const fn new(start: u32, end: u32) -> Self {
        debug_assert!(start <= end);
        Self((end as u64) << 32 | start as u64)
    }

    #[inline]
    const fn start(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    const fn end(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    const fn len(self) -> usize {
        (self.end() - self.start()) as usize
    }
}

/// A range of memory owned exclusively: nothing else can read or write it.
pub struct BufMut {
    chunk: Arc<Chunk>,
    range: Extent,
}

/// A range of memory shared read-only: cloning is cheap and nothing can write it.
#[derive(Clone)]
pub struct Buf {
    chunk: Arc<Chunk>,
    range: Extent,
}

macro_rules! common {
    ($name:ident) => {
        impl $name {
            /// Length in bytes.
            #[inline]
            #[must_use]
            pub fn len(&self) -> usize {
                self.range.len()
            }

            /// True if the buffer is empty.
            #[inline]
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.range.len() == 0
            }

            /// The bytes.
            #[inline]
            #[must_use]
            pub fn as_slice(&self) -> &[u8] {
                // SAFETY: the range lies inside the chunk, the memory is initialized (zeroed at allocation),
                // and no one writes it while this handle exists: a `BufMut` range has no other handle, a `Buf`
                // range has only other `Buf`s.
                unsafe { slice::from_raw_parts(self.chunk.pointer(self.range.start()), self.len()) }
            }

            /// Address of the first byte, for drivers that pass memory to the kernel or a device.
            #[inline]
            #[must_use]
            pub fn address(&self) -> usize {
                self.chunk.pointer(self.range.start()) as usize
            }

            /// The arena of the buffer.
            #[must_use]
            pub fn arena(&self) -> &Arc<Arena> {
                &self.chunk.arena
            }

            /// Returns the whole chunk as an exclusive buffer, if this is the only handle to any part of the chunk.
            ///
            /// # Errors
            /// If other handles exist. The error contains the handle.
            #[inline]
            pub fn reclaim(self) -> Result<BufMut, Self> {
                // There are no weak references to chunks, so a count of one proves that this is the only reference, and
                // no other reference can be created while `self` exists. (`Arc::get_mut` checks the same with a locked
                // instruction.)
                if Arc::strong_count(&self.chunk) != 1 {
                    return Err(self);
                }
                // The fence orders reads and writes through dropped handles before this point.
                fence(Ordering::Acquire);
                let end = self.chunk.bytes as u32;
                Ok(BufMut { chunk: self.chunk, range: Extent::new(0, end) })
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({} bytes)"), self.len())
            }
        }
    };
}

common!(BufMut);
common!(Buf);

impl BufMut {
    /// Creates a buffer of `bytes` bytes in a separate arena, for the control plane and tests.
    #[must_use]
    pub fn alone(bytes: usize) -> Self {
        Arena::carve(1, bytes).pop().expect("one chunk was carved")
    }

    /// The bytes, writable.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.len();
        // SAFETY: as for `as_slice`, and `&mut self` on an exclusive range rules out every other access.
        unsafe { slice::from_raw_parts_mut(self.chunk.pointer(self.range.start()), len) }
    }

    /// Cuts off and returns the bytes before `at`; `self` keeps the rest.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> Self {
        assert!(at <= self.len(), "split at {at} of {} bytes", self.len());
        let middle = self.range.start() + at as u32;
        let range = Extent::new(self.range.start(), middle);
        self.range = Extent::new(middle, self.range.end());
        Self { chunk: Arc::clone(&self.chunk), range }
    }

    /// Keeps the first `bytes` bytes. The rest stays unreachable until the chunk is reclaimed.
    ///
    /// # Panics
    /// If the buffer has fewer bytes.
    #[inline]
    pub fn truncate(&mut self, bytes: usize) {
        assert!(bytes <= self.len(), "truncate {} bytes to {bytes}", self.len());
        self.range = Extent::new(self.range.start(), self.range.start() + bytes as u32);
    }

    /// Returns the first `bytes` bytes, like [`truncate`](Self::truncate), but keeps the value in registers.
    #[inline]
    pub(super) fn shortened(self, bytes: usize) -> Self {
        assert!(bytes <= self.len(), "truncate {} bytes to {bytes}", self.len());
        let range = Extent::new(self.range.start(), self.range.start() + bytes as u32);
        Self { chunk: self.chunk, range }
    }

    /// Appends `other` if it is adjacent to the end of this buffer in memory.
    ///
    /// # Errors
    /// If `other` is not adjacent. The error contains `other`.
    pub fn join(&mut self, other: Self) -> Result<(), Self> {
        if Arc::ptr_eq(&self.chunk, &other.chunk) && self.range.end() == other.range.start() {
            self.range = Extent::new(self.range.start(), other.range.end());
            Ok(())
        } else {
            Err(other)
        }
    }

    /// Converts the buffer into a read-only buffer that can be shared.
    #[inline]
    #[must_use]
    pub fn freeze(self) -> Buf {
        Buf { chunk: self.chunk, range: self.range }
    }

    /// True if both are in one chunk. See [`Reunion`](super::Reunion).
    pub(super) fn same_chunk(&self, chunk: &ChunkRange) -> bool {
        Arc::ptr_eq(&self.chunk, &chunk.chunk)
            && chunk.range.start() <= self.range.start()
            && self.range.end() <= chunk.range.end()
    }

    pub(super) fn chunk_range(&self) -> ChunkRange {
        ChunkRange { chunk: Arc::clone(&self.chunk), range: self.range }
    }
}

/// Records the range of a buffer that was split, without access to its bytes.
pub(super) struct ChunkRange {
    chunk: Arc<Chunk>,
    range: Extent,
}

impl ChunkRange {
    pub(super) fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns the exclusive buffer of the whole range.
    ///
    /// # Safety
    /// The caller must have dropped exclusive handles that together cover exactly this range.
    pub(super) unsafe fn into_buf(self) -> BufMut {
        BufMut { chunk: self.chunk, range: self.range }
    }
}

impl Buf {
    /// Returns a part of the buffer, which shares its memory.
    ///
    /// # Panics
    /// If the part is not inside the buffer.
    #[must_use]
    pub fn slice(&self, offset: usize, bytes: usize) -> Self {
        assert!(offset + bytes <= self.len(), "slice {offset}+{bytes} of {} bytes", self.len());
        let start = self.range.start() + offset as u32;
        let range = Extent::new(start, start + bytes as u32);
        Self { chunk: Arc::clone(&self.chunk), range }
    }
}
