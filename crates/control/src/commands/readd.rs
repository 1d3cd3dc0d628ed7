//! Re-adding of members by command. `upkeep/readd.rs` contains automatic re-adding.

use strake_api::v1::{ArrayChange, ReaddMemberRequest};
use strake_dev_uring::control_wait;
use strake_engine::{ArrayErrorKind, claim_grown};
use strake_units::ByteSize;
use strake_wording::{replace, say};

use crate::actions::Wish;
use crate::commands::remote::connect_named;
use crate::control::{Control, Planned, Reserved};
use crate::drives::address::outlasts;
use crate::drives::block_paths;
use crate::drives::label::{Labelled, labelled};
use crate::error::ControlError;
use crate::limits::{GLANCE_LIMIT, LOOK_LIMIT};
use crate::manager::Manager;
use crate::names::array_key;
use crate::policy::members::is_out;
use crate::state::running::Place;
use crate::upkeep::check_readd::{Returned, check_return, put_prospect};
use crate::upkeep::replacement::install_drive;
use crate::upkeep::settings::end_pauses;

impl Control {
    /// Re-adds a member that was out. Only the data that were written meanwhile are copied.
    ///
    /// # Errors
    /// If no member is out, its drive is not found, or its label shows that the missing writes are unknown.
    pub fn readd_member(&self, request: &ReaddMemberRequest) -> Result<ArrayChange, ControlError> {
        let ((array, name, look), mut reserved) =
            self.reserve(|m| places_of_members(m, request))?;
        let found = find_member(self, &mut reserved, &array, request, &look)?;
        let returned = self.run(|m| check_return(m, &array, request.member, found))?;
        let Returned { place, found, stale_bytes } = &returned;
        let plan = vec![
            format!("re-add {} as member {} of array {name}", found.drive.path, place.member),
            format!("copy {} that it may lack, while the array serves", ByteSize(*stale_bytes)),
        ];
        let result = if request.dry_run {
            "planned"
        } else {
            readd_now(self, &returned, Wish::Command)?;
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
            let what = format!(
                "{} contains no label of an array; to use the drive anyway: ",
                request.drive
            );
            ControlError::refused(say(what).run(replace(&request.name, None, &request.drive)))
        });
    }
    for path in look {
        let Ok(Some(found)) =
            reserved.open_now(path).and_then(|drive| labelled(drive, GLANCE_LIMIT))
        else {
            continue;
        };
        let wanted = control.with(|m| is_wanted(m, array, request.member, &found))?;
        if wanted {
            return Ok(found);
        }
    }
    let name = &request.name;
    let what =
        format!("no drive of a failed or missing member of array {name} was found; name it: ");
    let named = ReaddMemberRequest { drive: "DRIVE".to_owned(), ..request.clone() };
    let what = say(what).run(named).say(", or use another: ").run(replace(name, None, ""));
    Err(ControlError::state(what))
}

pub(crate) fn readd_now(
    control: &Control,
    returned: &Returned,
    wish: Wish,
) -> Result<(), ControlError> {
    let Returned { place, found, .. } = returned;
    control.run(|m| {
        check_wish(m, place, wish)?;
        m.records.remember_also(&place.array, &found.drive)
    })?;
    control.run(|m| {
        end_pauses(m);
        let at = m.find_running(&place.array)?;
        Ok(m.running[at].array.check_readd(place.member, &found.drive, &found.label)?)
    })?;
    claim_grown(&found.drive, &found.label, &mut control_wait())?;
    let readding = control.run(|m| {
        m.check_open()?;
        // Nothing was locked while the drive was written.
        check_wish(m, place, wish)?;
        let at = m.find_running(&place.array)?;
        Ok(m.running[at].array.begin_readd(place.member, &found.drive, &found.label)?)
    })?;
    if let Err(error) = readding.wait() {
        // Only permanent objections against the drive are recorded, not temporary errors.
        if error.kind == ArrayErrorKind::Refused {
            control.with(|m| put_prospect(m, &place.array, found, Some(error.what.clone())))?;
        }
        return Err(error.into());
    }
    control.run(|m| install_drive(m, place, found.drive.clone()))
}

/// Refuses a re-add that upkeep decided, if auto-readd was switched off since then.
fn check_wish(manager: &Manager, place: &Place, wish: Wish) -> Result<(), ControlError> {
    if wish == Wish::Command || manager.records.settings(&place.array).auto_readd {
        return Ok(());
    }
    let what = format!("auto-readd of array {} was switched off in the meantime", place.name);
    Err(ControlError::state(what))
}

fn places_of_members(
    manager: &mut Manager,
    request: &ReaddMemberRequest,
) -> Planned<(String, String, Vec<String>)> {
    manager.check_open()?;
    let at = manager.find_running(&request.name)?;
    let array = manager.running[at].uuid();
    let name = manager.running[at].array.name().to_string();
    let status = manager.running[at].array.status();
    if !status.members.iter().any(is_out) {
        return Err(ControlError::state(format!(
            "no member of array {name} is out of use; there is nothing to re-add"
        )));
    }
    let asked = request.member.and_then(|member| status.members.get(member as usize));
    if let (Some(member), Some(asked)) = (request.member, asked)
        && !is_out(asked)
    {
        let what = format!("member {member} of array {name} is in use; there is nothing to re-add");
        return Err(ControlError::state(what));
    }
    let mut look: Vec<String> = manager
        .records
        .arrays
        .iter()
        .filter(|a| a.uuid == array)
        .flat_map(|a| a.drives.clone())
        .collect();
    look.extend(status.members.iter().filter(|m| is_out(m)).map(|m| m.path.clone()));
    look.extend(block_paths(manager.drives.machine()));
    look.extend(manager.records.taken_paths());
    let serving = manager.running[at].serving_paths();
    look.retain(|path| outlasts(path) && !serving.contains(path));
    let keys = vec![array_key(&array)];
    Ok(((array, name, look), keys))
}

/// True if `found` is a member of `array` that is out, and the requested member if one was requested.
fn is_wanted(manager: &Manager, array: &str, member: Option<u32>, found: &Labelled) -> bool {
    found.label.array.to_string() == array
        && member.is_none_or(|member| member as usize == found.label.slot.at())
        && manager.running_of(array).is_some_and(|running| running.absent_as(found).is_some())
}
