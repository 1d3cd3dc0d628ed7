//! From labelled drives to a running array.

use strake_dev_uring::control_wait;
use strake_engine::{Array, AssemblePolicy, Assembled, Drive, Ids, Outcome, assemble};
use strake_reactor::monotonic;
use strake_units::{Nanos, Uuid};

use crate::control::Control;
use crate::drives::label::Labelled;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::names::fresh_uuid;
use crate::policy::candidates::{objections, usable};
use crate::record::store::ArrayRecord;
use crate::state::offline::Offline;
use crate::state::running::Running;

/// Assembles the one array that `here` belong to. Writes their labels. A drive that was written over counts as one
/// that is not here, and drives that are not used are named when the array does not start.
pub(crate) fn assemble_one(
    control: &Control,
    here: &[Labelled],
    policy: AssemblePolicy,
) -> Result<Assembled, ControlError> {
    let drives: Vec<Drive> = usable(here, policy).iter().map(|l| l.drive.clone()).collect();
    let epoch = fresh_uuid()?;
    let mut wait = control_wait();
    let mut begin = || {
        // A manager that panicked starts nothing, which is found out when the array is adopted.
        let _ = control.run(|m| {
            m.note_activation(here, epoch);
            Ok(())
        });
        epoch
    };
    let (outcomes, unreadable) = assemble(&drives, policy, &|_, _| true, &mut begin, &mut wait);
    for error in unreadable {
        tracing::warn!(reason = %error, "drive not readable");
    }
    let with_objections = |what: String| {
        let all = std::iter::once(what).chain(objections(here));
        all.collect::<Vec<String>>().join("; ")
    };
    match outcomes.into_iter().next() {
        Some(Outcome::Ready(assembled)) => Ok(*assembled),
        Some(Outcome::Waiting { what, .. } | Outcome::Refused { what, .. }) => {
            Err(ControlError::refused(with_objections(what)))
        }
        None => Err(ControlError::state(with_objections(
            "no member with a valid label was found".to_owned(),
        ))),
    }
}

impl Manager {
    /// How long an array on these drives has to wait for what an earlier daemon, or another machine, may have under way
    /// there; `None` when it may be started.
    pub(crate) fn has_to_wait(&mut self, here: &[Labelled]) -> Option<Nanos> {
        let now = monotonic();
        let past = self.past.wait_until(here, now).map(|until| until.since(now));
        // What a queue of ours was not answered before it was closed, which a target may still carry out.
        let owing = self.owing_remotes();
        let owes = here.iter().any(|found| owing.contains(&found.drive.device.identity()));
        past.max(owes.then_some(Nanos::SECOND))
    }

    /// Records that `epoch` is an activation of ours, when that matters: where drives of other machines are used.
    fn note_activation(&mut self, here: &[Labelled], epoch: Uuid) {
        let remote = here.iter().any(|found| found.drive.device.settle_time() > Nanos(0));
        let newest = here.iter().map(|found| &found.label).max_by_key(|label| label.generation);
        let Some(newest) = newest.filter(|_| remote) else { return };
        if let Err(error) = self.past.begin(newest, epoch, monotonic()) {
            tracing::warn!(array = %newest.name, %error, "the start of an array is not recorded");
        }
    }

    /// The same for an array that is made of these drives.
    pub(crate) fn note_first_activation(&mut self, drives: &[Drive], ids: &Ids) {
        if drives.iter().all(|drive| drive.device.settle_time() == Nanos(0)) {
            return;
        }
        if let Err(error) = self.past.begin_first(ids.array, ids.epoch, monotonic()) {
            tracing::warn!(array = %ids.array, %error, "the start of an array is not recorded");
        }
    }

    pub(crate) fn note_offline(&mut self, record: &ArrayRecord, offline: Offline) {
        if self.find(&record.uuid).is_some()
            || self.records.config.arrays.iter().all(|a| a.uuid != record.uuid)
        {
            return;
        }
        if offline.is_waiting() {
            // It is in order, and over soon.
            let entry = self.entries.of(&record.uuid);
            (entry.last_try, entry.offline) = (None, Some(offline));
            return;
        }
        let before = self.entries.get(&record.uuid).offline.as_ref();
        if before.is_none_or(|before| before.why != offline.why) {
            let what = format!("array {} cannot be started", record.name);
            let next = offline.view(record, Vec::new()).next_action;
            let note = Note::new(EventKind::ArrayOffline, format!("array/{}", record.name), what);
            self.record(note.cause(offline.why.clone()).next(next));
        }
        self.entries.of(&record.uuid).offline = Some(offline);
    }

    /// Starts what was assembled from `here`, with its exports.
    pub(crate) fn adopt(
        &mut self,
        assembled: Assembled,
        here: &[Labelled],
    ) -> Result<(), ControlError> {
        if let Err(stopping) = self.check_open() {
            self.note_cut_short(here);
            return Err(stopping);
        }
        let runs = |found: &Labelled| self.find(&found.label.array.to_string()).is_some();
        if here.iter().any(runs) {
            return Err(ControlError::state("the array runs already"));
        }
        let (_, resync_bytes) = assembled.resync_regions();
        let recovery = assembled.recovery();
        let uuid = assembled.uuid().to_string();
        let options = self.options.of_array(&self.records.config.settings(&uuid));
        let array = Array::start(assembled, &self.core_handles(), options)?;
        let drive =
            |path: &str| here.iter().find(|l| l.drive.path == path).map(|l| l.drive.clone());
        let slots = array.status().members.iter().map(|m| drive(&m.path)).collect();
        let what = format!("array {} was started", array.name());
        let note = Note::new(EventKind::ArrayStarted, format!("array/{}", array.name()), what);
        self.record(if recovery.crashed { note.cause(recovery.to_string()) } else { note });
        self.entries.of(&uuid).offline = None;
        self.end_assembling(&uuid);
        let name = array.name().to_string();
        self.cut_short.retain(|failed| *failed != name);
        self.records.follow_label(&uuid, array.name().as_str());
        self.running.push(Running::new(array, slots, false, (resync_bytes, recovery)));
        for found in here {
            self.note_objection(found);
            self.note_prospect(found);
        }
        self.offer_recorded_exports(&uuid);
        Ok(())
    }

    /// Notes that a start has changed the labels `here`, and that the array never runs.
    fn note_cut_short(&mut self, here: &[Labelled]) {
        let Some(name) = here.first().map(|found| found.label.name.to_string()) else { return };
        if !self.cut_short.contains(&name) {
            self.cut_short.push(name);
        }
    }
}
