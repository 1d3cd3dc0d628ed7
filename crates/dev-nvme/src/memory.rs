//! Memory that a controller and the host access concurrently: its registers, and rings.
//!
//! This module never borrows such memory as bytes. Words of ordinary memory are atomics, so that the other side may
//! change them at any time; registers are read and written as volatile words.

use crate::sigbus::Watch;
use rustix::fd::BorrowedFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A mapping of whole pages; dropping it unmaps them.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: a `Mapping` is a range of addresses. Its content is accessed only by atomic and by volatile words.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps zeroed memory of this process. Its pages are allocated when they are touched or mapped for a device.
    fn anonymous(bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a private anonymous mapping at an address that the kernel chooses touches nothing that exists.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) }?;
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    /// Maps the registers of a device at `offset` of its file.
    pub(crate) fn of_device(device: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses touches nothing that exists. What it maps are
        // registers of the device, no memory of this process.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, device, offset) }?;
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }
}

#[cfg(test)]
impl Mapping {
    /// Reads the first word.
    pub(crate) fn touch(&self) -> u32 {
        // SAFETY: the mapping is at least a page, and aligned to one.
        unsafe { self.base.cast::<u32>().as_ptr().read_volatile() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is a whole mapping, and every reference into it borrows or owns this.
        let unmapped = unsafe { munmap(self.base.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a mapping can be unmapped");
    }
}

/// Zeroed memory for rings, whose words both sides change.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    mapping: Mapping,
}

impl SharedMemory {
    /// Allocates `bytes` bytes, rounded up to whole pages.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(crate::limits::PAGE);
        Ok(Self { mapping: Mapping::anonymous(bytes)? })
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    pub(crate) fn address(&self) -> usize {
        self.mapping.base.as_ptr() as usize
    }

    /// The words of the memory.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, readable and writable, this long, zeroed at first, and lives as long as
        // `self`. Every access of this process is atomic; those of the device are its own.
        unsafe { slice::from_raw_parts(self.mapping.base.as_ptr().cast(), self.mapping.bytes / 8) }
    }

    /// Copies `bytes` into the memory from byte `at` on.
    pub(crate) fn put(&self, at: usize, bytes: &[u8]) {
        self.each(at, bytes.len(), |word, inside, range| {
            let mut value = word.load(Ordering::Relaxed).to_ne_bytes();
            value[inside].copy_from_slice(&bytes[range]);
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        });
    }

    /// Copies bytes from byte `at` on out of the memory.
    pub(crate) fn get(&self, at: usize, out: &mut [u8]) {
        self.each(at, out.len(), |word, inside, range| {
            out[range].copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[inside]);
        });
    }

    /// Visits the words of `bytes` bytes from byte `at` on, each with the range in the word and that in the whole.
    fn each(
        &self,
        at: usize,
        bytes: usize,
        mut does: impl FnMut(&AtomicU64, Range<usize>, Range<usize>),
    ) {
        let mut done = 0;
        while done < bytes {
            let inside = (at + done) % 8;
            let length = (8 - inside).min(bytes - done);
            let word = &self.words()[(at + done) / 8];
            does(word, inside..inside + length, done..done + length);
            done += length;
        }
    }
}

/// Entries of `N` words in zeroed memory for rings.
#[derive(Debug)]
pub(crate) struct Entries<const N: usize> {
    base: NonNull<[AtomicU64; N]>,
    count: usize,
    _memory: Arc<SharedMemory>,
}

// SAFETY: the address is inside of memory that `_memory` keeps and that threads access only as atomic words.
unsafe impl<const N: usize> Send for Entries<N> {}

impl<const N: usize> Entries<N> {
    /// Returns `count` entries from byte `at` of the memory on.
    ///
    /// # Panics
    /// The memory is shorter, or `at` is not a multiple of an entry.
    pub(crate) fn new(memory: &Arc<SharedMemory>, at: usize, count: usize) -> Self {
        assert!(at.is_multiple_of(N * 8) && at + count * N * 8 <= memory.bytes());
        // SAFETY: the offset was checked to be inside the mapping, which is aligned to a page.
        let base = unsafe { memory.mapping.base.byte_add(at).cast() };
        Self { base, count, _memory: Arc::clone(memory) }
    }

