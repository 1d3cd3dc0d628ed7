//! Roots: the image of the tables at a checkpoint, written in pieces while the map goes on.
//!
//! The root lacks every change since the checkpoint. Therefore a leaf or a volume is kept before its first change, if
//! the root does not contain it yet; `clusters` keeps pages of clusters. Objects since the checkpoint are left out: the
//! identifier of a leaf has the number of its record, and the identifiers of volumes increase.

use std::collections::BTreeMap;

use crate::clusters::Home;
use crate::codec::Writer;
use crate::ids::{ClusterId, LeafId, Number, Ring, VolumeId};
use crate::tables::{Tables, Volume, VolumeKind};

/// The part of a root that is written next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Head,
    Leaves {
        from: LeafId,
    },
    /// `root` is the next leaf reference of the volume; `None` if the volume has not begun.
    Volumes {
        from: VolumeId,
        root: Option<usize>,
    },
    Counts {
        from: u32,
    },
    Partials {
        from: u32,
    },
    Checksum,
    Over,
}

/// The tables at a checkpoint, as far as they differ from the present ones, and the progress of the root.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frozen {
    stage: Stage,
    head: Vec<u8>,
    /// The first record number of each ring that the root lacks.
    floors: Vec<Number>,
    /// The first identifier of a volume that the root lacks.
    next_volume: VolumeId,
    volume_count: u32,
    /// Partial clusters at the checkpoint, as far as they were counted.
    partials: u32,
    /// CRC-32C of the bytes so far.
    crc: u32,
    /// Entries of leaves before their first change.
    leaves: BTreeMap<LeafId, Box<[u32]>>,
    /// Volumes before their first change.
    volumes: BTreeMap<VolumeId, Volume>,
    /// Leaves that were removed. No other leaf gets their slots, because kept volumes refer to them.
    removed: BTreeMap<u32, LeafId>,
    /// The whole root, written at the time of the checkpoint.
    #[cfg(test)]
    expected: Option<Vec<u8>>,
    #[cfg(test)]
    written: Vec<u8>,
}

impl Tables {
    /// Begins a root: the tables at this time, without the references that records gave up.
    pub(crate) fn freeze(
        &mut self,
        head: Vec<u8>,
        floors: &[Number],
        given_up: impl Iterator<Item = (ClusterId, Home)>,
    ) {
        self.clusters.freeze(given_up);
        self.frozen = Some(Box::new(Frozen {
            stage: Stage::Head,
            head,
            floors: floors.to_vec(),
            next_volume: VolumeId(self.next_volume),
            volume_count: self.volumes.len() as u32,
            partials: 0,
            crc: 0,
            leaves: BTreeMap::new(),
            volumes: BTreeMap::new(),
            removed: BTreeMap::new(),
            #[cfg(test)]
            expected: None,
            #[cfg(test)]
            written: Vec::new(),
        }));
    }

    /// Ends a root, whole or not.
    pub(crate) fn thaw(&mut self) {
        if let Some(frozen) = self.frozen.take() {
            self.empty_slots.extend(frozen.removed.keys());
        }
        self.clusters.thaw();
    }

    /// Appends the next bytes of the root. Returns true if these are the last ones.
    pub(crate) fn root_piece(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        let Some(mut frozen) = self.frozen.take() else { return true };
        let from = out.len();
        let mut piece = Writer::after(std::mem::take(out));
        // A part without bytes, as a cluster that is not partial, is work too.
        let mut steps = 0;
        while !matches!(frozen.stage, Stage::Checksum | Stage::Over)
            && piece.len() - from < bytes_max
            && steps < bytes_max
        {
            frozen.stage = frozen.step(self, &mut piece);
            steps += 1;
        }
        *out = piece.into_bytes();
        frozen.crc = crc32c::crc32c_append(frozen.crc, &out[from..]);
        if frozen.stage == Stage::Checksum {
            out.extend_from_slice(&frozen.crc.to_le_bytes());
            frozen.stage = Stage::Over;
        }
        let is_last = frozen.stage == Stage::Over;
        #[cfg(test)]
        frozen.compare(&out[from..], is_last);
        self.frozen = Some(frozen);
        is_last
    }

