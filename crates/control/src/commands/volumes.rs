//! Commands on volumes: create, list, show, resize, set and destroy.

use std::cell::Cell;

use strake_api::v1::{
    self as api, CreateVolumeRequest, DestroyVolumeRequest, GetVolumeRequest, ListVolumesRequest,
    RenameVolumeRequest, ResizeVolumeRequest, SetVolumeRequest, VolumeChange,
};
use strake_qos::LimitSet;
use strake_units::{ByteSize, Name};
use strake_volume::{PoolStatus, Request, SpacePolicy, Tail, VolumeId, VolumeKind, VolumeRow};
use strake_wording::say;

use crate::commands::exported::offer_grown;
use crate::commands::pools::{Pools, online_pool};
use crate::control::Reserved;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::record::store::Limited;
use crate::remedy::{not_among, remove_export};
use crate::state::pool::{Handle, word_of};
use crate::upkeep::pools::put_pool_status;
use crate::view::pool::{volume_message, with_space};

/// A reserved pool and its present state.
pub(crate) struct InPool {
    pub(crate) handle: Handle,
    pub(crate) status: PoolStatus,
    /// Held until the end of the command; `None` after a change that has not been answered in time.
    reserved: Cell<Option<Reserved>>,
}

impl Pools<'_> {
    /// Creates a volume.
    ///
    /// # Errors
    /// If the request is invalid, the name is taken, or a thick volume does not fit.
    pub fn create_volume(
        &self,
        request: &CreateVolumeRequest,
    ) -> Result<VolumeChange, ControlError> {
        let (pool, name) = split(&request.name)?;
        let pool = self.in_pool(pool)?;
        pool.check_free(&name)?;
        let mut warnings = Vec::new();
        let blocks = pool.blocks(request.size_bytes, &mut warnings)?;
        let quota = pool.quota(request.quota_bytes, &mut warnings)?;
        let policy = SpacePolicy { reserved: request.thick, quota };
        pool.check_room(blocks, policy)?;
        let plan = vec![format!("create volume {} of {}", request.name, pool.size_of(blocks))];
        if request.dry_run {
            let row = VolumeRow {
                id: VolumeId(0),
                name,
                blocks,
                kind: VolumeKind::Writable,
                origin: None,
                policy,
                mapped: 0,
            };
            let volume = Some(self.control.with(|m| pool.view(&row, &m.records))?);
            return Ok(VolumeChange { result: "planned".into(), volume, plan, warnings });
        }
        let made = pool.change(Request::Create { name, blocks, policy })?;
        let what = format!("volume {} of {} was created", request.name, pool.size_of(blocks));
        self.tell_volume(EventKind::VolumeCreated, &request.name, what);
        let volume = self.volume_after(&pool, made.first().copied())?;
        Ok(VolumeChange { result: "created".into(), volume, plan, warnings })
    }

    /// Returns volumes and snapshots.
    ///
    /// # Errors
    /// If there is no such pool or kind.
    pub fn list_volumes(
        &self,
        request: &ListVolumesRequest,
    ) -> Result<api::ListVolumesResponse, ControlError> {
        let wanted = match request.kind.as_str() {
            "" => None,
            "volume" => Some(VolumeKind::Writable),
            "snapshot" => Some(VolumeKind::Snapshot),
            other => {
                let what = format!("unknown kind {other:?}; use volume or snapshot");
                return Err(ControlError::usage(what));
            }
        };
        let handles = self.control.run(|m| {
            if request.pool.is_empty() {
                let online = m.running.iter().filter_map(|running| running.pool.online());
                return Ok(online.map(|online| online.handle.clone()).collect::<Vec<_>>());
            }
            Ok(vec![online_pool(m, &request.pool)?])
        })?;
        let mut volumes = Vec::new();
        for handle in handles {
            let status = handle.status()?;
            let rows = status.volumes.iter();
            let rows = rows.filter(|row| wanted.is_none_or(|kind| row.kind == kind));
            self.control.with(|m| {
                volumes.extend(rows.map(|row| volume_message(&handle, &status, row, &m.records)));
            })?;
        }
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(api::ListVolumesResponse { volumes })
    }

    /// Returns one volume or snapshot with its space.
    ///
    /// # Errors
    /// If there is no such volume.
    pub fn volume(&self, request: &GetVolumeRequest) -> Result<api::Volume, ControlError> {
        let (pool, name) = split(&request.name)?;
        let handle = self.control.run(|m| online_pool(m, pool))?;
        let status = handle.status()?;
        let row = row_of(&handle, &status, &name)?;
        let view = self.control.with(|m| volume_message(&handle, &status, row, &m.records))?;
        let space = handle.space(row.id)?;
        Ok(with_space(view, space, status.cluster_bytes))
    }

    /// Changes the size of a volume. NVMe/TCP hosts are notified of a growth; NBD clients see the new size when they
    /// connect again.
    ///
    /// # Errors
    /// If there is no such volume, or a smaller size is not permitted or the volume is exported.
    pub fn resize_volume(
        &self,
        request: &ResizeVolumeRequest,
    ) -> Result<VolumeChange, ControlError> {
        let (pool, name) = split(&request.name)?;
        let pool = self.in_pool(pool)?;
        let row = pool.row(&name)?;
        pool.refuse_snapshot(row)?;
        let mut warnings = Vec::new();
        let blocks = pool.blocks(request.size_bytes, &mut warnings)?;
        let before = self.control.with(|m| pool.view(row, &m.records))?;
        if blocks == row.blocks {
            let (result, volume) = ("unchanged".to_owned(), Some(before));
            return Ok(VolumeChange { result, volume, plan: Vec::new(), warnings });
        }
        let (old, new) = (pool.size_of(row.blocks), pool.size_of(blocks));
        let mut plan =
            vec![format!("change the size of volume {} from {old} to {new}", request.name)];
        if blocks < row.blocks {
            refuse_exported(&before, "made smaller")?;
            if !request.discard_tail {
                let what = format!(
                    "the blocks of volume {} beyond {new} would be discarded; to discard them: ",
                    request.name
                );
                let discard = ResizeVolumeRequest { discard_tail: true, ..request.clone() };
                return Err(ControlError::refused(say(what).run(discard)));
            }
            plan.push(format!("discard the blocks beyond {new}"));
        } else {
            pool.check_growth(row, blocks)?;
        }
        if request.dry_run {
            let volume = Some(api::Volume { size_bytes: pool.bytes(blocks), ..before });
            return Ok(VolumeChange { result: "planned".into(), volume, plan, warnings });
        }
        let tail = if request.discard_tail { Tail::Discard } else { Tail::Keep };
        pool.change(Request::Resize { volume: row.id, blocks, tail })?;
        let what = format!("the size of volume {} was changed from {old} to {new}", request.name);
        self.tell_volume(EventKind::VolumeResized, &request.name, what);
        offer_grown(self.control, &pool.handle.reference(row.id))?;
        let volume = self.volume_after(&pool, Some(row.id))?;
        Ok(VolumeChange { result: "changed".into(), volume, plan, warnings })
    }

    /// Changes the reservation and the quota of a volume.
    ///
    /// # Errors
    /// If there is no such volume, or the space is not free.
    pub fn set_volume(&self, request: &SetVolumeRequest) -> Result<VolumeChange, ControlError> {
        let (pool, name) = split(&request.name)?;
        if request.thick.is_none() && request.quota_bytes.is_none() {
            return Err(ControlError::usage("name a setting to change: thick, thin or a quota"));
        }
        let pool = self.in_pool(pool)?;
        let row = pool.row(&name)?;
        pool.refuse_snapshot(row)?;
        let mut warnings = Vec::new();
        let quota = match request.quota_bytes {
            Some(bytes) => pool.quota(bytes, &mut warnings)?,
            None => row.policy.quota,
        };
        let policy = SpacePolicy { reserved: request.thick.unwrap_or(row.policy.reserved), quota };
        if policy == row.policy {
            let volume = Some(self.control.with(|m| pool.view(row, &m.records))?);
            let result = "unchanged".to_owned();
            return Ok(VolumeChange { result, volume, plan: Vec::new(), warnings });
        }
        pool.change(Request::SetPolicy { volume: row.id, policy })?;
        let what = format!("the space settings of volume {} were changed", request.name);
        self.tell_volume(EventKind::VolumeChanged, &request.name, what);
        let volume = self.volume_after(&pool, Some(row.id))?;
        Ok(VolumeChange { result: "changed".into(), volume, plan: Vec::new(), warnings })
    }

    /// Gives a volume or snapshot another name. Its exports keep serving: they name it by its number.
    ///
    /// # Errors
    /// If there is no such volume, or the new name is invalid or taken.
    pub fn rename_volume(
        &self,
        request: &RenameVolumeRequest,
    ) -> Result<VolumeChange, ControlError> {
        let (asked, name) = split(&request.name)?;
        let new = new_name(asked, &request.new_name)?;
        let pool = self.in_pool(asked)?;
        let row = pool.row(&name)?;
        let before = self.control.with(|m| pool.view(row, &m.records))?;
        if new == name {
            let (result, volume) = ("unchanged".to_owned(), Some(before));
            return Ok(VolumeChange { result, volume, plan: Vec::new(), warnings: Vec::new() });
        }
        pool.check_free(&new)?;
        let (word, full) = (word_of(row.kind), format!("{}/{new}", pool.handle.name));
        let plan = vec![format!("rename {word} {} to {full}", request.name)];
        if request.dry_run {
            let volume = Some(api::Volume { name: full, ..before });
            return Ok(VolumeChange {
                result: "planned".into(),
                volume,
                plan,
                warnings: Vec::new(),
            });
        }
        pool.change(Request::Rename { volume: row.id, name: new })?;
        let what = format!("{word} {} was renamed to {full}", before.name);
        self.tell_volume(EventKind::VolumeRenamed, &full, what);
        let volume = self.volume_after(&pool, Some(row.id))?;
        Ok(VolumeChange { result: "renamed".into(), volume, plan, warnings: Vec::new() })
    }

    /// Destroys a volume or a snapshot. Its space returns in the background.
    ///
    /// # Errors
    /// If there is no such volume, or it is exported.
    pub fn destroy_volume(
        &self,
        request: &DestroyVolumeRequest,
    ) -> Result<VolumeChange, ControlError> {
        let (pool, name) = split(&request.name)?;
        let pool = self.in_pool(pool)?;
        let row = pool.row(&name)?;
        let view = self.control.with(|m| pool.view(row, &m.records))?;
        refuse_exported(&view, "destroyed")?;
        let (word, volume) = (word_of(row.kind), Some(view));
        let plan = vec![format!("destroy {word} {} with its data", request.name)];
        if request.dry_run {
            let result = "planned".to_owned();
            return Ok(VolumeChange { result, volume, plan, warnings: Vec::new() });
        }
        pool.change(Request::Delete { volume: row.id })?;
        let what = format!("{word} {} was destroyed", request.name);
        self.tell_volume(EventKind::VolumeDestroyed, &request.name, what);
        let of = Limited::Volume(pool.handle.reference(row.id));
        self.forget_limits(|config| config.put_limits(of, LimitSet::default()))?;
        self.volume_after(&pool, None)?;
        Ok(VolumeChange { result: "destroyed".into(), volume, plan, warnings: Vec::new() })
    }

    /// Reserves a pool and reads its state.
    pub(crate) fn in_pool(&self, asked: &str) -> Result<InPool, ControlError> {
        let (handle, reserved) = self.reserve_pool(asked)?;
        let status = handle.status()?;
        Ok(InPool { handle, status, reserved: Cell::new(Some(reserved)) })
    }

    /// Removes the limits of an object that was destroyed. Numbers of volumes and identities of pools are never used
    /// again, so a record that remains limits nothing.
    pub(crate) fn forget_limits(
        &self,
        forget: impl FnOnce(&mut crate::Config),
    ) -> Result<(), ControlError> {
        self.control.with(|m| {
            let mut config = m.records.config.clone();
            forget(&mut config);
            if config == m.records.config {
                return;
            }
            if let Err(error) = m.records.put(&config) {
                tracing::warn!(reason = %error, "limits of a destroyed object stay recorded");
            }
            m.exports.limits.follow(&m.records);
        })
    }

    pub(crate) fn tell_volume(&self, kind: EventKind, name: &str, what: String) {
        self.control.events().record(Note::new(kind, format!("volume/{name}"), what));
    }

    /// Reads the state of a pool after a change, and returns the changed volume.
    pub(crate) fn volume_after(
        &self,
        pool: &InPool,
        id: Option<VolumeId>,
    ) -> Result<Option<api::Volume>, ControlError> {
        let status = pool.handle.status()?;
        let row = status.volumes.iter().find(|row| Some(row.id) == id);
        self.control.with(|m| {
            let view = row.map(|row| volume_message(&pool.handle, &status, row, &m.records));
            put_pool_status(m, &pool.handle, status.clone());
            view
        })
    }
}

