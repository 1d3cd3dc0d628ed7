//! The state of a map: its tables, its rings, and the resources of operations in progress.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::clusters::Home;
use crate::epoch::{Epoch, Epochs};
use crate::error::ErrorKind;
use crate::ids::{ClusterId, LeafId, Number, Ring, Start, VolumeId};
use crate::limits::ROOTS;
use crate::needs::Needs;
use crate::operation::Wait;
use crate::record::{Change, Record, VolumesChange};
use crate::tables::Tables;
use crate::waiting::{Changes, Revoked};

/// The state of a ring of records.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RingState {
    /// The number of the next record.
    pub(crate) next: Number,
    /// The first number that is not stable.
    pub(crate) unstable: Number,
    /// Records that are not stable.
    pub(crate) records: VecDeque<Record>,
}

/// A reference that a record gave up. It counts until the record is stable and older I/Os have completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GivenUp {
    pub(crate) what: Reference,
    pub(crate) by: Home,
    pub(crate) epoch: Epoch,
}

/// A reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reference {
    /// To a cluster.
    Cluster(ClusterId),
    /// To a leaf that others refer to.
    Leaf(LeafId),
}

/// The result of a search for a free cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    /// A cluster, which no other operation can take.
    Taken(ClusterId),
    /// No cluster at present.
    Later(Wait),
    /// No cluster at any time.
    Refused(ErrorKind),
}

/// The state that operations read and change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MapState {
    pub(crate) tables: Tables,
    pub(crate) rings: Vec<RingState>,
    /// The references that the records of each ring gave up. The first one ends first: numbers and epochs increase.
    pub(crate) given_up: Vec<VecDeque<GivenUp>>,
    pub(crate) epochs: Epochs,
    /// The last epoch before the last cut.
    pub(crate) before_cut: Epoch,
    /// Clusters of volumes that an operation has locked for a change.
    locked: BTreeSet<(VolumeId, u32)>,
    /// Clusters that an operation took, and that no record names yet, each with its volume.
    pub(crate) taken: BTreeMap<ClusterId, VolumeId>,
    /// The number of these clusters of each volume.
    taken_by: BTreeMap<VolumeId, u64>,
    /// Cores that hold new writes, one bit each.
    pub(crate) held: u64,
    /// True while an operation changes whole volumes.
    pub(crate) is_led: bool,
    /// New volumes that requests do not reach yet: the record is not stable, or older I/Os of a cut are in progress.
    pub(crate) unreported: BTreeSet<VolumeId>,
    /// Volumes whose larger size is not stable: the previous size, and the record.
    pub(crate) growing: BTreeMap<VolumeId, (u64, Number)>,
    /// The record of the deletion of each volume that is being deleted.
    pub(crate) deletions: BTreeMap<VolumeId, Number>,
    /// The needs of reserved volumes.
    pub(crate) needs: Needs,
    /// Floors of the kept roots, the newest first.
    pub(crate) floors: Vec<Vec<Number>>,
    /// Sequence of the next root.
    pub(crate) sequence: u64,
    /// The present start.
    pub(crate) start: Start,
    /// Roots that must be written before anything else.
    pub(crate) roots_due: usize,
    pub(crate) is_checkpointing: bool,
    /// The changes of this call.
    pub(crate) changes: Changes,
}

impl MapState {
    /// Returns a map with these tables and next numbers, the sequence of its next root, and its start.
    pub(crate) fn of(
        tables: Tables,
        next: &[Number],
        floors: Vec<Vec<Number>>,
        (sequence, start): (u64, Start),
    ) -> Self {
        let ring =
            |next: &Number| RingState { next: *next, unstable: *next, records: VecDeque::new() };
        let roots_due = if floors.is_empty() { ROOTS } else { 0 };
        let mut map = Self {
            tables,
            rings: next.iter().map(ring).collect(),
            given_up: vec![VecDeque::new(); next.len()],
            epochs: Epochs::new(),
            before_cut: Epoch(0),
            locked: BTreeSet::new(),
            taken: BTreeMap::new(),
            taken_by: BTreeMap::new(),
            held: 0,
            is_led: false,
            unreported: BTreeSet::new(),
            growing: BTreeMap::new(),
            deletions: BTreeMap::new(),
            needs: Needs::default(),
            floors,
            sequence,
            start,
            roots_due,
            is_checkpointing: false,
            changes: Changes::default(),
        };
        map.count_needs();
        map
    }

    pub(crate) fn is_stable(&self, ring: Ring, number: Number) -> bool {
        self.rings[ring.at()].unstable > number
    }

