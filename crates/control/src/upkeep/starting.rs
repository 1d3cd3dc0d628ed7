//! Arrays that are started automatically. A separate thread starts each array, while the daemon answers requests.
//!
//! A start waits for drives and delays no other operation. It reserves its array first, and each drive when it opens
//! the drive. A drive that belongs to another array is released immediately. Therefore two starts, or a start and a
//! search for spares, never claim the same drive, and each waits for another only until a label is read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use strake_engine::{AssemblePolicy, Assembled};
use strake_units::Nanos;
use strake_wording::say;

use crate::bounded;
use crate::control::{Control, Reserved};
use crate::drives::address::pci_address;
use crate::drives::label::{Labelled, labelled};
use crate::drives::{self, block_paths};
use crate::error::{ControlError, OfflineReason};
use crate::events::{EventKind, Note};
use crate::exports::exposure::exposed;
use crate::limits::{GLANCE_LIMIT, LOOK_LIMIT, RETRY_EVERY};
use crate::manager::Manager;
use crate::names::array_key;
use crate::policy::candidates::push_once;
use crate::policy::search::{Search, Unused, of_label};
use crate::record::files::StateFolder;
use crate::record::store::ArrayRecord;
use crate::remedy::import_drives;
use crate::state::loss::Loss;
use crate::state::offline::Offline;
use crate::state::start::Starting;
use crate::upkeep::adopt::{adopt_array, assemble_one, has_to_wait, note_offline};
use crate::upkeep::pools::settle_pool;
use crate::upkeep::taken::take_again;

/// The time after the start of the daemon for which it tries again to open recorded drives that are present and cannot
/// be opened. The kernel closes the files of a killed process only when it destroys its rings, some time after the
/// process ended.
const RELEASE_WAIT: Duration = Duration::from_secs(3);

/// Time between two of these attempts.
const RELEASE_RETRY: Duration = Duration::from_millis(20);

/// Maximum number of drives of one array that are opened at the same time.
const OPENERS_MAX: usize = 16;

/// Opens the control plane on a state directory.
fn open_in(state: StateFolder, options: crate::manager::Options) -> Result<Control, ControlError> {
    let control = Control::new(Manager::open(state, options)?);
    control.with(|m| {
        m.records.finish_endings();
        let cores = m.core_handles();
        for record in &m.records.exports {
            m.exports.announce_if_absent(record, &m.records, cores.clone());
        }
        report_exposed(m);
        m.watch_state_dir();
    })?;
    take_again(&control)?;
    launch_starts(&control)?;
    Ok(control)
}

/// Reports exports that an earlier version recorded, and that a network can reach without the protection that new
/// exports need.
fn report_exposed(manager: &mut Manager) {
    for (name, why, next) in exposed(&manager.records) {
        let what = format!("export {name} accepts a host over a network without TLS");
        let note = Note::new(EventKind::ExportExposed, format!("export/{name}"), what);
        manager.record(note.cause(why).next(next));
    }
}

/// As [`Control::start`], with changes through the layer of `state`.
pub(crate) fn start_in(
    state: StateFolder,
    options: crate::manager::Options,
) -> Result<Control, ControlError> {
    let control = open_in(state, options)?;
    while !control.starts_are_over(Duration::MAX)? {}
    control.with(|m| m.observe())?;
    Ok(control)
}

impl Control {
    /// Starts the control plane and waits until every array has been tried. The status reports arrays that cannot be
    /// started; they are not errors.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn start(state_dir: &Path, options: crate::manager::Options) -> Result<Self, ControlError> {
        start_in(StateFolder::of(state_dir), options)
    }

    /// Starts the control plane: locks the state directory, starts the data cores, and begins to start the recorded
    /// arrays whose members are present, with their exports. Does not wait for the members.
    ///
    /// # Errors
    /// The state directory or the host does not allow a daemon to run.
    pub fn open(state_dir: &Path, options: crate::manager::Options) -> Result<Self, ControlError> {
        open_in(StateFolder::of(state_dir), options)
    }

    /// Waits until no array is being started, for at most `limit`. Returns true if no array is being started.
    ///
    /// # Errors
    /// An earlier command panicked.
    pub fn starts_are_over(&self, limit: Duration) -> Result<bool, ControlError> {
        self.wait_until(limit, |m| m.entries.starting().next().is_none())
    }
}

