//! The properties of a drive in memory.

use std::sync::atomic::{AtomicU64, Ordering};
use strake_block::{DeallocateReads, DeviceInfo, VolatileCache};
use strake_units::BlockSize;

/// Maximum bytes of one read or write of memory drives by default, which is the usual limit of NVMe drives (NVMe MDTS
/// 8: 2^8 pages of 4 KiB).
pub const IO_BYTES_MAX: u32 = 1 << 20;

/// The properties of a memory drive. Start from [`MemSpec::new`] and change fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemSpec {
    /// The identity of the drive. Two drives with the same identity count as one drive.
    pub identity: String,
    /// Capacity in blocks.
    pub blocks: u64,
    /// Logical block size.
    pub block_size: BlockSize,
    /// Maximum bytes of one read or write.
    pub io_bytes_max: u32,
    /// The reported kind of cache. Memory drives never lose data; [`Faulty`](crate::Faulty) adds a cache that loses
    /// data in a power failure.
    pub cache: VolatileCache,
    /// The reported content of deallocated blocks. A RAM drive returns zeroes for `Zeroes`, and keeps the old bytes for
    /// `Unspecified`, so that tests detect code that relies on zeroes.
    pub deallocate: DeallocateReads,
    /// True if the drive refuses writes.
    pub read_only: bool,
}

/// The number of the next drive without a given identity. Relaxed order is sufficient, because uniqueness needs only
/// the atomic increment.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl MemSpec {
    /// Returns a drive of `blocks` blocks with an identity that no other drive of this process has.
    #[must_use]
    pub fn new(blocks: u64, block_size: BlockSize) -> Self {
        Self {
            identity: format!("mem:{}", NEXT.fetch_add(1, Ordering::Relaxed)),
            blocks,
            block_size,
            io_bytes_max: IO_BYTES_MAX,
            cache: VolatileCache::Absent,
            deallocate: DeallocateReads::Zeroes,
            read_only: false,
        }
    }

    /// Returns the same drive with the identity `identity`.
    #[must_use]
    pub fn named(mut self, identity: impl Into<String>) -> Self {
        self.identity = identity.into();
        self
    }

    pub(crate) fn info(&self) -> DeviceInfo {
        DeviceInfo {
            identity: self.identity.clone(),
            blocks: self.blocks,
            block_size: self.block_size,
            io_bytes_max: self.io_bytes_max,
            io_bytes_optimal: 0,
            cache: self.cache,
            deallocate: self.deallocate,
            fast_zeroes: true,
            read_only: self.read_only,
        }
    }
}
