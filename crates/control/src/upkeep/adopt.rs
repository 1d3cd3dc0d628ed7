//! Assembles labelled drives and starts the array.

use strake_dev_uring::control_wait;
use strake_engine::{
    Array, ArrayError, ArrayErrorKind, AssemblePolicy, Assembled, Drive, Outcome, assemble,
};
use strake_reactor::monotonic;
use strake_units::Nanos;
use strake_wording::{Text, say};

use crate::control::Control;
use crate::drives::label::Labelled;
use crate::error::{ControlError, OfflineReason};
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::names::fresh_uuid;
use crate::policy::candidates::{needs_damaged, objections, usable};
use crate::record::store::ArrayRecord;
use crate::state::offline::Offline;
use crate::state::running::Running;
use crate::upkeep::check_readd::note_objection;
use crate::upkeep::doubt::{note_crash, take_up_doubt};
use crate::upkeep::prospects::note_prospect;

/// Assembles the one array that the drives `here` belong to, and writes their labels. A drive that was overwritten
/// counts as absent. The error of an array that does not start names the drives that are not used.
pub(crate) fn assemble_one(
    control: &Control,
    here: &[Labelled],
    policy: AssemblePolicy,
) -> Result<Assembled, ControlError> {
    let drives: Vec<Drive> = usable(here, policy).iter().map(|l| l.drive.clone()).collect();
    let epoch = fresh_uuid()?;
    let mut wait = control_wait();
    let mut begin = || {
        // If the manager panicked, [`adopt_array`] returns the error later.
        let _ = control.with(|m| m.past.note_activation(here, epoch));
        epoch
    };
    let (outcomes, unreadable) = assemble(&drives, policy, &|_, _| true, &mut begin, &mut wait);
    for error in unreadable {
        tracing::warn!(reason = %error, "drive not readable");
    }
    let error = match outcomes.into_iter().next() {
        Some(Outcome::Ready(assembled)) => return Ok(*assembled),
        Some(Outcome::Waiting { what, remedy, .. } | Outcome::Refused { what, remedy, .. }) => {
            let error = ArrayError::new(ArrayErrorKind::Refused, what);
            ControlError::from(ArrayError { remedy, ..error })
        }
        None => ControlError::state("no member with a valid label was found"),
    };
    Err(with_objections(error, here))
}

/// Adds to `error` the objections against the drives of `here` that are not used.
fn with_objections(error: ControlError, here: &[Labelled]) -> ControlError {
    let offline = match error.offline.clone() {
        _ if needs_damaged(here) => OfflineReason::Consent,
        OfflineReason::Missing(waits) => {
            let all = std::iter::once(say(waits)).chain(objections(here));
            OfflineReason::Missing(Text::join(all, "; ").words)
        }
        offline => offline,
    };
    let kind = error.kind;
    let all = std::iter::once(error.text()).chain(objections(here));
    ControlError::new(kind, Text::join(all, "; ")).because(offline)
}

/// The time for which an array on these drives must wait for requests of an earlier daemon or of another host that may
/// still be in flight; `None` if the array may be started.
pub(crate) fn has_to_wait(manager: &mut Manager, here: &[Labelled]) -> Option<Nanos> {
    let now = monotonic();
    let past = manager.past.wait_until(here, now).map(|until| until.since(now));
    // A target may still execute requests of this daemon that were not answered before their queue was closed.
    let owing = manager.drives.owing_remotes();
    let owes = here.iter().any(|found| owing.contains(&found.drive.device.identity()));
    past.max(owes.then_some(Nanos::SECOND))
}

pub(crate) fn note_offline(manager: &mut Manager, record: &ArrayRecord, offline: Offline) {
    if manager.position_of(&record.uuid).is_some()
        || manager.records.arrays.iter().all(|a| a.uuid != record.uuid)
    {
        return;
    }
    if offline.is_waiting {
        // This wait is normal and short.
        let entry = manager.entries.of(&record.uuid);
        (entry.last_try, entry.offline) = (None, Some(offline));
        return;
    }
    let before = manager.entries.get(&record.uuid).offline.as_ref();
    if before.is_none_or(|before| before.why != offline.why) {
        let what = format!("array {} cannot be started", record.name);
        let note = Note::of_array(EventKind::ArrayOffline, &record.name, what);
        manager.record(note.cause(offline.why.clone()).next(offline.next.clone()));
    }
    manager.entries.of(&record.uuid).offline = Some(offline);
}

/// Starts the array that was assembled from `here`. Its pool is opened and its exports are offered afterwards, see
/// [`settle_pool`](crate::upkeep::pools::settle_pool).
pub(crate) fn adopt_array(
    manager: &mut Manager,
    assembled: Assembled,
    here: &[Labelled],
) -> Result<(), ControlError> {
    if let Err(stopping) = manager.check_open() {
        note_cut_short(manager, here);
        return Err(stopping);
    }
    let runs = |found: &Labelled| manager.position_of(&found.label.array.to_string()).is_some();
    if here.iter().any(runs) {
        return Err(ControlError::state("the array runs already"));
    }
    let (_, resync_bytes) = assembled.resync_regions();
    let recovery = assembled.recovery();
    let uuid = assembled.uuid().to_string();
    let options = manager.options.of_array(&manager.records.settings(&uuid));
    let array = Array::start(assembled, &manager.core_handles(), options)?;
    let drive = |path: &str| here.iter().find(|l| l.drive.path == path).map(|l| l.drive.clone());
    let slots = array.status().members.iter().map(|m| drive(&m.path)).collect();
    let what = format!("array {} was started", array.name());
    let note = Note::of_array(EventKind::ArrayStarted, &array.name(), what);
    manager.record(if recovery.crashed { note.cause(recovery.to_string()) } else { note });
    manager.entries.of(&uuid).offline = None;
    manager.entries.end_assembling(&uuid);
    let name = array.name().to_string();
    manager.cut_short.retain(|failed| *failed != name);
    manager.records.follow_label(&uuid, array.name().as_str());
    manager.running.push(Running::new(array, slots, false, (resync_bytes, recovery)));
    let at = manager.running.len() - 1;
    take_up_doubt(manager, at);
    if recovery.crashed {
        note_crash(manager, at);
    }
    for found in here {
        note_objection(manager, found);
        note_prospect(manager, found);
    }
    Ok(())
}

/// Records that a start has changed the labels of the drives `here`, and that the array was not started.
fn note_cut_short(manager: &mut Manager, here: &[Labelled]) {
    let Some(name) = here.first().map(|found| found.label.name.to_string()) else { return };
    if !manager.cut_short.contains(&name) {
        manager.cut_short.push(name);
    }
}
