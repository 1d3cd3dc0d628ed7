//! Space: what is free, reserved, exclusive and shared, in clusters.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};
use crate::found::Found;
use crate::ids::{Ring, VolumeId};
use crate::operation::Wait;
use crate::record::Change;
use crate::state::{Allocation, MapState};
use crate::tables::{UNMAPPED, Volume};

/// Clusters that reserved volumes may still take: one for each part that has no cluster or a shared one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Needs {
    volumes: BTreeMap<VolumeId, u64>,
}

impl Needs {
    fn total(&self) -> u64 {
        self.volumes.values().sum()
    }

    /// Counts a change of [`MapState::change_of_need`].
    pub(crate) fn change(&mut self, change: Option<(VolumeId, i64)>) {
        if let Some((volume, by)) = change
            && let Some(need) = self.volumes.get_mut(&volume)
        {
            *need = need.saturating_add_signed(by);
        }
    }
}

/// Space of a pool, in clusters. `free + in_use + in_transit` are the clusters of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSpace {
    /// Not in use.
    pub free: u64,
    /// Of the free clusters, those that are kept for reserved volumes.
    pub reserved: u64,
    /// With at least one reference.
    pub in_use: u64,
    /// Taken by an operation in progress.
    pub in_transit: u64,
}

/// Space of a volume, in clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSpace {
    /// Clusters that the volume refers to.
    pub mapped: u64,
    /// Of these, those that no other volume refers to. They become free if the volume is deleted, and bases that only
    /// they have.
    pub exclusive: u64,
    /// Of these, those that other volumes or bases refer to as well.
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
    pub(crate) fn volume_space(&self, id: VolumeId) -> Result<VolumeSpace, Error> {
        let volume = self.tables.serving(id).ok_or(ErrorKind::NoVolume.of(id))?;
        let mapped = u64::from(volume.mapped);
        let exclusive = self.exclusive(volume);
        let reserved = self.needs_of(id);
        Ok(VolumeSpace { mapped, exclusive, shared: mapped - exclusive, reserved })
    }

    fn exclusive(&self, volume: &Volume) -> u64 {
        let leaves = volume.root.iter().flatten().map(|slot| self.tables.leaf(*slot));
        let alone = leaves.filter(|leaf| leaf.references + leaf.given_up == 1);
        let entries = alone.flat_map(|leaf| leaf.entries.iter());
        let mapped = entries.filter(|entry| **entry != UNMAPPED);
        mapped.filter(|cluster| self.tables.counts[**cluster as usize] == 1).count() as u64
    }

    /// What is kept free for a volume.
    pub(crate) fn needs_of(&self, id: VolumeId) -> u64 {
        self.needs.volumes.get(&id).copied().unwrap_or(0)
    }

    pub(crate) fn need_of(&self, volume: &Volume) -> u64 {
        let clusters = self.tables.shape.clusters_of(volume.blocks);
        clusters.saturating_sub(self.exclusive(volume))
    }

    /// Counts what reserved volumes need. It walks their maps.
    pub(crate) fn recount_needs(&mut self) {
        let volumes = self.tables.volumes.iter();
        let reserved = volumes.filter(|(_, volume)| volume.policy.reserved && !volume.is_dying);
        self.needs.volumes = reserved.map(|(id, volume)| (*id, self.need_of(volume))).collect();
    }

    /// What a record is about to change of the need of a volume.
    pub(crate) fn change_of_need(&self, change: &Change) -> Option<(VolumeId, i64)> {
        let (Change::Map { volume: id, index, .. } | Change::Unmap { volume: id, index }) = change
        else {
            return None;
        };
        let volume = self.tables.volumes.get(id)?;
        let (slot, cluster) = self.tables.lookup(volume, *index);
        let leaf = slot.map(|slot| self.tables.leaf(slot));
        let is_alone = leaf.is_some_and(|leaf| leaf.references + leaf.given_up == 1)
            && cluster.is_some_and(|cluster| self.tables.counts[cluster.at()] == 1);
        let is_mapped = matches!(change, Change::Map { .. });
        // The leaf of an entry that changes has one reference; a given up one ends without a record.
        Some((*id, i64::from(is_alone) - i64::from(is_mapped)))
    }

    /// Refuses what would leave fewer free clusters than reservations need, if the need of a volume becomes `need`.
    pub(crate) fn check_need(&self, needs: &[(VolumeId, u64)]) -> Result<(), ErrorKind> {
        let before: u64 = needs.iter().map(|(id, _)| self.needs_of(*id)).sum();
        let after: u64 = needs.iter().map(|(_, need)| need).sum();
        let total = self.needs.total() - before + after;
        let free = u64::from(self.tables.free.len());
        let is_more = after > before && total > free;
        if is_more { Err(ErrorKind::Reserved { missing: total - free }) } else { Ok(()) }
    }

    /// A free cluster for a change of a volume, within its quota and beyond what others have reserved.
    pub(crate) fn allocate(&mut self, id: VolumeId, ring: Ring, found: Found) -> Allocation {
        let policy = self.tables.volumes[&id].policy;
        if let (Some(clusters), Found::Unmapped) = (policy.quota, found) {
            let taken = self.taken.values().filter(|volume| **volume == id).count() as u64;
            if u64::from(self.tables.volumes[&id].mapped) + taken >= u64::from(clusters) {
                return Allocation::Refused(ErrorKind::Quota { clusters: u64::from(clusters) });
            }
        }
        let is_kept = u64::from(self.tables.free.len()) <= self.needs.total();
        if is_kept && !policy.reserved {
            return Allocation::Later(Wait::Space);
        }
        self.find_free(id, ring)
    }
}