/// Splits POOL/NAME.
pub(crate) fn split(full: &str) -> Result<(&str, Name), ControlError> {
    let (pool, name) =
        full.split_once('/').filter(|(pool, _)| !pool.is_empty()).ok_or_else(|| {
            ControlError::usage(format!("{full:?} is no volume; name a volume as POOL/NAME"))
        })?;
    let name = name.parse().map_err(|e| ControlError::usage(format!("volume name: {e}")))?;
    Ok((pool, name))
}

/// Parses a new name, which may be with the pool of the volume.
fn new_name(pool: &str, text: &str) -> Result<Name, ControlError> {
    let name = match text.split_once('/') {
        Some((other, name)) if other == pool => name,
        Some((other, _)) => {
            return Err(ControlError::usage(format!(
                "new name: a volume of pool {pool} cannot move to pool {other}; give a name without a pool"
            )));
        }
        None => text,
    };
    name.parse().map_err(|e| ControlError::usage(format!("new name: {e}")))
}

/// Returns the volume with this name.
pub(crate) fn row_of<'a>(
    handle: &Handle,
    status: &'a PoolStatus,
    name: &Name,
) -> Result<&'a VolumeRow, ControlError> {
    status.volumes.iter().find(|row| row.name == *name).ok_or_else(|| {
        /// Most names of an error.
        const NAMES_MAX: usize = 20;
        let known: Vec<&str> =
            status.volumes.iter().take(NAMES_MAX).map(|row| row.name.as_str()).collect();
        let first = CreateVolumeRequest {
            name: format!("{}/NAME", handle.name),
            ..CreateVolumeRequest::default()
        };
        not_among(format!("pool {} has no volume {name}", handle.name), &known, first)
    })
}

