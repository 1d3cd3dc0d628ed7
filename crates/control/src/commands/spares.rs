//! Spares: drives that replace failed members, dedicated to one array or available to all arrays.
//!
//! The daemon keeps a spare open, so that no other program uses the drive. The record contains the path and the
//! identity of the medium. Another medium at the same path is not the spare.

use strake_api::v1::{
    AddSpareRequest, ListSparesResponse, RemoveSpareRequest, Spare as SpareMessage, SpareChange,
};
use strake_dev_uring::control_wait;
use strake_engine::{Drive, erase_foreign, prepare_drive};
use strake_units::MemberSet;
use strake_wording::Amendment;

use crate::commands::claims::refuse_members;
use crate::commands::remote::connect_named;
use crate::control::Control;
use crate::drives::Sighting;
use crate::drives::address::outlasts;
use crate::drives::occupied::refuse_occupied;
use crate::drives::undo::ended_by;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::limits::{GLANCE_LIMIT, SPARES_MAX};
use crate::manager::Manager;
use crate::names::{fresh_uuid, is_called};
use crate::policy::members::is_out;
use crate::policy::spares::{SpareState, fits};
use crate::record::store::SpareRecord;
use crate::remedy::not_among;
use crate::state::running::Running;

impl Control {
    /// Makes an empty drive a spare. For an existing spare, the result is "unchanged".
    ///
    /// # Errors
    /// If the drive is not empty, is in use, is in memory, or does not fit its array.
    pub fn add_spare(&self, request: &AddSpareRequest) -> Result<SpareChange, ControlError> {
        let path = self.run(|m| m.drives.path_of(&request.drive))?;
        let request = &AddSpareRequest { drive: path, ..request.clone() };
        if !outlasts(&request.drive) {
            return Err(ControlError::usage(format!(
                "{:?} cannot be a spare: a spare must survive a restart of the daemon, so name a drive by its path",
                request.drive
            )));
        }
        connect_named(self, [&request.drive], request.dry_run)?;
        let (_, mut reserved) = self.reserve(|m| Ok((m.check_open()?, Vec::new())))?;
        let drive = reserved.open(&request.drive)?;
        let (record, known, mut warnings) = self.run(|m| check_spare(m, request, &drive))?;
        let mut change = SpareChange { result: "unchanged".into(), ..SpareChange::default() };
        if !known {
            change.plan = admit(self, request, &record, &drive)?;
            change.result = if request.dry_run { "planned" } else { "created" }.into();
        }
        change.warnings.append(&mut warnings);
        change.spare = Some(self.with(|m| spare_message(m, &record))?);
        Ok(change)
    }

    /// Removes a spare, which is then a free drive.
    ///
    /// # Errors
    /// If the drive is not a spare.
    pub fn remove_spare(&self, request: &RemoveSpareRequest) -> Result<SpareChange, ControlError> {
        // A missing spare is identified by its recorded path.
        let (path, machine) = self.run(|m| {
            let path = m.drives.path_of(&request.drive).unwrap_or_else(|_| request.drive.clone());
            Ok((path, m.drives.machine().clone()))
        })?;
        // The lock is not held, because the path may be unresponsive.
        let seen = Sighting::within(&path, &machine, GLANCE_LIMIT).ok();
        self.run(|m| drop_spare(m, &path, seen.as_ref()))
    }
}

fn admit(
    control: &Control,
    request: &AddSpareRequest,
    record: &SpareRecord,
    drive: &Drive,
) -> Result<Vec<String>, ControlError> {
    let mut plan = Vec::new();
    if request.overwrite {
        plan.push(format!("erase {}; its content is lost", record.path));
    } else {
        refuse_occupied(std::slice::from_ref(drive))?;
    }
    let ended = ended_by(std::slice::from_ref(drive))?;
    let at_once = control.with(|m| used_at_once(m, record, drive))?;
    if let (Some(lost), Some(used), false) = (ended.first(), &at_once, request.overwrite) {
        let what = format!("{} would {used}: {lost}", record.path);
        return Err(
            ControlError::refused(what).unless(Amendment::Overwrite, "; to use the drive anyway: ")
        );
    }
    plan.extend(ended.into_iter().map(|lost| {
        if request.overwrite { lost } else { format!("when the spare is used: {lost}") }
    }));
    let whom = if request.array.is_empty() { "every array" } else { &request.array };
    plan.push(format!(
        "use {} as a spare for {whom}; the daemon keeps the drive open",
        record.path
    ));
    plan.extend(at_once);
    if request.dry_run {
        return Ok(plan);
    }
    // The change does not start if it could not be recorded.
    control.run(|m| m.records.check(&m.records.with_spare(record)))?;
    if request.overwrite {
        erase_foreign(drive, &mut control_wait())?;
        prepare_drive(drive, fresh_uuid()?, &mut control_wait())?;
    }
    control.run(|m| adopt_spare(m, record, drive))?;
    Ok(plan)
}

/// Returns the member that a new spare replaces immediately, if a member is out.
fn used_at_once(manager: &Manager, record: &SpareRecord, drive: &Drive) -> Option<String> {
    let takes = |running: &&Running| {
        let own = record.array.is_empty() || record.array == running.uuid();
        own && fits(&running.array.status(), drive).is_ok()
    };
    let place = |running: &Running| {
        // A serving member waits until the health of the spare is known.
        let slots = manager.slots_for_spares(running).into_iter();
        let status = running.array.status();
        let slots = slots.filter(move |slot| is_out(&status.members[*slot]));
        let name = running.array.name().to_string();
        slots.map(move |slot| format!("member {slot} of array {name}"))
    };
    let places: Vec<String> = manager.running.iter().filter(takes).flat_map(place).collect();
    (!places.is_empty()).then(|| format!("replace {} at once", places.join(" or ")))
}

