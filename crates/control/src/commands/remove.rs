//! Commands that unload and destroy arrays.

use strake_api::v1::{
    ArrayChange, CleanDriveRequest, DestroyArrayRequest, ImportArraysRequest, UndeleteArrayRequest,
    UnloadArrayRequest,
};
use strake_engine::{Drive, MemberStatus};
use strake_raid::MemberState;
use strake_units::MemberSet;
use strake_wording::{Amendment, Text, command, import, say};

use crate::commands::exports::{disconnect, withdraw_exports_of};
use crate::commands::pools::refuse_pool;
use crate::control::Control;
use crate::drives::address::outlasts;
use crate::drives::label::retire;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::limits::UNLOAD_LIMIT;
use crate::manager::Manager;
use crate::names::{array_key, callable, pool_key};
use crate::record::store::Config;
use crate::remedy::remove_export;
use crate::state::running::Running;
use crate::upkeep::member_config::record_before_leaving;
use crate::upkeep::scrubs::keep_scrub;
use crate::upkeep::shutdown::stop_one;

impl Control {
    /// Stops an array and removes its record. Its drives keep all data; members in memory lose their data. If the other
    /// members do not suffice, `undo` in the answer is empty, and the data are lost.
    ///
    /// # Errors
    /// If there is no such array, it has exports (unless forced), or the state cannot be recorded.
    pub fn unload_array(&self, request: &UnloadArrayRequest) -> Result<ArrayChange, ControlError> {
        let (view, reserved) =
            self.reserve(|m| plan_removal(m, &request.name, request.force, false))?;
        let mut steps = removal_steps(&view.exports);
        let stays = self.with(|m| stays_of(m, &view))?;
        let hint = import_hint(&view, &stays);
        steps.extend(stays.steps(&view.name, &hint));
        let undo = if stays.is_loss() { String::new() } else { command(&hint) };
        if request.dry_run {
            return Ok(ArrayChange { undo, ..planned(view, steps) });
        }
        let mut warnings = Vec::new();
        record_before_leaving(self, &view.uuid)?;
        disconnect(self, |export| export.array == view.uuid)?;
        let removed = self.run(|m| forget_array(m, &view.uuid, m.records.config.clone()))?;
        // The drives stay reserved until the stop ends, so that no other task gets a drive with outstanding requests.
        match removed.map(|running| stop_one(running, reserved, UNLOAD_LIMIT)).transpose() {
            Ok(stopped) => warnings.extend(stopped.and_then(|(_, error)| error).map(|e| e.what)),
            Err(late) => warnings.push(late.what),
        }
        let next = if stays.is_loss() { say("nothing; its data are lost") } else { hint.into() };
        tell(self, EventKind::ArrayUnloaded, &view.name, stays.event(&view.name), next);
        let (result, array) = ("changed".into(), Some(view));
        Ok(ArrayChange { result, array, plan: steps, warnings, undo })
    }

    /// Stops an array and marks its labels as destroyed. Nothing else on its drives is changed.
    ///
    /// # Errors
    /// The errors of [`unload_array`](Self::unload_array). Drives whose label could not be written cause warnings.
    pub fn destroy_array(
        &self,
        request: &DestroyArrayRequest,
    ) -> Result<ArrayChange, ControlError> {
        let (view, reserved) =
            self.reserve(|m| plan_removal(m, &request.name, request.force, true))?;
        let mut steps = removal_steps(&view.exports);
        steps.push(format!("stop array {}", view.name));
        let here = view.members.iter().filter(|m| !m.path.is_empty());
        steps.extend(
            here.map(|m| format!("mark the label on {} (member {}) destroyed", m.path, m.position)),
        );
        let undo = self.with(|m| undo_of_destroying(m, &view.uuid))?;
        steps.push(match &undo {
            Ok(undo) => {
                format!("to undo this before its drives are used again: {}", command(undo))
            }
            Err(why) => format!("it cannot be undeleted afterwards: {why}"),
        });
        if request.dry_run {
            let undo = undo.map(|undo| command(&undo)).unwrap_or_default();
            return Ok(ArrayChange { undo, ..planned(view, steps) });
        }
        let mut warnings = Vec::new();
        disconnect(self, |export| export.array == view.uuid)?;
        let removed =
            self.run(|m| forget_array(m, &view.uuid, m.records.remember_destroyed(&view.uuid)))?;
        self.with(|m| crate::record::scrub_file::forget(m.records.store.folder(), &view.uuid))?;
        // A replacement that was just swapped in may not be recorded yet.
        let drives: Vec<Drive> = removed.iter().flat_map(Running::all_drives).cloned().collect();
        let stopped = removed.map(|running| stop_one(running, reserved, UNLOAD_LIMIT)).transpose();
        match stopped {
            Ok(stopped) => {
                let (reserved, error) = stopped.unzip();
                warnings.extend(error.flatten().map(|e| e.what));
                for drive in &drives {
                    warnings.extend(retire(drive, &view.uuid).err().map(|e| e.what));
                }
                drop((drives, reserved));
            }
            Err(error) => warnings.push(format!(
                "{}; the labels are not marked as destroyed; when the drives of the array are free: {}",
                error.what,
                command(&CleanDriveRequest::default())
            )),
        }
        let what = format!("array {} was stopped and its labels marked destroyed", view.name);
        let next = match &undo {
            Ok(undo) => {
                say("nothing; to undelete it before its drives are used again: ").run(undo.clone())
            }
            Err(why) => say(format!("nothing; it cannot be undeleted: {why}")),
        };
        tell(self, EventKind::ArrayDestroyed, &view.name, what, next);
        let (undo, array) = (undo.map(|undo| command(&undo)).unwrap_or_default(), Some(view));
        Ok(ArrayChange { result: "changed".into(), array, plan: steps, warnings, undo })
    }
}