    /// The entries.
    #[inline(always)]
    pub(crate) const fn all(&self) -> &[[AtomicU64; N]] {
        // SAFETY: `new` checked the range, `_memory` keeps it, and it is accessed as atomic words only; see
        // `SharedMemory::words`.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

/// The registers of a controller (BAR 0): those of a device, or memory that a model of a device reads.
#[derive(Debug)]
pub struct Registers {
    // Dropped first: the range is watched while it is mapped. Memory of this process is not watched.
    watch: Option<Watch>,
    mapping: Mapping,
}

impl Registers {
    /// Returns the registers of a device. If they become unreachable, an access does not end the process.
    pub(crate) fn of_device(mapping: Mapping) -> io::Result<Arc<Self>> {
        let watch = Watch::new(mapping.base.as_ptr() as usize, mapping.bytes)?;
        Ok(Arc::new(Self { watch: Some(watch), mapping }))
    }

    /// Returns registers in memory.
    pub(crate) fn of_memory(bytes: usize) -> io::Result<Arc<Self>> {
        let bytes = bytes.next_multiple_of(crate::limits::PAGE);
        Ok(Arc::new(Self { watch: None, mapping: Mapping::anonymous(bytes)? }))
    }

    /// Whether an access has failed since the registers were mapped: they then read as ones, and writes have no effect.
    pub(crate) fn was_cut(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::was_cut)
    }

    /// Maps the registers of the device again if they were cut. No other thread accesses them.
    pub(crate) fn restore(&self, device: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
        let Some(watch) = self.watch.as_ref().filter(|watch| watch.was_cut()) else {
            return Ok(());
        };
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        let (base, bytes) = (self.mapping.base.as_ptr(), self.mapping.bytes);
        // This precedes the mapping: an access that fails right after the mapping must count.
        watch.set_cut(false);
        // SAFETY: the range is a whole mapping of this crate, in which there are registers and no objects. It stays
        // mapped, readable and writable, without a moment in between (mmap(2), MAP_FIXED).
        let mapped = unsafe { mmap(base, bytes, protection, flags, device, offset) };
        Ok(mapped.map(drop).inspect_err(|_| watch.set_cut(true))?)
    }

    /// Releases the device: a mapping of its registers would keep it open. The addresses are then memory that reads as
    /// ones, as for a removed device; remaining pointers of queues into it do no harm.
    pub(crate) fn let_go(&self) -> io::Result<()> {
        self.watch.as_ref().map_or(Ok(()), Watch::cover)
    }

    /// The number of bytes of the registers.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.mapping.bytes
    }

    fn at(&self, offset: usize) -> NonNull<u32> {
        assert!(
            offset.is_multiple_of(4) && offset + 4 <= self.mapping.bytes,
            "no register at {offset:#x}"
        );
        // SAFETY: the offset was checked to be inside the mapping.
        unsafe { self.mapping.base.byte_add(offset).cast() }
    }

    /// Reads a register.
    ///
    /// # Panics
    /// There is no register at `offset`.
    #[must_use]
    pub fn read(&self, offset: usize) -> u32 {
        // SAFETY: the address is inside the mapping and a multiple of 4. Whatever is there, reading it as a volatile
        // word is what registers are for.
        unsafe { self.at(offset).as_ptr().read_volatile() }
    }

    /// Reads a register of 64 bits as two words, the lower first; every controller permits this (Base, section 3.1.1).
    #[must_use]
    pub fn read_long(&self, offset: usize) -> u64 {
        u64::from(self.read(offset)) | u64::from(self.read(offset + 4)) << 32
    }

    /// Writes a register. Earlier writes to memory are visible to the device before this write.
    ///
    /// # Panics
    /// There is no register at `offset`.
    pub fn write(&self, offset: usize, value: u32) {
        order_device_writes();
        // SAFETY: as for `read`; the mapping is writable.
        unsafe { self.at(offset).as_ptr().write_volatile(value) };
    }

    /// Writes a register of 64 bits, the lower word first.
    pub fn write_long(&self, offset: usize, value: u64) {
        self.write(offset, value as u32);
        self.write(offset + 4, (value >> 32) as u32);
    }
}

/// One register that is written often.
#[derive(Debug)]
pub(crate) struct Doorbell {
    at: NonNull<u32>,
    registers: Arc<Registers>,
}

// SAFETY: the address is inside of registers that `registers` keeps, and `Registers` is `Send` itself.
unsafe impl Send for Doorbell {}

