//! The clusters that reserved volumes may still take.
//!
//! A reserved volume needs one free cluster for each part that has no cluster or a shared one. A need increases in the
//! turn that appends a record. It ends only when the record is stable: an earlier crash restores the reservation.
//! References that other volumes give up reduce a need at the next recount; until then, it is too high, never too low.
//! A recount walks the leaves of reserved volumes, a few at a time, while the map goes on.

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
    /// True if a reference has ended since the last recount, so that a need may be too high.
    is_stale: bool,
    recount: Option<Recount>,
    /// True if another recount follows the present one.
    is_due_again: bool,
}

/// A recount in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Recount {
    volume: VolumeId,
    /// The next leaf of the volume.
    leaf: usize,
    /// Exclusive clusters of the leaves before.
    exclusive: u64,
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
        // The recount of this volume begins again: the sharing of all its leaves may have changed.
        if let Some(recount) = self.recount.as_mut().filter(|recount| recount.volume == id) {
            (recount.leaf, recount.exclusive) = (0, 0);
        }
        self.replace(id, clusters);
    }

    fn replace(&mut self, id: VolumeId, clusters: u64) {
        let before = self.volumes.insert(id, clusters).unwrap_or(0);
        self.total = self.total - before + clusters;
    }

    /// Adds to the need of a volume, if it is reserved.
    pub(crate) fn add(&mut self, id: VolumeId, by: i64) {
        if let Some(need) = self.volumes.get(&id) {
            self.replace(id, need.saturating_add_signed(by));
        }
    }

    /// Adds to the need of a volume, because of a change in a leaf.
    pub(crate) fn add_in_leaf(&mut self, id: VolumeId, leaf: usize, by: i64) {
        self.add(id, by);
        if let Some(recount) = self.recount.as_mut().filter(|recount| recount.volume == id)
            && leaf < recount.leaf
        {
            recount.exclusive = recount.exclusive.saturating_add_signed(-by);
        }
    }

    /// Notes the end of a reference.
    pub(crate) fn reference_ended(&mut self) {
        self.is_stale = true;
    }

    /// Begins a recount if a need may be too high.
    pub(crate) fn begin_recount(&mut self) {
        if !self.is_stale {
            return;
        }
        if self.recount.is_some() {
            self.is_due_again = true;
            return;
        }
        self.is_stale = false;
        self.recount_from(VolumeId(0));
    }

    /// Continues a recount with the first volume from this identifier on.
    fn recount_from(&mut self, from: VolumeId) {
        let next = self.volumes.range(from..).next();
        self.recount = next.map(|(volume, _)| Recount { volume: *volume, leaf: 0, exclusive: 0 });
        if self.recount.is_none() && std::mem::take(&mut self.is_due_again) {
            self.begin_recount();
        }
    }

    /// True while a recount is in progress.
    pub(crate) fn is_recounting(&self) -> bool {
        self.recount.is_some()
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
        for id in reserved {
            self.needs.set(id, self.need_of(&self.tables.volumes[&id]));
        }
    }

    /// Continues a recount by this number of leaves.
    pub(crate) fn recount(&mut self, leaves: usize) {
        for _ in 0..leaves {
            let Some(Recount { volume: id, leaf, exclusive }) = self.needs.recount else { return };
            let volume = self.tables.volumes.get(&id).filter(|_| self.needs.has(id));
            let Some(volume) = volume else {
                self.needs.recount_from(VolumeId(id.0 + 1));
                continue;
            };
            if let Some(slot) = volume.root.get(leaf) {
                let found = slot.map_or(0, |slot| self.exclusive_of(self.tables.leaf(slot)));
                let (leaf, exclusive) = (leaf + 1, exclusive + found);
                self.needs.recount = Some(Recount { volume: id, leaf, exclusive });
                continue;
            }
            let clusters = self.tables.shape.clusters_of(volume.blocks);
            self.needs.replace(id, clusters.saturating_sub(exclusive));
            self.needs.recount_from(VolumeId(id.0 + 1));
        }
    }

    /// Returns the volume and the leaf whose need a record changes, and the change.
    pub(crate) fn change_of_need(&self, change: &Change) -> Option<(VolumeId, usize, i64)> {
        let leaf_of = |index: &u32| self.tables.shape.entry(*index).0;
        Some(match change {
            Change::Map { volume, index, .. } => {
                (*volume, leaf_of(index), self.is_exclusive(*volume, *index) - 1)
            }
            Change::Unmap { volume, index } => {
                (*volume, leaf_of(index), self.is_exclusive(*volume, *index))
            }
            Change::DropLeaf { volume, at } if self.needs.has(*volume) => {
                let slot = self.tables.volumes.get(volume)?.root.get(*at as usize).copied()??;
                (*volume, *at as usize, self.exclusive_of(self.tables.leaf(slot)) as i64)
            }
            Change::DropLeaf { .. }
            | Change::Own { .. }
            | Change::Zero { .. }
            | Change::Filled { .. }
            | Change::CopyLeaf { .. }
            | Change::Volumes(..) => return None,
        })
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
