//! Applies records to tables, both for new records and during a replay.
//!
//! A record that names a missing object, or that contradicts the tables, is refused: a log can be hostile. While a map
//! is in use, a refusal is a defect of this crate.

use crate::blocks::{Blocks, Partial};
use crate::clusters::Home;
use crate::error::{Error, ErrorKind};
use crate::ids::{ClusterId, LeafId, VolumeId};
use crate::limits::GROUP_MAX;
use crate::record::{Change, Record, SpacePolicy, VolumesChange};
use crate::tables::{Leaf, Tables, UNMAPPED, Volume, VolumeKind};

use strake_units::Name;

/// The references that a record gave up. The caller decides when these references end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// References to clusters.
    pub(crate) clusters: Vec<ClusterId>,
    /// A reference to a leaf that others refer to.
    pub(crate) leaf: Option<LeafId>,
}

fn wrong<T>(name: &'static str, recorded: u64) -> Result<T, Error> {
    Err(ErrorKind::Field { name, recorded }.into())
}

impl Tables {
    /// Applies a record. The references that it gives up still count; the result contains them.
    pub(crate) fn apply(&mut self, record: &Record) -> Result<Dropped, Error> {
        let home = Home { ring: record.ring, number: record.number };
        let mut dropped = Dropped::default();
        match &record.change {
            Change::Map { volume, index, cluster, partial } => {
                let cluster = self.unused(*cluster)?;
                let old = self.set_entry(*volume, *index, cluster.0)?;
                self.fill_entry(cluster, partial.clone(), home)?;
                dropped.clusters.extend(old);
            }
            Change::Unmap { volume, index } => {
                let old = self.set_entry(*volume, *index, UNMAPPED)?;
                let Some(old) = old else { return wrong("index", u64::from(*index)) };
                dropped.clusters.push(old);
            }
            Change::Own { cluster, blocks } => {
                let Some(partial) = self.in_use_once(*cluster, *blocks)? else {
                    return wrong("cluster", u64::from(cluster.0));
                };
                let partial = partial.owning(*blocks);
                self.set_partial(*cluster, partial, home, &mut dropped);
            }
            Change::Zero { cluster, blocks } => {
                let cluster_blocks = self.shape.cluster_blocks;
                let all = Blocks { first: 0, count: cluster_blocks };
                let partial = self.in_use_once(*cluster, *blocks)?.copied();
                let partial = partial.unwrap_or(Partial::zeroes(cluster_blocks).owning(all));
                self.set_partial(*cluster, partial.zeroing(*blocks), home, &mut dropped);
            }
            Change::Filled { cluster } => {
                let all = Blocks { first: 0, count: self.shape.cluster_blocks };
                let Some(partial) = self.in_use(*cluster, all)? else {
                    return wrong("cluster", u64::from(cluster.0));
                };
                let partial = partial.owning(all);
                self.set_partial(*cluster, partial, home, &mut dropped);
            }
            Change::CopyLeaf { volume, at } => {
                let id = LeafId::of_record(record.ring, record.number);
                self.copy_leaf(*volume, *at, id, &mut dropped)?;
            }
            Change::DropLeaf { volume, at } => self.drop_leaf(*volume, *at, &mut dropped)?,
            Change::Volumes(change, _) => self.apply_volumes(change)?,
        }
        Ok(dropped)
    }

    fn cluster(&self, cluster: ClusterId) -> Result<ClusterId, Error> {
        let known = cluster.0 < self.shape.clusters;
        if known { Ok(cluster) } else { wrong("cluster", u64::from(cluster.0)) }
    }

    /// Returns the partial state of a cluster that entries refer to, after a check of the blocks.
    fn in_use(&self, cluster: ClusterId, blocks: Blocks) -> Result<Option<&Partial>, Error> {
        let cluster = self.cluster(cluster)?;
        if self.clusters.count(cluster) == 0 {
            return wrong("cluster", u64::from(cluster.0));
        }
        if blocks.count == 0 || blocks.end() > u32::from(self.shape.cluster_blocks) {
            return wrong("blocks", u64::from(blocks.count));
        }
        Ok(self.partial(cluster))
    }

    /// Does the same for a cluster with one reference: other entries must not see the change.
    fn in_use_once(&self, cluster: ClusterId, blocks: Blocks) -> Result<Option<&Partial>, Error> {
        let partial = self.in_use(cluster, blocks)?;
        let is_shared = self.clusters.count(cluster) > 1;
        if is_shared { wrong("cluster", u64::from(cluster.0)) } else { Ok(partial) }
    }

    /// Changes an entry of a leaf that only this volume has. Returns the previous cluster.
    fn set_entry(&mut self, id: VolumeId, index: u32, to: u32) -> Result<Option<ClusterId>, Error> {
        let (at, entry) = self.shape.entry(index);
        let slot = self.root_entry(id, at as u32)?;
        let is_in = u64::from(index) < self.shape.clusters_of(self.known(id)?.blocks);
        let Some(slot) = slot.filter(|_| is_in) else {
            return wrong("index", u64::from(index));
        };
        if self.leaf(slot).references != 1 {
            return wrong("index", u64::from(index));
        }
        let old = self.set_leaf_entry(slot, entry, to);
        // A root has no numbers of mapped clusters, so the volume need not be kept.
        let volume = self.volumes.get_mut(&id).expect("its root has the leaf");
        volume.mapped -= u32::from(old != UNMAPPED);
        volume.mapped += u32::from(to != UNMAPPED);
        Ok((old != UNMAPPED).then_some(ClusterId(old)))
    }

