//! Commands on pools: create, list, show and destroy.

use strake_api::v1::{self as api, CreatePoolRequest, DestroyPoolRequest, PoolChange};
use strake_block::ExtentSource;
use strake_engine::Array;
use strake_units::{ByteSize, Lba, Name};
use strake_volume::{Layout, PoolErrorKind, PoolSpec, create, erase, find};
use strake_wording::{Amendment, say};

use crate::control::{Control, Reserved};
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Note};
use crate::exports::limits_in_use::limits_message;
use crate::limits::{POOL_FIND_LIMIT, POOL_OPEN_LIMIT};
use crate::manager::Manager;
use crate::names::{array_key, check_array_name, fresh_uuid, is_called, pool_key, pool_name_key};
use crate::record::store::Limited;
use crate::remedy::{not_among, remove_export};
use crate::state::pool::{Handle, OfflinePool, PoolSlot};
use crate::state::running::Running;
use crate::upkeep::pools::put_pool_status;
use crate::upkeep::pools::{nonce, search_pool, stop_pool, wait};
use crate::view::pool::{pool_message, slot_message};

/// The commands of pools, volumes and snapshots.
pub struct Pools<'a> {
    pub(crate) control: &'a Control,
}

impl<'a> Pools<'a> {
    /// The commands of the pools of a daemon.
    #[must_use]
    pub const fn of(control: &'a Control) -> Self {
        Self { control }
    }
}

