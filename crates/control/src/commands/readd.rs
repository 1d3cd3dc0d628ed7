//! Members that come back: found again at a path that is remembered, or on a drive that has just appeared.

use crate::commands::remote::connect_named;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use strake_api::v1::{ArrayChange, ReaddMemberRequest};
use strake_dev_uring::control_wait;
use strake_engine::{ArrayErrorKind, Drive, claim_grown};
use strake_units::ByteSize;

use crate::bounded::{self, Silent};
use crate::control::{Control, Planned, Reserved};
use crate::drives::address::{is_remote, outlasts};
use crate::drives::label::{Labelled, labelled};
use crate::drives::{PathKey, block_paths};
use crate::error::ControlError;
use crate::limits::{GLANCE_LIMIT, LOOK_LIMIT};
use crate::manager::Manager;
use crate::names::array_key;
use crate::policy::members::is_out;
use crate::state::running::Place;

/// What tells what is at a path, unless it is silent.
pub(crate) type KeyAt = Result<Option<PathKey>, Silent>;

/// A member that is out, and its drive.
pub(crate) struct Returned {
    pub(crate) place: Place,
    pub(crate) found: Labelled,
    pub(crate) stale_bytes: u64,
}

impl Control {
    /// Takes a member that was out back in; only what was written meanwhile is copied to it.
    ///
    /// # Errors
    /// When no member is out, its drive is not found, or its label says that what it lacks is not known.
    pub fn readd_member(&self, request: &ReaddMemberRequest) -> Result<ArrayChange, ControlError> {
        let ((array, name, look), mut reserved) = self.reserve(|m| m.places_of_members(request))?;
        let found = find_member(self, &mut reserved, &array, request, &look)?;
        let returned = self.run(|m| m.check_return(&array, request.member, found))?;
        let Returned { place, found, stale_bytes } = &returned;
        let plan = vec![
            format!("take {} back as member {} of array {name}", found.drive.path, place.member),
            format!(
                "copy {} to it, which is what it may lack, while the array serves",
                ByteSize(*stale_bytes)
            ),
        ];
        let result = if request.dry_run {
            "planned"
        } else {
            readd_now(self, &returned)?;
            self.run(|m| {
                m.returns.forget(returned.found.label.member);
                Ok(())
            })?;
            "changed"
        };
        let array = Some(self.run(|m| m.array(&array))?);
        Ok(ArrayChange { result: result.into(), array, plan, ..ArrayChange::default() })
    }
}

fn find_member(
    control: &Control,
    reserved: &mut Reserved,
    array: &str,
    request: &ReaddMemberRequest,
    look: &[String],
) -> Result<Labelled, ControlError> {
    if !request.drive.is_empty() {
        connect_named(control, [&request.drive], request.dry_run)?;
        let drive = reserved.open(&request.drive)?;
        return labelled(drive, LOOK_LIMIT)?.ok_or_else(|| {
            ControlError::refused(format!(
                "{} holds no label of an array; to use it all the same: strake array replace {} --member N \
                 --with {}",
                request.drive, request.name, request.drive
            ))
        });
    }
    for path in look {
        let Ok(Some(found)) =
            reserved.open_now(path).and_then(|drive| labelled(drive, GLANCE_LIMIT))
        else {
            continue;
        };
        let wanted = control.run(|m| Ok(m.is_wanted(array, request.member, &found)))?;
        if wanted {
            return Ok(found);
        }
    }
    Err(ControlError::state(format!(
        "no drive of a member that is out of array {} was found; say where it is with --drive, or: strake array \
         replace",
        request.name
    )))
}

pub(crate) fn readd_now(control: &Control, returned: &Returned) -> Result<(), ControlError> {
    let Returned { place, found, .. } = returned;
    control.run(|m| m.records.remember_also(&place.array, &found.drive))?;
    control.run(|m| {
        m.end_pauses();
        let at = m.find_running(&place.array)?;
        Ok(m.running[at].array.check_readd(place.member, &found.drive, &found.label)?)
    })?;
    claim_grown(&found.drive, &found.label, &mut control_wait())?;
    let readding = control.run(|m| {
        m.check_open()?;
        let at = m.find_running(&place.array)?;
        Ok(m.running[at].array.begin_readd(place.member, &found.drive, &found.label)?)
    })?;
    if let Err(error) = readding.wait() {
        // What speaks against the drive; what only speaks against this moment may be over in the next.
        if error.kind == ArrayErrorKind::Refused {
            control.run(|m| {
                m.put_prospect(&place.array, found, Some(error.what.clone()));
                Ok(())
            })?;
        }
        return Err(error.into());
    }
    control.run(|m| m.install(place, found.drive.clone()))
}

/// What tells what is at `path` now from what may be there later; `None` when nothing is, and an error when that is
/// not said. Looked for outside of the lock: a path may lie on something that does not answer.
pub(crate) fn key_at(control: &Control, path: &str) -> Result<KeyAt, ControlError> {
    if is_remote(path) {
        return control.run(|m| Ok(Ok(m.drives.remote_key(path))));
    }
    let at = path.to_owned();
    Ok(bounded::look(path, move || {
        let meta = std::fs::metadata(at).ok();
        meta.map(|meta| (meta.dev(), meta.ino(), meta.rdev()))
    }))
}

