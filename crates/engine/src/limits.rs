//! Every bound of the engine in one place, related to each other at compile time.

use strake_units::Nanos;

/// Bands one shard works on at a time; each is one task.
pub const TASKS_MAX: usize = 256;

/// Tasks kept for the leader, for maintenance and for [`RECORDERS_MAX`], which band tasks may be waiting for.
pub const TASKS_RESERVED: usize = 4 + RECORDERS_MAX;

/// Tasks beyond those of bands that answer small writes of which parts failed: records of such writes are in the way of
/// others in the log.
pub const TASKS_CONCLUDING: usize = 1;

/// Lists of partial writes that a shard has on their way to the log at a time. What comes meanwhile shares the next
/// one.
pub const RECORDERS_MAX: usize = 4;

/// Requests taken from one queue in one turn before the next queue gets its share.
pub const ACCEPT_PER_TURN: usize = 64;

/// Small writes that a shard has under way at a time.
pub const SMALL_WRITES_MAX: usize = 512;

/// Reads recovered without a task that a shard has under way at a time.
pub const DEGRADED_READS_MAX: usize = 64;

/// Spans of host requests (and maintenance steps) one shard holds, waiting or in progress.
pub const ITEMS_MAX: usize = 4096;

/// Host requests one shard has accepted and not yet answered, over all its queues.
pub const REQUESTS_MAX: usize = 2048;

/// Spans of one write that are under way at a time: zeroing a whole array leaves room for others.
pub const SPANS_PER_WRITE: u32 = 512;

/// Requests that are found unable to continue in one turn before the shard stops trying others.
pub const STALLS_PER_TURN: usize = 32;

/// Waiting writes that one plan may merge.
pub const MERGE_MAX: usize = 16;

/// Waiting reads that are answered from the same survivors at a time: of a whole stripe as wide as they get.
pub const JOIN_MAX: usize = 64;

/// I/Os outstanding at one member from one shard; more wait in the shard.
pub const MEMBER_DEPTH: u32 = 256;

/// Largest host I/O an array accepts; exports split larger ones.
pub const IO_BYTES_MAX: u32 = 1 << 20;

/// Recoveries that a shard remembers, 9 KiB each: enough for every place of a missing member in arrays as wide as
/// people build them.
pub const RECOVERIES_MAX: usize = 32;

/// Memory of one shard for old data, parity and reconstruction.
pub const SCRATCH_BYTES: usize = 48 << 20;

/// Small scratch buffers, for the windows of small random writes.
pub const SMALL_BYTES: usize = 4096;

/// Bytes of a shard's scratch memory that are small buffers.
pub const SMALL_TOTAL: usize = 4 << 20;

/// Columns of which a shard keeps what small writes left behind.
pub const PARITY_CACHE_MAX: usize = 128;

/// Those of them in large buffers, whole bands of which are taken by a few blocks.
pub const PARITY_CACHE_LARGE_MAX: usize = 16;

/// Largest strip's part that is kept: pages of databases, and what file systems write at once.
pub const PARITY_CACHE_BYTES_MAX: usize = 16 << 10;

/// Bands a shard rebuilds or resynchronizes at a time at most; fewer while clients would feel it.
pub const MAINTENANCE_WINDOW: usize = 16;

/// How long a drive of this machine may take over one I/O before it counts as failed. Hosts give up after 30 s
/// themselves (`nvme_core.io_timeout`, and SCSI disks alike), so their requests are to be answered well before that.
pub const IO_LIMIT_BLOCK: Nanos = Nanos(8 * Nanos::SECOND.0);

/// The same for a file, whose file system may be busy with its journal or other files.
pub const IO_LIMIT_FILE: Nanos = Nanos(15 * Nanos::SECOND.0);

/// The same for a remote drive. A path that is lost may be 12 s late to be seen as such, and what changes the drive
/// then waits until the old association is surely over: up to 29 s in all (`MEMBER_TIME_MAX` of `strake-dev-fabrics`),
/// and a member that is about to be back must not be put out of use. Hosts that give up after 30 s should be given
/// more.
pub const IO_LIMIT_REMOTE: Nanos = Nanos(30 * Nanos::SECOND.0);