/// Refuses a change of an exported volume.
pub(crate) fn refuse_exported(volume: &api::Volume, what: &str) -> Result<(), ControlError> {
    let Some(first) = volume.exports.first() else { return Ok(()) };
    let text = say(format!(
        "{} {} cannot be {what}: it is exported as {}; first remove the export: ",
        volume.kind,
        volume.name,
        volume.exports.join(", ")
    ));
    Err(ControlError::refused(text.run(remove_export(first))))
}

impl InPool {
    /// Changes something, and waits for the answer. A change that is late keeps the pool reserved until it is answered:
    /// otherwise an export could begin before it.
    ///
    /// # Errors
    /// The refusal of the map, the end of the pool, or the time limit.
    pub(crate) fn change(&self, request: Request) -> Result<Vec<VolumeId>, ControlError> {
        let pending = self.handle.pool.ask(request);
        if let Some(answer) = self.handle.answer(&pending)? {
            return Ok(answer);
        }
        let reserved = self.reserved.take();
        let waiting = std::thread::Builder::new().name("strake-late".into()).spawn(move || {
            // The end of the pool ends the wait too.
            let _ = pending.wait();
            drop(reserved);
        });
        if let Err(error) = waiting {
            tracing::warn!(reason = %error, "a late change of a pool is not waited for");
        }
        Err(self.handle.late())
    }