    /// True if every record so far is stable.
    pub(crate) fn are_stable(&self, upto: &[Number]) -> bool {
        self.rings.iter().zip(upto).all(|(ring, next)| ring.unstable >= *next)
    }

    /// Returns the wait for the first of these records that is not stable.
    pub(crate) fn wait_for(&self, upto: &[Number]) -> Wait {
        let late = self.rings.iter().zip(upto).position(|(ring, next)| ring.unstable < *next);
        let ring = late.expect("a record is not stable");
        Wait::Records { ring: Ring(ring as u8), number: Number(upto[ring].0 - 1) }
    }

    pub(crate) fn next_numbers(&self) -> Vec<Number> {
        self.rings.iter().map(|ring| ring.next).collect()
    }

    pub(crate) fn owner(&self, seed: u32, index: u32) -> Ring {
        self.tables.shape.owner(seed, self.tables.shape.entry(index).0)
    }

    pub(crate) fn is_locked(&self, volume: VolumeId, index: u32) -> bool {
        self.locked.contains(&(volume, index))
    }

    pub(crate) fn lock(&mut self, volume: VolumeId, index: u32) {
        self.locked.insert((volume, index));
        self.changes.revoked.push(Revoked::Part(volume, index));
    }

    pub(crate) fn unlock(&mut self, volume: VolumeId, index: u32) {
        self.locked.remove(&(volume, index));
        self.changes.unlocked.push((volume, index));
    }

