//! Commands that change settings, consistency mode and name of an array, or start a stalled rebuild.

use strake_api::v1::{ArrayChange, RebuildArrayRequest, RenameArrayRequest, SetArrayRequest};
use strake_units::Name;
use strake_wording::{replace, say};

use crate::actions::Wish;
use crate::commands::create::consistency_of;
use crate::commands::jobs::parse_priority;
use crate::control::Control;
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::names::{array_key, array_name};
use crate::policy::members::is_out;
use crate::record::store::Settings;
use crate::upkeep::settings::put_settings;
use crate::upkeep::spares::{choose_spare, use_spare};

/// A rename in progress.
struct Renaming {
    uuid: String,
    old: String,
    runs: bool,
}

impl Control {
    /// Renames an array. Its exports keep their names.
    ///
    /// # Errors
    /// If there is no such running array, the name is invalid or in use, or the name cannot be recorded.
    pub fn rename_array(&self, request: &RenameArrayRequest) -> Result<ArrayChange, ControlError> {
        let new = array_name(&request.new_name)?;
        let (renaming, _reserved) = self.reserve(|m| check_rename(m, &request.name, &new))?;
        let Renaming { uuid, old, runs } = &renaming;
        let plan = vec![format!("write the name {new} to the labels of array {old}")];
        let result = if *old == new.to_string() {
            "unchanged"
        } else if request.dry_run {
            "planned"
        } else {
            if *runs {
                let pending = self.run(|m| {
                    m.records.check(&m.records.with_name(uuid, &new))?;
                    let at = m.find_running(uuid)?;
                    Ok(m.running[at].array.begin_rename(new.clone()))
                })?;
                pending.wait()?;
            }
            self.run(|m| record_name(m, uuid, old, &new))?;
            "changed"
        };
        let array = Some(self.run(|m| m.array(uuid))?);
        Ok(ArrayChange { result: result.into(), array, plan, ..ArrayChange::default() })
    }

    /// Starts a rebuild that stalled: one that was halted or paused, or that waits for a drive (a spare is used).
    ///
    /// # Errors
    /// If a member is out and there is no spare for it.
    pub fn rebuild_array(
        &self,
        request: &RebuildArrayRequest,
    ) -> Result<ArrayChange, ControlError> {
        let (uuid, halted, paused, out) = self.run(|m| standing_still(m, &request.name))?;
        let mut plan = Vec::new();
        if paused {
            plan.push(format!("resume the jobs of array {}", request.name));
        }
        if halted {
            plan.push(format!("retry the halted rebuild of array {}", request.name));
        }
        for slot in &out {
            match self.with(|m| choose_spare(m, &uuid, *slot, Wish::Command))? {
                Some((_, spare)) => {
                    plan.push(format!("use spare {} for member {slot}", spare.path));
                }
                None => {
                    let name = &request.name;
                    let what =
                        format!("member {slot} of array {name} is out of use, and no spare fits; ");
                    return Err(ControlError::state(say(what).run(replace(
                        name,
                        Some(*slot as u32),
                        "",
                    ))));
                }
            }
        }
        let result = match (plan.is_empty(), request.dry_run) {
            (true, _) => "unchanged",
            (false, true) => "planned",
            (false, false) => {
                rebuild_now(self, &uuid, halted, paused, &out)?;
                "changed"
            }
        };
        let array = Some(self.run(|m| m.array(&uuid))?);
        Ok(ArrayChange { result: result.into(), array, plan, ..ArrayChange::default() })
    }

    /// Changes settings of an array. Absent fields leave their settings unchanged.
    ///
    /// # Errors
    /// If there is no such array, a value is invalid, or the settings cannot be recorded.
    pub fn set_array(&self, request: &SetArrayRequest) -> Result<ArrayChange, ControlError> {
        let mode = request.consistency.as_deref().map(consistency_of).transpose()?;
        let mut change = self.run(|m| set_array(m, request))?;
        let Some(mode) = mode else { return Ok(change) };
        let (uuid, pending, before) = self.run(|m| {
            let at = m.find_running(&request.name)?;
            let array = &m.running[at].array;
            let status = array.status();
            let before = status.consistency_wanted.unwrap_or(status.consistency);
            let pending = (before != mode).then(|| array.begin_set_consistency(mode));
            Ok((m.running[at].uuid(), pending, before))
        })?;
        if let Some(pending) = pending {
            pending.wait()?;
            let what = format!("consistency {mode} instead of {before}");
            self.with(|m| {
                let what = format!("array {}: {what}", request.name);
                m.record(Note::of_array(EventKind::SettingsChanged, &request.name, what));
            })?;
            change.plan.push(what);
            change.result = "changed".into();
        }
        change.array = Some(self.run(|m| m.array(&uuid))?);
        Ok(change)
    }
}