    fn unused(&self, cluster: ClusterId) -> Result<ClusterId, Error> {
        let cluster = self.cluster(cluster)?;
        let is_used = self.clusters.count(cluster) > 0;
        if is_used { wrong("cluster", u64::from(cluster.0)) } else { Ok(cluster) }
    }

    /// Lets an entry refer to a cluster that was free.
    fn fill_entry(
        &mut self,
        cluster: ClusterId,
        partial: Option<Box<Partial>>,
        home: Home,
    ) -> Result<(), Error> {
        let base = partial.as_ref().and_then(|partial| partial.base);
        if let Some(base) = base {
            let base = self.cluster(base)?;
            if self.clusters.count(base) == 0 || self.partial(base).is_some() {
                return wrong("base", u64::from(base.0));
            }
            self.clusters.add_reference(base);
        }
        self.clusters.set_count(cluster, 1);
        self.free.remove(cluster);
        self.clusters.set_home(cluster, home);
        self.clusters.set_partial(cluster, partial);
        Ok(())
    }

    fn set_partial(
        &mut self,
        cluster: ClusterId,
        partial: Partial,
        home: Home,
        dropped: &mut Dropped,
    ) {
        self.clusters.set_home(cluster, home);
        let is_whole = partial.is_whole(self.shape.cluster_blocks);
        let partial_now = (!is_whole).then(|| Box::new(partial));
        self.clusters.set_partial(cluster, partial_now);
        if is_whole {
            dropped.clusters.extend(partial.base);
        }
    }

    fn copy_leaf(
        &mut self,
        volume: VolumeId,
        at: u32,
        id: LeafId,
        dropped: &mut Dropped,
    ) -> Result<(), Error> {
        let old = self.root_entry(volume, at)?;
        if self.slots.contains_key(&id) {
            return wrong("leaf", id.0);
        }
        if self.slots.len() >= self.leaves_max {
            return wrong("leaves", self.slots.len() as u64);
        }
        let empty = vec![UNMAPPED; usize::from(self.shape.leaf_entries)].into_boxed_slice();
        let entries = old.map_or(empty, |slot| self.leaf(slot).entries.clone());
        for cluster in entries.iter().filter(|cluster| **cluster != UNMAPPED) {
            self.clusters.add_reference(ClusterId(*cluster));
        }
        let slot = self.insert_leaf(Leaf { id, references: 1, given_up: 0, entries });
        if let Some(volume) = self.volume_mut(volume) {
            volume.leaves += u32::from(old.is_none());
            volume.root[at as usize] = Some(slot);
        }
        if let Some(old) = old {
            self.leaf_mut(old).references -= 1;
            self.drop_entries_of_unused(old, dropped);
        }
        Ok(())
    }

    fn drop_leaf(&mut self, id: VolumeId, at: u32, dropped: &mut Dropped) -> Result<(), Error> {
        let Some(slot) = self.root_entry(id, at)? else { return wrong("at", u64::from(at)) };
        let entries = &self.leaf(slot).entries;
        let mapped = entries.iter().filter(|entry| **entry != UNMAPPED).count() as u32;
        if let Some(volume) = self.volume_mut(id) {
            volume.leaves -= 1;
            volume.root[at as usize] = None;
            volume.mapped = volume.mapped.saturating_sub(mapped);
        }
        self.leaf_mut(slot).references -= 1;
        if !self.drop_entries_of_unused(slot, dropped) {
            dropped.leaf = Some(self.leaf(slot).id);
        }
        Ok(())
    }

    /// Gives up all clusters of a leaf without references, and removes the leaf. False for a leaf with references.
    fn drop_entries_of_unused(&mut self, slot: u32, dropped: &mut Dropped) -> bool {
        if self.leaf(slot).references > 0 {
            return false;
        }
        let leaf = self.remove_leaf(slot);
        let clusters = leaf.entries.iter().filter(|cluster| **cluster != UNMAPPED);
        dropped.clusters.extend(clusters.map(|cluster| ClusterId(*cluster)));
        true
    }

    fn root_entry(&self, volume: VolumeId, at: u32) -> Result<Option<u32>, Error> {
        let volume = self.known(volume)?;
        volume.root.get(at as usize).copied().map_or_else(|| wrong("at", u64::from(at)), Ok)
    }

    fn known(&self, volume: VolumeId) -> Result<&Volume, Error> {
        self.volumes.get(&volume).map_or_else(|| wrong("volume", u64::from(volume.0)), Ok)
    }

