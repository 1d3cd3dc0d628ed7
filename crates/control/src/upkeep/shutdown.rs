//! The stop of the daemon. Everything that waits for drives or clients is stopped concurrently, within one limit,
//! because a service manager kills a daemon that stops too slowly. Late objects are reported, and remain in the state
//! that a crash causes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_engine::MemberStatus;
use strake_reactor::monotonic;

use crate::bounded::{self, Job, side_by_side, within};
use crate::control::{Control, Reserved};
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Note};
use crate::exports::servers::{self, ExportServer};
use crate::limits::{AUDIT_STOP, STOP_LIMIT, STOP_RECORD_LIMIT};
use crate::manager::Manager;
use crate::names::array_key;
use crate::state::running::Running;
use crate::upkeep::member_config::record_before_leaving;
use crate::upkeep::newest::note_newest_at_stop;
use crate::upkeep::pools::stop_pool;
use crate::upkeep::scrubs::keep_scrubs;
use crate::upkeep::silent::silent_now;

/// The time limit for the stop of the data cores. No work on them waits at this point.
const CORES_END: Duration = Duration::from_secs(3);

/// The time limit within which drives must answer. The drives that do not answer are reported.
const NAMING: Duration = Duration::from_secs(1);

impl Control {
    /// Stops the daemon in order: writes the latest changes to the members, drains exports, marks arrays as clean, and
    /// stops the cores. No object waits for another object of its step, and the stop takes at most about
    /// [`STOP_LIMIT`]. Errors are returned and are not fatal: the stop continues with the other objects. A second call
    /// does nothing.
    pub fn stop(&self) -> Vec<ControlError> {
        self.stop_within(STOP_LIMIT)
    }

    pub(crate) fn stop_within(&self, limit: Duration) -> Vec<ControlError> {
        let deadline = Instant::now() + limit;
        let mut errors: Vec<ControlError> = Vec::new();
        match self.with(|m| std::mem::replace(&mut m.stopping, true)) {
            Ok(false) => {}
            Ok(true) => return errors,
            Err(error) => return vec![error],
        }
        self.wake_waiters();
        record_at_stop(self, deadline.min(Instant::now() + STOP_RECORD_LIMIT));
        let servers = self.with(|m| m.exports.take()).unwrap_or_default();
        let jobs = servers.into_iter().map(|(listen, server)| stop_server(listen, server));
        // A client with an unresponsive request uses at most half of the time, so that time remains for the arrays.
        let drained = Instant::now() + deadline.saturating_duration_since(Instant::now()) / 2;
        let (done, late) = side_by_side(jobs.collect(), drained);
        errors.extend(done.into_iter().flatten());
        errors.extend(late.into_iter().map(|listen| {
            late_error(format!("exports on {listen} did not disconnect their clients in time"))
        }));
        errors.append(&mut stop_arrays(self, deadline));
        errors.append(&mut end_commands(self, deadline));
        errors.append(&mut end_starts(self, deadline));
        // A target may still execute requests that were not answered before their queue was closed.
        let owing = self.with(|m| m.drives.owing_remotes()).unwrap_or_default();
        let cores = self.with(|m| m.take_cores()).unwrap_or_default();
        if within("cores end", CORES_END, move || drop(cores)).is_none() {
            errors.push(late_error("a data core did not end in time".to_owned()));
        }
        finish_audit(self);
        let recorded = self.with(|m| {
            m.drives.close_unless(|_| false);
            record_stop(m, &mut errors, &owing);
        });
        errors.extend(recorded.err());
        errors
    }
}

/// Writes to the members the acknowledged changes that they do not record yet. This is the last opportunity before an
/// import of the array on another host.
fn record_at_stop(control: &Control, deadline: Instant) {
    let arrays = control.with(|m| m.running.iter().map(Running::uuid).collect::<Vec<_>>());
    let job = |uuid: String| -> Job<()> {
        let control = control.clone();
        let name = uuid.clone();
        let record = move || {
            let left = deadline.saturating_duration_since(Instant::now());
            // An action may have reserved the array.
            let keys = vec![array_key(&uuid)];
            let reserved = control.reserve_within(left, |_| Ok(((), keys.clone())));
            let recorded = reserved.and_then(|_held| record_before_leaving(&control, &uuid));
            if let Err(error) = recorded {
                tracing::warn!(%uuid, reason = %error, "the last changes may not be recorded on the members");
            }
        };
        (name, Box::new(record))
    };
    let jobs = arrays.unwrap_or_default().into_iter().map(job).collect();
    for uuid in side_by_side(jobs, deadline).1 {
        tracing::warn!(%uuid, "the last changes may not be recorded on the members: the time limit passed");
    }
}