fn tell(control: &Control, kind: EventKind, array: &str, what: String, next: Text) {
    control.events().record(Note::of_array(kind, &array, what).next(next));
}

fn planned(view: strake_api::v1::Array, plan: Vec<String>) -> ArrayChange {
    ArrayChange { result: "planned".into(), array: Some(view), plan, ..ArrayChange::default() }
}

/// Returns the array to remove, if this is allowed, and the keys to reserve.
fn plan_removal(
    manager: &mut Manager,
    name: &str,
    force: bool,
    must_run: bool,
) -> Result<(strake_api::v1::Array, Vec<String>), ControlError> {
    manager.check_open()?;
    if must_run {
        manager.find_running(name).map_err(|error| way_out(manager, name, error))?;
    }
    let view = manager.array(name)?;
    refuse_exported(&view.name, &view.exports, force)?;
    let running = manager.running_of(&view.uuid);
    if must_run && let Some(running) = running {
        refuse_pool(running, "cannot be destroyed")?;
    }
    let mut keys = vec![array_key(&view.name), array_key(&view.uuid), pool_key(&view.uuid)];
    keys.extend(running.into_iter().flat_map(Running::drive_keys));
    Ok((view, keys))
}

/// Adds the way to remove an array that does not run and cannot be destroyed.
fn way_out(manager: &Manager, name: &str, error: ControlError) -> ControlError {
    let mut known = manager.records.known_arrays(name);
    let is_offline = |uuid: &str| manager.entries.get(uuid).offline.is_some();
    if name.is_empty() || !known.any(|array| is_offline(&array.uuid)) {
        return error;
    }
    let unload = UnloadArrayRequest { name: name.to_owned(), ..Default::default() };
    let clean =
        CleanDriveRequest { path: "DRIVE".to_owned(), accept_loss: true, ..Default::default() };
    let what = format!(
        "{}; only a running array can be destroyed: return its drives, or, to remove the array: ",
        error.what
    );
    let next = say(", and then, for each of its drives: ").run(clean);
    ControlError::new(error.kind, say(what).run(unload).then(next))
}

/// The members that remain of an unloaded array.
enum Stays {
    /// All members.
    All,
    /// All members except these members in memory. The others suffice.
    AllBut(Vec<u32>),
    /// Too few members, because these are in memory.
    TooFew(Vec<u32>),
    /// The array does not run, and drives of it were found.
    Found,
    /// The array does not run, and no drive of it was found.
    NotFound,
}

impl Stays {
    const fn is_loss(&self) -> bool {
        matches!(self, Self::TooFew(_))
    }

    fn steps(&self, name: &str, hint: &ImportArraysRequest) -> Vec<String> {
        let again =
            format!("delete the record of the array; to import the array again: {}", command(hint));
        match self {
            Self::All => vec![
                format!("stop array {name} and mark the array clean; its data stay on its drives"),
                again,
            ],
            Self::AllBut(slots) => vec![
                format!(
                    "stop array {name} and mark the array clean; its data stay on its other drives"
                ),
                format!("lose {}, in memory", members(slots)),
                again,
            ],
            Self::TooFew(slots) => {
                let lost = members(slots);
                vec![format!(
                    "stop array {name} and delete its record; ALL ITS DATA ARE LOST with {lost}, in memory"
                )]
            }
            Self::Found => vec![again],
            Self::NotFound => {
                vec!["delete the record of the array; its drives were not found".to_owned()]
            }
        }
    }

    fn event(&self, name: &str) -> String {
        match self {
            Self::All => {
                format!("array {name} was stopped and released; its data stay on its drives")
            }
            Self::AllBut(slots) => format!(
                "array {name} was stopped and released; {}, in memory, was lost",
                members(slots)
            ),
            Self::TooFew(slots) => format!(
                "array {name} was stopped and released; its data are lost with {}, in memory",
                members(slots)
            ),
            Self::Found => format!("array {name} was released; the array did not run"),
            Self::NotFound => format!("array {name} was released; its drives were not found"),
        }
    }
}