impl Doorbell {
    /// Returns the doorbell at `offset`.
    ///
    /// # Panics
    /// There is no register at `offset`.
    pub(crate) fn new(registers: &Arc<Registers>, offset: usize) -> Self {
        Self { at: registers.at(offset), registers: Arc::clone(registers) }
    }

    /// Writes the doorbell. Earlier writes to memory are visible to the device before this write.
    #[inline]
    pub(crate) fn ring(&self, value: u32) {
        debug_assert!(self.registers.bytes() > 0);
        order_device_writes();
        // SAFETY: `new` checked the address, and `registers` keeps the mapping.
        unsafe { self.at.as_ptr().write_volatile(value) };
    }
}

/// Orders writes to memory before the write of a register that follows.
#[inline]
fn order_device_writes() {
    // The fence keeps the compiler from moving stores; the processor does not move them on x86.
    fence(Ordering::Release);
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier changes nothing. A fence of the language orders accesses of processors only; this one orders
    // those that devices see (Arm ARM, "DMB", outer shareable, stores).
    unsafe {
        std::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
}

/// Bytes of the largest entry of a ring, which is a command.
const ENTRY_BYTES: usize = 64;

/// Whether these bytes can be the words of an entry of a ring, which both sides access at the same time.
const fn may_be_entry(address: usize, bytes: usize) -> bool {
    bytes <= ENTRY_BYTES && address.is_multiple_of(8) && bytes.is_multiple_of(8)
}

/// Copies bytes of this process at an address that another part of the process received. Words of ring entries are
/// read one after the other, each as a whole.
///
/// # Safety
/// `bytes` bytes at `address` belong to a live allocation. During the call, other threads write them only if they can
/// be words of a ring entry, and then as atomic words.
pub(crate) unsafe fn copy_out(address: usize, out: &mut [u8]) {
    if may_be_entry(address, out.len()) {
        for (at, bytes) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            // SAFETY: as promised by the caller; the address is a multiple of 8.
            let word = unsafe { AtomicU64::from_ptr((address as *mut u64).add(at)) };
            // Partner: the stores of the driver, which a doorbell publishes.
            *bytes = word.load(Ordering::Acquire).to_ne_bytes();
        }
        return;
    }
    // SAFETY: as promised by the caller; `out` is borrowed exclusively, so that they do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, out.as_mut_ptr(), out.len()) };
}

/// Copies in the other direction. Words of ring entries are written one after the other, each as a whole.
///
/// # Safety
/// As for [`copy_out`]; also, other threads read the bytes during the call only under the same conditions.
pub(crate) unsafe fn copy_in(address: usize, bytes: &[u8]) {
    if may_be_entry(address, bytes.len()) {
        for (at, bytes) in bytes.as_chunks::<8>().0.iter().enumerate() {
            // SAFETY: as promised by the caller; the address is a multiple of 8.
            let word = unsafe { AtomicU64::from_ptr((address as *mut u64).add(at)) };
            // Partner: the load of the last word of a completion (`Rings::pop`).
            word.store(u64::from_ne_bytes(*bytes), Ordering::Release);
        }
        return;
    }
    // SAFETY: as promised by the caller; `bytes` is memory of its own.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
}

#[cfg(test)]
mod tests {
    use super::{Doorbell, Mapping, Registers};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::io::pread;
    use std::os::fd::AsFd;

    /// A remaining pointer into the registers neither keeps the device open nor reaches it.
    #[test]
    fn registers_that_were_let_go_read_as_ones_and_reach_nothing() {
        let file = memfd_create("registers", MemfdFlags::CLOEXEC).expect("there is memory");
        ftruncate(&file, 8192).expect("there is memory");
        let mapping = Mapping::of_device(file.as_fd(), 0, 8192).expect("it can be mapped");
        let registers = Registers::of_device(mapping).expect("it can be watched");
        let doorbell = Doorbell::new(&registers, 0x1000);
        doorbell.ring(7);
        assert_eq!((registers.read(0x1c), registers.read(0x1000)), (0, 7));
        registers.let_go().expect("it can be mapped over");
        assert_eq!((registers.read(0x1c), registers.read_long(0)), (u32::MAX, u64::MAX));
        doorbell.ring(9);
        let mut word = [0; 4];
        pread(&file, &mut word, 0x1000).expect("it is a file");
        assert_eq!(word, [7, 0, 0, 0]);
    }
}
