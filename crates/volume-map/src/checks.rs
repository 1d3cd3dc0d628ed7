//! Checks of requests against the volumes.

use std::collections::BTreeSet;

use crate::blocks::Blocks;
use crate::error::{Error, ErrorKind};
use crate::ids::{Ring, VolumeId};
use crate::limits::VOLUME_IDS_MAX;
use crate::operation::Wait;
use crate::state::MapState;
use crate::tables::{Volume, VolumeKind};

use strake_units::Name;

impl MapState {
    pub(crate) fn check_name(&self, name: &Name) -> Result<(), Error> {
        let is_taken = self.tables.names.contains_key(name);
        if is_taken { Err(ErrorKind::NameTaken.into()) } else { Ok(()) }
    }

    pub(crate) fn check_blocks(&self, blocks: u64) -> Result<(), Error> {
        let most = self.tables.shape.volume_blocks_max();
        match blocks {
            0 => Err(ErrorKind::OutOfRange.into()),
            _ if blocks > most => Err(ErrorKind::Limit { what: "blocks of a volume", most }.into()),
            _ => Ok(()),
        }
    }

    pub(crate) fn check_snapshot(&self, id: VolumeId) -> Result<(), Error> {
        match self.serving(id)?.kind {
            VolumeKind::Writable => Err(ErrorKind::NoSnapshot.of(id)),
            VolumeKind::Snapshot => Ok(()),
        }
    }

    /// Checks the names of new volumes, which must be unique, and the limit of volumes of a map.
    pub(crate) fn check_new<'a>(
        &self,
        names: impl IntoIterator<Item = &'a Name>,
    ) -> Result<(), Error> {
        let mut new: BTreeSet<&Name> = BTreeSet::new();
        for name in names {
            self.check_name(name)?;
            if !new.insert(name) {
                return Err(ErrorKind::NameTaken.into());
            }
        }
        self.check_room(new.len().max(1), 0)
    }

    /// Checks the space for this number of further volumes and leaf references.
    pub(crate) fn check_room(&self, volumes: usize, entries: usize) -> Result<(), Error> {
        let shape = self.tables.shape;
        let (volumes_max, entries_max) = (shape.volumes_max(), shape.root_entries_max());
        let limits = [
            ("volumes", self.tables.volumes.len() + volumes, volumes_max),
            ("leaf references", self.tables.root_entries + entries, entries_max),
            ("new volumes", self.tables.next_volume as usize + volumes, VOLUME_IDS_MAX),
        ];
        let over = limits.into_iter().find(|(_, needs, most)| needs > most);
        match over {
            Some((what, _, most)) => Err(ErrorKind::Limit { what, most: most as u64 }.into()),
            None => Ok(()),
        }
    }

    /// Returns the number of leaf references of a volume.
    pub(crate) fn entries_of(&self, id: VolumeId) -> usize {
        self.tables.volumes.get(&id).map_or(0, |volume| volume.root.len())
    }

    /// Returns a volume that requests reach. Requests do not reach a new volume before its record is stable: records of
    /// other rings would name a volume that a start does not find.
    pub(crate) fn serving(&self, id: VolumeId) -> Result<&Volume, Error> {
        let volume = self.tables.serving(id).ok_or(ErrorKind::NoVolume.of(id))?;
        if self.unreported.contains(&id) { Err(ErrorKind::NotReported.of(id)) } else { Ok(volume) }
    }

    pub(crate) fn writable(&self, id: VolumeId) -> Result<&Volume, Error> {
        let volume = self.serving(id)?;
        match volume.kind {
            VolumeKind::Writable => Ok(volume),
            VolumeKind::Snapshot => Err(ErrorKind::ReadOnly.of(id)),
        }
    }

    /// Checks that the snapshot of a rollback has the same size and family: its leaves must have the same owners.
    pub(crate) fn check_source(&self, id: VolumeId, snapshot: VolumeId) -> Result<(), Error> {
        let (of, from) = (self.writable(id)?, self.serving(snapshot)?);
        if of.seed != from.seed {
            return Err(ErrorKind::OtherFamily.of(id));
        }
        let kind = ErrorKind::SizeDiffers { volume: of.blocks, snapshot: from.blocks };
        if of.blocks == from.blocks { Ok(()) } else { Err(kind.of(id)) }
    }

    /// Returns the blocks of a volume that requests reach. New blocks at the end are excluded until the record of the
    /// size is stable: records of other rings would name blocks that a start does not find.
    pub(crate) fn usable_blocks(&self, volume: &Volume, id: VolumeId) -> u64 {
        self.growing.get(&id).map_or(volume.blocks, |(blocks, _)| volume.blocks.min(*blocks))
    }

    /// Returns the wait of a change of size: the record of a larger size that is not stable.
    pub(crate) fn wait_for_growth(&self, id: VolumeId) -> Option<Wait> {
        let number = self.growing.get(&id)?.1;
        Some(Wait::Records { ring: Ring::LEADER, number })
    }

    /// Removes the earlier sizes of volumes whose record is stable.
    pub(crate) fn forget_grown(&mut self) {
        let mut growing = std::mem::take(&mut self.growing);
        growing.retain(|_, (_, number)| !self.is_stable(Ring::LEADER, *number));
        self.growing = growing;
    }

    /// Checks the limit of leaves, if an entry of a volume needs a separate leaf.
    pub(crate) fn check_leaf(&self, volume: VolumeId, index: u32) -> Result<(), ErrorKind> {
        let most = self.tables.leaves_max;
        let has_room = self.tables.slots.len() < most || !self.lacks_leaf(volume, index);
        if has_room { Ok(()) } else { Err(ErrorKind::Limit { what: "leaves", most: most as u64 }) }
    }

    pub(crate) fn check_range(
        &self,
        volume: &Volume,
        id: VolumeId,
        index: u32,
        blocks: Blocks,
    ) -> Result<(), Error> {
        let per = self.tables.shape.cluster_blocks;
        let end = u64::from(index) * u64::from(per) + u64::from(blocks.end());
        let most = self.usable_blocks(volume, id);
        let is_in = blocks.count > 0 && blocks.end() <= u32::from(per) && end <= most;
        if is_in { Ok(()) } else { Err(ErrorKind::OutOfRange.of(id)) }
    }
}
