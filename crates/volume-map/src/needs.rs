//! The clusters that reserved volumes may still take.
//!
//! A reserved volume needs one free cluster for each part that has no cluster or a shared one. A need increases in the
//! turn that appends a record. It ends only when the record is stable: an earlier crash restores the reservation.
//! References that other volumes give up reduce a need at the next recount; until then, it is too high, never too low.

use std::collections::BTreeMap;

use crate::ids::{ClusterId, Number, Ring, VolumeId};
use crate::operation::Wait;
use crate::record::Change;
use crate::state::{MapState, Reference};
use crate::tables::{Leaf, UNMAPPED, Volume};

/// The needs of all reserved volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Needs {
    /// The need of each reserved volume, in clusters.
    volumes: BTreeMap<VolumeId, u64>,
    total: u64,
    /// Reservations that end when a record of the leader is stable.
    ending: BTreeMap<VolumeId, Number>,
}

impl Needs {
    /// The sum of all needs, in clusters.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The clusters that are kept free for a volume.
    pub(crate) fn of(&self, id: VolumeId) -> u64 {
        self.volumes.get(&id).copied().unwrap_or(0)
    }

    fn has(&self, id: VolumeId) -> bool {
        self.volumes.contains_key(&id)
    }

    /// Sets the need of a volume, which is reserved from now on.
    pub(crate) fn set(&mut self, id: VolumeId, clusters: u64) {
        let before = self.volumes.insert(id, clusters).unwrap_or(0);
        self.total = self.total - before + clusters;
    }

    /// Adds to the need of a volume, if it is reserved.
    pub(crate) fn add(&mut self, id: VolumeId, by: i64) {
        if let Some(need) = self.volumes.get(&id) {
            self.set(id, need.saturating_add_signed(by));
        }
    }

    /// Ends the reservation of a volume when the record is stable.
    pub(crate) fn end(&mut self, id: VolumeId, number: Number) {
        if self.has(id) {
            self.ending.insert(id, number);
        }
    }
}

impl MapState {
    pub(crate) fn need_of(&self, volume: &Volume) -> u64 {
        let clusters = self.tables.shape.clusters_of(volume.blocks);
        clusters.saturating_sub(self.exclusive(volume))
    }

    /// Counts the needs of all reserved volumes. It walks their maps.
    pub(crate) fn count_needs(&mut self) {
        let volumes = self.tables.volumes.iter();
        let reserved = volumes.filter(|(_, volume)| is_reserved(volume));
        let reserved: Vec<VolumeId> = reserved.map(|(id, _)| *id).collect();
        reserved.into_iter().for_each(|id| self.needs.set(id, 0));
        self.recount_needs(|_, _| true);
    }

    /// Counts the needs of reserved volumes again. It walks their maps.
    pub(crate) fn recount_needs(&mut self, is_chosen: impl Fn(VolumeId, &Volume) -> bool) {
        let ids = self.needs.volumes.keys();
        let known = ids.filter_map(|id| Some((*id, self.tables.volumes.get(id)?)));
        let chosen = known.filter(|(id, volume)| is_chosen(*id, volume));
        let needs: Vec<(VolumeId, u64)> =
            chosen.map(|(id, volume)| (id, self.need_of(volume))).collect();
        needs.into_iter().for_each(|(id, need)| self.needs.set(id, need));
    }

    /// Returns the change of the need of a volume by a record that will be appended.
    pub(crate) fn change_of_need(&self, change: &Change) -> Option<(VolumeId, i64)> {
        let (id, by) = match change {
            Change::Map { volume, index, .. } => (*volume, self.is_exclusive(*volume, *index) - 1),
            Change::Unmap { volume, index } => (*volume, self.is_exclusive(*volume, *index)),
            Change::DropLeaf { volume, at } if self.needs.has(*volume) => {
                let slot = self.tables.volumes.get(volume)?.root.get(*at as usize).copied()??;
                (*volume, self.exclusive_of(self.tables.leaf(slot)) as i64)
            }
            Change::DropLeaf { .. }
            | Change::Own { .. }
            | Change::Zero { .. }
            | Change::Filled { .. }
            | Change::CopyLeaf { .. }
            | Change::Volumes(..) => return None,
        };
        Some((id, by))
    }

    /// Returns one if an entry refers to a cluster without other references. The leaf of a changing entry has one
    /// reference. A reference that was given up may still count: it ends without a record, and the entry may have been
    /// mapped since then, so that it has no effect here.
    fn is_exclusive(&self, id: VolumeId, index: u32) -> i64 {
        let Some(volume) = self.tables.volumes.get(&id) else { return 0 };
        let (Some(slot), Some(cluster)) = self.tables.lookup(volume, index) else { return 0 };
        let leaf = self.tables.leaf(slot);
        i64::from(leaf.references == 1 && self.tables.clusters.count(cluster) == 1)
    }

    /// Returns the wait of a change of a mapped entry of a reserved volume, before it takes a cluster: the end of a
    /// reference to the leaf that was given up. The cluster is then written in place. Otherwise, each change until then
    /// would take a cluster, and the need is one cluster for each entry.
    pub(crate) fn wait_for_leaf(&self, id: VolumeId, index: u32, ring: Ring) -> Option<Wait> {
        let volume = self.tables.serving(id).filter(|volume| is_reserved(volume))?;
        let (Some(slot), Some(cluster)) = self.tables.lookup(volume, index) else { return None };
        let leaf = self.tables.leaf(slot);
        if leaf.references > 1 || leaf.given_up == 0 || self.tables.clusters.count(cluster) > 1 {
            return None;
        }
        let is_of_leaf = |what: Reference| what == Reference::Leaf(leaf.id);
        let last = self.given_up[ring.at()].iter().rfind(|given_up| is_of_leaf(given_up.what))?;
        let number = last.by.number;
        let is_stable = self.is_stable(ring, number);
        let (records, older) =
            (Wait::Records { ring, number }, Wait::OlderIo { epoch: last.epoch });
        Some(if is_stable { older } else { records })
    }

    /// Counts the entries of a leaf whose clusters have no other reference.
    pub(crate) fn exclusive_of(&self, leaf: &Leaf) -> u64 {
        if !is_alone(leaf) {
            return 0;
        }
        let mapped = leaf.entries.iter().filter(|entry| **entry != UNMAPPED);
        mapped.filter(|cluster| self.tables.clusters.count(ClusterId(**cluster)) == 1).count()
            as u64
    }

    /// Ends reservations whose record is stable, unless the volume is reserved again.
    pub(crate) fn end_needs(&mut self) {
        let mut ending = std::mem::take(&mut self.needs.ending);
        ending.retain(|id, number| {
            let is_stable = self.is_stable(Ring::LEADER, *number);
            if is_stable && !self.tables.volumes.get(id).is_some_and(is_reserved) {
                self.needs.set(*id, 0);
                self.needs.volumes.remove(id);
            }
            !is_stable
        });
        self.needs.ending = ending;
    }
}

fn is_reserved(volume: &Volume) -> bool {
    volume.policy.reserved && !volume.is_dying
}

fn is_alone(leaf: &Leaf) -> bool {
    leaf.references + leaf.given_up == 1
}