impl Pools<'_> {
    /// Creates a pool on a running array, and opens it. For a repeated request, the result is "unchanged".
    ///
    /// # Errors
    /// If the request is invalid, or the array is exported, has a pool or was written; then nothing was written.
    pub fn create_pool(&self, request: &CreatePoolRequest) -> Result<PoolChange, ControlError> {
        let name = pool_name(&request.name)?;
        let (planned, reserved) = self.control.reserve(|m| {
            m.check_open()?;
            let at = m.find_running(&request.array)?;
            let uuid = m.running[at].uuid();
            let array = m.running[at].array.name().to_string();
            // The name is reserved, because a pool that is being created is not known yet.
            let name_key = pool_name_key(name.as_str());
            let keys = vec![array_key(&array), array_key(&uuid), pool_key(&uuid), name_key];
            if is_same(&m.running[at], &name) {
                return Ok((Plan::Unchanged(uuid), keys));
            }
            check_pool_name(m, &name)?;
            refuse_pool(&m.running[at], "cannot have another pool")?;
            refuse_exported(m, &uuid, &array)?;
            let running = &m.running[at];
            let (device, is_written) = (running.array.device(), is_written(&running.array));
            Ok((Plan::Create { uuid, array, device, is_written }, keys))
        })?;
        let (uuid, array, device, is_known_written) = match planned {
            Plan::Unchanged(uuid) => {
                return self.control.run(|m| pool_change(m, "unchanged", &uuid));
            }
            Plan::Create { uuid, array, device, is_written } => (uuid, array, device, is_written),
        };
        if is_known_written && !request.overwrite {
            let what =
                format!("array {array} was written, and its data would be lost; use another array");
            let error = ControlError::refused(what);
            return Err(error.unless(Amendment::Overwrite, ", or, to lose the data: "));
        }
        let pool = fresh_uuid()?;
        let layout = Layout::new(&device.info(), &name, pool)?;
        let plan = steps(&layout, &array, is_known_written);
        if request.dry_run {
            let pool = Some(planned_pool(&layout, &array));
            return Ok(PoolChange { result: "planned".into(), pool, plan, warnings: Vec::new() });
        }
        let spec = PoolSpec { name: name.clone(), pool, nonce: nonce()? };
        // From here on, the array cannot be exported: its slot says that a search has not ended.
        self.control.run(|m| {
            let at = m.find_running(&uuid)?;
            refuse_pool(&m.running[at], "cannot have another pool")?;
            refuse_exported(m, &uuid, &array)?;
            if !is_known_written && is_written(&m.running[at].array) {
                return Err(ControlError::state(format!("array {array} was written meanwhile")));
            }
            m.running[at].pool = PoolSlot::Unknown;
            Ok(())
        })?;
        if let Err(error) = create(device, &spec, &mut wait(POOL_OPEN_LIMIT)) {
            // A header may have been written.
            search_pool(self.control, &uuid)?;
            return Err(error.into());
        }
        self.control.with(|m| begin_opening(m, &uuid, &name, &array))?;
        search_pool(self.control, &uuid)?;
        drop(reserved);
        let change = self.control.run(|m| pool_change(m, "created", &uuid))?;
        Ok(PoolChange { plan, ..change })
    }

    /// Returns the pools of all running arrays, with their present states.
    ///
    /// # Errors
    /// If an earlier command panicked.
    pub fn list_pools(&self) -> Result<api::ListPoolsResponse, ControlError> {
        let arrays =
            self.control.with(|m| m.running.iter().map(Running::uuid).collect::<Vec<_>>())?;
        for uuid in &arrays {
            self.refresh_pool(uuid)?;
        }
        let pools = self.control.with(|m| pools_of(m))?;
        Ok(api::ListPoolsResponse { pools })
    }

    /// Returns the pool with this name or identity.
    ///
    /// # Errors
    /// If there is no such pool.
    pub fn pool(&self, name: &str) -> Result<api::Pool, ControlError> {
        let uuid = self.control.run(|m| Ok(m.running[find_pool(m, name)?].uuid()))?;
        self.refresh_pool(&uuid)?;
        self.control.run(|m| {
            let at = m.position_of(&uuid).ok_or_else(|| no_such_pool(m, name))?;
            let pool = slot_message(&m.running[at]).ok_or_else(|| no_such_pool(m, name))?;
            Ok(with_limits(pool, m))
        })
    }

    /// Destroys a pool with its volumes. Its array is free afterwards.
    ///
    /// # Errors
    /// If there is no such pool, a volume is exported, or the pool has volumes and the request has no `force`.
    pub fn destroy_pool(&self, request: &DestroyPoolRequest) -> Result<PoolChange, ControlError> {
        let (at, reserved) = self.control.reserve(|m| {
            m.check_open()?;
            let running = &m.running[find_doomed(m, request)?];
            let (uuid, array) = (running.uuid(), running.array.name().to_string());
            let keys = vec![array_key(&array), array_key(&uuid), pool_key(&uuid)];
            Ok(((uuid, array), keys))
        })?;
        let (uuid, array) = at;
        // What is destroyed is decided from the present state, not from the last one.
        let handle = self.control.with(|m| {
            let slot = m.running_of(&uuid).map(|running| &running.pool);
            slot.and_then(PoolSlot::online).map(|online| online.handle.clone())
        })?;
        if let Some(handle) = handle {
            let status = handle.status()?;
            self.control.with(|m| put_pool_status(m, &handle, status))?;
        }
        let (view, device) = self.control.run(|m| check_destroy_pool(m, &uuid, request.force))?;
        if view.name.is_empty() {
            self.check_unreadable(&uuid, &*device)?;
        }
        let name = title(&view);
        let mut plan = Vec::new();
        if view.state == "offline" {
            plan.push(format!("lose all volumes and snapshots of the {name}: {}", view.reason));
        }
        if view.volumes + view.snapshots > 0 {
            let (volumes, snapshots) = (view.volumes, view.snapshots);
            plan.push(format!(
                "destroy {volumes} volumes and {snapshots} snapshots with their data"
            ));
        }
        plan.push(format!("erase the header of the {name}; array {array} is free afterwards"));
        let change = |result: &str| PoolChange {
            result: result.to_owned(),
            pool: Some(view.clone()),
            plan: plan.clone(),
            warnings: Vec::new(),
        };
        if request.dry_run {
            return Ok(change("planned"));
        }
        let why = "the pool is being destroyed".to_owned();
        let slot = self.control.run(|m| {
            let at = m.find_running(&uuid)?;
            let known = m.running[at].pool.known().map(|(name, pool)| (name.into(), pool.into()));
            let gone = OfflinePool { known, why, is_stuck: false };
            Ok(std::mem::replace(&mut m.running[at].pool, PoolSlot::Offline(gone)))
        })?;
        if !stop_pool(slot) {
            self.control.with(|m| {
                if let Some(at) = m.position_of(&uuid)
                    && let PoolSlot::Offline(gone) = &mut m.running[at].pool
                {
                    gone.is_stuck = true;
                }
            })?;
            return Err(stuck(&name, &array));
        }
        let erased = erase(&*device, &mut wait(POOL_OPEN_LIMIT));
        let after = if erased.is_ok() { PoolSlot::Nothing } else { PoolSlot::Unknown };
        self.control.with(|m| {
            if let Some(at) = m.position_of(&uuid) {
                m.running[at].pool = after;
            }
        })?;
        if let Err(error) = erased {
            // The pool may still be there. Then it serves again.
            search_pool(self.control, &uuid)?;
            return Err(error.into());
        }
        self.forget_limits(|config| config.forget_pool_limits(&view.uuid))?;
        drop(reserved);
        self.control.events().record(note_of_destroyed(&view));
        Ok(change("destroyed"))
    }

    /// Reads the header of a pool that had no readable header, before the pool is destroyed. If it is readable now, the
    /// pool is opened instead.
    fn check_unreadable(
        &self,
        uuid: &str,
        device: &dyn strake_block::BlockDevice,
    ) -> Result<(), ControlError> {
        match find(device, &mut wait(POOL_FIND_LIMIT)) {
            Err(error) if error.kind == PoolErrorKind::Damaged => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => {
                self.control.with(|m| {
                    if let Some(at) = m.position_of(uuid) {
                        m.running[at].pool = PoolSlot::Unknown;
                    }
                })?;
                search_pool(self.control, uuid)?;
                Err(ControlError::state(
                    "the header of the pool can be read again; list the pools and try again",
                ))
            }
        }
    }

    /// Reads the present state of the pool of an array. A pool that does not answer keeps its last known state.
    pub(crate) fn refresh_pool(&self, array: &str) -> Result<(), ControlError> {
        let handle = self.control.with(|m| {
            let online = m.running_of(array)?.pool.online()?;
            Some(online.handle.clone())
        })?;
        let Some(handle) = handle else { return Ok(()) };
        match handle.status() {
            Ok(status) => self.control.with(|m| put_pool_status(m, &handle, status)),
            Err(error) => {
                tracing::warn!(pool = %handle.name, reason = %error, "its state was not read");
                Ok(())
            }
        }
    }

    /// Reserves the online pool that a client calls `asked`.
    pub(crate) fn reserve_pool(&self, asked: &str) -> Result<(Handle, Reserved), ControlError> {
        self.control.reserve(|m| {
            m.check_open()?;
            let handle = online_pool(m, asked)?;
            let keys = vec![pool_key(&handle.array)];
            Ok((handle, keys))
        })
    }
}

