//! Starts operations. A request that can be refused immediately is refused here.

use crate::blocks::Blocks;
use crate::body::Body;
use crate::error::{Error, ErrorKind};
use crate::ids::{OperationId, Ring, VolumeId};
use crate::limits::GROUP_MAX;
use crate::operation::checkpoint::Checkpoint;
use crate::operation::fill::Fill;
use crate::operation::io::{Io, IoKind};
use crate::operation::leader::{Leader, LeaderKind};
use crate::operation::read::Read;
use crate::operation::resize::Resize;
use crate::operation::snapshot::{CutKind, Cutting};
use crate::operation::sweep::Sweep;
use crate::operation::{Entered, Request, Tail};
use crate::volume_map::VolumeMap;

use strake_units::Name;

impl VolumeMap {
    /// Starts an operation. The operation changes nothing before the first [`advance`](Self::advance).
    ///
    /// # Errors
    /// If the request cannot be executed. The same is checked again when the operation is recorded.
    pub fn begin(&mut self, request: Request) -> Result<OperationId, Error> {
        if self.state.roots_due > 0 && !matches!(request, Request::Checkpoint) {
            return Err(ErrorKind::RootFirst.into());
        }
        if self.is_read_only() && !matches!(request, Request::Read { .. }) {
            return Err(ErrorKind::LogFailed.into());
        }
        let body = match request {
            Request::Read { volume, index, blocks } => {
                self.state.check_range(self.state.serving(volume)?, volume, index, blocks)?;
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
                self.state.check_range(self.state.serving(volume)?, volume, index, first)?;
                Body::Fill(Fill::new(volume, index))
            }
            Request::Create { name, blocks, policy } => {
                self.state.check_new([&name])?;
                self.state.check_blocks(blocks)?;
                Body::Leader(Leader::new(LeaderKind::Create { name, blocks, policy }))
            }
            Request::Clone { snapshot, name } => {
                self.state.check_new([&name])?;
                self.state.check_snapshot(snapshot)?;
                Body::Leader(Leader::new(LeaderKind::Clone { snapshot, name }))
            }
            Request::Delete { volume } => {
                self.state.serving(volume)?;
                Body::Leader(Leader::new(LeaderKind::Delete { volume }))
            }
            Request::SetPolicy { volume, policy } => {
                self.state.writable(volume)?;
                Body::Leader(Leader::new(LeaderKind::SetPolicy { volume, policy }))
            }
            Request::Rename { volume, name } => {
                self.state.serving(volume)?;
                self.state.check_name(&name)?;
                Body::Leader(Leader::new(LeaderKind::Rename { volume, name }))
            }
            Request::Snapshot { volumes } => self.snapshot(volumes)?,
            Request::Rollback { volume, snapshot } => {
                self.state.check_snapshot(snapshot)?;
                self.state.check_source(volume, snapshot)?;
                self.state.check_new([])?;
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
        let known = self.state.writable(volume)?;
        self.state.check_range(known, volume, index, blocks)?;
        if core.at() >= self.state.rings.len() {
            return Err(
                ErrorKind::Limit { what: "cores", most: self.state.rings.len() as u64 }.into()
            );
        }
        Ok(Body::Io(Io::new(kind, volume, index, blocks, core)))
    }

    fn snapshot(&self, volumes: Vec<(VolumeId, Name)>) -> Result<Body, Error> {
        if volumes.is_empty() || volumes.len() > GROUP_MAX {
            let most = GROUP_MAX as u64;
            return Err(ErrorKind::Limit { what: "snapshots of a group", most }.into());
        }
        self.state.check_new(volumes.iter().map(|(_, name)| name))?;
        for (volume, _) in &volumes {
            self.state.writable(*volume)?;
        }
        Ok(Body::Cutting(Cutting::new(CutKind::Snapshot(volumes))))
    }

    fn resize(&self, volume: VolumeId, blocks: u64, tail: Tail) -> Result<Body, Error> {
        let known = self.state.writable(volume)?;
        self.state.check_blocks(blocks)?;
        match tail {
            _ if blocks >= known.blocks => {
                Ok(Body::Leader(Leader::new(LeaderKind::Grow { volume, blocks })))
            }
            Tail::Keep => Err(ErrorKind::DiscardsTail.of(volume)),
            Tail::Discard => Ok(Body::Resize(Resize::new(volume, blocks))),
        }
    }
}
