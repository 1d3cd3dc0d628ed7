//! The places of a pool on its device: pure arithmetic.

use strake_block::DeviceInfo;
use strake_ondisk::{POOL_BLOCK_BYTES, POOL_HEADER_BYTES, PoolHeader, device_mark};
use strake_units::{BlockSize, Lba, Name, Uuid};
use strake_volume_map::limits::{CLUSTERS_MAX, LEAF_ENTRIES_MAX};
use strake_volume_map::{Blocks, ClusterId, Shape, cluster_bytes};

use crate::error::{PoolError, PoolErrorKind};
use crate::limits::{CLUSTERS_MIN, LOG_BLOCKS_MIN, LOG_BYTES_MAX, LOG_BYTES_MIN};

/// The division of a device. All positions are in bytes unless they are block addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The recorded places.
    pub header: PoolHeader,
    /// The division into clusters and leaves.
    pub shape: Shape,
    /// The block size of the device and of all volumes.
    pub block_size: BlockSize,
}

impl Layout {
    /// Divides a device for a new pool. A cluster is a multiple of the preferred I/O size of the device, which is a
    /// stripe of an array, and starts at such a multiple.
    ///
    /// # Errors
    /// If the device is too small, or its stripes are too large for a cluster.
    pub fn new(info: &DeviceInfo, name: &Name, pool: Uuid) -> Result<Self, PoolError> {
        let refuse = |kind, what: String| Err(PoolError::new(kind, name.as_str(), what));
        let stripe = u64::from(info.io_bytes_optimal.max(info.block_size.bytes()));
        let Some(cluster) = cluster_bytes(stripe) else {
            let what = format!(
                "a stripe has {stripe} bytes of data and a cluster at most 4 MiB; create the array with smaller strips"
            );
            return refuse(PoolErrorKind::Unsuitable, what);
        };
        if (info.io_bytes_max as usize) < POOL_BLOCK_BYTES {
            let what = format!("its device takes only {} bytes per request", info.io_bytes_max);
            return refuse(PoolErrorKind::Unsuitable, what);
        }
        let bytes = info.bytes();
        // The areas grow with the number of clusters, so the largest number that fits is searched.
        let fits = |clusters: u32| {
            Self::of(info, name, pool, cluster, clusters).header.wrong_field().is_none()
        };
        let (mut least, mut most) = (0, (bytes / cluster).min(u64::from(CLUSTERS_MAX)) as u32);
        while least < most {
            let middle = least + (most - least).div_ceil(2);
            if fits(middle) {
                least = middle;
            } else {
                most = middle - 1;
            }
        }
        if least < CLUSTERS_MIN {
            let what = format!(
                "its device has {bytes} bytes, too few for {CLUSTERS_MIN} clusters of {cluster} bytes and their map"
            );
            return refuse(PoolErrorKind::TooSmall, what);
        }
        Ok(Self::of(info, name, pool, cluster, least))
    }

    fn of(info: &DeviceInfo, name: &Name, pool: Uuid, cluster: u64, clusters: u32) -> Self {
        let block = POOL_BLOCK_BYTES as u64;
        let shape = Shape {
            clusters: clusters.max(1),
            cluster_blocks: (cluster >> info.block_size.shift()) as u16,
            leaf_entries: LEAF_ENTRIES_MAX,
            rings: 1,
        };
        let root_bytes = (shape.image_bytes_max() + block).next_multiple_of(cluster);
        let log_bytes =
            (2 * root_bytes).clamp(LOG_BYTES_MIN, LOG_BYTES_MAX).next_multiple_of(cluster);
        let log_at = POOL_HEADER_BYTES.next_multiple_of(cluster);
        let root_at = log_at + log_bytes;
        let header = PoolHeader {
            pool,
            name: name.clone(),
            device: device_mark(&info.identity),
            bytes: info.bytes(),
            block_bytes: info.block_size.bytes(),
            cluster_bytes: cluster as u32,
            clusters: shape.clusters,
            leaf_entries: shape.leaf_entries,
            log_at,
            log_bytes,
            root_at,
            root_bytes,
            data_at: root_at + 2 * root_bytes,
        };
        Self { header, shape, block_size: info.block_size }
    }

    /// Returns the layout of a recorded header on a device.
    ///
    /// # Errors
    /// If the header does not fit the device.
    pub fn recorded(header: PoolHeader, info: &DeviceInfo) -> Result<Self, PoolError> {
        let name = header.name.clone();
        let refuse =
            |what: String| Err(PoolError::new(PoolErrorKind::Damaged, name.as_str(), what));
        if header.block_bytes != info.block_size.bytes() {
            let (then, now) = (header.block_bytes, info.block_size.bytes());
            return refuse(format!(
                "it has blocks of {then} bytes and its device has blocks of {now} bytes"
            ));
        }
        if header.bytes > info.bytes() {
            let (then, now) = (header.bytes, info.bytes());
            return refuse(format!("it has {then} bytes and its device has only {now} bytes"));
        }
        let blocks = header.cluster_bytes >> info.block_size.shift();
        let shape = Shape {
            clusters: header.clusters,
            cluster_blocks: u16::try_from(blocks).unwrap_or(0),
            leaf_entries: header.leaf_entries,
            rings: 1,
        };
        if header.log_blocks() < LOG_BLOCKS_MIN {
            return refuse(format!("its log has only {} blocks", header.log_blocks()));
        }
        match shape.check() {
            Ok(shape) => Ok(Self { header, shape, block_size: info.block_size }),
            Err(error) => refuse(format!("its header is damaged: {error}")),
        }
    }

    /// Returns the address of a byte position, which must be a multiple of the block size.
    #[must_use]
    pub const fn lba(&self, byte: u64) -> Lba {
        Lba(byte >> self.block_size.shift())
    }

    /// Returns the address of blocks of a cluster.
    #[must_use]
    pub fn cluster(&self, cluster: ClusterId, blocks: Blocks) -> Lba {
        let start =
            self.header.data_at + u64::from(cluster.0) * u64::from(self.header.cluster_bytes);
        Lba((start >> self.block_size.shift()) + u64::from(blocks.first))
    }

    /// Returns the bytes of a number of blocks.
    #[must_use]
    pub const fn bytes_of(&self, blocks: u16) -> usize {
        (blocks as usize) << self.block_size.shift()
    }

    /// Returns the byte position of block `sequence` of the log.
    #[must_use]
    pub fn log_block(&self, sequence: u64) -> u64 {
        self.header.log_at + sequence % self.header.log_blocks() * POOL_BLOCK_BYTES as u64
    }

    /// Returns the byte position of a place of a root, 0 or 1.
    #[must_use]
    pub const fn root(&self, place: u8) -> u64 {
        self.header.root_at + place as u64 * self.header.root_bytes
    }
}
