//! Commands on snapshots: take, clone, roll back and compare.

use strake_api::v1::{
    self as api, CloneSnapshotRequest, CompareVolumesRequest, CompareVolumesResponse,
    CreateSnapshotsRequest, RollbackVolumeRequest, SnapshotsChange, VolumeChange,
};
use strake_units::Name;
use strake_volume::{Answer, Request, Span, VolumeId, VolumeKind, VolumeRow};

use crate::commands::pools::{Pools, online_pool};
use crate::commands::volumes::{InPool, refuse_exported, row_of, split};
use crate::error::{ControlError, ControlErrorKind};
use crate::events::EventKind;
use crate::limits::SNAPSHOTS_MAX;
use crate::upkeep::pools::put_pool_status;

impl Pools<'_> {
    /// Takes snapshots of volumes of a pool at the same time.
    ///
    /// # Errors
    /// If a volume does not exist, a name is taken, or the volumes are of several pools. Then no snapshot is taken.
    pub fn create_snapshots(
        &self,
        request: &CreateSnapshotsRequest,
    ) -> Result<SnapshotsChange, ControlError> {
        let Some(first) = request.snapshots.first() else {
            return Err(ControlError::usage("name at least one volume and its snapshot"));
        };
        if request.snapshots.len() > SNAPSHOTS_MAX {
            let count = request.snapshots.len();
            let what =
                format!("{count} snapshots in one request; at most {SNAPSHOTS_MAX} are taken");
            return Err(ControlError::usage(what));
        }
        let (asked, _) = split(&first.volume)?;
        let pool = self.in_pool(asked)?;
        let mut volumes = Vec::new();
        let mut planned = Vec::new();
        for new in &request.snapshots {
            let (other, volume) = split(&new.volume)?;
            if other != asked {
                return Err(ControlError::usage(format!(
                    "volumes {} and {} are of different pools; snapshots at the same time are of one pool",
                    first.volume, new.volume
                )));
            }
            let row = pool.row(&volume)?;
            pool.refuse_snapshot(row)?;
            let name = new_name(&pool, &new.name)?;
            if volumes.iter().any(|(_, taken): &(VolumeId, Name)| *taken == name) {
                return Err(ControlError::usage(format!("the request has the name {name} twice")));
            }
            volumes.push((row.id, name.clone()));
            planned.push(derived(row, name, VolumeKind::Snapshot));
        }
        let full = |row: &VolumeRow| pool.handle.full(row);
        let plan: Vec<String> = request
            .snapshots
            .iter()
            .zip(&planned)
            .map(|(new, row)| format!("take snapshot {} of volume {}", full(row), new.volume))
            .collect();
        if request.dry_run {
            let snapshots = self
                .control
                .with(|m| planned.iter().map(|row| pool.view(row, &m.records)).collect())?;
            let result = "planned".to_owned();
            return Ok(SnapshotsChange { result, snapshots, plan, warnings: Vec::new() });
        }
        let ids = pool.change(Request::Snapshot { volumes })?;
        for (new, row) in request.snapshots.iter().zip(&planned) {
            let what = format!("snapshot {} of volume {} was taken", full(row), new.volume);
            self.tell_volume(EventKind::SnapshotCreated, &full(row), what);
        }
        let status = pool.handle.status()?;
        let snapshots = self.control.with(|m| {
            let rows = status.volumes.iter().filter(|row| ids.contains(&row.id));
            let views = rows.map(|row| pool.view(row, &m.records)).collect();
            put_pool_status(m, &pool.handle, status.clone());
            views
        })?;
        Ok(SnapshotsChange { result: "created".into(), snapshots, plan, warnings: Vec::new() })
    }

    /// Creates a writable copy of a snapshot.
    ///
    /// # Errors
    /// If there is no such snapshot, or the name is taken.
    pub fn clone_snapshot(
        &self,
        request: &CloneSnapshotRequest,
    ) -> Result<VolumeChange, ControlError> {
        let (asked, snapshot) = split(&request.snapshot)?;
        let pool = self.in_pool(asked)?;
        let row = pool.row(&snapshot)?;
        check_snapshot(&pool, row)?;
        let name = new_name(&pool, &request.name)?;
        let new = derived(row, name.clone(), VolumeKind::Writable);
        let full = pool.handle.full(&new);
        let plan =
            vec![format!("create volume {full} with the content of snapshot {}", request.snapshot)];
        if request.dry_run {
            let volume = Some(self.control.with(|m| pool.view(&new, &m.records))?);
            let result = "planned".to_owned();
            return Ok(VolumeChange { result, volume, plan, warnings: Vec::new() });
        }
        let made = pool.change(Request::Clone { snapshot: row.id, name })?;
        let what = format!("volume {full} was created as a clone of snapshot {}", request.snapshot);
        self.tell_volume(EventKind::VolumeCreated, &full, what);
        let volume = self.volume_after(&pool, made.first().copied())?;
        Ok(VolumeChange { result: "created".into(), volume, plan, warnings: Vec::new() })
    }

    /// Gives a volume the content of one of its snapshots.
    ///
    /// # Errors
    /// If there is no such volume or snapshot, or the volume is exported.
    pub fn rollback_volume(
        &self,
        request: &RollbackVolumeRequest,
    ) -> Result<VolumeChange, ControlError> {
        let (asked, volume) = split(&request.name)?;
        let (other, snapshot) = split(&request.snapshot)?;
        if asked != other {
            return Err(ControlError::usage(format!(
                "volume {} and snapshot {} are of different pools",
                request.name, request.snapshot
            )));
        }
        let pool = self.in_pool(asked)?;
        let row = pool.row(&volume)?;
        pool.refuse_snapshot(row)?;
        let from = pool.row(&snapshot)?;
        check_snapshot(&pool, from)?;
        let view = self.control.with(|m| pool.view(row, &m.records))?;
        refuse_exported(&view, "rolled back")?;
        if row.blocks != from.blocks {
            return Err(ControlError::state(format!(
                "volume {} and snapshot {} have different sizes; resize the volume to {} bytes first",
                request.name,
                request.snapshot,
                from.blocks * u64::from(pool.status.block_bytes)
            )));
        }
        let plan = vec![format!(
            "lose the content of volume {} since snapshot {}",
            request.name, request.snapshot
        )];
        if request.dry_run {
            let (result, volume) = ("planned".to_owned(), Some(view));
            return Ok(VolumeChange { result, volume, plan, warnings: Vec::new() });
        }
        pool.change(Request::Rollback { volume: row.id, snapshot: from.id })?;
        let what =
            format!("volume {} has the content of snapshot {}", request.name, request.snapshot);
        self.tell_volume(EventKind::VolumeRolledBack, &request.name, what);
        let volume = self.volume_after(&pool, Some(row.id))?;
        Ok(VolumeChange { result: "changed".into(), volume, plan, warnings: Vec::new() })
    }

    /// Returns the ranges of a volume that may differ from another volume of its family.
    ///
    /// # Errors
    /// If a volume does not exist, or the volumes are of different pools.
    pub fn compare_volumes(
        &self,
        request: &CompareVolumesRequest,
    ) -> Result<CompareVolumesResponse, ControlError> {
        let (asked, from) = split(&request.from)?;
        let (other, to) = split(&request.to)?;
        if asked != other {
            let what = format!("{} and {} are of different pools", request.from, request.to);
            return Err(ControlError::usage(what));
        }
        let handle = self.control.run(|m| online_pool(m, asked))?;
        let status = handle.status()?;
        let block = u64::from(status.block_bytes);
        if !request.first_byte.is_multiple_of(block) {
            let what = format!("the first byte must be a multiple of the block size, {block}");
            return Err(ControlError::usage(what));
        }
        let (from, to) = (row_of(&handle, &status, &from)?, row_of(&handle, &status, &to)?);
        let first = request.first_byte / block;
        if first > 0 && first >= to.blocks {
            let what = format!("volume {} has only {} bytes", request.to, to.blocks * block);
            return Err(ControlError::usage(what));
        }
        match handle.ask(Request::Differences { from: from.id, to: to.id, first })? {
            Answer::Differences(found) => {
                let range = |span: &Span| api::ByteRange {
                    offset_bytes: span.first * block,
                    length_bytes: span.count * block,
                };
                Ok(CompareVolumesResponse {
                    ranges: found.spans.iter().map(range).collect(),
                    next_byte: found.next.map(|next| next * block),
                })
            }
            _ => Err(ControlError::new(ControlErrorKind::Internal, "the pool gave another answer")),
        }
    }
}