/// Starts the recorded arrays that do not run, and waits for these starts. Arrays that cannot be started are recorded
/// as offline.
#[cfg(test)]
pub(crate) fn start_recorded(control: &Control) -> Result<(), ControlError> {
    launch_starts(control)?;
    while !control.starts_are_over(Duration::MAX)? {}
    Ok(())
}

/// Begins to start the recorded arrays that do not run, each in a separate thread.
pub(crate) fn launch_starts(control: &Control) -> Result<(), ControlError> {
    for record in control.with(|m| due_to_start(m))? {
        // The task that has reserved the array may have changed it since it was recorded.
        let Some(reserved) = control.try_reserve(vec![array_key(&record.uuid)])? else {
            continue;
        };
        // The array may have been started in the meantime.
        let Some(policy) = control.with(|m| begin_start(m, &record))? else { continue };
        let (own, uuid) = (control.clone(), record.uuid.clone());
        let start = move || {
            // The end of the start is recorded in every case, because a waiter must not wait forever.
            let ended = Ended { control: &own, uuid: &record.uuid };
            let started = start_by_itself(&own, reserved, &record, policy);
            drop(ended);
            if let Err(error) = started {
                tracing::error!(array = %record.name, reason = %error, "a start was abandoned");
            }
        };
        if let Err(error) = thread::Builder::new().name("array start".to_owned()).spawn(start) {
            tracing::warn!(reason = %error, "an array is not started yet");
            end_start(control, &uuid);
        }
    }
    Ok(())
}

/// Starts one array, or records why it cannot be started.
fn start_by_itself(
    control: &Control,
    mut reserved: Reserved,
    record: &ArrayRecord,
    policy: AssemblePolicy,
) -> Result<(), ControlError> {
    let mut search = Search::default();
    let found = search_drives(control, &mut reserved, record, &mut search);
    // The search waited for unresponsive members, and the start waits for a member that becomes unresponsive from here
    // on. No other member is missing.
    let policy = search.within(policy);
    let started = found
        .and_then(|()| assemble_found(control, record, policy, &search.here))
        .and_then(|assembled| control.run(|m| adopt_array(m, assembled, &search.here)));
    let Err(error) = started else { return settle_pool(control, &record.uuid) };
    let error = search.explained(error);
    let offline = Offline::new(record, &error, &search.here);
    // The drives are closed and the reservations released without the lock.
    drop(search);
    control.with(|m| note_offline(m, record, offline))
}

pub(crate) fn start_one(
    control: &Control,
    reserved: &mut Reserved,
    record: &ArrayRecord,
    policy: AssemblePolicy,
    here: &mut Vec<Labelled>,
) -> Result<(), ControlError> {
    let assembled = assemble_recorded(control, reserved, record, policy, here)?;
    control.run(|m| adopt_array(m, assembled, here))?;
    settle_pool(control, &record.uuid)
}

/// Assembles the recorded array; the drives that were found are appended to `here`. Writes their labels, and does not
/// start the array.
pub(crate) fn assemble_recorded(
    control: &Control,
    reserved: &mut Reserved,
    record: &ArrayRecord,
    policy: AssemblePolicy,
    here: &mut Vec<Labelled>,
) -> Result<Assembled, ControlError> {
    let mut search = Search::default();
    let found = search_drives(control, reserved, record, &mut search);
    here.append(&mut search.here);
    found?;
    assemble_found(control, record, policy, here)
}

/// Assembles a recorded array from the drives that were found.
fn assemble_found(
    control: &Control,
    record: &ArrayRecord,
    policy: AssemblePolicy,
    here: &[Labelled],
) -> Result<Assembled, ControlError> {
    let uuid = &record.uuid;
    if let Some(older) = control.run(|m| begin_assembling(m, record, here))? {
        return Err(older);
    }
    if let Some(left) = control.with(|m| has_to_wait(m, here))? {
        control.with(|m| m.entries.end_assembling(uuid))?;
        let seconds = left.0.div_ceil(Nanos::SECOND.0);
        let what = "waiting until requests of the previous daemon have expired";
        return Err(ControlError::state(format!("{what} ({seconds} s left)"))
            .because(OfflineReason::Settling));
    }
    let drives = format!("{} drives", here.len());
    note_wait(control, uuid, &drives, Some("update labels, bitmaps and log"));
    let assembled = assemble_one(control, here, policy);
    note_wait(control, uuid, &drives, None);
    if assembled.is_err() {
        // The labels that were written state no more than the labels of an interrupted start.
        control.with(|m| m.entries.end_assembling(uuid))?;
    }
    assembled
}