/// The least and the most that can be asked for.
pub const IO_LIMIT_MIN: Nanos = Nanos(6 * Nanos::SECOND.0);
/// See [`IO_LIMIT_MIN`].
pub const IO_LIMIT_MAX: Nanos = Nanos(300 * Nanos::SECOND.0);

/// Deallocations that a shard gives a member at a time. Linux executes those of one block device or file one after
/// another (`blkdev_fallocate` holds the lock of the inode), at 31 ms each on a slow drive, and the limit of a drive
/// counts from when it was given the I/O: with 64 cores the last of them waits for 4 s.
pub const DEALLOCATE_DEPTH: u32 = 2;

/// How long an I/O may take while so many members are stalled together that the array cannot do without them: the
/// cause is then not a drive, and throwing drives out would make it worse.
pub const IO_TIMEOUT_COMMON: Nanos = Nanos(300 * Nanos::SECOND.0);

/// How long a drive that is to become a member is waited for while it still has outstanding requests from its earlier
/// membership.
pub const FORMER_PATIENCE: Nanos = Nanos(5 * Nanos::SECOND.0);

/// How old an outstanding I/O is when its member counts as stalled.
pub const STANDSTILL: Nanos = Nanos(5 * Nanos::SECOND.0);

/// How long a read is waited for before it is reconstructed from the rest of its stripe, if that is possible.
pub const READ_PATIENCE: Nanos = Nanos(2 * Nanos::SECOND.0);

/// Bytes of a new member that are made zeroes with the first request; each further one is for twice as many, up to
/// [`ZEROED_MOST`].
pub const ZEROED_FIRST: u64 = 256 << 20;

/// Bytes of the largest of these requests: a drive whose first part is unmapped and quick may be slow after it, and a
/// request that takes longer than the limit of a drive fails the command. At 10 ms each, requests of this size cover a
/// drive of 7.68 TB in half of [`ZEROING_LIMIT`].
pub const ZEROED_MOST: u64 = 32 << 30;

/// For how long a new member is made zeroes before it is left to the initialization behind the start.
pub const ZEROING_LIMIT: Nanos = Nanos(5 * Nanos::SECOND.0);

/// How often a shard looks at its members' latencies.
pub const LATENCY_LOOK: Nanos = Nanos(Nanos::SECOND.0);

/// How often outstanding I/Os are checked against the limits above.
pub const TIMEOUT_CHECK: Nanos = Nanos(500 * Nanos::MILLI.0);

/// A region's write-intent bit is cleared after it saw no write for one to two of these.
pub const SWEEP_EVERY: Nanos = Nanos(2 * Nanos::SECOND.0);

/// The same while members are missing: a crash is then not harmless for regions that are still marked, so marks
/// are kept as short as bitmap writes allow.
pub const SWEEP_EVERY_DEGRADED: Nanos = Nanos(250 * Nanos::MILLI.0);

/// How often the rebuild cursor in the labels is moved on at most, while regions are being finished.
pub const CHECKPOINT_EVERY: Nanos = Nanos(2 * Nanos::SECOND.0);

/// Events that wait to be fetched before the oldest are dropped.
pub const EVENTS_MAX: usize = 1024;

/// Findings of a scrub that are listed. Further ones are counted.
pub const SCRUB_FINDINGS_MAX: usize = 1024;

/// How often a scrub tells that it has found something, at most.
pub const SCRUB_TELL_EVERY: Nanos = Nanos(60 * Nanos::SECOND.0);

/// Rows over which a scrub gives one verdict, in bytes: strips may be wrong in different ones.
pub const SCRUB_COLUMN_BYTES: usize = 4096;

/// Requests an array queue passes to its shard at a time.
pub const PORT_DEPTH_MAX: u32 = 1024;

/// Messages that fit between two shards before the sender keeps them back.
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