/// What a creation does.
enum Plan {
    Unchanged(String),
    Create {
        uuid: String,
        array: String,
        device: std::sync::Arc<dyn strake_block::BlockDevice>,
        is_written: bool,
    },
}

/// Parses the name of a pool.
fn pool_name(text: &str) -> Result<Name, ControlError> {
    if check_array_name(text).is_err() {
        return Err(ControlError::usage(format!(
            "pool name: {text} has the form of a UUID; choose another name"
        )));
    }
    text.parse().map_err(|e| ControlError::usage(format!("pool name: {e}")))
}

fn is_same(running: &Running, name: &Name) -> bool {
    running.pool.online().is_some_and(|online| online.handle.name == name.as_str())
}

/// True if a block of the array was written since its creation.
fn is_written(array: &Array) -> bool {
    let source = array.extents();
    let blocks = array.device().info().blocks;
    first_written(&*source, blocks).is_some()
}

fn first_written(source: &dyn ExtentSource, blocks: u64) -> Option<u64> {
    let mut at = 0;
    while at < blocks {
        let extent = source.extent(Lba(at), blocks - at);
        if extent.written || extent.range.blocks == 0 {
            return Some(at);
        }
        at += extent.range.blocks;
    }
    None
}

/// As [`refuse_pool`], but permits an array whose search for a pool failed: what is recorded of it was permitted
/// before.
pub(crate) fn refuse_known_pool(running: &Running, what: &str) -> Result<(), ControlError> {
    match &running.pool {
        PoolSlot::Unread { .. } => Ok(()),
        _ => refuse_pool(running, what),
    }
}