/// Searches for the drives of a recorded array, concurrently.
fn search_drives(
    control: &Control,
    reserved: &mut Reserved,
    record: &ArrayRecord,
    search: &mut Search,
) -> Result<(), ControlError> {
    let (machine, taken) =
        control.with(|m| (m.drives.machine().clone(), m.records.taken_paths()))?;
    // The names of kernel devices can change at each boot, and when drives are taken or released. Labels do not change.
    let mut renamed = false;
    let may_be_renamed = |path: &String| machine.has_node(path) || pci_address(path).is_some();
    for (path, found) in
        record.drives.iter().zip(look_at(control, reserved, record, &record.drives))
    {
        match found {
            Ok(Some(found)) => push_once(&mut search.here, found),
            Ok(None) => renamed |= may_be_renamed(path),
            Err(unused) => {
                renamed |= may_be_renamed(path);
                if let Unused::Otherwise(error) = &unused
                    && !unused.is_silent()
                    && is_there(path)
                {
                    search.unusable.push(error.what.clone());
                }
                search.note(unused);
            }
        }
    }
    if renamed {
        let mut others = block_paths(&machine);
        others.extend(taken);
        others.retain(|path| !record.drives.contains(path));
        for found in look_at(control, reserved, record, &others) {
            search.add_other(found);
        }
    }
    if !search.here.is_empty() {
        return Ok(());
    }
    let why = if search.trouble.is_empty() {
        "none of its drives was found".to_owned()
    } else {
        search.trouble.join("; ")
    };
    Err(ControlError::state(say(format!("{why}; return its drives, or: ")).run(import_drives(""))))
}

/// Inspects each of `paths` for a drive of a recorded array. Reserves the drives of this array; the result for another
/// drive is `None`.
fn look_at(
    control: &Control,
    reserved: &mut Reserved,
    record: &ArrayRecord,
    paths: &[String],
) -> Vec<Result<Option<Labelled>, Unused>> {
    let next = AtomicUsize::new(0);
    let seen = Mutex::new(BTreeMap::new());
    let ours = Mutex::new(reserved);
    thread::scope(|scope| {
        for _ in 0..paths.len().min(OPENERS_MAX) {
            let look = || {
                while let Some((at, path)) = pick(&next, paths) {
                    let mut own = Reserved::nothing(control, LOOK_LIMIT);
                    let found = look_for(control, &mut own, &ours, record, path);
                    seen.lock().unwrap_or_else(PoisonError::into_inner).insert(at, found);
                }
            };
            if thread::Builder::new()
                .name("drive look".to_owned())
                .spawn_scoped(scope, look)
                .is_err()
            {
                break;
            }
        }
    });
    let mut seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    let unseen = || Err(ControlError::state("no thread to inspect drives").into());
    (0..paths.len()).map(|at| seen.remove(&at).unwrap_or_else(unseen)).collect()
}

/// Inspects the drive at `path`, and reserves it if it belongs to the array `record`.
fn look_for(
    control: &Control,
    own: &mut Reserved,
    ours: &Mutex<&mut Reserved>,
    record: &ArrayRecord,
    path: &str,
) -> Result<Option<Labelled>, Unused> {
    note_wait(control, &record.uuid, path, Some("show its label"));
    let held = ours.lock().unwrap_or_else(PoisonError::into_inner).keys();
    own.borrow(held);
    let found = open_released(control, own, path);
    note_wait(control, &record.uuid, path, None);
    let found = found.or_else(|unused| unused.unless_of_another(&record.uuid))?;
    let Some(found) = found else { return Ok(None) };
    if found.label.array.to_string() != record.uuid {
        return Ok(None);
    }
    ours.lock().unwrap_or_else(PoisonError::into_inner).absorb(own);
    Ok(Some(found))
}

/// Opens the labelled drive at `path`. Repeats this for a limited time, because a daemon that was just killed may still
/// hold the drive, or another program may inspect it.
fn open_released(
    control: &Control,
    reserved: &mut Reserved,
    path: &str,
) -> Result<Option<Labelled>, Unused> {
    let started = control.with(|m| m.started)?;
    loop {
        let limit = reserved.limit();
        let opened = reserved.open_within(path, LOOK_LIMIT).map_err(Unused::Otherwise);
        let outcome = opened.and_then(|drive| labelled(drive, limit).map_err(of_label));
        if outcome.is_ok()
            || started.elapsed() >= RELEASE_WAIT
            || outcome.as_ref().is_err_and(Unused::is_silent)
            || !is_there(path)
        {
            return outcome;
        }
        thread::sleep(RELEASE_RETRY);
    }
}

