//! From drives to running arrays, on request. What the daemon starts by itself is in `starting.rs`.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use strake_api::v1::{Array as ArrayMessage, ImportArraysRequest, ImportArraysResponse};
use strake_dev_uring::control_wait;
use strake_engine::{Array, AssemblePolicy, Assembled, Drive, Ids, Outcome, assemble};
use strake_ondisk::{MemberRecord, RecordedState};
use strake_reactor::monotonic;
use strake_units::{Nanos, Uuid};

use crate::control::{Control, Reserved};
use crate::create::remembered;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::label::{Reading, read_label};
use crate::limits::ARRAYS_MAX;
use crate::manager::{Manager, Running, array_key, fresh_uuid};
use crate::member_config::not_offered;
use crate::members::with_old_paths;
use crate::offline::{Labelled, Offline, geometry_of, objections, used};
use crate::scan;
use crate::search::{Unused, is_of, not_without, of_label};
use crate::store::{ArrayRecord, ScrubRecord, Settings};

/// What is said of an array that is not started yet because of what may be under way at its drives.
pub(crate) const WAITS: &str = "waiting until requests of the previous daemon have expired";

/// How often a command that waits for that looks whether the daemon stops.
const SETTLE_LOOK: Duration = Duration::from_millis(200);

/// The labelled drives of one array.
struct Found {
    name: String,
    drives: Vec<Labelled>,
}

impl Control {
    /// Waits until an array may be started from these drives.
    fn await_settled(&self, here: &[Labelled]) -> Result<(), ControlError> {
        let left = |m: &mut Manager| m.check_open().map(|()| m.has_to_wait(here));
        while let Some(left) = self.run(left)? {
            thread::sleep(SETTLE_LOOK.min(Duration::from_nanos(left.0)));
        }
        Ok(())
    }

    /// Scans drives for labels and starts the arrays found.
    ///
    /// # Errors
    /// When a drive named cannot be opened, or nothing that was asked for could be started.
    pub fn import_arrays(
        &self,
        request: &ImportArraysRequest,
    ) -> Result<ImportArraysResponse, ControlError> {
        let name = request.name.as_str();
        let mut response =
            ImportArraysResponse { result: "unchanged".into(), ..Default::default() };
        let ((running, all, look, known), mut reserved) = self.reserve(|m| {
            m.check_open()?;
            let running = m.find(name).map(|at| m.view(at));
            // Not while the array is being started by itself.
            let known: Vec<String> = m.known_arrays(name).map(|a| a.uuid.clone()).collect();
            let keys = known.iter().map(|uuid| array_key(uuid)).collect();
            Ok(((running, m.arrays(), m.places_to_look(request), known), keys))
        })?;
        if let Some(view) = running {
            if request.exports && !request.dry_run {
                response.warnings = self.offer_kept(&view.uuid);
            }
            response.arrays.push(self.run(|m| m.array(&view.uuid))?);
            return Ok(response);
        }
        let named = request.drives.iter().chain(&request.use_drives);
        self.connect_named(named, request.dry_run)?;
        let (mut found, mut refused) = find_labelled(&mut reserved, request, &look)?;
        found.retain(|uuid, array| name.is_empty() || array.name == name || uuid == name);
        refused.retain(|error| {
            name.is_empty() || is_of(error, name) || known.iter().any(|uuid| is_of(error, uuid))
        });
        if found.is_empty() {
            let runs = |a: &ArrayMessage| a.states.iter().any(|state| state == "online");
            if name.is_empty()
                && request.drives.is_empty()
                && !all.is_empty()
                && all.iter().all(runs)
            {
                // Whatever there was to start runs already.
                response.arrays = all;
                return Ok(response);
            }
            return Err(nothing_found(name, &refused));
        }
        response.warnings.extend(refused.iter().map(|error| error.what.clone()));
        let policy = AssemblePolicy {
            allow_degraded: request.allow_degraded,
            accept_loss: request.accept_loss,
        };
        for (uuid, array) in found {
            let degraded = refused.iter().find(|e| policy.allow_degraded && is_of(e, &uuid));
            let imported = match degraded {
                Some(label) => Err(not_without(&array.name, label)),
                None => {
                    self.import_one(&uuid, &array, policy, request.dry_run, &mut response.warnings)
                }
            };
            match imported {
                Ok((result, mut view)) => {
                    if request.exports && !request.dry_run {
                        response.warnings.append(&mut self.offer_kept(&uuid));
                        view = self.run(|m| m.array(&uuid))?;
                    } else {
                        let kept = self.run(|m| Ok(m.kept_exports(&uuid)))?;
                        let each = kept.iter().map(|export| not_offered(export, &view.name));
                        response.warnings.extend(each);
                    }
                    if result != "unchanged" {
                        response.result = result.into();
                    }
                    response.arrays.push(view);
                }
                Err(error) if !name.is_empty() => return Err(error),
                Err(error) => response.warnings.push(error.what),
            }
        }
        if response.result == "unchanged" && !response.warnings.is_empty() {
            return Err(ControlError::refused(response.warnings.join("\n")));
        }
        Ok(response)
    }

