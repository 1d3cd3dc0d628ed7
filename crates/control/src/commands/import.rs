//! Import of arrays by command. `upkeep/starting.rs` contains the automatic start.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use strake_api::v1::{
    Array as ArrayMessage, ImportArraysRequest, ImportArraysResponse, ListImportableRequest,
};
use strake_engine::{AssemblePolicy, Drive};
use strake_wording::{Text, say};

use crate::commands::remote::connect_named;
use crate::control::{Control, Reserved};
use crate::drives::address::remembered;
use crate::drives::block_paths;
use crate::drives::label::{Labelled, labelled};
use crate::error::{ControlError, ControlErrorKind};
use crate::exports::requests::not_offered;
use crate::manager::Manager;
use crate::names::{array_key, is_called, name_warning};
use crate::policy::candidates::push_once;
use crate::policy::search::{Unused, is_of, not_without, of_label};
use crate::record::store::{ArrayRecord, ScrubRecord, Settings};
use crate::remedy::import_drives;
use crate::upkeep::adopt::{adopt_array, assemble_one, has_to_wait};
use crate::upkeep::member_config::{offer_kept, recall_from_members};
use crate::upkeep::pools::settle_pool;

/// Interval in which a waiting command checks for a stop of the daemon.
const SETTLE_LOOK: Duration = Duration::from_millis(200);

/// The labelled drives of one array.
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) drives: Vec<Labelled>,
}

impl Found {
    /// The record of the array after an import, without settings.
    pub(crate) fn record(&self, uuid: &str) -> ArrayRecord {
        let drives: Vec<Drive> = self.drives.iter().map(|l| l.drive.clone()).collect();
        ArrayRecord {
            uuid: uuid.to_owned(),
            name: self.name.clone(),
            drives: remembered(&drives),
            settings: Settings::default(),
            scrub: ScrubRecord::default(),
            kept_exports: Vec::new(),
            kept_hosts: Vec::new(),
            copies: Vec::new(),
            silent: Vec::new(),
            left_alone: Vec::new(),
        }
    }

    /// The paths of its drives.
    pub(crate) fn paths(&self) -> Vec<String> {
        self.drives.iter().map(|labelled| labelled.drive.path.clone()).collect()
    }
}

impl Control {
    /// Scans drives for labels and starts the arrays found.
    ///
    /// # Errors
    /// If a named drive cannot be opened, or no requested array could be started.
    pub fn import_arrays(
        &self,
        request: &ImportArraysRequest,
    ) -> Result<ImportArraysResponse, ControlError> {
        let mut response = start_found(self, request)?;
        if response.result != "unchanged" && (request.dry_run || !request.exports) {
            for array in &response.arrays {
                let kept = self.with(|m| m.records.kept_exports(&array.uuid))?;
                response.warnings.extend(kept.iter().map(|e| not_offered(e, &array.name)));
            }
        }
        Ok(response)
    }
}