    /// Adds a volume, and a reference to each leaf of its root.
    fn add_volume(&mut self, id: VolumeId, volume: Volume) -> Result<(), Error> {
        if id.0 < self.next_volume || id.0 == u32::MAX {
            return wrong("volume", u64::from(id.0));
        }
        if self.volumes.len() >= self.shape.volumes_max() {
            return wrong("volumes", self.volumes.len() as u64);
        }
        let entries = self.root_entries + volume.root.len();
        if entries > self.shape.root_entries_max() {
            return wrong("root", entries as u64);
        }
        for slot in volume.root.iter().flatten() {
            self.leaf_mut(*slot).references += 1;
        }
        self.next_volume = id.0 + 1;
        self.insert_volume(id, volume);
        Ok(())
    }

    fn copy_volume(&self, source: VolumeId, name: &Name) -> Result<Volume, Error> {
        let known = self.known(source)?;
        let policy = SpacePolicy::default();
        Ok(Volume { name: name.clone(), policy, origin: Some(source), ..known.clone() })
    }

    fn apply_volumes(&mut self, change: &VolumesChange) -> Result<(), Error> {
        match change {
            VolumesChange::Create { volume, name, blocks, policy } => {
                self.create(*volume, name, *blocks, *policy)?;
            }
            VolumesChange::Snapshot(pairs) => {
                if pairs.len() > GROUP_MAX {
                    return wrong("snapshots", pairs.len() as u64);
                }
                for (source, id, name) in pairs {
                    let copy = self.copy_volume(*source, name)?;
                    self.add_volume(*id, Volume { kind: VolumeKind::Snapshot, ..copy })?;
                }
            }
            VolumesChange::Clone { snapshot, volume, name } => {
                let copy = self.copy_volume(*snapshot, name)?;
                self.add_volume(*volume, Volume { kind: VolumeKind::Writable, ..copy })?;
            }
            VolumesChange::Delete(id) => {
                self.known(*id)?;
                self.hide_volume(*id);
            }
            VolumesChange::Gone(id) => {
                if self.known(*id)?.leaves > 0 {
                    return wrong("volume", u64::from(id.0));
                }
                self.remove_volume(*id);
            }
            VolumesChange::Rollback { volume, snapshot, old } => {
                self.roll_back(*volume, *snapshot, *old)?;
            }
            VolumesChange::Size { volume, blocks } => self.resize(*volume, *blocks)?,
            VolumesChange::Policy { volume, policy } => {
                self.known(*volume)?;
                if let Some(volume) = self.volume_mut(*volume) {
                    volume.policy = *policy;
                }
            }
            VolumesChange::Rename { volume, name } => {
                self.known(*volume)?;
                self.rename_volume(*volume, name);
            }
        }
        Ok(())
    }

    fn create(
        &mut self,
        id: VolumeId,
        name: &Name,
        blocks: u64,
        policy: SpacePolicy,
    ) -> Result<(), Error> {
        if blocks == 0 || blocks > self.shape.volume_blocks_max() {
            return wrong("blocks", blocks);
        }
        let volume = Volume {
            name: name.clone(),
            blocks,
            kind: VolumeKind::Writable,
            is_dying: false,
            policy,
            seed: crate::shape::Shape::seed(id),
            origin: None,
            mapped: 0,
            leaves: 0,
            root: vec![None; self.shape.leaves_of(blocks)],
        };
        self.add_volume(id, volume)
    }

    fn roll_back(&mut self, id: VolumeId, from: VolumeId, old: VolumeId) -> Result<(), Error> {
        let snapshot = self.known(from)?;
        let (root, mapped, seed) = (snapshot.root.clone(), snapshot.mapped, snapshot.seed);
        let leaves = snapshot.leaves;
        let before = self.known(id)?.clone();
        if root.len() != before.root.len() || seed != before.seed {
            return wrong("snapshot", u64::from(from.0));
        }
        // The previous content of the volume belongs to the deleted volume, with the references of the volume.
        let policy = SpacePolicy::default();
        let given_up = Volume { is_dying: true, policy, ..before };
        self.add_volume(old, given_up)?;
        for slot in self.known(id)?.root.clone().into_iter().flatten() {
            self.leaf_mut(slot).references -= 1;
        }
        for slot in root.iter().flatten() {
            self.leaf_mut(*slot).references += 1;
        }
        if let Some(volume) = self.volume_mut(id) {
            (volume.root, volume.mapped, volume.leaves) = (root, mapped, leaves);
        }
        Ok(())
    }

    fn resize(&mut self, id: VolumeId, blocks: u64) -> Result<(), Error> {
        let leaves = self.shape.leaves_of(blocks);
        let known = self.known(id)?;
        let is_cut = known.root.iter().skip(leaves).any(Option::is_some);
        let more = leaves.saturating_sub(known.root.len());
        let is_large = self.root_entries + more > self.shape.root_entries_max();
        if blocks == 0 || blocks > self.shape.volume_blocks_max() || is_cut || is_large {
            return wrong("blocks", blocks);
        }
        self.root_entries = self.root_entries - known.root.len() + leaves;
        if let Some(volume) = self.volume_mut(id) {
            volume.blocks = blocks;
            volume.root.resize(leaves, None);
        }
        Ok(())
    }
}