    fn import_one(
        &self,
        uuid: &str,
        found: &Found,
        policy: AssemblePolicy,
        dry_run: bool,
        warnings: &mut Vec<String>,
    ) -> Result<(&'static str, ArrayMessage), ControlError> {
        if let Some(running) = self.run(|m| Ok(m.find(uuid).map(|at| m.view(at))))? {
            return Ok(("unchanged", running));
        }
        let paths: Vec<Drive> = found.drives.iter().map(|l| l.drive.clone()).collect();
        let record = ArrayRecord {
            uuid: uuid.to_owned(),
            name: found.name.clone(),
            drives: remembered(&paths),
            settings: Settings::default(),
            scrub: ScrubRecord::default(),
            kept_exports: Vec::new(),
            copies: Vec::new(),
            silent: Vec::new(),
        };
        self.run(|m| m.check_import(&record))?;
        let older = self.run(|m| Ok(m.older_than_seen(&record, &found.drives)))?;
        if let Some(older) = older.filter(|_| !policy.accept_loss) {
            return Err(ControlError::refused(older));
        }
        if dry_run {
            return Ok(("planned", crate::verdict::planned(&record, &found.drives, policy)?));
        }
        // What the members know of a new array is still to be read: until then nothing else may be written there.
        let _reserved = self.try_reserve(vec![array_key(uuid)])?;
        self.await_settled(&found.drives)?;
        let assembled = self.assemble_one(&found.drives, policy)?;
        let new = self.run(|m| {
            let new = m.record_import(record)?;
            m.adopt(assembled, &found.drives)?;
            Ok(new)
        })?;
        warnings.extend(found.drives.iter().filter_map(Labelled::objection));
        if new {
            warnings.append(&mut self.recall_from_members(uuid, &paths));
        }
        Ok(("changed", self.run(|m| m.array(uuid))?))
    }
}

/// `refused` are the labels of the array that are not understood.
fn nothing_found(name: &str, refused: &[ControlError]) -> ControlError {
    if !refused.is_empty() {
        let why: Vec<&str> = refused.iter().map(|error| error.what.as_str()).collect();
        return ControlError::refused(why.join("; "));
    }
    ControlError::not_found(if name.is_empty() {
        "no drive with the label of an array was found; name drives with --drives".to_owned()
    } else {
        format!("no drive with the label of array {name} was found; name its drives with --drives")
    })
}

/// Looks at what may or may not be there, and not at all while another command uses it. `None` when it has no label
/// that counts.
fn glance(reserved: &mut Reserved, path: &str) -> Result<Option<Labelled>, Unused> {
    let drive = reserved.open_now(path)?;
    labelled(drive, reserved.limit()).map_err(of_label)
}

pub(crate) fn labelled(drive: Drive, limit: Duration) -> Result<Option<Labelled>, ControlError> {
    let Some(read) = read_label(&drive, limit)? else { return Ok(None) };
    let Reading { label, written_over, overwritten } = read;
    Ok(Some(Labelled { drive, label, written_over, overwritten }))
}

