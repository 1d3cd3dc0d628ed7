//! The allocation of an arena. It uses huge pages if available, because each small page of a data path needs an entry
//! in a translation cache that has only some hundred entries.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use super::arena::CHUNK_ALIGN;

/// A huge page of x86-64 and of aarch64 with base pages of 4 KiB.
const HUGE: usize = 2 << 20;

/// The kind of pages of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pages {
    /// Ordinary pages.
    Ordinary,
    /// Huge pages, as far as the kernel had any when the memory was allocated (`/sys/kernel/mm/transparent_hugepage`).
    Transparent,
    /// Huge pages of the pool that an administrator has reserved (`/proc/sys/vm/nr_hugepages`).
    Reserved,
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ordinary => "ordinary",
            Self::Transparent => "transparent-huge",
            Self::Reserved => "reserved-huge",
        })
    }
}

/// Zeroed memory.
pub(super) struct Memory {
    base: NonNull<u8>,
    len: usize,
    pages: Pages,
    /// True for a separate mapping, false for a part of the heap.
    mapped: bool,
}

// SAFETY: a `Memory` is a plain allocation; it is never read or written through itself, only through the handles of
// its arena, whose own rules keep exclusive ranges exclusive.
unsafe impl Send for Memory {}
// SAFETY: as above; `&Memory` gives out addresses only.
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates `bytes` bytes, a positive multiple of [`CHUNK_ALIGN`]. All pages are touched, so that no later access
    /// waits for a page.
    ///
    /// # Panics
    /// If there is not enough memory.
    pub(super) fn new(bytes: usize) -> Self {
        // Miri does not support mappings.
        if bytes >= HUGE && !cfg!(miri) {
            let len = bytes.next_multiple_of(HUGE);
            if let Some(memory) = Self::reserved(len).or_else(|| Self::transparent(len)) {
                return memory;
            }
        }
        Self::ordinary(bytes)
    }

    /// Allocates memory without touching it. The kernel allocates ordinary pages at the first write.
    ///
    /// # Panics
    /// If there is not enough memory.
    pub(super) fn untouched(bytes: usize) -> Self {
        // Miri does not support mappings.
        let mapped = if cfg!(miri) { None } else { Self::map(bytes, MapFlags::NORESERVE) };
        let Some(base) = mapped else { return Self::ordinary(bytes) };
        // With huge pages, a write of one byte would allocate two megabytes. A kernel that does not support this advice
        // has no huge pages. SAFETY: the advice changes no content, and the range is mapped.
        let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxNoHugepage) };
        Self { base, len: bytes, pages: Pages::Ordinary, mapped: true }
    }

    /// Returns the pages to the kernel. Later pages are zeroed. Memory from the heap keeps its pages.
    ///
    /// # Safety
    /// No code may read or write the memory during the call.
    pub(super) unsafe fn give_back(&self) {
        if self.mapped {
            // SAFETY: the range is mapped, private and anonymous, so it reads as zeroes afterwards, which is
            // initialized memory; the caller guarantees that no code reads it.
            let given =
                unsafe { madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxDontNeed) };
            debug_assert!(given.is_ok(), "pages of a mapping can be given back");
        }
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn pages(&self) -> Pages {
        self.pages
    }

    /// Maps `len` bytes anywhere.
    fn map(len: usize, flags: MapFlags) -> Option<NonNull<u8>> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, flags | MapFlags::PRIVATE);
        // SAFETY: a private anonymous mapping at an address that the kernel chooses touches nothing that exists.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, flags) };
        NonNull::new(base.ok()?.cast())
    }

    fn reserved(len: usize) -> Option<Self> {
        let base = Self::map(len, MapFlags::HUGETLB | MapFlags::HUGE_2MB)?;
        let memory = Self { base, len, pages: Pages::Reserved, mapped: true };
        // Enough free huge pages do not imply that this process may use them (cgroups, nodes). An access would then
        // kill the process, whereas this advice (since Linux 5.14) only fails.
        // SAFETY: the advice changes no content, and the range is mapped.
        let populated = unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxPopulateWrite) };
        populated.ok().map(|()| memory)
    }

    fn transparent(len: usize) -> Option<Self> {
        // With one additional huge page, the mapping contains an aligned part of the required length.
        let mapped = Self::map(len + HUGE, MapFlags::empty())?;
        let ahead = mapped.as_ptr().align_offset(HUGE);
        // SAFETY: `ahead` is less than HUGE, so it and the `len` bytes after it are in the mapping. What is unmapped is
        // the rest of it, before and behind, in whole pages (a mapping and HUGE both begin at pages): nothing uses it.
        let base = unsafe {
            let base = mapped.add(ahead);
            let behind = HUGE - ahead;
            let trimmed = (ahead == 0 || munmap(mapped.as_ptr().cast(), ahead).is_ok())
                && (behind == 0 || munmap(base.add(len).as_ptr().cast(), behind).is_ok());
            debug_assert!(trimmed, "the ends of a mapping can be unmapped");
            base
        };
        // SAFETY: the advice changes no content, and the range is mapped. Writing zeroes over zeroes makes the pages.
        let pages = unsafe {
            let advised = madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage);
            base.write_bytes(0, len);
            if advised.is_ok() { Pages::Transparent } else { Pages::Ordinary }
        };
        Some(Self { base, len, pages, mapped: true })
    }

    fn ordinary(bytes: usize) -> Self {
        let layout = Self::layout(bytes);
        // SAFETY: the layout has a positive size.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        Self { base, len: bytes, pages: Pages::Ordinary, mapped: false }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, CHUNK_ALIGN).expect("arena size overflows")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.mapped {
            // SAFETY: `base` came from `alloc_zeroed` with this layout, and every handle holds the arena, so none is
            // left.
            return unsafe { dealloc(self.base.as_ptr(), Self::layout(self.len)) };
        }
        // SAFETY: the range is a whole mapping, or what was left of one, and no handle is left, as above.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that memory is zero, writable to its ends, and at least as long as requested.
    fn check(memory: Memory, bytes: usize, align: usize) {
        assert!(memory.len() >= bytes, "{} of {bytes} bytes", memory.len());
        assert_eq!(memory.base().as_ptr().align_offset(align), 0);
        // SAFETY: the memory is this long, and nothing else has it.
        let all = unsafe { std::slice::from_raw_parts_mut(memory.base().as_ptr(), memory.len()) };
        assert!(all.iter().all(|byte| *byte == 0));
        (all[0], all[bytes - 1]) = (1, 2);
    }

    #[test]
    fn small_memory_is_in_ordinary_pages() {
        let memory = Memory::new(CHUNK_ALIGN);
        assert_eq!(memory.pages(), Pages::Ordinary);
        check(memory, CHUNK_ALIGN, CHUNK_ALIGN);
    }

    #[test]
    fn large_memory_begins_at_a_huge_page() {
        let bytes = if cfg!(miri) { 3 * CHUNK_ALIGN } else { HUGE + CHUNK_ALIGN };
        check(Memory::new(bytes), bytes, if cfg!(miri) { CHUNK_ALIGN } else { HUGE });
    }

    #[test]
    #[cfg(not(miri))]
    fn memory_that_is_given_back_is_zero_again() {
        let memory = Memory::untouched(3 * CHUNK_ALIGN);
        // SAFETY: the memory is this long, and nothing else has it.
        unsafe { memory.base().as_ptr().write_bytes(7, memory.len()) };
        // SAFETY: nothing else has it.
        unsafe { memory.give_back() };
        check(memory, 3 * CHUNK_ALIGN, CHUNK_ALIGN);
    }

    #[test]
    #[cfg(not(miri))]
    fn memory_can_be_had_without_reserved_pages() {
        let memory = Memory::transparent(HUGE).expect("two megabytes");
        assert_ne!(memory.pages(), Pages::Reserved);
        check(memory, HUGE, HUGE);
    }
}