fn stop_arrays(control: &Control, deadline: Instant) -> Vec<ControlError> {
    let running = control.run(|m| {
        note_newest_at_stop(m);
        keep_scrubs(m);
        Ok(std::mem::take(&mut m.running))
    });
    let running = running.unwrap_or_default();
    let members: Vec<(String, Vec<String>)> =
        running.iter().map(|r| (r.array.name().to_string(), paths_of(r))).collect();
    let jobs = running.into_iter().map(|r| stop_array(r)).collect();
    let (done, late) = side_by_side(jobs, deadline);
    note_silent_at_stop(control, &done);
    let mut errors: Vec<ControlError> = done.into_iter().filter_map(|s| s.error).collect();
    for (name, paths) in members.into_iter().filter(|(name, _)| late.contains(name)) {
        errors.push(not_stopped(&name, paths));
    }
    errors
}

/// Records the members that were unresponsive when their arrays stopped. These members are re-added after the next
/// start.
fn note_silent_at_stop(control: &Control, stopped: &[Stopped]) {
    let noted = control.with(|m| {
        for Stopped { uuid, members, .. } in stopped {
            if let Some(silent) = silent_now(m, uuid, members) {
                m.records.record_silent(uuid, silent);
            }
        }
    });
    if let Err(error) = noted {
        tracing::warn!(reason = %error, "unresponsive members are not recorded");
    }
}

/// Waits for the commands that run. A command that unloads an array, or stops an array to grow it, stops this array.
fn end_commands(control: &Control, deadline: Instant) -> Vec<ControlError> {
    let left = deadline.saturating_duration_since(Instant::now());
    let _ = control.wait_until(left, |m| m.commands.objects().is_empty());
    let late = control.with(|m| m.commands.objects()).unwrap_or_default();
    let error = |object| {
        late_error(format!(
            "a command on {object} has not ended; check its result at the next start"
        ))
    };
    late.into_iter().map(error).collect()
}

/// Waits for arrays that are still being started. An array whose labels were changed, and that never ran, is not
/// stopped in order: its labels state that it runs.
fn end_starts(control: &Control, deadline: Instant) -> Vec<ControlError> {
    let left = deadline.saturating_duration_since(Instant::now());
    // A start that only waits for drives has changed no label.
    let over = |m: &Manager| names_assembling(m).is_empty();
    let _ = control.wait_until(left, over);
    let cut_short = control.run(|m| {
        let mut names = names_assembling(m);
        names.append(&mut m.cut_short);
        Ok(names)
    });
    let error = |name: String| {
        late_error(format!(
            "array {name} was being started; its next start is as after a crash, and no data are lost"
        ))
    };
    cut_short.unwrap_or_default().into_iter().map(error).collect()
}

/// Writes the last entries of the audit log. A state directory that refuses them, or that does not answer, is no error
/// of the stop.
fn finish_audit(control: &Control) {
    let audit = Arc::clone(control.audit());
    match within("audit log", AUDIT_STOP, move || audit.finish()) {
        Some(0) => {}
        Some(lost) => {
            tracing::warn!(
                entries = lost,
                "not in the audit log: the state directory refused them"
            );
        }
        None => {
            tracing::warn!("the last entries may not be in the audit log: the time limit passed");
        }
    }
}

fn late_error(what: String) -> ControlError {
    ControlError::new(ControlErrorKind::Device, what)
}

fn stop_server(listen: String, server: Arc<ExportServer>) -> Job<Option<ControlError>> {
    (listen, Box::new(move || servers::stop(server).err()))
}

/// An array that has stopped.
struct Stopped {
    uuid: String,
    /// The reason why the stop is not recorded; `None` if it is recorded.
    error: Option<ControlError>,
    /// The states of the members after the stop.
    members: Vec<MemberStatus>,
}