impl Manager {
    fn places_of_members(
        &mut self,
        request: &ReaddMemberRequest,
    ) -> Planned<(String, String, Vec<String>)> {
        self.check_open()?;
        let at = self.find_running(&request.name)?;
        let array = self.running[at].uuid();
        let name = self.running[at].array.name().to_string();
        let status = self.running[at].array.status();
        if !status.members.iter().any(is_out) {
            return Err(ControlError::state(format!(
                "no member of array {name} is out; there is nothing to take back"
            )));
        }
        let mut look: Vec<String> = self
            .records
            .config
            .arrays
            .iter()
            .filter(|a| a.uuid == array)
            .flat_map(|a| a.drives.clone())
            .collect();
        look.extend(status.members.iter().filter(|m| is_out(m)).map(|m| m.path.clone()));
        look.extend(block_paths(self.drives.machine()));
        let serving = self.serving_paths(&array);
        look.retain(|path| outlasts(path) && !serving.contains(path));
        let keys = vec![array_key(&array)];
        Ok(((array, name, look), keys))
    }

    /// Paths of the drives that serve in an array.
    pub(crate) fn serving_paths(&self, array: &str) -> BTreeSet<String> {
        let Some(running) = self.running.iter().find(|r| r.uuid() == array) else {
            return BTreeSet::new();
        };
        let status = running.array.status();
        let serving = running.drives.iter().zip(&status.members).filter(|(_, m)| !is_out(m));
        serving.filter_map(|(drive, _)| drive.as_ref().map(|d| d.path.clone())).collect()
    }

    /// Whether `found` is a member of `array` that is out, and the one asked for if one was.
    fn is_wanted(&self, array: &str, member: Option<u32>, found: &Labelled) -> bool {
        let Some(running) = self.running.iter().find(|r| r.uuid() == array) else { return false };
        let slot = found.label.slot;
        let status = running.array.status();
        found.label.array.to_string() == array
            && member.is_none_or(|member| member as usize == slot.at())
            && status
                .members
                .get(slot.at())
                .is_some_and(|m| is_out(m) && m.uuid == found.label.member)
    }

    /// Checks whether `found` can be taken back, and remembers how that ended for whoever asks what to do.
    pub(crate) fn check_return(
        &mut self,
        array: &str,
        member: Option<u32>,
        found: Labelled,
    ) -> Result<Returned, ControlError> {
        let checked = self.check_return_of(array, member, found.clone());
        self.put_prospect(array, &found, checked.as_ref().err().map(|error| error.what.clone()));
        checked
    }

    fn check_return_of(
        &mut self,
        array: &str,
        member: Option<u32>,
        found: Labelled,
    ) -> Result<Returned, ControlError> {
        let member = member.unwrap_or(u32::from(found.label.slot.0));
        let (place, _) = self.place(array, member)?;
        let swapped = &self.entries.get(&place.array).slot(place.member.at()).swapped;
        if swapped.as_ref().is_some_and(|was| *was != found.identity()) {
            return Err(ControlError::refused(format!(
                "{} was put in the place of the drive that was member {member} of array {name} while that was in use, \
                 so it is a copy at best, and lacks what was written since; bring the member's own drive back, or: \
                 strake array replace {name} --member {member} --with DRIVE",
                found.drive.path,
                name = place.name
            )));
        }
        self.note_objection(&found);
        if let Some(objection) = found.objection() {
            return Err(ControlError::refused(objection));
        }
        let at = self.find_running(array)?;
        let check = self.running[at].array.check_readd(place.member, &found.drive, &found.label);
        let stale_bytes = check?;
        self.refuse_serving(&found.drive, &place)?;
        Ok(Returned { place, found, stale_bytes })
    }

    /// Remembers why the drive of a member that is out is of no use, as far as was last seen.
    pub(crate) fn note_objection(&mut self, found: &Labelled) {
        let label = &found.label;
        let uuid = label.array.to_string();
        let Some(running) = self.running.iter().find(|r| r.uuid() == uuid) else { return };
        let status = running.array.status();
        // Another drive may have its place by now.
        if status.members.get(label.slot.at()).is_none_or(|m| m.uuid != label.member) {
            return;
        }
        let other_half = self.is_other_half(label).then(|| found.drive.path.clone());
        let notes = self.entries.of(&uuid).slot_mut(label.slot.at());
        (notes.objection, notes.other_half) = (found.damage(), other_half);
    }

    /// Refuses a drive that serves elsewhere, or is a spare; the one that was in this place until now is fine.
    fn refuse_serving(&self, drive: &Drive, place: &Place) -> Result<(), ControlError> {
        let own = (place.member.at(), place.name.clone());
        if self.place_of(&drive.device.identity()).is_some_and(|other| other == own) {
            return Ok(());
        }
        self.refuse_members(std::slice::from_ref(drive))
    }
}
