//! Space: free, reserved, exclusive and shared clusters.

use crate::error::{Error, ErrorKind};
use crate::found::Found;
use crate::ids::{Ring, VolumeId};
use crate::operation::Wait;
use crate::state::{Allocation, MapState};
use crate::tables::Volume;

/// Space of a pool, in clusters. `free + in_use + in_transit` are the clusters of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSpace {
    /// Clusters that are not in use.
    pub free: u64,
    /// The part of the free clusters that is kept for reserved volumes.
    pub reserved: u64,
    /// Clusters with at least one reference.
    pub in_use: u64,
    /// Clusters that an operation in progress has taken.
    pub in_transit: u64,
}

/// Space of a volume, in clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Clusters that the volume refers to.
    pub mapped: u64,
    /// The part of these that no other volume refers to. Deleting the volume frees them, and bases that only they use.
    pub exclusive: u64,
    /// The part of these that other volumes or bases also refer to.
    pub shared: u64,
    /// Clusters that are kept free for the volume.
    pub reserved: u64,
}

impl MapState {
    /// The space of the pool.
    pub(crate) fn space(&self) -> PoolSpace {
        let free = u64::from(self.tables.free.len());
        let in_transit = self.taken.len() as u64;
        let in_use = u64::from(self.tables.shape.clusters) - free - in_transit;
        PoolSpace { free, reserved: self.needs.total().min(free), in_use, in_transit }
    }

    /// The space of a volume.
    #[cfg(test)]
    pub(crate) fn volume_space(&self, id: VolumeId) -> Result<VolumeSpace, Error> {
        let volume = self.tables.serving(id).ok_or(ErrorKind::NoVolume.of(id))?;
        let mapped = u64::from(volume.mapped);
        let exclusive = self.exclusive(volume);
        let reserved = self.needs.of(id);
        Ok(VolumeSpace { mapped, exclusive, shared: mapped - exclusive, reserved })
    }

    /// The exclusive clusters of a number of leaves of a volume, and the leaf after them, if there is one.
    pub(crate) fn exclusive_in(
        &self,
        id: VolumeId,
        first: usize,
        leaves: usize,
    ) -> Result<(u64, Option<usize>), Error> {
        let volume = self.tables.serving(id).ok_or(ErrorKind::NoVolume.of(id))?;
        let some = volume.root.iter().skip(first).take(leaves).flatten();
        let exclusive = some.map(|slot| self.exclusive_of(self.tables.leaf(*slot))).sum();
        let next = first.saturating_add(leaves);
        Ok((exclusive, (next < volume.root.len()).then_some(next)))
    }

    pub(crate) fn exclusive(&self, volume: &Volume) -> u64 {
        let leaves = volume.root.iter().flatten().map(|slot| self.tables.leaf(*slot));
        leaves.map(|leaf| self.exclusive_of(leaf)).sum()
    }

    /// Refuses new needs of volumes if fewer clusters than all reservations need would be free.
    pub(crate) fn check_need(&self, needs: &[(VolumeId, u64)]) -> Result<(), ErrorKind> {
        let before: u64 = needs.iter().map(|(id, _)| self.needs.of(*id)).sum();
        let after: u64 = needs.iter().map(|(_, need)| need).sum();
        let total = self.needs.total() - before + after;
        let free = u64::from(self.tables.free.len());
        let is_more = after > before && total > free;
        if is_more { Err(ErrorKind::Reserved { missing: total - free }) } else { Ok(()) }
    }

    /// Takes a free cluster for a change of a volume, within its quota and beyond the reservations of others.
    pub(crate) fn allocate(&mut self, id: VolumeId, ring: Ring, found: Found) -> Allocation {
        let policy = self.tables.volumes[&id].policy;
        if let (Some(clusters), Found::Unmapped) = (policy.quota, found)
            && u64::from(self.tables.volumes[&id].mapped) + self.taken_by(id) >= u64::from(clusters)
        {
            return Allocation::Refused(ErrorKind::Quota { clusters: u64::from(clusters) });
        }
        let is_kept = u64::from(self.tables.free.len()) <= self.needs.total();
        if is_kept && !policy.reserved {
            return Allocation::Later(Wait::Space);
        }
        self.find_free(id, ring)
    }
}