fn stop_array(running: Running) -> Job<Stopped> {
    let name = running.array.name().to_string();
    let stop = move || {
        let uuid = running.uuid();
        let Running { array, drives, replacement, pool, .. } = running;
        stop_pool(pool);
        let (stopped, members) = array.stop_with_members();
        drop((drives, replacement));
        Stopped { uuid, error: stopped.err().map(ControlError::from), members }
    };
    (name, Box::new(stop))
}

/// Paths of the drives of an array.
fn paths_of(running: &Running) -> Vec<String> {
    running.all_drives().map(|drive| drive.path.clone()).collect()
}

/// Stops an array that was taken out of service. Returns `reserved`, and the error if the stop is not recorded.
///
/// # Errors
/// The stop took longer than `limit`. The stop then continues in its thread, which keeps `reserved` until the stop
/// finishes.
pub(crate) fn stop_one(
    running: Running,
    reserved: Reserved,
    limit: Duration,
) -> Result<(Reserved, Option<ControlError>), ControlError> {
    let (name, paths) = (running.array.name().to_string(), paths_of(&running));
    let (_, stop) = stop_array(running);
    let stopped = within("array stop", limit, move || (stop(), reserved));
    let (stopped, reserved) = stopped.ok_or_else(|| not_stopped(&name, paths))?;
    Ok((reserved, stopped.error))
}

/// The error for an array that was not stopped in time and whose drives are at `paths`.
fn not_stopped(name: &str, paths: Vec<String>) -> ControlError {
    let silent = silent_among(&paths);
    let who = if silent.is_empty() {
        format!("one of its drives does not complete its I/O ({})", paths.join(", "))
    } else {
        format!("{} does not answer", silent.join(", "))
    };
    late_error(format!(
        "array {name} did not stop in time: {who}; its next start is as after a crash, and no data are lost. Until \
         that drive answers or is removed, the process may remain, because it waits in the kernel"
    ))
}

/// Those of `paths` whose first block cannot be read in time.
fn silent_among(paths: &[String]) -> Vec<String> {
    let look = |path: &String| -> Job<()> {
        let at = path.clone();
        let read = move || {
            use std::io::Read;
            // An error is also an answer.
            let _ = std::fs::File::open(at).and_then(|mut file| file.read(&mut [0; 4096]));
        };
        (path.clone(), Box::new(read))
    };
    let (known, ask): (Vec<&String>, Vec<&String>) = paths
        .iter()
        .filter(|path| path.starts_with('/'))
        .partition(|path| bounded::silent(path).is_some());
    let (_, late) = side_by_side(ask.into_iter().map(look).collect(), Instant::now() + NAMING);
    known.into_iter().cloned().chain(late).collect()
}

/// Records that the daemon stopped, and whether it stopped in order. Nothing is written afterwards.
fn record_stop(manager: &mut Manager, errors: &mut Vec<ControlError>, owing: &[String]) {
    let why: Vec<&str> = errors.iter().map(|e| e.what.as_str()).collect();
    let note = Note::new(EventKind::DaemonStopped, "daemon", "the daemon stopped");
    manager.record(note.cause(why.join("; ")));
    // Errors of the state directory were reported while the daemon ran.
    manager.events().flush();
    manager.hooks.stop();
    if errors.is_empty()
        && let Err(error) = manager.records.store.mark_clean()
    {
        match manager.state_trouble() {
            // This error was reported while the daemon ran; it is not an error of the stop.
            Some(_) => tracing::warn!(reason = %error, "not marked as cleanly stopped"),
            None => errors.push(error),
        }
    }
    if errors.is_empty()
        && let Err(error) = manager.past.end(owing, monotonic())
    {
        tracing::warn!(%error, "the next daemon waits for requests that have ended");
    }
    manager.records.store.give_up();
}

/// The names of arrays whose labels a start is changing. These labels state that the array runs.
fn names_assembling(manager: &Manager) -> Vec<String> {
    let assembling = manager.entries.starting().filter(|(_, starting)| starting.assembling);
    assembling.map(|(uuid, _)| manager.records.array_name(uuid)).collect()
}
