//! Limits. Each limits memory, the size of a record, or a loop.

/// Maximum clusters of a pool. 256 KiB clusters then address 256 TiB; a larger array has larger clusters.
pub const CLUSTERS_MAX: u32 = 1 << 30;

/// Maximum blocks of a cluster: 4 MiB in blocks of 4 KiB. A partial cluster has two bits for each block.
pub const CLUSTER_BLOCKS_MAX: u16 = 1024;

/// Smallest cluster in bytes. A map entry then describes at least 256 KiB.
pub const CLUSTER_BYTES_MIN: u64 = 256 * 1024;

/// Largest cluster in bytes.
pub const CLUSTER_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Maximum entries of a leaf: a page of 4 KiB without its header of 64 bytes.
pub const LEAF_ENTRIES_MAX: u16 = 1008;

/// Maximum rings, which is the maximum of cores that own leaves.
pub const RINGS_MAX: u8 = 64;

/// Maximum total of volumes, snapshots and clones of a map.
pub const VOLUMES_MAX: usize = 65_536;

/// Maximum leaf references of one volume. With leaves of 1008 entries, a volume has at most `CLUSTERS_MAX` clusters.
pub const ROOT_ENTRIES_MAX: usize = 1_065_221;

/// Maximum volumes of one group snapshot. Its record then has at most 70 KiB.
pub const GROUP_MAX: usize = 1000;

/// Maximum operations in progress.
pub const OPERATIONS_MAX: usize = 65_536;

/// Leaves that one step of a deletion gives up.
pub const SWEEP_LEAVES: usize = 1;

/// Maximum bytes of one encoded record, without its frame.
pub const RECORD_BYTES_MAX: usize = 96 * 1024;

/// A start refuses sequences of roots and record numbers from this value on. They have 56 bits, so that a start never
/// exhausts the higher values.
pub const START_NUMBER_MAX: u64 = 1 << 55;

/// Roots that a pool keeps: the log starts at the floors of the older root.
pub const ROOTS: usize = 2;

/// Maximum total of leaf references of all volumes of one map: 1 GiB of memory.
pub const ROOT_ENTRIES_TOTAL_MAX: usize = 1 << 27;

/// Maximum leaves of one map: 8 GiB of memory. A pool of `CLUSTERS_MAX` clusters needs half of them if all are full.
pub const LEAVES_MAX: usize = 1 << 21;

/// Maximum volumes that a map ever has: identifiers are never reused.
pub const VOLUME_IDS_MAX: usize = u32::MAX as usize;

/// Leaves that every map may have, however small its pool is.
pub const LEAVES_MIN: usize = 256;

/// Volumes that every map may have, however small its pool is.
pub const VOLUMES_MIN: usize = 1024;

/// Leaf references that every map may have, however small its pool is: 66 TiB of volumes in clusters of 256 KiB.
pub const ROOT_ENTRIES_MIN: usize = 1 << 18;