    /// Keeps a leaf whose entries will change.
    pub(crate) fn keep_leaf(&mut self, slot: u32) {
        let Some(frozen) = &mut self.frozen else { return };
        let leaf = self.leaves[slot as usize].as_ref().expect("a slot in a root holds a leaf");
        if frozen.lacks_leaf(leaf.id) {
            frozen.leaves.entry(leaf.id).or_insert_with(|| leaf.entries.clone());
        }
    }

    /// Keeps a volume that will change.
    pub(crate) fn keep_volume(&mut self, id: VolumeId) {
        let Some(frozen) = &mut self.frozen else { return };
        if let Some(volume) = self.volumes.get(&id)
            && frozen.lacks_volume(id)
        {
            frozen.volumes.entry(id).or_insert_with(|| volume.clone());
        }
    }

    /// Returns the slot of a removed leaf, unless a kept volume may refer to it.
    pub(crate) fn give_slot_back(&mut self, slot: u32, leaf: LeafId) {
        match &mut self.frozen {
            Some(frozen) if frozen.lacks_volumes() && !frozen.is_new(leaf) => {
                frozen.removed.insert(slot, leaf);
            }
            Some(_) | None => self.empty_slots.push(slot),
        }
    }

    /// The identifier of a leaf at the checkpoint, or 0 for no leaf.
    fn frozen_leaf(&self, frozen: &Frozen, slot: Option<u32>) -> u64 {
        let Some(slot) = slot else { return 0 };
        let removed = frozen.removed.get(&slot).map(|id| id.0);
        removed.unwrap_or_else(|| self.leaf(slot).id.0)
    }
}

impl Frozen {
    /// True if the leaf was created after the checkpoint. Records of removed rings precede it.
    fn is_new(&self, leaf: LeafId) -> bool {
        let (ring, number) = leaf.record();
        self.floors.get(ring.at()).is_some_and(|floor| number >= *floor)
    }

    fn lacks_leaf(&self, leaf: LeafId) -> bool {
        let is_ahead = match self.stage {
            Stage::Head => true,
            Stage::Leaves { from } => leaf >= from,
            _ => false,
        };
        is_ahead && !self.is_new(leaf)
    }

    fn lacks_volume(&self, volume: VolumeId) -> bool {
        let is_ahead = match self.stage {
            Stage::Volumes { from, .. } => volume >= from,
            _ => self.lacks_volumes(),
        };
        is_ahead && volume < self.next_volume
    }

    /// True unless the root contains all volumes.
    fn lacks_volumes(&self) -> bool {
        matches!(self.stage, Stage::Head | Stage::Leaves { .. } | Stage::Volumes { .. })
    }

    /// Writes a small part, and returns what follows it.
    fn step(&mut self, tables: &mut Tables, out: &mut Writer) -> Stage {
        match self.stage {
            Stage::Head => {
                out.bytes(&std::mem::take(&mut self.head));
                Stage::Leaves { from: LeafId(0) }
            }
            Stage::Leaves { from } => self.leaf(tables, from, out),
            Stage::Volumes { from, root } => self.volume(tables, from, root, out),
            Stage::Counts { from } if from < tables.shape.clusters => {
                let cluster = tables.clusters.frozen(ClusterId(from));
                out.u32(cluster.count);
                out.u8(cluster.home.ring.0);
                out.u64(cluster.home.number.0);
                self.partials += u32::from(cluster.partial.is_some());
                Stage::Counts { from: from + 1 }
            }
            Stage::Counts { .. } => {
                out.u32(self.partials);
                Stage::Partials { from: 0 }
            }
            Stage::Partials { from } if from < tables.shape.clusters => {
                if let Some(partial) = tables.clusters.frozen(ClusterId(from)).partial {
                    out.u32(from);
                    out.partial(partial, tables.shape.cluster_blocks);
                }
                tables.clusters.written(from + 1);
                Stage::Partials { from: from + 1 }
            }
            Stage::Partials { .. } | Stage::Checksum => Stage::Checksum,
            Stage::Over => Stage::Over,
        }
    }

