//! Pools of running arrays: opened after the start of their arrays, watched, and stopped before their arrays.
//!
//! The search for a pool and the start of a pool read through the array, so they never run under the lock. The exports
//! of an array and of its volumes are offered after the search: an array with a pool is not offered itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use strake_block::BlockDevice;
use strake_dev_uring::control_wait_for;
use strake_engine::Array;
use strake_export_nbd::Removal;
use strake_reactor::CoreHandle;
use strake_units::{Lba, Nanos};
use strake_volume::{Pool, PoolError, PoolErrorKind, PoolHeader, VolumeId, find, open};
use strake_wording::say;

use crate::actions::Pace;
use crate::commands::exports::{disconnect, offer_recorded_exports};
use crate::commands::pools::refuse_known_pool;
use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::limits::{POOL_FIND_LIMIT, POOL_OPEN_LIMIT, POOL_STOP_LIMIT, POOL_WATCH_EVERY};
use crate::manager::Manager;
use crate::names::{fresh_uuid, pool_key};
use crate::record::store::ExportRecord;
use crate::state::pool::{Handle, OfflinePool, OnlinePool, PoolSlot};

/// What a search needs of a running array.
struct Search {
    device: Arc<dyn BlockDevice>,
    /// False if the first block of the array was never written, so it has no pool.
    is_written: bool,
    cores: Vec<CoreHandle>,
    /// The core with the fewest pools.
    core: usize,
    /// The exported volumes that are recorded.
    volumes: Vec<(String, u32)>,
}

/// Opens the pool of an array that has just been started, and offers the exports of the array and of its volumes.
///
/// # Errors
/// If an earlier command panicked. Every other failure is recorded and reported.
pub(crate) fn settle_pool(control: &Control, uuid: &str) -> Result<(), ControlError> {
    // Another thread has the reservation if it searches already; it then offers the exports.
    let Some(reserved) = control.try_reserve(vec![pool_key(uuid)])? else { return Ok(()) };
    search_pool(control, uuid)?;
    drop(reserved);
    Ok(())
}

/// As [`settle_pool`], for a caller that has reserved the pool.
pub(crate) fn search_pool(control: &Control, uuid: &str) -> Result<(), ControlError> {
    let Some((search, is_first)) = control.with(|m| begin_search(m, uuid))? else { return Ok(()) };
    let slot = open_pool(uuid, search);
    let (unused, is_covered) = control.with(|m| {
        let unused = put_slot(m, uuid, slot);
        if unused.is_none() && is_first {
            offer_recorded_exports(m, uuid);
        }
        (unused, m.running_of(uuid).is_some_and(|running| refuse_known_pool(running, "").is_err()))
    })?;
    if is_covered {
        // Requests of clients are waited for without the lock.
        disconnect(control, |export| export.array == uuid && export.volume.is_none())?;
        control.with(|m| withdraw_covered(m, uuid))?;
    }
    // A pool of an array that was stopped meanwhile is removed from its core without the lock.
    drop(unused);
    Ok(())
}

/// Withdraws exports of an array that were offered while its first blocks were unreadable, if it has a pool.
fn withdraw_covered(manager: &mut Manager, uuid: &str) {
    let covered = manager
        .running_of(uuid)
        .and_then(|running| refuse_known_pool(running, "is not offered").err());
    let Some(why) = covered else { return };
    let of_it = manager.records.exports.iter().filter(|e| e.array == uuid && e.volume.is_none());
    for record in of_it.cloned().collect::<Vec<_>>() {
        if let Err(error) = manager.exports.withdraw(&record, Removal::Force) {
            tracing::warn!(export = %record.name, reason = %error, "not withdrawn");
        }
        manager.exports.trouble.insert(record.name.clone(), why.what.clone());
    }
}

/// Returns what a search needs, and true for the first search; `None` if none is due.
fn begin_search(manager: &Manager, uuid: &str) -> Option<(Search, bool)> {
    if manager.stopping || manager.cores.is_empty() {
        return None;
    }
    let running = manager.running_of(uuid).filter(|running| running.pool.is_due())?;
    let is_first = matches!(running.pool, PoolSlot::Unknown);
    Some((search_of(manager, &running.array, uuid), is_first))
}

