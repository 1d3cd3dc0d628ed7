//! Arrays that are started by themselves: each by a thread of its own, behind the daemon, which answers meanwhile.
//!
//! A start waits for drives and holds nothing up but itself. It reserves its array first, and each drive as it is
//! opened; one that turns out to belong to another array is given back at once. So two starts, or a start and a search
//! for spares, never claim the same drive, and none waits for another for longer than a look at a label takes.

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
use crate::upkeep::taken::take_again;

/// How long after its start the daemon tries recorded drives again that are there and cannot be opened: the kernel
/// lets go of the files of a killed process only when it has taken its rings apart, some time after its end.
const RELEASE_WAIT: Duration = Duration::from_secs(3);

/// Time between two such tries.
const RELEASE_RETRY: Duration = Duration::from_millis(20);

/// Drives of one array that are opened at a time.
const OPENERS_MAX: usize = 16;

impl Control {
    /// Starts the control plane and waits until every array has been tried. What cannot be started is reported by the
    /// status, not an error.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn start(state_dir: &Path, options: crate::manager::Options) -> Result<Self, ControlError> {
        Self::start_in(StateFolder::of(state_dir), options)
    }

    pub(crate) fn start_in(
        state: StateFolder,
        options: crate::manager::Options,
    ) -> Result<Self, ControlError> {
        let control = Self::open_in(state, options)?;
        while !control.starts_are_over(Duration::MAX)? {}
        control.with(|m| m.observe())?;
        Ok(control)
    }

    /// Starts the control plane: locks the state directory, starts the data cores, and begins to start what is
    /// recorded, arrays whose members are here and their exports. Waits for no drive.
    ///
    /// # Errors
    /// When the state directory or the machine does not allow a daemon to run.
    pub fn open(state_dir: &Path, options: crate::manager::Options) -> Result<Self, ControlError> {
        Self::open_in(StateFolder::of(state_dir), options)
    }

    fn open_in(state: StateFolder, options: crate::manager::Options) -> Result<Self, ControlError> {
        let control = Self::new(Manager::open(state, options)?);
        control.with(|m| {
            m.records.finish_endings();
            let cores = m.core_handles();
            for record in &m.records.exports {
                m.exports.announce_if_absent(record, &m.records, cores.clone());
            }
            m.watch_state_dir();
        })?;
        take_again(&control)?;
        launch_starts(&control)?;
        Ok(control)
    }

    /// Waits until no array is being started, for `limit` at most. True when none is.
    ///
    /// # Errors
    /// When an earlier command panicked.
    pub fn starts_are_over(&self, limit: Duration) -> Result<bool, ControlError> {
        self.wait_until(limit, |m| m.entries.starting().next().is_none())
    }
}

/// Starts what is recorded and not running, and waits for that. What cannot be started is noted.
#[cfg(test)]
pub(crate) fn start_recorded(control: &Control) -> Result<(), ControlError> {
    launch_starts(control)?;
    while !control.starts_are_over(Duration::MAX)? {}
    Ok(())
}

/// Begins to start what is recorded and not running, each array by a thread of its own.
pub(crate) fn launch_starts(control: &Control) -> Result<(), ControlError> {
    for record in control.with(|m| due_to_start(m))? {
        // The task that has reserved it knows more than the records.
        let Some(reserved) = control.try_reserve(vec![array_key(&record.uuid)])? else {
            continue;
        };
        // It may have been started meanwhile.
        let Some(policy) = control.with(|m| begin_start(m, &record))? else { continue };
        let (own, uuid) = (control.clone(), record.uuid.clone());
        let start = move || {
            // However it ends: what waits for it must not wait for ever.
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

/// Starts one array, or notes why not.
fn start_by_itself(
    control: &Control,
    mut reserved: Reserved,
    record: &ArrayRecord,
    policy: AssemblePolicy,
) -> Result<(), ControlError> {
    let mut search = Search::default();
    let found = search_drives(control, &mut reserved, record, &mut search);
    // Silent members were waited for, and so is one that falls silent from here on; no other member is missing.
    let policy = search.within(policy);
    let started = found
        .and_then(|()| assemble_found(control, record, policy, &search.here))
        .and_then(|assembled| control.run(|m| adopt_array(m, assembled, &search.here)));
    let Err(error) = started else { return Ok(()) };
    let error = search.explained(error);
    let offline = Offline::new(record, &error, &search.here);
    // Closed without the lock, with what was reserved.
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
    control.run(|m| adopt_array(m, assembled, here))
}

/// Assembles what is recorded; `here` gets its drives that were found. Writes their labels, and starts nothing.
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

/// Assembles a recorded array from what was found of it.
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
        // Whatever was written says no more than what a start finds that was cut short.
        control.with(|m| m.entries.end_assembling(uuid))?;
    }
    assembled
}

/// Looks for the drives of a recorded array, side by side.
fn search_drives(
    control: &Control,
    reserved: &mut Reserved,
    record: &ArrayRecord,
    search: &mut Search,
) -> Result<(), ControlError> {
    let (machine, taken) =
        control.with(|m| (m.drives.machine().clone(), m.records.taken_paths()))?;
    // Names of kernel devices change from start to start, and when drives are taken or released; labels do not.
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

/// What is at each of `paths` of a recorded array: `None` for what is none of its drives. Those that are, are
/// reserved.
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

/// What is at `path`, reserved when it is of the array `record`.
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

/// The labelled drive at `path`, with patience for drives that a daemon killed just now still seems to hold, and
/// for others that look at it.
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

/// Has `object` be waited for from now on by the start of an array; `None` when that is over.
fn note_wait(control: &Control, uuid: &str, object: &str, what: Option<&'static str>) {
    // A control plane that a panic has left unusable is reported elsewhere.
    let _ = control.with(|m| {
        if let Some(starting) = m.entries.get_mut(uuid).and_then(|e| e.starting.as_mut()) {
            starting.wait_for(object, what);
        }
    });
}

fn end_start(control: &Control, uuid: &str) {
    // As above.
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

/// Whether something is at `path`, as far as that is said at once.
fn is_there(path: &str) -> bool {
    let at = path.to_owned();
    bounded::ask(path, GLANCE_LIMIT, move || drives::is_there(&at)).unwrap_or(false)
}

/// What is recorded, does not run, and is to be tried now.
fn due_to_start(manager: &Manager) -> Vec<ArrayRecord> {
    let due = |record: &&ArrayRecord| is_due(manager, record);
    manager.records.arrays.iter().filter(due).cloned().collect()
}

fn is_due(manager: &Manager, record: &ArrayRecord) -> bool {
    let entry = manager.entries.get(&record.uuid);
    let soon =
        is_late(manager, record) && entry.last_try.is_some_and(|at| at.elapsed() < RETRY_EVERY);
    // A drive that is held back may be one of the array.
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

/// What is allowed to start the array `record`, which is being started from here on; `None` when it is no longer to be
/// started. With its key.
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

/// Notes that labels of `record` are being changed from here on; or says why they must not be.
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