fn rebuild_now(
    control: &Control,
    uuid: &str,
    halted: bool,
    paused: bool,
    out: &[usize],
) -> Result<(), ControlError> {
    if paused {
        control.run(|m| {
            let settings = m.records.settings(uuid).without_pause();
            put_settings(m, uuid, settings)
        })?;
    }
    if halted {
        let pending = control.run(|m| {
            let at = m.find_running(uuid)?;
            Ok(m.running[at].array.begin_resume())
        })?;
        pending.wait()?;
    }
    out.iter().try_for_each(|slot| use_spare(control, uuid, *slot, Wish::Command))
}

fn check_rename(
    manager: &mut Manager,
    name: &str,
    new: &Name,
) -> Result<(Renaming, Vec<String>), ControlError> {
    manager.check_open()?;
    let at = manager.find_running(name)?;
    let uuid = manager.running[at].uuid();
    let taken = manager.records.arrays.iter().find(|a| a.name == new.as_str() && a.uuid != uuid);
    if taken.is_some() {
        let what = format!("array {new} already exists; choose another name");
        return Err(ControlError::new(ControlErrorKind::Exists, what));
    }
    let old = manager.running[at].array.name().to_string();
    let keys = vec![array_key(&uuid), array_key(new.as_str())];
    Ok((Renaming { uuid, old, runs: true }, keys))
}

fn record_name(
    manager: &mut Manager,
    uuid: &str,
    old: &str,
    new: &Name,
) -> Result<(), ControlError> {
    manager.records.put(&manager.records.with_name(uuid, new))?;
    let what = format!("array {old} was renamed to {new}");
    manager.record(Note::of_array(EventKind::ArrayRenamed, &new, what));
    Ok(())
}

fn parse_wear(percent: u32) -> Result<u8, ControlError> {
    let what = || format!("a wear limit of {percent} % is invalid; drives report 0 to 255 %");
    u8::try_from(percent).map_err(|_| ControlError::usage(what()))
}

fn set_array(
    manager: &mut Manager,
    request: &SetArrayRequest,
) -> Result<ArrayChange, ControlError> {
    manager.check_open()?;
    let view = manager.array(&request.name)?;
    let before = manager.records.settings(&view.uuid);
    let mut after = before;
    if let Some(priority) = request.rebuild_priority {
        after.rebuild_priority = parse_priority(priority)?;
        after.job_priority = None;
    }
    after.auto_replace = request.auto_replace.unwrap_or(before.auto_replace);
    after.auto_readd = request.auto_readd.unwrap_or(before.auto_readd);
    after.replace_after_errors =
        request.replace_after_errors.unwrap_or(before.replace_after_errors);
    if let Some(percent) = request.report_at_wear_percent {
        after.report_at_wear_percent = parse_wear(percent)?;
    }
    if let Some(seconds) = request.scrub_every_s {
        after.scrub_every_s = crate::policy::scrub::parse_every(seconds)?;
    }
    after.scrub_repair = request.scrub_repair.unwrap_or(before.scrub_repair);
    let plan = differences(before, after);
    let result = if plan.is_empty() {
        "unchanged"
    } else {
        put_settings(manager, &view.uuid, after)?;
        let what = format!("array {}: {}", view.name, plan.join(", "));
        manager.record(Note::of_array(EventKind::SettingsChanged, &view.name, what));
        "changed"
    };
    let array = Some(manager.array(&view.uuid)?);
    Ok(ArrayChange { result: result.into(), array, plan, ..ArrayChange::default() })
}

/// Returns the UUID of the array, the halted and the paused state of its rebuild, and the members that wait for a
/// drive.
fn standing_still(
    manager: &mut Manager,
    name: &str,
) -> Result<(String, bool, bool, Vec<usize>), ControlError> {
    manager.check_open()?;
    let at = manager.find_running(name)?;
    let uuid = manager.running[at].uuid();
    let status = manager.running[at].array.status();
    let out = status.members.iter().enumerate().filter(|(_, m)| is_out(m));
    let out = out.map(|(slot, _)| slot).collect();
    let halted = status.rebuild_halted || status.resync_halted;
    let paused = manager.records.settings(&uuid).paused;
    Ok((uuid, halted, paused, out))
}

fn differences(before: Settings, after: Settings) -> Vec<String> {
    let mut plan = Vec::new();
    let mut differ = |what: &str, from: String, to: String| {
        if from != to {
            plan.push(format!("{what} {to} instead of {from}"));
        }
    };
    let priority = |s: Settings| s.rebuild_priority.to_string();
    differ("rebuild priority", priority(before), priority(after));
    let word = |on: bool| if on { "on" } else { "off" }.to_owned();
    differ("auto-replace", word(before.auto_replace), word(after.auto_replace));
    differ("auto-readd", word(before.auto_readd), word(after.auto_readd));
    let errors = |s: Settings| s.replace_after_errors.to_string();
    differ("replace after errors", errors(before), errors(after));
    let wear = |s: Settings| format!("{} %", s.report_at_wear_percent);
    differ("report at wear", wear(before), wear(after));
    let every = |s: Settings| strake_wording::every(s.scrub_every_s);
    differ("scrub every", every(before), every(after));
    differ("scrub repair", word(before.scrub_repair), word(after.scrub_repair));
    plan
}