/// The arrays on the drives that are named, and on those at `look`; and why labels there are not understood.
fn find_labelled(
    reserved: &mut Reserved,
    request: &ImportArraysRequest,
    look: &[String],
) -> Result<(BTreeMap<String, Found>, Vec<ControlError>), ControlError> {
    let mut all: Vec<Labelled> = Vec::new();
    let mut refused = Vec::new();
    let mut chosen = Vec::new();
    for path in request.drives.iter().chain(&request.use_drives) {
        if let Some(labelled) = labelled(reserved.open(path)?, reserved.limit())? {
            if request.use_drives.contains(path) {
                chosen.push(labelled.clone());
            }
            push_once(&mut all, labelled);
        }
    }
    for path in look {
        // Drives that were not named may be missing or busy; the label check of the others will tell.
        match glance(reserved, path) {
            Ok(Some(labelled)) => push_once(&mut all, labelled),
            Err(Unused::Label(error)) => refused.push(error),
            Ok(None) | Err(Unused::Otherwise(_)) => {}
        }
    }
    // Of a member that is on several drives, only the one that was chosen counts.
    all.retain(|found| {
        let rival = |c: &&Labelled| {
            c.label.array == found.label.array && c.label.member == found.label.member
        };
        chosen.iter().find(rival).is_none_or(|c| identity(&c.drive) == identity(&found.drive))
    });
    let mut arrays: BTreeMap<String, Found> = BTreeMap::new();
    for labelled in all {
        let name = labelled.label.name.to_string();
        let array = arrays
            .entry(labelled.label.array.to_string())
            .or_insert(Found { name, drives: Vec::new() });
        array.drives.push(labelled);
    }
    Ok((arrays, refused))
}

/// The drives of `here` that an array may be started from: those that were written over count as not here. Where the
/// data cannot do without drives that lost labels at one end, and the loss is accepted, they are taken as they are.
pub(crate) fn usable(here: &[Labelled], policy: AssemblePolicy) -> Vec<&Labelled> {
    let whole: Vec<&Labelled> = here.iter().filter(|l| l.is_usable()).collect();
    if !policy.accept_loss || suffice(&whole) {
        return whole;
    }
    here.iter().filter(|l| l.written_over.is_none()).collect()
}

/// Whether these are enough of an array's members.
pub(crate) fn suffice(drives: &[&Labelled]) -> bool {
    let Some(newest) = drives.iter().map(|l| &l.label).max_by_key(|label| label.generation) else {
        return false;
    };
    let here = |uuid| drives.iter().any(|l| l.label.member == uuid);
    let rows = newest.members.iter().enumerate();
    let absent = rows.filter(|(_, m)| m.state != RecordedState::InSync || !here(m.uuid));
    let absent = absent.fold(0, |mask, (slot, _)| mask | 1 << slot);
    geometry_of(newest).is_some_and(|geometry| geometry.tolerates(absent))
}

/// Whether these are enough of an array's members, and nobody else is to be waited for: each that should be there
/// is here, or may be one of `silent` drives that do not answer.
pub(crate) fn suffice_without(here: &[Labelled], silent: usize) -> bool {
    let whole: Vec<&Labelled> = here.iter().filter(|l| l.is_usable()).collect();
    let Some(newest) = whole.iter().map(|l| &l.label).max_by_key(|label| label.generation) else {
        return false;
    };
    let is_away =
        |m: &&MemberRecord| m.state == RecordedState::InSync && used(here, m.uuid).is_none();
    newest.members.iter().filter(is_away).count() <= silent && suffice(&whole)
}

