//! Every bound of the engine in one place, related to each other at compile time.

use strake_units::Nanos;

/// Maximum number of tasks of a shard. A task works on one band.
pub const TASKS_MAX: usize = 256;

/// Tasks that are reserved for the leader, for maintenance and for [`RECORDERS_MAX`]. Band tasks may wait for these
/// tasks.
pub const TASKS_RESERVED: usize = 4 + RECORDERS_MAX;

/// Additional tasks that complete small writes with failed parts. Such writes keep records in the log, which delay
/// other writes.
pub const TASKS_CONCLUDING: usize = 1;

/// Maximum number of partial-write records that a shard writes at a time. Later partial writes share the next record.
pub const RECORDERS_MAX: usize = 4;

/// Maximum number of requests accepted from one queue in a turn before the next queue.
pub const ACCEPT_PER_TURN: usize = 64;

/// Maximum number of small writes and direct writes of whole stripes in progress on a shard.
pub const SMALL_WRITES_MAX: usize = 512;

/// Maximum number of direct writes of whole stripes among them. A stripe has up to 64 parts. Each of them may become an
/// ordinary I/O, and the I/Os of other users wait for the drives behind these parts.
pub const WHOLE_STRIPES_MAX: usize = 64;

/// Maximum number of degraded reads in progress on a shard.
pub const DEGRADED_READS_MAX: usize = 64;

/// Maximum number of spans of host requests and maintenance steps on a shard, waiting or in progress.
pub const ITEMS_MAX: usize = 4096;

/// Maximum number of accepted and unanswered host requests on a shard, over all its queues.
pub const REQUESTS_MAX: usize = 2048;

/// Maximum number of spans of one write in progress. A request that zeroes a whole array thus leaves room for other
/// requests.
pub const SPANS_PER_WRITE: u32 = 512;

/// Maximum number of blocked requests in a turn before the shard stops trying further requests.
pub const STALLS_PER_TURN: usize = 32;

/// Maximum number of waiting writes that one plan merges.
pub const MERGE_MAX: usize = 16;

/// Maximum number of waiting reads that the same survivors answer, which is the width of the widest stripe.
pub const JOIN_MAX: usize = 64;

/// Maximum number of outstanding I/Os of one shard at one member. Further I/Os wait in the shard.
pub const MEMBER_DEPTH: u32 = 256;

/// Largest host I/O an array accepts; exports split larger ones.
pub const IO_BYTES_MAX: u32 = 1 << 20;

/// Number of cached reconstruction matrices on a shard, 9 KiB each. This is sufficient for every position of a missing
/// member in arrays of usual width.
pub const RECOVERIES_MAX: usize = 32;

/// Memory of one shard for old data, parity and reconstruction.
pub const SCRATCH_BYTES: usize = 48 << 20;

/// Small scratch buffers, for the windows of small random writes.
pub const SMALL_BYTES: usize = 4096;

/// Bytes of small buffers in the scratch memory of a shard.
pub const SMALL_TOTAL: usize = 4 << 20;

/// Maximum number of columns in the parity cache of a shard.
pub const PARITY_CACHE_MAX: usize = 128;

/// Maximum number of columns in large buffers. Each such buffer has the size of a band, even for a few blocks.
pub const PARITY_CACHE_LARGE_MAX: usize = 16;

/// Maximum bytes per strip of a cached column, which covers pages of databases and usual writes of file systems.
pub const PARITY_CACHE_BYTES_MAX: usize = 16 << 10;

/// Maximum number of bands that a shard rebuilds or resynchronizes at a time. The number is smaller while maintenance
/// slows down clients.
pub const MAINTENANCE_WINDOW: usize = 16;

/// Time limit of one I/O of a local drive before the drive counts as failed. Hosts abort requests after 30 s
/// (`nvme_core.io_timeout`, and SCSI disks likewise), so the engine must answer well before.
pub const IO_LIMIT_BLOCK: Nanos = Nanos(8 * Nanos::SECOND.0);

/// Time limit of one I/O of a file, whose file system may be busy with its journal or other files.
pub const IO_LIMIT_FILE: Nanos = Nanos(15 * Nanos::SECOND.0);

/// Time limit of one I/O of a remote drive. The loss of a path may be detected 12 s late, and writes then wait until
/// the old association has certainly ended: up to 29 s in total (`MEMBER_TIME_MAX` of `strake-dev-fabrics`). A member
/// that is about to reconnect must not be put out of use. Hosts with a time limit of 30 s should get a larger limit.
pub const IO_LIMIT_REMOTE: Nanos = Nanos(30 * Nanos::SECOND.0);

/// Minimum of a configured time limit.
pub const IO_LIMIT_MIN: Nanos = Nanos(6 * Nanos::SECOND.0);
/// Maximum of a configured time limit.
pub const IO_LIMIT_MAX: Nanos = Nanos(300 * Nanos::SECOND.0);

