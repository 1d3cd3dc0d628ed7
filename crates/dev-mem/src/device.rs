//! The properties of a drive in memory.

use std::sync::atomic::{AtomicU64, Ordering};
use strake_block::{DeallocateReads, DeviceInfo, VolatileCache};
use strake_units::BlockSize;

/// Largest single read or write the memory drives accept by default: what common NVMe drives advertise (NVMe
/// MDTS 8: 2^8 pages of 4 KiB).
pub const IO_BYTES_MAX: u32 = 1 << 20;

/// What to make a memory drive like. Start from [`MemSpec::new`] and change fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemSpec {
    /// What the drive answers as its identity; two drives with one identity count as one drive.
    pub identity: String,
    /// Capacity in blocks.
    pub blocks: u64,
    /// Logical block size.
    pub block_size: BlockSize,
    /// Bytes of the largest read or write it accepts.
    pub io_bytes_max: u32,
    /// What it claims about its cache. Memory drives never lose anything; wrap one in
    /// [`Faulty`](crate::Faulty) for a cache that a power cut empties.
    pub cache: VolatileCache,
    /// What it claims deallocated blocks read as. A RAM drive returns zeroes for `Zeroes` and keeps the old
    /// bytes for `Unspecified`, so that code that trusts the latter is found out.
    pub deallocate: DeallocateReads,
    /// Whether writes are refused.
    pub read_only: bool,
}

/// Numbers drives that were given no identity. Only ever counted up, so relaxed order is enough: uniqueness
/// needs the atomic increment and nothing else.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl MemSpec {
    /// A drive of `blocks` blocks with an identity no other drive of this process has.
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

    /// The same drive under the name `identity`.
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