impl Manager {
    /// Returns every spare.
    #[must_use]
    pub fn list_spares(&self) -> ListSparesResponse {
        let spares = self.records.spares.iter().map(|record| spare_message(self, record)).collect();
        ListSparesResponse { spares }
    }
}

/// Checks everything about a new spare except its content. Returns true if the drive is already a spare.
fn check_spare(
    manager: &mut Manager,
    request: &AddSpareRequest,
    drive: &Drive,
) -> Result<(SpareRecord, bool, Vec<String>), ControlError> {
    let array = match request.array.as_str() {
        "" => String::new(),
        name => manager
            .records
            .arrays
            .iter()
            .find(|a| is_called(name, &a.name, &a.uuid))
            .map(|a| a.uuid.clone())
            .ok_or_else(|| manager.no_such_array(name))?,
    };
    let info = drive.device.info();
    let record = SpareRecord {
        path: drive.path.clone(),
        identity: info.identity.clone(),
        bytes: info.bytes(),
        array,
    };
    if let Some(known) = manager.records.spares.iter().find(|s| s.identity == record.identity) {
        if known.array == record.array {
            return Ok((known.clone(), true, Vec::new()));
        }
    } else {
        refuse_members(manager, std::slice::from_ref(drive))?;
    }
    if manager.records.spares.len() >= SPARES_MAX {
        return Err(ControlError::state(format!(
            "there are {SPARES_MAX} spares, the limit of one daemon; remove one first"
        )));
    }
    let warnings = check_fit(manager, &record, drive)?;
    Ok((record, false, warnings))
}

fn check_fit(
    manager: &Manager,
    record: &SpareRecord,
    drive: &Drive,
) -> Result<Vec<String>, ControlError> {
    let mut warnings = Vec::new();
    for running in &manager.running {
        let status = running.array.status();
        if let Err(why) = fits(&status, drive) {
            if running.uuid() == record.array {
                return Err(ControlError::usage(format!(
                    "{} cannot be a spare for array {}: {why}",
                    record.path, status.name
                )));
            }
            if record.array.is_empty() {
                warnings.push(format!(
                    "{} cannot be a spare for array {}: {why}",
                    record.path, status.name
                ));
            }
        } else if status.geometry.redundancy(MemberSet::EMPTY) == Some(0) {
            warnings
                .push(format!("array {} has no redundancy, so it cannot use a spare", status.name));
        }
    }
    Ok(warnings)
}

fn adopt_spare(
    manager: &mut Manager,
    record: &SpareRecord,
    drive: &Drive,
) -> Result<(), ControlError> {
    manager.records.put(&manager.records.with_spare(record))?;
    manager.spares.put(record, SpareState::Ready(drive.clone()));
    let whom = manager.records.whose(record);
    let what = format!("{} became a spare for {whom}", record.path);
    manager.record(Note::new(EventKind::SpareAdded, format!("drive/{}", record.path), what));
    Ok(())
}

fn drop_spare(
    manager: &mut Manager,
    path: &str,
    seen: Option<&Sighting>,
) -> Result<SpareChange, ControlError> {
    manager.check_open()?;
    let open = manager.drives.named(path).or_else(|| manager.drives.seen_as(path, seen?));
    let open = open.map(|drive| drive.device.identity());
    let same = |s: &&SpareRecord| s.path == path || open.as_ref() == Some(&s.identity);
    let Some(record) = manager.records.spares.iter().find(same).cloned() else {
        let known: Vec<&str> = manager.records.spares.iter().map(|s| s.path.as_str()).collect();
        let add = AddSpareRequest { drive: "...".to_owned(), ..Default::default() };
        return Err(not_among(format!("{path} is not a spare"), &known, add));
    };
    let spare = Some(spare_message(manager, &record));
    forget_spare(manager, &record)?;
    let what = format!("{} was removed as a spare", record.path);
    manager.record(Note::new(EventKind::SpareRemoved, format!("drive/{}", record.path), what));
    Ok(SpareChange {
        result: "removed".into(),
        spare,
        plan: vec![format!("close {}; the drive is then free", record.path)],
        warnings: Vec::new(),
    })
}

pub(crate) fn forget_spare(
    manager: &mut Manager,
    record: &SpareRecord,
) -> Result<(), ControlError> {
    manager.records.change(|config| config.spares.retain(|s| s.identity != record.identity))?;
    manager.spares.remove(&record.identity);
    manager.close_unused_drives();
    Ok(())
}

fn spare_message(manager: &Manager, record: &SpareRecord) -> SpareMessage {
    let state = manager.spares.get(record);
    let array = if record.array.is_empty() {
        String::new()
    } else {
        manager.records.array_name(&record.array)
    };
    SpareMessage {
        path: record.path.clone(),
        identity: record.identity.clone(),
        serial: String::new(),
        size_bytes: record.bytes,
        array,
        state: state.map_or("missing", SpareState::word).to_owned(),
        note: state.map_or("", SpareState::note).to_owned(),
    }
}