    /// Writes the first leaf from `from` on that is not new.
    fn leaf(&mut self, tables: &Tables, from: LeafId, out: &mut Writer) -> Stage {
        let present = tables.slots.range(from..).next().map(|(id, slot)| (*id, *slot));
        let kept = self.leaves.first_key_value().map(|(id, _)| *id);
        let next = |id: LeafId| Stage::Leaves { from: LeafId(id.0 + 1) };
        match (present, kept) {
            (Some((id, _)), kept) if self.is_new(id) && kept.is_none_or(|kept| id < kept) => {
                // All further leaves of this ring are new.
                let ring = id.record().0;
                Stage::Leaves { from: LeafId::of_record(Ring(ring.0 + 1), Number(0)) }
            }
            (Some((id, slot)), kept) if kept.is_none_or(|kept| id < kept) => {
                put_leaf(out, id, &tables.leaf(slot).entries);
                next(id)
            }
            (_, Some(kept)) => {
                let entries = self.leaves.remove(&kept).expect("it is in the map");
                put_leaf(out, kept, &entries);
                next(kept)
            }
            (_, None) => {
                out.u32(self.volume_count);
                Stage::Volumes { from: VolumeId(0), root: None }
            }
        }
    }

    /// Writes the next part of the first volume from `from` on.
    fn volume(
        &mut self,
        tables: &Tables,
        from: VolumeId,
        root: Option<usize>,
        out: &mut Writer,
    ) -> Stage {
        let present = tables.volumes.range(from..self.next_volume).next();
        let kept = self.volumes.first_key_value();
        let next = match (present, kept) {
            (Some((id, volume)), kept) if kept.is_none_or(|(kept, _)| id < kept) => (*id, volume),
            (_, Some((id, volume))) => (*id, volume),
            (_, None) => return Stage::Counts { from: 0 },
        };
        let (id, volume) = next;
        let at = root.unwrap_or_else(|| {
            put_volume(out, id, volume);
            0
        });
        if let Some(slot) = volume.root.get(at) {
            out.u64(tables.frozen_leaf(self, *slot));
            return Stage::Volumes { from: id, root: Some(at + 1) };
        }
        self.volumes.remove(&id);
        Stage::Volumes { from: VolumeId(id.0 + 1), root: None }
    }

    #[cfg(test)]
    fn compare(&mut self, piece: &[u8], is_last: bool) {
        self.written.extend_from_slice(piece);
        let is_right = self.expected.as_ref().is_none_or(|expected| *expected == self.written);
        assert!(!is_last || is_right, "a root has the state of its checkpoint");
    }

    #[cfg(test)]
    pub(crate) fn expect(&mut self, root: Vec<u8>) {
        self.expected = Some(root);
    }
}

fn put_leaf(out: &mut Writer, id: LeafId, entries: &[u32]) {
    out.u64(id.0);
    entries.iter().for_each(|entry| out.u32(*entry));
}

/// Writes a volume up to its first leaf reference.
fn put_volume(out: &mut Writer, id: VolumeId, volume: &Volume) {
    out.u32(id.0);
    out.name(&volume.name);
    out.u64(volume.blocks);
    out.u8(u8::from(volume.kind == VolumeKind::Snapshot));
    out.u8(u8::from(volume.is_dying));
    out.policy(volume.policy);
    out.u32(volume.seed);
    // No volume has the identifier 0.
    out.u32(volume.origin.map_or(0, |origin| origin.0));
    out.u32(volume.root.len() as u32);
}