impl Control {
    /// Assembles the one array that `here` belong to. Writes their labels. A drive that was written over counts as one
    /// that is not here, and drives that are not used are named when the array does not start.
    pub(crate) fn assemble_one(
        &self,
        here: &[Labelled],
        policy: AssemblePolicy,
    ) -> Result<Assembled, ControlError> {
        let drives: Vec<Drive> = usable(here, policy).iter().map(|l| l.drive.clone()).collect();
        let epoch = fresh_uuid()?;
        let mut wait = control_wait();
        let mut begin = || {
            // A manager that panicked starts nothing, which is found out when the array is adopted.
            let _ = self.run(|m| {
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
            || self.config.arrays.iter().all(|a| a.uuid != record.uuid)
        {
            return;
        }
        if offline.is_waiting() {
            // It is in order, and over soon.
            self.last_tries.remove(&record.uuid);
            self.offline.insert(record.uuid.clone(), offline);
            return;
        }
        let known = self.offline.get(&record.uuid).is_some_and(|before| before.why == offline.why);
        if !known {
            let what = format!("array {} cannot be started", record.name);
            let next = offline.view(record, Vec::new()).next_action;
            let note = Note::new(EventKind::ArrayOffline, format!("array/{}", record.name), what);
            self.record(note.cause(offline.why.clone()).next(next));
        }
        self.offline.insert(record.uuid.clone(), offline);
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
        let options = self.options.of_array(&self.settings(&uuid));
        let array = Array::start(assembled, &self.core_handles(), options)?;
        let drive =
            |path: &str| here.iter().find(|l| l.drive.path == path).map(|l| l.drive.clone());
        let slots = array.status().members.iter().map(|m| drive(&m.path)).collect();
        let what = format!("array {} was started", array.name());
        let note = Note::new(EventKind::ArrayStarted, format!("array/{}", array.name()), what);
        self.record(if recovery.crashed { note.cause(recovery.to_string()) } else { note });
        self.offline.remove(&uuid);
        self.end_assembling(&uuid);
        let name = array.name().to_string();
        self.cut_short.retain(|failed| *failed != name);
        self.follow_label(&uuid, array.name().as_str());
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

    /// Records the name that the labels have: a crash may have come between the two when it was renamed.
    fn follow_label(&mut self, uuid: &str, name: &str) {
        let mut config = self.config.clone();
        let taken = config.arrays.iter().any(|a| a.name == name && a.uuid != uuid);
        let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == uuid && a.name != name)
        else {
            return;
        };
        if taken {
            tracing::warn!(%uuid, %name, "array has the name of another one in its labels");
            return;
        }
        record.name = name.to_owned();
        match self.store.prepare(&config).and_then(crate::store::Prepared::commit) {
            Ok(config) => self.config = config,
            Err(error) => tracing::warn!(%name, reason = %error, "new name not recorded"),
        }
    }

    fn known_arrays(&self, name: &str) -> impl Iterator<Item = &ArrayRecord> {
        self.config
            .arrays
            .iter()
            .filter(move |a| name.is_empty() || a.name == name || a.uuid == name)
    }

    fn places_to_look(&self, request: &ImportArraysRequest) -> Vec<String> {
        let mut look: Vec<String> =
            self.known_arrays(&request.name).flat_map(|a| a.drives.clone()).collect();
        if request.drives.is_empty() {
            look.extend(scan::block_paths(self.drives.machine()));
            look.extend(self.config.remotes.iter().map(|remote| remote.address.clone()));
        }
        // Drives of arrays that run need no look.
        let runs = |path: &String| {
            self.running.iter().flat_map(|r| r.drives.iter().flatten()).any(|d| d.path == *path)
        };
        look.retain(|path| !runs(path));
        look
    }

    fn check_import(&self, record: &ArrayRecord) -> Result<(), ControlError> {
        let ArrayRecord { uuid, name, .. } = record;
        let arrays = &self.config.arrays;
        if let Some(other) = arrays.iter().find(|a| a.name == *name && a.uuid != *uuid) {
            return Err(ControlError::refused(format!(
                "array {name} ({uuid}) has the name of another array here ({}); unload or rename that one first",
                other.uuid
            )));
        }
        if arrays.len() >= ARRAYS_MAX && arrays.iter().all(|a| a.uuid != *uuid) {
            return Err(ControlError::state(format!(
                "there are {ARRAYS_MAX} arrays, which is the most one daemon serves; unload or destroy one first"
            )));
        }
        self.check_recordable(record)
    }

    /// Records an array that is being imported. True when it was not known here.
    fn record_import(&mut self, record: ArrayRecord) -> Result<bool, ControlError> {
        let mut config = self.config.clone();
        let known = config.arrays.iter_mut().find(|a| a.uuid == record.uuid);
        let new = known.is_none();
        match known {
            // A member that is not here now may come back to where it was.
            Some(known) => known.drives = with_old_paths(record.drives, &known.drives),
            None => config.arrays.push(record),
        }
        self.config = self.store.prepare(&config)?.commit()?;
        Ok(new)
    }
}

fn identity(drive: &Drive) -> String {
    drive.device.identity()
}

/// Adds a drive unless it is there already under another path.
pub(crate) fn push_once(drives: &mut Vec<Labelled>, found: Labelled) {
    if drives.iter().all(|d| identity(&d.drive) != identity(&found.drive)) {
        drives.push(found);
    }
}