/// Does the same as [`import_arrays`](Control::import_arrays), but does not report exports that only the members
/// record.
pub(crate) fn start_found(
    control: &Control,
    request: &ImportArraysRequest,
) -> Result<ImportArraysResponse, ControlError> {
    let name = request.name.as_str();
    let mut response = ImportArraysResponse { result: "unchanged".into(), ..Default::default() };
    let ((running, all, look, known), mut reserved) = control.reserve(|m| {
        m.check_open()?;
        let running = m.find(name).map(|at| m.view(at));
        // The command waits while upkeep starts the array.
        let known: Vec<String> = m.records.known_arrays(name).map(|a| a.uuid.clone()).collect();
        let keys = known.iter().map(|uuid| array_key(uuid)).collect();
        Ok(((running, m.arrays(), places_to_look(m, request), known), keys))
    })?;
    if let Some(view) = running {
        if request.exports && !request.dry_run {
            response.warnings = offer_kept(control, &view.uuid);
        }
        response.arrays.push(control.run(|m| m.array(&view.uuid))?);
        return Ok(response);
    }
    let named = request.drives.iter().chain(&request.use_drives);
    connect_named(control, named, request.dry_run)?;
    let (mut found, mut refused, kept) = find_labelled(&mut reserved, request, &look)?;
    found.retain(|uuid, array| name.is_empty() || is_called(name, &array.name, uuid));
    refused.retain(|error| {
        name.is_empty() || is_of(error, name) || known.iter().any(|uuid| is_of(error, uuid))
    });
    if found.is_empty() {
        let runs = |a: &ArrayMessage| a.states.iter().any(|state| state == "online");
        if name.is_empty() && request.drives.is_empty() && !all.is_empty() && all.iter().all(runs) {
            // All requested arrays are already running.
            response.arrays = all;
            return Ok(response);
        }
        return Err(nothing_found(name, &refused));
    }
    response.warnings.extend(refused.iter().map(|error| error.what.clone()));
    let policy =
        AssemblePolicy { allow_degraded: request.allow_degraded, accept_loss: request.accept_loss };
    for (uuid, array) in found {
        let degraded = refused.iter().find(|e| policy.allow_degraded && is_of(e, &uuid));
        let imported = match degraded {
            Some(label) => Err(not_without(&array.name, label)),
            None => {
                import_one(control, &uuid, &array, policy, request.dry_run, &mut response.warnings)
            }
        };
        // Without a record, the daemon does not know where to look for the drives of the array.
        let is_known = control.with(|m| m.records.record_of(&uuid).is_some())?;
        let imported = imported
            .map_err(|error| if is_known { error } else { error.on_drives(&array.paths()) });
        match imported {
            Ok((result, mut view)) => {
                if request.exports && !request.dry_run {
                    response.warnings.append(&mut offer_kept(control, &uuid));
                    view = control.run(|m| m.array(&uuid))?;
                }
                if result != "unchanged" {
                    response.result = result.into();
                }
                response.arrays.push(view);
            }
            Err(error) if !name.is_empty() => return Err(with_kept(error, kept)),
            Err(error) => response.warnings.push(error.what),
        }
    }
    let is_failed = response.result == "unchanged" && !response.warnings.is_empty();
    response.warnings.extend(kept.into_iter().map(|error| error.what));
    if is_failed {
        return Err(ControlError::refused(response.warnings.join("\n")));
    }
    Ok(response)
}

/// Waits until an array may be started from these drives.
fn await_settled(control: &Control, here: &[Labelled]) -> Result<(), ControlError> {
    let left = |m: &mut Manager| m.check_open().map(|()| has_to_wait(m, here));
    while let Some(left) = control.run(left)? {
        thread::sleep(SETTLE_LOOK.min(Duration::from_nanos(left.0)));
    }
    Ok(())
}

fn import_one(
    control: &Control,
    uuid: &str,
    found: &Found,
    policy: AssemblePolicy,
    dry_run: bool,
    warnings: &mut Vec<String>,
) -> Result<(&'static str, ArrayMessage), ControlError> {
    if let Some(running) = control.with(|m| m.position_of(uuid).map(|at| m.view(at)))? {
        return Ok(("unchanged", running));
    }
    let paths: Vec<Drive> = found.drives.iter().map(|l| l.drive.clone()).collect();
    let record = found.record(uuid);
    control.run(|m| m.records.check_import(&record))?;
    warnings.extend(name_warning(&record.name, uuid));
    let older = control.with(|m| m.newest.objection(&record, &found.drives))?;
    if let Some(older) = older.filter(|_| !policy.accept_loss) {
        return Err(older);
    }
    if dry_run {
        return Ok(("planned", crate::policy::verdict::planned(&record, &found.drives, policy)?));
    }
    // The records on the members of a new array must be read before any write to them.
    let _reserved = control.try_reserve(vec![array_key(uuid)])?;
    await_settled(control, &found.drives)?;
    let assembled = assemble_one(control, &found.drives, policy)?;
    let new = control.run(|m| {
        let new = m.records.record_import(record)?;
        adopt_array(m, assembled, &found.drives)?;
        Ok(new)
    })?;
    settle_pool(control, uuid)?;
    let objections = found.drives.iter().filter_map(Labelled::objection);
    warnings.extend(objections.map(|objection| objection.words));
    if new {
        warnings.append(&mut recall_from_members(control, uuid, &paths));
    }
    Ok(("changed", control.run(|m| m.array(uuid))?))
}