/// Records that the start of an array waits for `object` to do `what`; `None` ends the wait.
fn note_wait(control: &Control, uuid: &str, object: &str, what: Option<&'static str>) {
    // Other code reports a control plane that is unusable after a panic.
    let _ = control.with(|m| {
        if let Some(starting) = m.entries.get_mut(uuid).and_then(|e| e.starting.as_mut()) {
            starting.wait_for(object, what);
        }
    });
}

fn end_start(control: &Control, uuid: &str) {
    // Other code reports a control plane that is unusable after a panic.
    let _ = control.with(|m| {
        let name = m.records.array_name(uuid);
        let ended = m.entries.get_mut(uuid).and_then(|entry| entry.starting.take());
        if ended.is_some_and(|starting| starting.assembling) && !m.cut_short.contains(&name) {
            m.cut_short.push(name);
        }
    });
    control.wake_waiters();
}

/// Ends a start when it is dropped.
struct Ended<'a> {
    control: &'a Control,
    uuid: &'a str,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        end_start(self.control, self.uuid);
    }
}

/// The next of `paths` that no thread has taken.
fn pick<'a>(next: &AtomicUsize, paths: &'a [String]) -> Option<(usize, &'a String)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    Some((at, paths.get(at)?))
}

/// Whether a file or device exists at `path`; false if the path is unresponsive.
fn is_there(path: &str) -> bool {
    let at = path.to_owned();
    bounded::ask(path, GLANCE_LIMIT, move || drives::is_there(&at)).unwrap_or(false)
}

/// The recorded arrays that do not run and whose start is due.
fn due_to_start(manager: &Manager) -> Vec<ArrayRecord> {
    let due = |record: &&ArrayRecord| is_due(manager, record);
    manager.records.arrays.iter().filter(due).cloned().collect()
}

fn is_due(manager: &Manager, record: &ArrayRecord) -> bool {
    let entry = manager.entries.get(&record.uuid);
    let soon =
        is_late(manager, record) && entry.last_try.is_some_and(|at| at.elapsed() < RETRY_EVERY);
    // A drive that is held back may belong to the array.
    let waits = !manager.late_takes.held_back.is_empty();
    !(manager.stopping || soon || waits || entry.starting.is_some())
        && manager.position_of(&record.uuid).is_none()
        && entry.loss.as_ref().is_none_or(Loss::allows_start)
}

/// Whether an array has waited long enough for members: since the daemon started, or since it was lost.
fn is_late(manager: &Manager, record: &ArrayRecord) -> bool {
    let since = manager.entries.get(&record.uuid).loss.map_or(manager.started, |loss| loss.at);
    manager.options.assemble_timeout.is_some_and(|limit| since.elapsed() >= limit)
}

/// Begins the start of the array `record`, and returns the policy of the start; `None` if the start is no longer due.
/// The caller has reserved the key of the array.
pub(crate) fn begin_start(manager: &mut Manager, record: &ArrayRecord) -> Option<AssemblePolicy> {
    let is_recorded = manager.records.arrays.iter().any(|a| a.uuid == record.uuid);
    if !is_recorded || !is_due(manager, record) {
        return None;
    }
    let late = is_late(manager, record);
    let entry = manager.entries.of(&record.uuid);
    if late {
        entry.last_try = Some(Instant::now());
    }
    entry.starting = Some(Starting::new());
    Some(AssemblePolicy { allow_degraded: late, accept_loss: false })
}

/// Records that the labels of `record` are being changed from this call on, or returns why they must not be changed.
fn begin_assembling(
    manager: &mut Manager,
    record: &ArrayRecord,
    here: &[Labelled],
) -> Result<Option<ControlError>, ControlError> {
    manager.check_open()?;
    let older = manager.newest.objection(record, here);
    if older.is_none()
        && let Some(entry) = manager.entries.get_mut(&record.uuid)
        && let Some(starting) = &mut entry.starting
    {
        starting.assembling = true;
    }
    Ok(older)
}