fn search_of(manager: &Manager, array: &Array, uuid: &str) -> Search {
    let of_array = |e: &&ExportRecord| e.array == uuid;
    let exports = manager.records.exports.iter().filter(of_array);
    let volumes = exports.filter_map(|e| e.volume.as_ref().map(|v| (v.pool.clone(), v.id)));
    Search {
        device: array.device(),
        is_written: array.extents().extent(Lba(0), 1).written,
        cores: manager.core_handles(),
        core: quiet_core(manager),
        volumes: volumes.collect(),
    }
}

/// Returns the index of a core with the fewest pools.
fn quiet_core(manager: &Manager) -> usize {
    let pools = |core: usize| {
        let on_it = |slot: &PoolSlot| slot.online().is_some_and(|online| online.core == core);
        manager.running.iter().filter(|running| on_it(&running.pool)).count()
    };
    (0..manager.cores.len()).min_by_key(|core| pools(*core)).unwrap_or(0)
}

/// Searches an array for a pool and starts it. Reads through the array.
fn open_pool(uuid: &str, search: Search) -> PoolSlot {
    if !search.is_written {
        return PoolSlot::Nothing;
    }
    let header = find(&*search.device, &mut wait(POOL_FIND_LIMIT));
    match header {
        Ok(None) => PoolSlot::Nothing,
        Ok(Some(header)) => start_pool(uuid, search, &header),
        Err(error) if error.kind == PoolErrorKind::Io => PoolSlot::Unread { why: error.what },
        Err(error) => {
            PoolSlot::Offline(OfflinePool { known: None, why: error.what, is_stuck: false })
        }
    }
}

fn start_pool(uuid: &str, search: Search, header: &PoolHeader) -> PoolSlot {
    let (name, pool) = (header.name.to_string(), header.pool.to_string());
    let started = start_opened(uuid, search);
    started.unwrap_or_else(|error| {
        let known = Some((name, pool));
        PoolSlot::Offline(OfflinePool { known, why: error.what, is_stuck: false })
    })
}

fn start_opened(uuid: &str, search: Search) -> Result<PoolSlot, ControlError> {
    let Search { device, cores, core, volumes, .. } = search;
    let opened = open(device, nonce()?, &mut wait(POOL_OPEN_LIMIT)).map_err(plain)?;
    let pool = Pool::start(opened, &cores, core).map_err(plain)?;
    let handle = Handle {
        array: uuid.to_owned(),
        name: pool.name().to_string(),
        uuid: pool.uuid().to_string(),
        pool: Arc::new(pool),
    };
    let status = handle.status()?;
    let mut devices = BTreeMap::new();
    for (pool, id) in volumes {
        if pool == handle.uuid && status.volumes.iter().any(|row| row.id.0 == id) {
            devices.insert(id, handle.device(VolumeId(id))?);
        }
    }
    Ok(PoolSlot::Online(OnlinePool { handle, core, status, devices, is_reported_read_only: false }))
}

/// The error of an object that names the pool itself.
fn plain(error: PoolError) -> ControlError {
    let what = error.what.clone();
    ControlError::new(ControlError::from(error).kind, what)
}

/// Returns a wait with a time limit.
pub(crate) fn wait(limit: std::time::Duration) -> impl FnMut() -> Option<Nanos> {
    control_wait_for(Nanos(limit.as_nanos() as u64))
}

/// Returns a random number for one start of a pool.
pub(crate) fn nonce() -> Result<u64, ControlError> {
    let bytes = fresh_uuid()?.0;
    // These bytes include no version and no variant.
    let mut number = [0; 8];
    number[..6].copy_from_slice(&bytes[..6]);
    number[6..].copy_from_slice(&bytes[14..]);
    Ok(u64::from_le_bytes(number))
}

/// Records what a search found. Returns a pool that nothing can use, because the array was stopped meanwhile.
fn put_slot(manager: &mut Manager, uuid: &str, slot: PoolSlot) -> Option<PoolSlot> {
    let stopping = manager.stopping;
    let at = manager.position_of(uuid).filter(|at| !stopping && manager.running[*at].pool.is_due());
    let Some(at) = at else { return Some(slot) };
    let array = manager.running[at].array.name().to_string();
    if let Some(note) = note_of(&array, &slot) {
        manager.record(note);
    }
    manager.running[at].pool = slot;
    None
}

