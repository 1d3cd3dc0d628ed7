//! The fixed numbers of this crate, in one place.

use std::time::Duration;
use strake_block::buf::SEGMENTS_MAX;
use strake_units::Nanos;

/// Bytes of the largest read or write: what most NVMe drives take as one command. The kernel splits what a
/// drive cannot take whole, so this need not follow each drive.
pub const IO_BYTES_MAX: u32 = 1 << 20;

/// Most requests one queue holds, well below the kernel's own limit of 32768 ring entries
/// (`IORING_MAX_ENTRIES`, io_uring/io_uring.h).
pub const DEPTH_MAX: u32 = 16384;

/// How often one request is handed to the kernel again after it said "try again" or did nothing.
pub const RESUBMITS_MAX: u32 = 1000;

/// Bytes of zeroes kept for devices that cannot zero by themselves. Every element of a scatter list points at
/// the same zeroes, so one request writes [`SEGMENTS_MAX`] times as many.
pub const ZEROES_BYTES: usize = 256 << 10;

/// Largest unit in which a drive may free space to count as one that gives it back: what an array frees at a time on a
/// member. A drive with larger units would write zeroes instead and free nothing.
pub const GRANULE_MAX: u64 = 128 << 10;

/// Largest single buffer the kernel registers (`io_buffer_validate`, io_uring/rsrc.c: 1 GiB).
pub const REGISTERED_BYTES_MAX: usize = 1 << 30;

/// Most pieces of memory registered with one ring.
pub const REGISTERED_MAX: usize = 64;

/// How long the thread that waits for the outstanding requests of a drive waits for one of its rings before it looks at
/// the next.
pub const OWED_LOOK: Nanos = Nanos(200_000_000);

/// Most drives that are waited for at a time. What further ones owe stays in memory, and they stay refused.
pub const OWED_THREADS_MAX: usize = 256;

/// How long an opener waits for the outstanding requests of a drive from an earlier use. Drives that are well answer
/// within milliseconds.
pub const OWED_PATIENCE: Duration = Duration::from_secs(2);

/// The same for the caller that opens another queue of an open drive, which may be a data core. An array that was just
/// stopped may have left reads that no task waited for.
pub const OWED_BRIEFLY: Duration = Duration::from_millis(200);

/// How long the kernel may hold the requests to a drive that it reaches over a network while it connects to it again.
/// As long as our own initiator does.
pub const KERNEL_HOLD: Nanos = Nanos(24_000_000_000);

/// For how long after a late close an opener waits for the kernel to take the rings apart that held a block device.
pub const CLOSE_PATIENCE: Nanos = Nanos(5_000_000_000);

/// How long an opener waits for the kernel to look at a path and open it, which may hang with the drive.
pub const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// Requests of a kind that occupies a thread of the kernel each (`io-wq`), per ring at a time: those to files that
/// others serve, deallocations and zeroing. The others wait in the queue.
pub const SLOW_DEPTH_MAX: u32 = 32;

/// Threads the kernel may use for such requests of one core. Its own limit of four per processor is less than one
/// drive that hangs can occupy, and flushes of all other drives would wait behind it.
pub const KERNEL_WORKERS_MAX: u32 = 1024;

const _: () = assert!(ZEROES_BYTES * SEGMENTS_MAX <= IO_BYTES_MAX as usize);
