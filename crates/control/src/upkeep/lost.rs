//! Arrays that lost more members than their redundancy covers: taken out of service, and started again like any that
//! is recorded when enough members are back.
//!
//! A lost array has recorded nothing of its loss, so it starts as it would after a crash. Clients that rely on what
//! they did not flush are notified as after a crash: those of NBD lose their connection, and hosts of NVMe/TCP the
//! queues that used it.

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

/// How long what drives of this machine owe a lost array is waited for.
const LOCAL_DRAIN: Duration = Duration::from_secs(5);

/// The same for remote drives: as long as their paths hold requests, and some more. What one owes after that keeps the
/// array from being started (`has_to_wait`), and no thread waits for it.
const REMOTE_DRAIN: Duration = Duration::from_secs(40);

/// Takes arrays out of service that are lost.
pub(crate) fn set_aside_lost(control: &Control) -> Result<(), ControlError> {
    for (uuid, keys) in control.with(|m| lost_arrays(m))? {
        // A command that works on it ends soon, because of the loss.
        let Some(reserved) = control.try_reserve(keys)? else { continue };
        let control = control.clone();
        let set_aside = move || set_aside(&control, &uuid, reserved);
        // A drive may not answer for long, and other arrays are not to wait for it. Without a thread the next round
        // tries again.
        if let Err(error) = thread::Builder::new().name("strake-lost".into()).spawn(set_aside) {
            tracing::warn!(reason = %error, "a lost array is not taken out of service yet");
        }
    }
    Ok(())
}

/// Takes an array out of service, and keeps it reserved until its drives owe it nothing or `stop` gives up waiting:
/// what arrives at one of them later would hit the array that is started from them.
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

/// Waits for what its drives owe a lost array, and lets go of them. The wait for a drive that hangs is limited.
fn stop(running: Running) {
    let Running { array, drives, replacement, .. } = running;
    let mut all = drives.iter().flatten();
    let remote = all.any(|drive| drive.device.settle_time() > Nanos(0));
    let until = Instant::now() + if remote { REMOTE_DRAIN } else { LOCAL_DRAIN };
    for drained in array.begin_drain() {
        // A core that has stopped answers nothing. A drive of this machine that still owes something later is refused
        // when it is opened.
        let _ = drained.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
    // There is nothing to record: its labels stay as they are.
    if let Err(error) = array.stop() {
        tracing::debug!(reason = %error, "stopped");
    }
    drop((drives, replacement));
}

/// Arrays that are lost, and what to reserve of each.
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

/// Moves a lost array from those that run to those that are offline.
fn take_lost(manager: &mut Manager, uuid: &str) -> Option<Running> {
    // While it is there: its last state is noted, and its loss is reported.
    manager.newest.note(&manager.running, &manager.records);
    manager.observe();
    let at = manager.running.iter().position(|r| r.uuid() == uuid && r.array.status().lost)?;
    let record = manager.records.record_of(uuid)?.clone();
    drop(manager.exports.suspend(uuid, &manager.records));
    keep_scrub(manager, at, true);
    let running = manager.running.remove(at);
    let entry = manager.entries.of(uuid);
    entry.forget_run();
    entry.loss = Some(Loss::after(entry.loss, Instant::now()));
    entry.offline = Some(Offline::after_loss(&record));
    Some(running)
}
