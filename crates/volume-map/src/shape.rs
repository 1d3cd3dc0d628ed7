//! The constants of a map: the division of a pool.

use crate::blocks::Blocks;
use crate::error::{Error, ErrorKind};
use crate::ids::{Ring, VolumeId};
use crate::limits::{
    CLUSTER_BLOCKS_MAX, CLUSTER_BYTES_MAX, CLUSTER_BYTES_MIN, CLUSTERS_MAX, LEAF_ENTRIES_MAX,
    LEAVES_MAX, LEAVES_MIN, RINGS_MAX, ROOT_ENTRIES_MAX, ROOT_ENTRIES_MIN, ROOT_ENTRIES_TOTAL_MAX,
    VOLUMES_MAX, VOLUMES_MIN,
};

/// The division of a pool into clusters, leaves and rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Clusters of the pool.
    pub clusters: u32,
    /// Logical blocks of a cluster.
    pub cluster_blocks: u16,
    /// Entries of a leaf.
    pub leaf_entries: u16,
    /// Rings of records: cores that own leaves.
    pub rings: u8,
}

/// Returns the smallest multiple of a stripe's data that is at least 256 KiB, so that a write of a whole cluster is a
/// full-stripe write. `None` if it is larger than 4 MiB. All sizes are in bytes.
#[must_use]
pub const fn cluster_bytes(stripe_bytes: u64) -> Option<u64> {
    if stripe_bytes == 0 {
        return None;
    }
    let bytes = CLUSTER_BYTES_MIN.div_ceil(stripe_bytes) * stripe_bytes;
    if bytes <= CLUSTER_BYTES_MAX { Some(bytes) } else { None }
}

impl Shape {
    /// Refuses an impossible shape.
    ///
    /// # Errors
    /// [`ErrorKind::Field`] with the name of the first field that is out of bounds.
    pub fn check(self) -> Result<Self, Error> {
        let fields = [
            ("clusters", u64::from(self.clusters), u64::from(CLUSTERS_MAX)),
            ("cluster_blocks", u64::from(self.cluster_blocks), u64::from(CLUSTER_BLOCKS_MAX)),
            ("leaf_entries", u64::from(self.leaf_entries), u64::from(LEAF_ENTRIES_MAX)),
            ("rings", u64::from(self.rings), u64::from(RINGS_MAX)),
        ];
        let wrong = fields.into_iter().find(|(_, value, most)| *value == 0 || value > most);
        match wrong {
            Some((name, recorded, _)) => Err(ErrorKind::Field { name, recorded }.into()),
            None => Ok(self),
        }
    }

    /// Clusters of a volume of `blocks` blocks.
    #[must_use]
    pub const fn clusters_of(self, blocks: u64) -> u64 {
        blocks.div_ceil(self.cluster_blocks as u64)
    }

    /// Leaves of a volume of `blocks` blocks.
    #[must_use]
    pub const fn leaves_of(self, blocks: u64) -> usize {
        self.clusters_of(blocks).div_ceil(self.leaf_entries as u64) as usize
    }

    /// Maximum blocks of a volume.
    #[must_use]
    pub const fn volume_blocks_max(self) -> u64 {
        ROOT_ENTRIES_MAX as u64 * self.leaf_entries as u64 * self.cluster_blocks as u64
    }

    /// Returns the leaf and the entry of cluster `index` of a volume.
    #[must_use]
    pub const fn entry(self, index: u32) -> (usize, u16) {
        let entries = self.leaf_entries as u32;
        ((index / entries) as usize, (index % entries) as u16)
    }

    /// Returns the ring of the core that owns leaf `leaf` of the volumes with a seed. Clones keep the seed, so that a
    /// leaf and its copies have one owner.
    #[must_use]
    pub const fn owner(self, seed: u32, leaf: usize) -> Ring {
        Ring(((seed as u64 + leaf as u64) % self.rings as u64) as u8)
    }

    /// Divides a range of a volume at cluster boundaries. Returns the index of each cluster in the volume, and its
    /// blocks.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] if no volume has these blocks.
    pub fn parts(
        self,
        first: u64,
        count: u64,
    ) -> Result<impl Iterator<Item = (u32, Blocks)>, Error> {
        let per = u64::from(self.cluster_blocks);
        let end = first.checked_add(count).filter(|end| *end <= self.volume_blocks_max());
        let end = end.ok_or(ErrorKind::OutOfRange)?;
        let clusters = if count == 0 { 0..0 } else { first / per..end.div_ceil(per) };
        Ok(clusters.map(move |index| {
            let from = first.max(index * per);
            let to = end.min((index + 1) * per);
            let first = (from - index * per) as u16;
            (index as u32, Blocks { first, count: (to - from) as u16 })
        }))
    }

    /// Maximum leaves of the map. Together with the next two limits, it bounds the bytes of an image, so that the place
    /// of a root is never too small.
    #[must_use]
    pub fn leaves_max(self) -> usize {
        (self.clusters as usize / 16).clamp(LEAVES_MIN, LEAVES_MAX)
    }

    /// Maximum total of volumes, snapshots and clones of the map.
    #[must_use]
    pub fn volumes_max(self) -> usize {
        (self.clusters as usize / 16).clamp(VOLUMES_MIN, VOLUMES_MAX)
    }

    /// Maximum total of leaf references of all volumes of the map.
    #[must_use]
    pub fn root_entries_max(self) -> usize {
        (self.clusters as usize).clamp(ROOT_ENTRIES_MIN, ROOT_ENTRIES_TOTAL_MAX)
    }

    /// The seed of a volume with this identifier.
    #[must_use]
    pub const fn seed(volume: VolumeId) -> u32 {
        volume.0
    }
}