/// Parses the name of a new snapshot or clone, which may have the name of its pool. Refuses a name that is taken.
fn new_name(pool: &InPool, text: &str) -> Result<Name, ControlError> {
    let name = match text.split_once('/') {
        Some((other, name)) if other == pool.handle.name || other == pool.handle.uuid => name,
        Some(_) => {
            let what = format!(
                "{text} is not in pool {}; snapshots and clones stay in their pool",
                pool.handle.name
            );
            return Err(ControlError::usage(what));
        }
        None => text,
    };
    let name = name.parse().map_err(|e| ControlError::usage(format!("name {name:?}: {e}")))?;
    pool.check_free(&name)?;
    Ok(name)
}

/// Returns the row that a snapshot or clone of `row` would have.
fn derived(row: &VolumeRow, name: Name, kind: VolumeKind) -> VolumeRow {
    VolumeRow { id: VolumeId(0), name, kind, origin: Some(row.id), ..row.clone() }
}

fn check_snapshot(pool: &InPool, row: &VolumeRow) -> Result<(), ControlError> {
    match row.kind {
        VolumeKind::Snapshot => Ok(()),
        VolumeKind::Writable => Err(ControlError::usage(format!(
            "{} is no snapshot; take a snapshot of it first",
            pool.handle.full(row)
        ))),
    }
}
