//! Failed arrays: more members are absent than the level tolerates. They are taken out of service, and started again
//! like any recorded array when enough members have returned.
//!
//! A failed array has recorded nothing about its failure, so it starts as after a crash. Clients that rely on data
//! which they did not flush are notified as after a crash: NBD clients lose their connection, and NVMe/TCP hosts lose
//! the queues that used the array.

use std::thread;
use std::time::{Duration, Instant};

use strake_units::Nanos;

use crate::control::{Control, Reserved};
use crate::error::ControlError;
use crate::manager::Manager;
use crate::names::array_key;
use crate::state::loss::Loss;
use crate::state::offline::Offline;
use crate::state::running::Running;
use crate::upkeep::scrubs::keep_scrub;

/// The time limit of the wait for the outstanding requests of a failed array on local drives.
const LOCAL_DRAIN: Duration = Duration::from_secs(5);

/// The time limit of the wait for the outstanding requests of a failed array on remote drives. It is longer than the
/// time for which their paths hold requests. Requests that are outstanding afterwards prevent the next start of the
/// array (`has_to_wait`), and no thread waits for them.
const REMOTE_DRAIN: Duration = Duration::from_secs(40);

/// Takes failed arrays out of service.
pub(crate) fn set_aside_lost(control: &Control) -> Result<(), ControlError> {
    for (uuid, keys) in control.with(|m| lost_arrays(m))? {
        // A command that uses the array ends soon, because the array failed.
        let Some(reserved) = control.try_reserve(keys)? else { continue };
        let control = control.clone();
        let set_aside = move || set_aside(&control, &uuid, reserved);
        // A drive may be unresponsive for a long time, and other arrays must not wait for it. If no thread can be
        // started, the next round tries again.
        if let Err(error) = thread::Builder::new().name("strake-lost".into()).spawn(set_aside) {
            tracing::warn!(reason = %error, "a lost array is not taken out of service yet");
        }
    }
    Ok(())
}

/// Takes an array out of service. Keeps the array reserved until its drives have no outstanding requests or until the
/// time limit of `stop` passes: a write that arrives later would change the array that is started from these drives.
fn set_aside(control: &Control, uuid: &str, reserved: Reserved) {
    match control.with(|m| take_lost(m, uuid)) {
        Ok(Some(running)) => stop(running),
        Ok(None) => {}
        Err(error) => tracing::warn!(%uuid, reason = %error, "not taken out of service"),
    }
    let disconnected = control.with(|m| m.exports.disconnect_clients(uuid, &m.records));
    if let Err(error) = disconnected {
        tracing::warn!(%uuid, reason = %error, "clients not disconnected");
    }
    drop(reserved);
}

/// Waits for the outstanding requests of a failed array, and releases its drives. The wait for an unresponsive drive is
/// limited.
fn stop(running: Running) {
    let Running { array, drives, replacement, pool, .. } = running;
    let mut all = drives.iter().flatten();
    let remote = all.any(|drive| drive.device.settle_time() > Nanos(0));
    let until = Instant::now() + if remote { REMOTE_DRAIN } else { LOCAL_DRAIN };
    for drained in array.begin_drain() {
        // A core that has stopped does not answer. A local drive that still has outstanding requests is refused when it
        // is opened later.
        let _ = drained.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
    // The log of the pool has every acknowledged change. A root cannot be written.
    if let Some(online) = pool.online() {
        online.handle.pool.quit();
    }
    drop(pool);
    // There is nothing to record: the labels remain unchanged.
    if let Err(error) = array.stop() {
        tracing::debug!(reason = %error, "stopped");
    }
    drop((drives, replacement));
}

/// The failed arrays, and the keys to reserve for each of them.
fn lost_arrays(manager: &Manager) -> Vec<(String, Vec<String>)> {
    if manager.stopping {
        return Vec::new();
    }
    let lost = manager.running.iter().filter(|running| running.array.status().lost);
    lost.map(|running| {
        let names = [array_key(running.array.name().as_str()), array_key(&running.uuid())];
        (running.uuid(), names.into_iter().chain(running.drive_keys()).collect())
    })
    .collect()
}

/// Moves a failed array from the running arrays to the offline arrays.
fn take_lost(manager: &mut Manager, uuid: &str) -> Option<Running> {
    // The last state is recorded and the failure is reported while the array is still among the running arrays.
    manager.newest.note(&manager.running, &manager.records);
    manager.observe();
    let at = manager.running.iter().position(|r| r.uuid() == uuid && r.array.status().lost)?;
    let record = manager.records.record_of(uuid)?.clone();
    let last = manager.view(at);
    drop(manager.exports.suspend(uuid, &manager.records));
    keep_scrub(manager, at, true);
    let running = manager.running.remove(at);
    let entry = manager.entries.of(uuid);
    entry.forget_run();
    entry.loss = Some(Loss::after(entry.loss, Instant::now()));
    entry.offline = Some(Offline::after_loss(&record, &last));
    Some(running)
}