    pub(crate) fn row(&self, name: &Name) -> Result<&VolumeRow, ControlError> {
        row_of(&self.handle, &self.status, name)
    }

    pub(crate) fn view(&self, row: &VolumeRow, config: &crate::Config) -> api::Volume {
        volume_message(&self.handle, &self.status, row, config)
    }

    /// Refuses a name that a volume has.
    pub(crate) fn check_free(&self, name: &Name) -> Result<(), ControlError> {
        match self.status.volumes.iter().find(|row| row.name == *name) {
            Some(row) => Err(ControlError::exists(format!(
                "{} {} already exists; choose another name",
                word_of(row.kind),
                self.handle.full(row)
            ))),
            None => Ok(()),
        }
    }

    pub(crate) fn refuse_snapshot(&self, row: &VolumeRow) -> Result<(), ControlError> {
        match row.kind {
            VolumeKind::Writable => Ok(()),
            VolumeKind::Snapshot => Err(ControlError::refused(format!(
                "{} is a snapshot, and a snapshot does not change; change a clone of it instead",
                self.handle.full(row)
            ))),
        }
    }

    fn bytes(&self, blocks: u64) -> u64 {
        blocks.saturating_mul(u64::from(self.status.block_bytes))
    }

    fn size_of(&self, blocks: u64) -> ByteSize {
        ByteSize(self.bytes(blocks))
    }

