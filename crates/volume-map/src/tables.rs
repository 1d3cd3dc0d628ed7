//! The tables of a map: volumes, leaves, counts and partial clusters. Only records change them.

use std::collections::BTreeMap;

use strake_units::Name;

use crate::blocks::{Blocks, Partial};
use crate::clusters::{Clusters, Home, Released};
use crate::free::FreeSet;
use crate::ids::{ClusterId, LeafId, VolumeId};
use crate::record::SpacePolicy;
use crate::root::Frozen;
use crate::shape::Shape;

/// An entry without a cluster.
pub(crate) const UNMAPPED: u32 = u32::MAX;

/// Whether the content of a volume changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VolumeKind {
    /// Hosts may write.
    Writable,
    /// The volume never changes.
    Snapshot,
}

/// A volume, snapshot or clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Volume {
    /// The name of the volume.
    pub name: Name,
    /// The size of the volume in blocks.
    pub blocks: u64,
    /// Whether the content of the volume changes.
    pub kind: VolumeKind,
    /// True while the leaves of the volume are given up. I/O does not reach it.
    pub is_dying: bool,
    /// The space policy of the volume.
    pub policy: SpacePolicy,
    /// Selects the owners of the leaves. Snapshots and clones keep the seed of their source.
    pub seed: u32,
    /// The volume of a snapshot, or the snapshot of a clone. It may have been deleted since.
    pub origin: Option<VolumeId>,
    /// Clusters that the volume refers to.
    pub mapped: u32,
    /// Leaves that the volume refers to.
    pub(crate) leaves: u32,
    /// Slots of the leaves.
    pub(crate) root: Vec<Option<u32>>,
}

/// A leaf: the clusters of consecutive parts of volumes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaf {
    pub(crate) id: LeafId,
    /// Roots that refer to the leaf.
    pub(crate) references: u32,
    /// References that a record gave up, and that still count as sharing.
    pub(crate) given_up: u32,
    pub(crate) entries: Box<[u32]>,
}

/// The source of blocks for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Blocks of a cluster.
    Cluster(ClusterId),
    /// Zeroes.
    Zeroes,
}

/// Consecutive blocks with one source. They have the same offset in the cluster of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The blocks, counted from the start of the cluster.
    pub blocks: Blocks,
    /// The source of the blocks.
    pub source: Source,
}

/// The content of an image.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tables {
    pub(crate) shape: Shape,
    pub(crate) volumes: BTreeMap<VolumeId, Volume>,
    /// Names of volumes that are not being deleted, with the number of uses: a hostile image repeats names.
    pub(crate) names: BTreeMap<Name, u32>,
    pub(crate) next_volume: u32,
    /// Leaf references of all volumes.
    pub(crate) root_entries: usize,
    /// Maximum number of leaves.
    pub(crate) leaves_max: usize,
    pub(crate) leaves: Vec<Option<Leaf>>,
    pub(crate) slots: BTreeMap<LeafId, u32>,
    pub(crate) empty_slots: Vec<u32>,
    pub(crate) clusters: Clusters,
    pub(crate) free: FreeSet,
    /// The checkpoint whose root is being written.
    pub(crate) frozen: Option<Box<Frozen>>,
}

impl Tables {
    pub(crate) fn new(shape: Shape) -> Self {
        Self {
            shape,
            volumes: BTreeMap::new(),
            names: BTreeMap::new(),
            next_volume: 1,
            root_entries: 0,
            leaves_max: shape.leaves_max(),
            leaves: Vec::new(),
            slots: BTreeMap::new(),
            empty_slots: Vec::new(),
            clusters: Clusters::new(shape.clusters as usize),
            free: FreeSet::all(shape.clusters),
            frozen: None,
        }
    }

    /// Returns a volume that I/O reaches.
    pub(crate) fn serving(&self, volume: VolumeId) -> Option<&Volume> {
        self.volumes.get(&volume).filter(|volume| !volume.is_dying)
    }

    pub(crate) fn leaf(&self, slot: u32) -> &Leaf {
        self.leaves[slot as usize].as_ref().expect("a slot in a root holds a leaf")
    }

    /// Returns a leaf whose references change. Its entries change only with [`set_leaf_entry`](Self::set_leaf_entry).
    pub(crate) fn leaf_mut(&mut self, slot: u32) -> &mut Leaf {
        self.leaves[slot as usize].as_mut().expect("a slot in a root holds a leaf")
    }

    /// Sets an entry of a leaf, and returns the previous one.
    pub(crate) fn set_leaf_entry(&mut self, slot: u32, entry: u16, to: u32) -> u32 {
        self.keep_leaf(slot);
        std::mem::replace(&mut self.leaf_mut(slot).entries[usize::from(entry)], to)
    }

    /// Returns a volume for a change.
    pub(crate) fn volume_mut(&mut self, id: VolumeId) -> Option<&mut Volume> {
        self.keep_volume(id);
        self.volumes.get_mut(&id)
    }