fn note_of(array: &str, slot: &PoolSlot) -> Option<Note> {
    match slot {
        PoolSlot::Online(online) => {
            let name = &online.handle.name;
            let what = format!("pool {name} of array {array} was opened");
            Some(Note::new(EventKind::PoolOnline, format!("pool/{name}"), what))
        }
        PoolSlot::Offline(offline) => {
            let name = offline.known.as_ref().map_or("", |(name, _)| name.as_str());
            let what = format!("pool {name} of array {array} cannot be opened");
            let next = say(
                "read the reason; the array runs, and its exports stay offline. Do not write to the array",
            );
            let object =
                if name.is_empty() { format!("array/{array}") } else { format!("pool/{name}") };
            let what = what.replace("pool  of", "the pool of");
            Some(
                Note::new(EventKind::PoolOffline, object, what)
                    .cause(offline.why.clone())
                    .next(next),
            )
        }
        PoolSlot::Unknown | PoolSlot::Unread { .. } | PoolSlot::Nothing => None,
    }
}

/// Repeats searches that failed, and reads the states of pools.
pub(crate) fn tend_pools(control: &Control, pace: Pace) -> Result<(), ControlError> {
    let (search, watch) = control.with(|m| {
        let now = Instant::now();
        let is_due = m.pools_watched.is_none_or(|last| now >= last + POOL_WATCH_EVERY);
        if !is_due || m.stopping {
            return (Vec::new(), Vec::new());
        }
        m.pools_watched = Some(now);
        let due = m.running.iter().filter(|running| running.pool.is_due());
        let search: Vec<String> = due.map(|running| running.uuid()).collect();
        let online = m.running.iter().filter_map(|running| running.pool.online());
        (search, online.map(|online| online.handle.clone()).collect::<Vec<_>>())
    })?;
    for uuid in search {
        let name = format!("search array {uuid} for a pool");
        control.act(pace, name, move |control| settle_pool(control, &uuid))?;
    }
    for handle in watch {
        let name = format!("watch pool {}", handle.uuid);
        control.act(pace, name, move |control| {
            let status = handle.status()?;
            control.with(|m| put_pool_status(m, &handle, status))
        })?;
    }
    Ok(())
}

/// Records the state of a pool, and reports a pool that serves only reads.
pub(crate) fn put_pool_status(
    manager: &mut Manager,
    handle: &Handle,
    status: strake_volume::PoolStatus,
) {
    let Some(at) = manager.position_of(&handle.array) else { return };
    let online = manager.running[at].pool.online_mut();
    let Some(online) = online.filter(|online| online.handle.uuid == handle.uuid) else {
        return;
    };
    let is_new = status.is_read_only && !online.is_reported_read_only;
    online.is_reported_read_only |= status.is_read_only;
    online.status = status;
    if is_new {
        let name = &handle.name;
        let what = format!("the volumes of pool {name} serve only reads");
        let cause = "a write to the log of the pool failed";
        let next = say("repair the array, then restart the daemon: the pool is opened again");
        let note = Note::new(EventKind::PoolReadOnly, format!("pool/{name}"), what);
        manager.record(note.cause(cause).next(next));
    }
}

/// Stops the pool of an array that is about to stop. Waits for its last root, but not for long: without this root, the
/// next start reads more of the log.
///
/// Others may still have the pool for a question, so it is removed from its core here. Returns false if its I/O has not
/// ended.
pub(crate) fn stop_pool(slot: PoolSlot) -> bool {
    let PoolSlot::Online(OnlinePool { handle, devices, .. }) = slot else { return true };
    drop(devices);
    let limit = Nanos(POOL_STOP_LIMIT.as_nanos() as u64);
    if let Ok(None) = handle.pool.begin_stop().wait_for(limit) {
        tracing::warn!(pool = %handle.name, "not stopped in order: I/O of its array does not complete");
    }
    handle.pool.quit()
}
