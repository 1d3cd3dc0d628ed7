//! The size of a file or block device, determined without waiting for it.

use rustix::fs::{AtFlags, StatxFlags, fstat, statx};
use rustix::ioctl::{Getter, ioctl, opcode};
use std::os::fd::OwnedFd;

/// Bytes of a block device (`BLKGETSIZE64`, linux/fs.h). Unlike lseek(2), this takes no lock that a request may hold.
pub(crate) fn block_bytes(file: &OwnedFd) -> Option<u64> {
    // SAFETY: the kernel defines this number as an ioctl that writes 64 bits.
    let get = unsafe { Getter::<{ opcode::read::<usize>(0x12, 114) }, u64>::new() };
    // SAFETY: the argument is the one above, and no other memory is read or written.
    unsafe { ioctl(file, get) }.ok()
}

/// Bytes of a regular file. For a served file it is the cached size, which needs no call to the server.
pub(crate) fn file_bytes(file: &OwnedFd, served: bool) -> Option<u64> {
    if !served {
        return fstat(file).ok().map(|found| found.st_size as u64);
    }
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(file, c"", flags, StatxFlags::SIZE).ok().map(|found| found.stx_size)
}