/// Refuses an operation on an array that has a pool or may have one. `what` is what cannot happen to the array.
pub(crate) fn refuse_pool(running: &Running, what: &str) -> Result<(), ControlError> {
    let array = running.array.name();
    match &running.pool {
        PoolSlot::Nothing => Ok(()),
        PoolSlot::Unread { why } => Err(ControlError::state(format!(
            "array {array} {what} yet: it may have a pool, and the search for it failed ({why}); it is repeated every \
             few seconds"
        ))),
        PoolSlot::Unknown => Err(ControlError::state(format!(
            "array {array} {what} yet: the search for a pool on it has not ended; try again"
        ))),
        slot => match slot.known() {
            Some((name, _)) => {
                let destroy = DestroyPoolRequest { name: name.to_owned(), ..Default::default() };
                let text = say(format!(
                    "array {array} {what}: it has pool {name}; destroy the pool first: "
                ));
                Err(ControlError::refused(text.run(destroy)))
            }
            None => {
                let name = array.to_string();
                let destroy = DestroyPoolRequest { name, force: true, ..Default::default() };
                let why = match slot {
                    PoolSlot::Offline(OfflinePool { why, .. }) => why.as_str(),
                    _ => "",
                };
                let text = say(format!(
                    "array {array} {what}: it has a pool whose header is not usable ({why}); repair the array, or, \
                     to lose the pool: "
                ));
                Err(ControlError::refused(text.run(destroy)))
            }
        },
    }
}

fn refuse_exported(manager: &Manager, uuid: &str, array: &str) -> Result<(), ControlError> {
    let exports = manager.records.export_names(uuid);
    let Some(first) = exports.first() else { return Ok(()) };
    let text = say(format!(
        "array {array} is exported as {}; first remove the export: ",
        exports.join(", ")
    ));
    Err(ControlError::refused(text.run(remove_export(first))))
}

fn steps(layout: &Layout, array: &str, is_written: bool) -> Vec<String> {
    let header = &layout.header;
    let mut steps = Vec::new();
    if is_written {
        steps.push(format!("lose the data of array {array}"));
    }
    steps.push(format!(
        "pool {} on array {array}: {} for volumes in clusters of {}",
        header.name,
        ByteSize(u64::from(header.clusters) * u64::from(header.cluster_bytes)),
        ByteSize(u64::from(header.cluster_bytes)),
    ));
    steps
}

/// Returns the pool that a real run would create.
fn planned_pool(layout: &Layout, array: &str) -> api::Pool {
    let header = &layout.header;
    let bytes = u64::from(header.clusters) * u64::from(header.cluster_bytes);
    api::Pool {
        name: header.name.to_string(),
        array: array.to_owned(),
        size_bytes: bytes,
        free_bytes: bytes,
        cluster_bytes: u64::from(header.cluster_bytes),
        log_bytes: header.log_bytes,
        ..api::Pool::default()
    }
}

/// Returns the pools of all running arrays in their last known states.
#[must_use]
pub fn pools_of(manager: &Manager) -> Vec<api::Pool> {
    let pools = manager.running.iter().filter_map(slot_message);
    pools.map(|pool| with_limits(pool, manager)).collect()
}