    /// Returns the leaf slot and the cluster of part `index` of a volume, in constant time at any depth of snapshots.
    pub(crate) fn lookup(&self, volume: &Volume, index: u32) -> (Option<u32>, Option<ClusterId>) {
        let (at, entry) = self.shape.entry(index);
        let slot = volume.root.get(at).copied().flatten();
        let cluster = slot.map(|slot| self.leaf(slot).entries[usize::from(entry)]);
        (slot, cluster.filter(|cluster| *cluster != UNMAPPED).map(ClusterId))
    }

    pub(crate) fn partial(&self, cluster: ClusterId) -> Option<&Partial> {
        self.clusters.partial(cluster)
    }

    /// Returns the source of block `block` of the cluster of an entry.
    pub(crate) fn source(&self, cluster: Option<ClusterId>, block: u16) -> Source {
        let Some(cluster) = cluster else {
            return Source::Zeroes;
        };
        match self.partial(cluster) {
            None => Source::Cluster(cluster),
            Some(partial) if partial.own.has(block) => Source::Cluster(cluster),
            Some(partial) if partial.zero.has(block) => Source::Zeroes,
            Some(partial) => partial.base.map_or(Source::Zeroes, Source::Cluster),
        }
    }

    /// Returns the parts of `blocks` in the cluster of an entry.
    pub(crate) fn parts(&self, cluster: Option<ClusterId>, blocks: Blocks) -> Parts<'_> {
        Parts { tables: self, cluster, at: u32::from(blocks.first), end: blocks.end() }
    }

    /// Adds a volume to the tables and to their sums.
    pub(crate) fn insert_volume(&mut self, id: VolumeId, volume: Volume) {
        self.root_entries += volume.root.len();
        if !volume.is_dying {
            *self.names.entry(volume.name.clone()).or_default() += 1;
        }
        self.volumes.insert(id, volume);
    }

    /// Removes a volume from the tables and from their sums.
    pub(crate) fn remove_volume(&mut self, id: VolumeId) {
        self.hide_volume(id);
        self.keep_volume(id);
        if let Some(volume) = self.volumes.remove(&id) {
            self.root_entries -= volume.root.len();
        }
    }

    /// Marks the volume as being deleted, so that its name is free.
    pub(crate) fn hide_volume(&mut self, id: VolumeId) {
        self.keep_volume(id);
        let Some(volume) = self.volumes.get_mut(&id).filter(|volume| !volume.is_dying) else {
            return;
        };
        volume.is_dying = true;
        let name = volume.name.clone();
        self.free_name(&name);
    }

    /// Gives a volume another name. The name of a volume that is being deleted is not in use.
    pub(crate) fn rename_volume(&mut self, id: VolumeId, name: &Name) {
        let Some(volume) = self.volume_mut(id) else { return };
        let before = std::mem::replace(&mut volume.name, name.clone());
        if !volume.is_dying {
            self.free_name(&before);
            *self.names.entry(name.clone()).or_default() += 1;
        }
    }

    /// Ends one use of a name.
    fn free_name(&mut self, name: &Name) {
        if let Some(count) = self.names.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                self.names.remove(name);
            }
        }
    }

    pub(crate) fn insert_leaf(&mut self, leaf: Leaf) -> u32 {
        let id = leaf.id;
        let slot = self.empty_slots.pop().unwrap_or_else(|| {
            self.leaves.push(None);
            (self.leaves.len() - 1) as u32
        });
        self.leaves[slot as usize] = Some(leaf);
        self.slots.insert(id, slot);
        slot
    }

    pub(crate) fn remove_leaf(&mut self, slot: u32) -> Leaf {
        self.keep_leaf(slot);
        let leaf = self.leaves[slot as usize].take().expect("a slot in a root holds a leaf");
        self.slots.remove(&leaf.id);
        self.give_slot_back(slot, leaf.id);
        leaf
    }

    /// Removes one reference, which the record `home` gave up.
    pub(crate) fn release(&mut self, cluster: ClusterId, home: Home) {
        let mut next = Some(cluster);
        while let Some(cluster) = next {
            next = match self.clusters.release(cluster, home) {
                Released::InUse => None,
                Released::Free { base } => {
                    self.free.insert(cluster);
                    base
                }
            };
        }
    }
}

/// Parts of a range of blocks, in order.
#[derive(Clone, Debug)]
pub struct Parts<'a> {
    tables: &'a Tables,
    cluster: Option<ClusterId>,
    at: u32,
    end: u32,
}

impl Iterator for Parts<'_> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        if self.at >= self.end {
            return None;
        }
        let first = self.at as u16;
        let source = self.tables.source(self.cluster, first);
        self.at += 1;
        while self.at < self.end && self.tables.source(self.cluster, self.at as u16) == source {
            self.at += 1;
        }
        let count = (self.at - u32::from(first)) as u16;
        Some(Part { blocks: Blocks { first, count }, source })
    }
}
