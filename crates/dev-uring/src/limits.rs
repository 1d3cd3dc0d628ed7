//! The limits of this crate.

use std::time::Duration;
use strake_block::buf::SEGMENTS_MAX;
use strake_units::Nanos;

/// Bytes of the largest read or write: the limit of one command of most NVMe drives. The kernel splits larger requests,
/// so the value need not depend on the drive.
pub const IO_BYTES_MAX: u32 = 1 << 20;

/// Largest number of requests of one queue, well below the kernel's limit of 32768 ring entries (`IORING_MAX_ENTRIES`,
/// io_uring/io_uring.h).
pub const DEPTH_MAX: u32 = 16384;

/// Number of resubmissions of one request after `EAGAIN` or a result without progress.
pub const RESUBMITS_MAX: u32 = 1000;

/// Bytes of zeroes for devices without a zeroing command. Every element of a scatter list points to the same zeroes, so
/// one request writes up to [`SEGMENTS_MAX`] times as many.
pub const ZEROES_BYTES: usize = 256 << 10;

/// Largest unit in which a drive may free space to count as able to deallocate: the unit in which an array deallocates
/// on a member. A drive with larger units would write zeroes instead and free nothing.
pub const GRANULE_MAX: u64 = 128 << 10;

/// Largest single buffer the kernel registers (`io_buffer_validate`, io_uring/rsrc.c: 1 GiB).
pub const REGISTERED_BYTES_MAX: usize = 1 << 30;

/// Largest number of memory pieces registered with one ring.
pub const REGISTERED_MAX: usize = 64;

/// Time for which the thread that waits for the outstanding requests of a drive waits for one of its rings before it
/// continues with the next ring.
pub const OWED_LOOK: Nanos = Nanos(200_000_000);

/// Largest number of drives with a waiting thread. Outstanding requests of further drives stay in memory, and these
/// drives cannot be opened.
pub const OWED_THREADS_MAX: usize = 256;

/// Time for which an open waits for outstanding requests of an earlier use. Working drives answer within milliseconds.
pub const OWED_PATIENCE: Duration = Duration::from_secs(2);

/// The same limit for a caller that opens another queue of an open drive, which may be a data core. An array that was
/// just stopped may have left reads without a waiting task.
pub const OWED_BRIEFLY: Duration = Duration::from_millis(200);

/// Time for which the kernel may hold requests to a network drive while it reconnects. The value equals the limit of
/// Strake's own initiator.
pub const KERNEL_HOLD: Nanos = Nanos(24_000_000_000);

/// Time after a late close for which an open waits until the kernel has released the rings that held a block device.
pub const CLOSE_PATIENCE: Nanos = Nanos(5_000_000_000);

/// Time for which an open waits for the kernel to examine a path and open it. The call may hang with the drive.
pub const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// Largest number of concurrent requests per ring that each occupy a kernel thread (`io-wq`): requests to served files,
/// deallocations and zeroing. Further ones wait in the queue.
pub const SLOW_DEPTH_MAX: u32 = 32;

/// Time without any result after which a queue with outstanding requests wakes the kernel's workers of its thread.
pub const WAKE_AFTER: Nanos = Nanos(1_000_000_000);

/// Kernel threads for such requests of one core. The default limit of four per processor is lower than the number that
/// one unresponsive drive can occupy, and flushes of all other drives would wait.
pub const KERNEL_WORKERS_MAX: u32 = 1024;

const _: () = assert!(ZEROES_BYTES * SEGMENTS_MAX <= IO_BYTES_MAX as usize);