    /// Returns a size in blocks, rounded up. A rounded size is a warning.
    fn blocks(&self, bytes: u64, warnings: &mut Vec<String>) -> Result<u64, ControlError> {
        if bytes == 0 {
            return Err(ControlError::usage("a volume needs a size of at least one block"));
        }
        let block = u64::from(self.status.block_bytes);
        let blocks = bytes.div_ceil(block);
        let Some(rounded) = blocks.checked_mul(block) else {
            return Err(ControlError::usage(format!("{bytes} bytes are too large for a volume")));
        };
        if !bytes.is_multiple_of(block) {
            warnings.push(format!(
                "the size was rounded up to {rounded} bytes, a multiple of the block size"
            ));
        }
        Ok(blocks)
    }

    /// Returns a quota in clusters, rounded up. A rounded quota is a warning.
    fn quota(&self, bytes: u64, warnings: &mut Vec<String>) -> Result<Option<u32>, ControlError> {
        if bytes == 0 {
            return Ok(None);
        }
        let cluster = u64::from(self.status.cluster_bytes);
        let clusters = bytes.div_ceil(cluster);
        if !bytes.is_multiple_of(cluster) {
            warnings.push(format!(
                "the quota was rounded up to {} bytes, a multiple of the cluster size",
                clusters.saturating_mul(cluster)
            ));
        }
        u32::try_from(clusters).map(Some).map_err(|_| {
            ControlError::usage(format!("a quota of {} is larger than any pool", ByteSize(bytes)))
        })
    }

    fn clusters_of(&self, blocks: u64) -> u64 {
        self.bytes(blocks).div_ceil(u64::from(self.status.cluster_bytes))
    }

    /// Refuses a new thick volume that does not fit. The map decides finally.
    fn check_room(&self, blocks: u64, policy: SpacePolicy) -> Result<(), ControlError> {
        if policy.reserved {
            self.check_reserve(self.clusters_of(blocks))?;
        }
        Ok(())
    }

    fn check_growth(&self, row: &VolumeRow, blocks: u64) -> Result<(), ControlError> {
        if row.policy.reserved {
            let more = self.clusters_of(blocks) - self.clusters_of(row.blocks);
            self.check_reserve(more)?;
        }
        Ok(())
    }

    fn check_reserve(&self, clusters: u64) -> Result<(), ControlError> {
        let free = self.status.space.free.saturating_sub(self.status.space.reserved);
        if clusters <= free {
            return Ok(());
        }
        let bytes =
            |clusters: u64| ByteSize(clusters.saturating_mul(u64::from(self.status.cluster_bytes)));
        Err(ControlError::state(format!(
            "pool {} has {} of unreserved free space, and the reservation needs {}; destroy snapshots or volumes, or \
             make the volume thin",
            self.handle.name,
            bytes(free),
            bytes(clusters)
        )))
    }
}