/// Returns a text with `slots`.
fn members(slots: &[u32]) -> String {
    let list: Vec<String> = slots.iter().map(ToString::to_string).collect();
    format!("{} {}", if slots.len() == 1 { "member" } else { "members" }, list.join(", "))
}

fn stays_of(manager: &Manager, view: &strake_api::v1::Array) -> Stays {
    let Some(running) = manager.running_of(&view.uuid) else {
        let is_found = view.members.iter().any(|m| !m.path.is_empty());
        return if is_found { Stays::Found } else { Stays::NotFound };
    };
    let status = running.array.status();
    let slots = |test: &dyn Fn(&MemberStatus) -> bool| -> Vec<usize> {
        let members = status.members.iter().enumerate();
        members.filter(|(_, m)| test(m)).map(|(slot, _)| slot).collect()
    };
    let in_memory = slots(&|m| m.state == MemberState::InSync && !outlasts(&m.path));
    let gone = slots(&|m| m.state != MemberState::InSync || !outlasts(&m.path));
    let memory = in_memory.iter().map(|&slot| slot as u32).collect();
    match (in_memory.is_empty(), status.geometry.tolerates(gone.into_iter().collect())) {
        (true, _) => Stays::All,
        (false, true) => Stays::AllBut(memory),
        (false, false) => Stays::TooFew(memory),
    }
}

/// Returns the command that can undelete a running array after its destruction, or the reason why this is impossible.
fn undo_of_destroying(manager: &Manager, uuid: &str) -> Result<UndeleteArrayRequest, String> {
    let at = manager.position_of(uuid).ok_or_else(|| "it does not run".to_owned())?;
    let status = manager.running[at].array.status();
    let stays = |m: &MemberStatus| m.state == MemberState::InSync && outlasts(&m.path);
    let gone = status.members.iter().enumerate().filter(|(_, m)| !stays(m));
    let gone: MemberSet = gone.map(|(slot, _)| slot).collect();
    if status.geometry.tolerates(gone) {
        let name = &status.name;
        // Another destroyed array may have the same name.
        let again = manager.records.destroyed.iter().any(|d| d.name == name.as_str());
        let which = if again { uuid } else { callable(name.as_str(), uuid) };
        return Ok(UndeleteArrayRequest { name: which.to_owned(), ..Default::default() });
    }
    let slots: Vec<String> = gone.iter().map(|slot| slot.to_string()).collect();
    Err(format!(
        "too few of its members would be left, since {} {} in memory or not in sync",
        slots.join(", "),
        if slots.len() == 1 { "is" } else { "are" }
    ))
}

/// Removes an array from the records and from the running arrays. Returns it if it was running.
fn forget_array(
    manager: &mut Manager,
    uuid: &str,
    mut config: Config,
) -> Result<Option<Running>, ControlError> {
    manager.check_open()?;
    config.arrays.retain(|a| a.uuid != uuid);
    config.exports.retain(|e| e.array != uuid);
    let prepared = manager.records.store.prepare(&config)?;
    withdraw_exports_of(manager, uuid)?;
    manager.records.config = prepared.commit()?;
    let at = manager.running.iter().position(|r| r.uuid() == uuid);
    at.into_iter().for_each(|at| keep_scrub(manager, at, true));
    manager.entries.remove(uuid);
    Ok(at.map(|at| manager.running.remove(at)))
}

fn refuse_exported(name: &str, exports: &[String], force: bool) -> Result<(), ControlError> {
    match exports.first() {
        Some(first) if !force => {
            let what = format!(
                "array {name} is exported as {}; first remove the export (",
                exports.join(", ")
            );
            let text = say(what).run(remove_export(first));
            let error = ControlError::refused(text.say(")"));
            Err(error.unless(Amendment::Force, ", or, to disconnect its clients: "))
        }
        Some(_) | None => Ok(()),
    }
}

fn removal_steps(exports: &[String]) -> Vec<String> {
    exports.iter().map(|e| format!("remove export {e}, and disconnect its clients")).collect()
}

/// Returns the command that imports an unloaded array. Its members in memory are then missing.
fn import_hint(view: &strake_api::v1::Array, stays: &Stays) -> ImportArraysRequest {
    let paths = view.members.iter().map(|m| m.path.clone()).filter(|path| outlasts(path));
    let (drives, exports) = (paths.collect(), !view.exports.is_empty());
    let allow_degraded = matches!(stays, Stays::AllBut(_));
    ImportArraysRequest {
        drives,
        exports,
        allow_degraded,
        ..import(callable(&view.name, &view.uuid))
    }
}
