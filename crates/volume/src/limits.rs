//! Limits of a pool. Each limit bounds memory, a place on the device, time, or the work of one turn.

use strake_units::Nanos;

/// Smallest and largest log in bytes. Between them, the log has the bytes of both roots.
pub const LOG_BYTES_MIN: u64 = 4 << 20;

/// See [`LOG_BYTES_MIN`].
pub const LOG_BYTES_MAX: u64 = 1 << 30;

/// Smallest pool in clusters.
pub const CLUSTERS_MIN: u32 = 64;

/// Smallest log in blocks that a start accepts.
pub const LOG_BLOCKS_MIN: u64 = 16;

/// Largest sequence of a block of the log that a start accepts. Blocks of 4 KiB never reach it.
pub const LOG_SEQUENCE_MAX: u64 = 1 << 55;

/// Blocks of the log that stay free for the records of one turn while more than half of the log is in use.
pub const LOG_RESERVE_BLOCKS: u64 = 64;

/// Maximum bytes of a record of an operation of a host: the largest has the state of the blocks of a cluster.
pub const HOST_RECORD_BYTES: u64 = 320;

/// Maximum operations of hosts in progress. Each has at most two records that are not stable, and the records of all of
/// them fit in half of the smallest log.
pub const OPERATIONS_MAX: usize = 1024;

/// Maximum requests of operators in progress. The record of a group snapshot has up to 96 KiB.
pub const OPERATOR_REQUESTS_MAX: usize = 8;

/// Maximum copies of clusters in progress: each needs the memory of a cluster.
pub const COPIES_MAX: usize = 16;

/// Maximum bytes of records of one write to the log.
pub const LOG_WRITE_BYTES: usize = 256 << 10;

/// I/Os of the device below in progress.
pub const DEVICE_DEPTH: u32 = 1024;

/// Maximum I/Os in progress of one queue of a volume.
pub const PORT_DEPTH_MAX: u32 = 1024;

/// Maximum queues of all volumes of a pool.
pub const PORTS_MAX: usize = 4096;

/// Maximum requests that one turn accepts from one queue.
pub const REQUESTS_PER_TURN: usize = 64;

/// Maximum operations that one turn advances.
pub const ADVANCES_PER_TURN: usize = 1024;

/// Maximum operations that one turn advances while more than half of the log is in use.
pub const ADVANCES_NEAR_FULL: usize = 64;

/// Maximum clusters of discards that one turn begins.
pub const DISCARDS_PER_TURN: usize = 256;

/// Maximum clusters of one discard in progress.
pub const DISCARD_WINDOW: u32 = 64;

/// Time between two looks of the pool core at I/Os of users that it waits for.
pub const USERS_POLL: Nanos = Nanos(20_000);

/// Bytes of one I/O during a start or a checkpoint.
pub const TRANSFER_BYTES: usize = 1 << 20;

/// Bytes of a root that one turn encodes. Tests use small pieces, so that small roots have several.
pub const ROOT_PIECE_BYTES: usize = if cfg!(test) { 512 } else { 16 << 10 };

/// Bytes of one write of a root.
pub const ROOT_WRITE_BYTES: usize = if cfg!(test) { 4 << 10 } else { 256 << 10 };

/// Writes of a root in progress.
pub const ROOT_WRITES_MAX: u32 = 4;

/// Time for which a write waits for a free cluster, unless volumes are being deleted.
pub const STARVED_MAX: Nanos = Nanos(1_000_000_000);

/// Time for which a write waits for a free cluster while volumes are being deleted.
pub const STARVED_DELETING: Nanos = Nanos(60_000_000_000);

/// Leaves that one turn counts for the needs of reserved volumes.
pub const RECOUNT_LEAVES: usize = 2;

/// Leaves that one comparison of two volumes examines.
pub const LEAVES_PER_COMPARISON: u64 = 16;

/// Time between a checkpoint that failed and the next one.
pub const CHECKPOINT_RETRY: Nanos = Nanos(100_000_000);

/// Time after which a pool whose roots cannot be written, and whose log is nearly full, serves only reads.
pub const CHECKPOINT_FAILING_MAX: Nanos = Nanos(10_000_000_000);

/// Time for which the removal of a pool waits for I/Os in progress. The device below answers them earlier.
pub const QUIT_MAX: Nanos = Nanos(120_000_000_000);