/// Adds the limits of a pool.
fn with_limits(mut pool: api::Pool, manager: &Manager) -> api::Pool {
    pool.limits = limits_message(&manager.records, &Limited::Pool(pool.uuid.clone()));
    pool
}

/// Returns the index in `running` of the array with this pool.
pub(crate) fn find_pool(manager: &Manager, asked: &str) -> Result<usize, ControlError> {
    let called = |running: &Running| {
        let known = running.pool.known();
        known.is_some_and(|(name, uuid)| is_called(asked, name, uuid))
    };
    let mut found = (0..manager.running.len()).filter(|at| called(&manager.running[*at]));
    match (found.next(), found.next()) {
        (Some(at), None) => Ok(at),
        (None, _) => Err(no_such_pool(manager, asked)),
        (Some(_), Some(_)) => Err(ControlError::state(format!(
            "two pools have the name {asked}; use the UUID of the pool in place of its name"
        ))),
    }
}

/// Returns access to the online pool that a client calls `asked`.
pub(crate) fn online_pool(manager: &Manager, asked: &str) -> Result<Handle, ControlError> {
    let running = &manager.running[find_pool(manager, asked)?];
    match &running.pool {
        PoolSlot::Online(online) => Ok(online.handle.clone()),
        PoolSlot::Offline(OfflinePool { why, .. }) => {
            Err(ControlError::state(format!("pool {asked} is offline: {why}")))
        }
        PoolSlot::Unknown | PoolSlot::Unread { .. } | PoolSlot::Nothing => {
            Err(no_such_pool(manager, asked))
        }
    }
}

pub(crate) fn no_such_pool(manager: &Manager, name: &str) -> ControlError {
    let known: Vec<&str> =
        manager.running.iter().filter_map(|r| r.pool.known().map(|(name, _)| name)).collect();
    let create = CreatePoolRequest::default();
    not_among(format!("there is no pool {name:?}"), &known, create)
}

fn check_pool_name(manager: &Manager, name: &Name) -> Result<(), ControlError> {
    let other = manager
        .running
        .iter()
        .find(|running| running.pool.known().is_some_and(|(known, _)| known == name.as_str()));
    match other {
        Some(other) => Err(ControlError::exists(format!(
            "pool {name} already exists on array {}; choose another name",
            other.array.name()
        ))),
        None => Ok(()),
    }
}

/// Has the array searched for its new pool.
fn begin_opening(manager: &mut Manager, uuid: &str, name: &Name, array: &str) {
    let Some(at) = manager.position_of(uuid) else { return };
    manager.running[at].pool = PoolSlot::Unknown;
    let what = format!("pool {name} was created on array {array}");
    manager.record(Note::new(EventKind::PoolCreated, format!("pool/{name}"), what));
}

fn pool_change(manager: &Manager, result: &str, uuid: &str) -> Result<PoolChange, ControlError> {
    let running = &manager.running[manager.find_running(uuid)?];
    if let PoolSlot::Offline(OfflinePool { why, .. }) | PoolSlot::Unread { why } = &running.pool {
        return Err(ControlError::device(format!("the new pool cannot be opened: {why}")));
    }
    Ok(PoolChange {
        result: result.to_owned(),
        pool: slot_message(running),
        plan: Vec::new(),
        warnings: Vec::new(),
    })
}

