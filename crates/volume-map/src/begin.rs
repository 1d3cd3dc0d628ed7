//! Begins operations: what can be refused at once is refused here.

use crate::blocks::Blocks;
use crate::error::{Error, ErrorKind};
use crate::ids::{OperationId, Ring, VolumeId};
use crate::limits::{GROUP_MAX, VOLUMES_MAX};
use crate::operation::checkpoint::Checkpoint;
use crate::operation::fill::Fill;
use crate::operation::io::{Io, IoKind};
use crate::operation::leader::{Leader, LeaderKind};
use crate::operation::read::Read;
use crate::operation::resize::Resize;
use crate::operation::snapshot::{CutKind, Cutting};
use crate::operation::sweep::Sweep;
use crate::operation::{Body, Entered, Request, Tail};
use crate::tables::{Volume, VolumeKind};
use crate::volume_map::VolumeMap;

use strake_units::Name;

impl VolumeMap {
    /// Begins an operation. It does nothing before the first [`advance`](Self::advance).
    ///
    /// # Errors
    /// If the request cannot be carried out. The same is checked again when the operation is recorded.
    pub fn begin(&mut self, request: Request) -> Result<OperationId, Error> {
        if self.roots_due > 0 && !matches!(request, Request::Checkpoint) {
            return Err(ErrorKind::RootFirst.into());
        }
        let body = match request {
            Request::Read { volume, index, blocks } => {
                self.check_range(self.serving(volume)?, volume, index, blocks)?;
                let entered = Entered::default();
                Body::Read(Read { volume, index, blocks, entered, is_read: false })
            }
            Request::Write { volume, index, blocks, stability, core } => {
                self.io(IoKind::Write(stability), volume, index, blocks, core)?
            }
            Request::Discard { volume, index, blocks, core } => {
                self.io(IoKind::Discard, volume, index, blocks, core)?
            }
            Request::Allocate { volume, index } => {
                let first = Blocks { first: 0, count: 1 };
                self.io(IoKind::Allocate, volume, index, first, Ring::LEADER)?
            }
            Request::Fill { volume, index } => {
                let first = Blocks { first: 0, count: 1 };
                self.check_range(self.serving(volume)?, volume, index, first)?;
                Body::Fill(Fill::new(volume, index))
            }
            Request::Create { name, blocks, policy } => {
                self.check_new([&name])?;
                self.check_blocks(blocks)?;
                Body::Leader(Leader::new(LeaderKind::Create { name, blocks, policy }))
            }
            Request::Clone { snapshot, name } => {
                self.check_new([&name])?;
                self.check_snapshot(snapshot)?;
                Body::Leader(Leader::new(LeaderKind::Clone { snapshot, name }))
            }
            Request::Delete { volume } => {
                self.serving(volume)?;
                Body::Leader(Leader::new(LeaderKind::Delete { volume }))
            }
            Request::SetPolicy { volume, policy } => {
                self.writable(volume)?;
                Body::Leader(Leader::new(LeaderKind::SetPolicy { volume, policy }))
            }
            Request::Snapshot { volumes } => self.snapshot(volumes)?,
            Request::Rollback { volume, snapshot } => {
                self.check_snapshot(snapshot)?;
                self.check_source(volume, snapshot)?;
                self.check_new([])?;
                Body::Cutting(Cutting::new(CutKind::Rollback { volume, snapshot }))
            }
            Request::Resize { volume, blocks, tail } => self.resize(volume, blocks, tail)?,
            Request::Sweep { volume } => Body::Sweep(Sweep::new(volume)),
            Request::Checkpoint => Body::Checkpoint(Checkpoint::new()),
        };
        self.insert(body)
    }

    fn io(
        &self,
        kind: IoKind,
        volume: VolumeId,
        index: u32,
        blocks: Blocks,
        core: Ring,
    ) -> Result<Body, Error> {
        let known = self.writable(volume)?;
        self.check_range(known, volume, index, blocks)?;
        if core.at() >= self.rings.len() {
            return Err(ErrorKind::Limit { what: "cores", most: self.rings.len() as u64 }.into());
        }
        Ok(Body::Io(Io::new(kind, volume, index, blocks, core)))
    }

    fn snapshot(&self, volumes: Vec<(VolumeId, Name)>) -> Result<Body, Error> {
        if volumes.is_empty() || volumes.len() > GROUP_MAX {
            let most = GROUP_MAX as u64;
            return Err(ErrorKind::Limit { what: "snapshots of a group", most }.into());
        }
        self.check_new(volumes.iter().map(|(_, name)| name))?;
        for (volume, _) in &volumes {
            self.writable(*volume)?;
        }
        Ok(Body::Cutting(Cutting::new(CutKind::Snapshot(volumes))))
    }

    fn resize(&self, volume: VolumeId, blocks: u64, tail: Tail) -> Result<Body, Error> {
        let known = self.writable(volume)?;
        self.check_blocks(blocks)?;
        match tail {
            _ if blocks >= known.blocks => {
                Ok(Body::Leader(Leader::new(LeaderKind::Grow { volume, blocks })))
            }
            Tail::Keep => Err(ErrorKind::DiscardsTail.of(volume)),
            Tail::Discard => Ok(Body::Resize(Resize::new(volume, blocks))),
        }
    }

    /// Names of new volumes: unique, and not more volumes than a map has.
    fn check_new<'a>(&self, names: impl IntoIterator<Item = &'a Name>) -> Result<(), Error> {
        let mut new: Vec<&Name> = Vec::new();
        for name in names {
            self.check_name(name)?;
            if new.contains(&name) {
                return Err(ErrorKind::NameTaken.into());
            }
            new.push(name);
        }
        self.check_room(new.len().max(1))
    }

    /// Room for so many volumes more.
    pub(crate) fn check_room(&self, more: usize) -> Result<(), Error> {
        let most = VOLUMES_MAX as u64;
        let is_full = self.tables.volumes.len() + more > VOLUMES_MAX;
        if is_full { Err(ErrorKind::Limit { what: "volumes", most }.into()) } else { Ok(()) }
    }

    /// A volume that requests reach. A new one is none before its record is stable: records of other rings would name
    /// a volume that a start does not find.
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

    /// A rollback needs a snapshot of the same size, and of the same family: its leaves must have the same owners.
    pub(crate) fn check_source(&self, id: VolumeId, snapshot: VolumeId) -> Result<(), Error> {
        let (of, from) = (self.writable(id)?, self.serving(snapshot)?);
        if of.seed != from.seed {
            return Err(ErrorKind::OtherFamily.of(id));
        }
        let kind = ErrorKind::SizeDiffers { volume: of.blocks, snapshot: from.blocks };
        if of.blocks == from.blocks { Ok(()) } else { Err(kind.of(id)) }
    }

    fn check_range(
        &self,
        volume: &Volume,
        id: VolumeId,
        index: u32,
        blocks: Blocks,
    ) -> Result<(), Error> {
        let per = self.tables.shape.cluster_blocks;
        let end = u64::from(index) * u64::from(per) + u64::from(blocks.end());
        let is_in = blocks.count > 0 && blocks.end() <= u32::from(per) && end <= volume.blocks;
        if is_in { Ok(()) } else { Err(ErrorKind::OutOfRange.of(id)) }
    }
}