/// Maximum number of deallocations of a shard in progress at a member. Linux executes the deallocations of one block
/// device or file one after another (`blkdev_fallocate` holds the lock of the inode), at 31 ms each on a slow drive,
/// and the time limit starts with the submission. With 64 cores, the last deallocation waits for 4 s.
pub const DEALLOCATE_DEPTH: u32 = 2;

/// Time limit of an I/O while more members are stalled than the array can do without. The cause is then probably not a
/// drive, and failing the drives would make the problem worse.
pub const IO_TIMEOUT_COMMON: Nanos = Nanos(300 * Nanos::SECOND.0);

/// Maximum wait for a new member that still has outstanding requests from an earlier membership.
pub const FORMER_PATIENCE: Nanos = Nanos(5 * Nanos::SECOND.0);

/// Age of an outstanding I/O from which its member counts as stalled.
pub const STANDSTILL: Nanos = Nanos(5 * Nanos::SECOND.0);

/// Maximum wait for a read before its data are reconstructed from the rest of the stripe, if possible.
pub const READ_PATIENCE: Nanos = Nanos(2 * Nanos::SECOND.0);

/// Bytes of a new member that the first request zeroes. Each further request zeroes twice as many, up to
/// [`ZEROED_MOST`].
pub const ZEROED_FIRST: u64 = 256 << 20;

/// Bytes of the largest of these requests. A drive with a fast unmapped first part may be slow afterwards, and a
/// request that exceeds the time limit of the drive fails the command. At 10 ms each, requests of this size cover a
/// drive of 7.68 TB in half of [`ZEROING_LIMIT`].
pub const ZEROED_MOST: u64 = 32 << 30;

/// Maximum time for zeroing a new member. After this time, the initialization in the background zeroes the rest.
pub const ZEROING_LIMIT: Nanos = Nanos(5 * Nanos::SECOND.0);

/// Time between two checks of the latencies of members.
pub const LATENCY_LOOK: Nanos = Nanos(Nanos::SECOND.0);

/// Time between two checks of outstanding I/Os against the limits above.
pub const TIMEOUT_CHECK: Nanos = Nanos(500 * Nanos::MILLI.0);

/// The write-intent bit of a region is cleared after one to two of these intervals without a write.
pub const SWEEP_EVERY: Nanos = Nanos(2 * Nanos::SECOND.0);

/// The interval while members are missing. A crash may then damage regions with set bits, so bits are cleared as early
/// as the cost of bitmap writes allows.
pub const SWEEP_EVERY_DEGRADED: Nanos = Nanos(250 * Nanos::MILLI.0);

/// Minimum time between two records of rebuild progress.
pub const CHECKPOINT_EVERY: Nanos = Nanos(2 * Nanos::SECOND.0);

/// Maximum number of unfetched events before the oldest events are dropped.
pub const EVENTS_MAX: usize = 1024;

/// Maximum number of listed findings of a scrub. Further findings are only counted.
pub const SCRUB_FINDINGS_MAX: usize = 1024;

/// Minimum time between two reports of findings of a scrub.
pub const SCRUB_TELL_EVERY: Nanos = Nanos(60 * Nanos::SECOND.0);

/// Bytes of the rows with a common verdict of a scrub. Different strips may be wrong in different rows.
pub const SCRUB_COLUMN_BYTES: usize = 4096;

/// Maximum number of requests that an array queue passes to its shard at a time.
pub const PORT_DEPTH_MAX: u32 = 1024;

/// Maximum number of messages between two shards. The sender keeps further messages.
pub const MAILBOX_DEPTH: usize = 1024;

const _: () = assert!(TASKS_MAX <= ITEMS_MAX, "every task works on at least one item");
const _: () =
    assert!(PORT_DEPTH_MAX as usize <= REQUESTS_MAX, "one queue must not exceed the shard");
const _: () = assert!(
    PARITY_CACHE_LARGE_MAX < PARITY_CACHE_MAX && PARITY_CACHE_MAX < 256,
    "a byte counts those of a band"
);
const _: () = assert!(SMALL_TOTAL < SCRATCH_BYTES, "small buffers are a part of the whole");
const _: () = assert!(MAINTENANCE_WINDOW < TASKS_MAX, "maintenance never takes every task");
const _: () =
    assert!(READ_PATIENCE.0 < STANDSTILL.0, "a read goes around before a member is suspected");
const _: () = assert!(
    STANDSTILL.0 < IO_LIMIT_MIN.0,
    "stalled members are known before one is put out of use"
);
const _: () = assert!(
    IO_LIMIT_MAX.0 <= IO_TIMEOUT_COMMON.0,
    "a common cause gets more time than a single drive"
);