/// Returns the index in `running` of the array whose pool a request destroys: the pool has this name, or, with `force`,
/// the array has it and its pool has no readable name.
fn find_doomed(manager: &Manager, request: &DestroyPoolRequest) -> Result<usize, ControlError> {
    let asked = &request.name;
    let called = |r: &Running| is_called(asked, r.array.name().as_str(), &r.uuid());
    let array = manager.running.iter().position(called);
    let array = array.map(|at| (at, &manager.running[at]));
    let by_name = find_pool(manager, asked);
    match (by_name, array) {
        (Ok(_), Some((_, array))) if array.pool.is_nameless() => Err(ControlError::state(format!(
            "{asked} is the name of a pool, and of an array with a pool whose header cannot be read; use the UUID \
                 of the pool, or the UUID {} of the array",
            array.uuid()
        ))),
        // The name may be that of a pool that was not found yet.
        (Err(_), Some((_, array)))
            if array.pool.is_nameless() && manager.running.iter().any(|r| r.pool.is_due()) =>
        {
            Err(ControlError::state("an array is still searched for a pool; try again"))
        }
        (Err(error), Some((_, array)))
            if array.pool.is_nameless() && error.kind != ControlErrorKind::NotFound =>
        {
            Err(error)
        }
        (Err(_), Some((_, array))) if array.pool.is_nameless() && !request.force => {
            let what =
                format!("the pool of array {asked} is offline, so its volumes are not known");
            let error = ControlError::refused(what);
            Err(error.unless(Amendment::Force, "; to lose them: "))
        }
        (Err(_), Some((at, array))) if array.pool.is_nameless() => Ok(at),
        (by_name, _) => by_name,
    }
}

/// The pool in a sentence: a pool whose header cannot be read has no name.
fn title(view: &api::Pool) -> String {
    match view.name.as_str() {
        "" => format!("pool of array {}", view.array),
        name => format!("pool {name}"),
    }
}

fn note_of_destroyed(view: &api::Pool) -> Note {
    let api::Pool { name, array, .. } = view;
    let (object, what) = match name.as_str() {
        "" => (format!("array/{array}"), format!("the pool of array {array} was destroyed")),
        _ => (format!("pool/{name}"), format!("pool {name} of array {array} was destroyed")),
    };
    Note::new(EventKind::PoolDestroyed, object, what)
}

/// Returns the names of the exports of volumes of the pool of an array. They name the pool by its UUID. For an
/// unreadable pool, these are all exports of the array.
fn exports_of_pool(manager: &Manager, running: &Running) -> Vec<String> {
    if let Some((_, pool)) = running.pool.known() {
        return manager.records.pool_exports(pool);
    }
    let uuid = running.uuid();
    let exports = manager.records.exports.iter().filter(|e| e.array == uuid);
    exports.map(|e| e.name.clone()).collect()
}

fn stuck(name: &str, array: &str) -> ControlError {
    let what = format!(
        "{name} was not destroyed: I/O of array {array} does not complete; repair the array, restart the daemon and \
         repeat the command"
    );
    ControlError::new(ControlErrorKind::Silent, what)
}

/// Returns the pool to destroy and the device of its array, if this is allowed.
fn check_destroy_pool(
    manager: &Manager,
    uuid: &str,
    force: bool,
) -> Result<(api::Pool, std::sync::Arc<dyn strake_block::BlockDevice>), ControlError> {
    let running = &manager.running[manager.find_running(uuid)?];
    let gone = || ControlError::state("the pool has changed; try again");
    let name = title(&slot_message(running).ok_or_else(gone)?);
    if matches!(&running.pool, PoolSlot::Offline(OfflinePool { is_stuck: true, .. })) {
        // A late write of the pool would damage what uses the array after it.
        return Err(stuck(&name, running.array.name().as_str()));
    }
    let exports = exports_of_pool(manager, running);
    if let Some(first) = exports.first() {
        let text = say(format!(
            "volumes of the {name} are exported as {}; first remove the export: ",
            exports.join(", ")
        ));
        return Err(ControlError::refused(text.run(remove_export(first))));
    }
    let view = match &running.pool {
        PoolSlot::Online(online) => pool_message(running, online),
        _ if !force => {
            let what = format!("{name} is offline, so its volumes are not known");
            let error = ControlError::refused(what);
            return Err(error.unless(Amendment::Force, "; to lose them: "));
        }
        _ => slot_message(running).ok_or_else(gone)?,
    };
    let count = view.volumes + view.snapshots;
    if count > 0 && !force {
        let what = format!("{name} has {count} volumes and snapshots with data");
        let error = ControlError::refused(what);
        return Err(error.unless(Amendment::Force, "; destroy them first, or, to lose them: "));
    }
    Ok((view, running.array.device()))
}