    /// True if no operation holds a resource.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        let is_free = self.locked.is_empty() && self.taken.is_empty() && self.epochs.are_idle();
        is_free
            && self.held == 0
            && !self.is_led
            && !self.is_checkpointing
            && self.unreported.is_empty()
    }

    /// True if references that were given up still count.
    #[cfg(test)]
    pub(crate) fn has_given_up(&self) -> bool {
        self.given_up.iter().any(|given_up| !given_up.is_empty())
    }

    pub(crate) fn is_held(&self, core: Ring) -> bool {
        self.held >> core.0 & 1 == 1
    }

    pub(crate) fn older_are_back(&self) -> bool {
        self.epochs.are_back(self.before_cut)
    }

    /// Appends and applies a record. References that it gives up count until it is stable and older I/Os completed.
    pub(crate) fn put(&mut self, ring: Ring, change: Change) -> Number {
        let number = self.rings[ring.at()].next;
        let record = Record { ring, number, start: self.start, change };
        if let Change::Map { cluster, .. } = &record.change {
            self.forget_taken(*cluster);
        }
        // A change of whole volumes may end a wait for space: by a policy, a quota or a deletion. A resize needs no
        // cluster for a part that has none.
        self.changes.has_space |=
            matches!(record.change, Change::Volumes(..) | Change::Unmap { .. });
        self.revoke(&record.change);
        let need = self.change_of_need(&record.change);
        let dropped = self.tables.apply(&record);
        let dropped = dropped.expect("a record fits the tables it was made from");
        if let Some((volume, leaf, by)) = need {
            self.needs.add_in_leaf(volume, leaf, by);
        }
        let state = &mut self.rings[ring.at()];
        state.next = number.next();
        state.records.push_back(record);
        let by = Home { ring, number };
        if !dropped.clusters.is_empty() || dropped.leaf.is_some() {
            let epoch = self.epochs.close();
            let clusters = dropped.clusters.into_iter().map(Reference::Cluster);
            let references = clusters.chain(dropped.leaf.map(Reference::Leaf));
            self.given_up[ring.at()].extend(references.map(|what| GivenUp { what, by, epoch }));
            if let Some(slot) = dropped.leaf.and_then(|leaf| self.tables.slots.get(&leaf)) {
                self.tables.leaf_mut(*slot).given_up += 1;
            }
        }
        number
    }

    /// Notes the parts of volumes that a record gives other clusters, or begins to share. A change of a whole cluster
    /// needs the lock of its only part, which notes the part. A partial cluster is in no view.
    fn revoke(&mut self, change: &Change) {
        let revoked = &mut self.changes.revoked;
        match change {
            Change::Map { volume, index, .. } | Change::Unmap { volume, index } => {
                revoked.push(Revoked::Part(*volume, *index));
            }
            Change::DropLeaf { volume, .. } => revoked.push(Revoked::Volume(*volume)),
            Change::Volumes(change, _) => match change {
                VolumesChange::Snapshot(pairs) => {
                    revoked.extend(pairs.iter().map(|(source, ..)| Revoked::Volume(*source)));
                }
                VolumesChange::Rollback { volume, .. }
                | VolumesChange::Size { volume, .. }
                | VolumesChange::Delete(volume)
                | VolumesChange::Gone(volume) => revoked.push(Revoked::Volume(*volume)),
                // A snapshot, whose leaves a clone shares, has no writes. A name is no part of the map of a volume.
                VolumesChange::Create { .. }
                | VolumesChange::Clone { .. }
                | VolumesChange::Policy { .. }
                | VolumesChange::Rename { .. } => {}
            },
            // A leaf that is copied was shared.
            Change::CopyLeaf { .. }
            | Change::Own { .. }
            | Change::Zero { .. }
            | Change::Filled { .. } => {}
        }
    }

    /// Gives a volume a separate leaf for an entry, if the leaf is shared or does not exist.
    pub(crate) fn own_leaf(&mut self, volume: VolumeId, index: u32, ring: Ring) {
        if self.lacks_leaf(volume, index) {
            let at = self.tables.shape.entry(index).0 as u32;
            self.put(ring, Change::CopyLeaf { volume, at });
        }
    }

    /// True if the leaf of an entry is shared or does not exist.
    pub(crate) fn lacks_leaf(&self, volume: VolumeId, index: u32) -> bool {
        let at = self.tables.shape.entry(index).0;
        let slot = self.tables.volumes.get(&volume).and_then(|volume| volume.root[at]);
        slot.is_none_or(|slot| self.tables.leaf(slot).references > 1)
    }

    /// Ends references that were given up, after their record is stable and older I/Os have completed.
    pub(crate) fn settle(&mut self) {
        for ring in 0..self.given_up.len() {
            while let Some(first) = self.given_up[ring].front().copied()
                && self.is_ripe(&first)
            {
                self.given_up[ring].pop_front();
                self.end_reference(first);
            }
        }
    }

    fn is_ripe(&self, given_up: &GivenUp) -> bool {
        // The end of the last reference frees a cluster. The end of any other reference permits writes in place.
        self.is_stable(given_up.by.ring, given_up.by.number) && self.epochs.are_back(given_up.epoch)
    }

    fn end_reference(&mut self, given_up: GivenUp) {
        // A cluster is now free, or a cluster that is no longer shared can be written in place.
        self.changes.has_space = true;
        self.needs.reference_ended();
        match given_up.what {
            Reference::Cluster(cluster) => self.tables.release(cluster, given_up.by),
            Reference::Leaf(leaf) => {
                if let Some(slot) = self.tables.slots.get(&leaf) {
                    self.tables.leaf_mut(*slot).given_up -= 1;
                }
            }
        }
    }

    /// A free cluster is immediately usable in the ring of its last record, and in another ring when this record is
    /// below the floors of both roots: then no start replays it.
    fn is_usable(&self, cluster: ClusterId, ring: Ring) -> bool {
        let home = self.tables.clusters.home(cluster);
        let below = |floors: &Vec<Number>| home.number < floors[home.ring.at()];
        home.ring == ring || self.floors.iter().all(below)
    }

    pub(crate) fn find_free(&mut self, volume: VolumeId, ring: Ring) -> Allocation {
        let shape = self.tables.shape;
        let rings = u64::from(shape.rings);
        let from = u64::from(shape.clusters) * u64::from(ring.0) / rings;
        let from = ClusterId(from as u32);
        let found = self.tables.free.find(from, |cluster| self.is_usable(cluster, ring));
        match found {
            Some(cluster) => {
                self.tables.free.remove(cluster);
                self.taken.insert(cluster, volume);
                *self.taken_by.entry(volume).or_default() += 1;
                Allocation::Taken(cluster)
            }
            None if self.tables.free.len() > 0 => Allocation::Later(Wait::Checkpoint),
            None => Allocation::Later(Wait::Space),
        }
    }

    /// Returns a cluster that no record names.
    pub(crate) fn give_back(&mut self, cluster: ClusterId) {
        self.forget_taken(cluster);
        self.tables.free.insert(cluster);
        self.changes.has_space = true;
    }

    fn forget_taken(&mut self, cluster: ClusterId) {
        let Some(volume) = self.taken.remove(&cluster) else { return };
        if let Some(count) = self.taken_by.get_mut(&volume) {
            *count -= 1;
            if *count == 0 {
                self.taken_by.remove(&volume);
            }
        }
    }

    /// Clusters that operations took for a volume, and that no record names yet.
    pub(crate) fn taken_by(&self, volume: VolumeId) -> u64 {
        self.taken_by.get(&volume).copied().unwrap_or(0)
    }
}
