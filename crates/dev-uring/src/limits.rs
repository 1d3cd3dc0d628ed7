//! The fixed numbers of this crate, in one place.

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

/// Largest single buffer the kernel registers (`io_buffer_validate`, io_uring/rsrc.c: 1 GiB).
pub const REGISTERED_BYTES_MAX: usize = 1 << 30;

/// Most pieces of memory registered with one ring.
pub const REGISTERED_MAX: usize = 64;

/// How long a queue that is dropped waits for the kernel to let go of its buffers. What is still out then is
/// leaked rather than freed.
pub const DRAIN: Nanos = Nanos(30_000_000_000);

/// How long control-plane I/O waits in all.
pub const CONTROL: Nanos = Nanos(30_000_000_000);

const _: () = assert!(ZEROES_BYTES * SEGMENTS_MAX <= IO_BYTES_MAX as usize);