/// `refused` are errors of labels of the array that this version does not support.
fn nothing_found(name: &str, refused: &[ControlError]) -> ControlError {
    if !refused.is_empty() {
        let why: Vec<&str> = refused.iter().map(|error| error.what.as_str()).collect();
        return ControlError::refused(why.join("; "));
    }
    let array = if name.is_empty() { "an array".to_owned() } else { format!("array {name}") };
    let what = format!("no drive with the label of {array} was found; name drives: ");
    let list = say("; to list the arrays on drives: ").run(ListImportableRequest::default());
    ControlError::not_found(say(what).run(import_drives(name)).then(list))
}

/// Reads the label of a drive that may be absent. Does not wait while another command uses the drive. Returns `None`
/// without a valid label.
fn glance(reserved: &mut Reserved, path: &str) -> Result<Option<Labelled>, Unused> {
    let drive = reserved.open_now(path)?;
    labelled(drive, reserved.limit()).map_err(of_label)
}

/// Adds to the error of an import the drives that their maintenance keeps from arrays.
fn with_kept(error: ControlError, kept: Vec<ControlError>) -> ControlError {
    if kept.is_empty() {
        return error;
    }
    let (kind, offline) = (error.kind, error.offline.clone());
    let all = std::iter::once(error).chain(kept).map(ControlError::text);
    ControlError::new(kind, Text::join(all, "; ")).because(offline)
}

/// The arrays on drives, errors of labels that this version does not support, and errors of drives that their
/// maintenance keeps from arrays.
type Labelling = (BTreeMap<String, Found>, Vec<ControlError>, Vec<ControlError>);

/// Returns the arrays on the named drives and on the drives at `look`.
fn find_labelled(
    reserved: &mut Reserved,
    request: &ImportArraysRequest,
    look: &[String],
) -> Result<Labelling, ControlError> {
    let mut all: Vec<Labelled> = Vec::new();
    let (mut refused, mut kept) = (Vec::new(), Vec::new());
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
        // Drives that were not named may be missing or busy. The label check of the other drives decides.
        match glance(reserved, path) {
            Ok(Some(labelled)) => push_once(&mut all, labelled),
            Err(Unused::Label(error)) => refused.push(error),
            // No other reason refuses the open of a drive.
            Err(Unused::Otherwise(error)) if error.kind == ControlErrorKind::Refused => {
                kept.push(error);
            }
            Ok(None) | Err(Unused::Otherwise(_)) => {}
        }
    }
    // If a member is on several drives, only the chosen drive counts.
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
    Ok((arrays, refused, kept))
}

pub(crate) fn places_to_look(manager: &Manager, request: &ImportArraysRequest) -> Vec<String> {
    let mut look: Vec<String> =
        manager.records.known_arrays(&request.name).flat_map(|a| a.drives.clone()).collect();
    if request.drives.is_empty() {
        look.extend(block_paths(manager.drives.machine()));
        look.extend(manager.records.taken_paths());
        look.extend(manager.records.remotes.iter().map(|remote| remote.address.clone()));
    }
    // Drives of running arrays are not scanned.
    let runs = |path: &String| {
        manager.running.iter().flat_map(|r| r.drives.iter().flatten()).any(|d| d.path == *path)
    };
    look.retain(|path| !runs(path));
    look
}

pub(crate) fn identity(drive: &Drive) -> String {
    drive.device.identity()
}
