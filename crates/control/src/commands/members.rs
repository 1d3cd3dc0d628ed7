//! Commands that fail and replace members.

use strake_api::v1::{AddDriveRequest, ArrayChange, FailMemberRequest, ReplaceMemberRequest};
use strake_dev_uring::control_wait;
use strake_engine::{Drive, Pending, Superblock, erase_foreign};
use strake_raid::MemberState;
use strake_units::MemberIndex;
use strake_wording::{Amendment, replace, say};

use crate::actions::{Pace, Wish};
use crate::commands::claims::refuse_members_but;
use crate::commands::remote::connect_named;
use crate::control::Control;
use crate::drives::label::{inspect, written_over};
use crate::drives::occupied::{NOT_NEEDED, overwritten, refuse_occupied};
use crate::drives::pci::is_gone;
use crate::error::ControlError;
use crate::manager::Manager;
use crate::names::{array_key, drive_key};
use crate::policy::doubt::{holds, words};
use crate::policy::members::{absent_members, is_out, redundancy_drop};
use crate::state::running::Place;
use crate::upkeep::doubt::{suspect_now, suspect_ranges};
use crate::upkeep::prospects::look_at_prospects;
use crate::upkeep::replacement::{begin_replacement, forget_copy, is_serving};
use crate::upkeep::settings::end_pauses;

/// Name of the loss if a member in sync is failed.
const REDUNDANCY: &str = "redundancy";

/// Name of the loss if blocks would be computed wrongly without a member.
const DATA: &str = "data";

/// Losses that can be accepted by name.
const LOSSES: [&str; 2] = [REDUNDANCY, DATA];

enum Fail {
    Answer(Box<ArrayChange>),
    Begun { pending: Pending, array: String, plan: Vec<String> },
}

impl Control {
    /// Puts a member out of use. For a member that is already out, the result is "unchanged".
    ///
    /// # Errors
    /// If there is no such array or member, data would be lost, or redundancy would decrease without acceptance.
    pub fn fail_member(&self, request: &FailMemberRequest) -> Result<ArrayChange, ControlError> {
        match self.run(|m| begin_fail(m, request))? {
            Fail::Answer(answer) => Ok(*answer),
            Fail::Begun { pending, array, plan } => {
                pending.wait()?;
                // The answer contains the possible remedies.
                look_at_prospects(self, Pace::InTurn)?;
                let view = self.run(|m| {
                    close_absent(m, &array);
                    m.array(&array)
                })?;
                Ok(ArrayChange {
                    result: "changed".into(),
                    array: Some(view),
                    plan,
                    ..Default::default()
                })
            }
        }
    }

    /// Replaces a member by a drive. A member that is out is rebuilt on the drive. A serving member is copied to the
    /// drive, and serves until the copy is complete.
    ///
    /// # Errors
    /// If the member is already being rebuilt or copied, the drive does not fit or is not empty, or the state cannot be
    /// recorded.
    pub fn replace_member(
        &self,
        request: &ReplaceMemberRequest,
    ) -> Result<ArrayChange, ControlError> {
        let (place, mut reserved) = self.reserve(|m| m.place(&request.name, request.member))?;
        connect_named(self, [&request.drive], request.dry_run)?;
        let drive = reserved.open(&request.drive)?;
        if let Some(unchanged) = self.run(|m| replaced_already(m, &place, &drive))? {
            return Ok(unchanged);
        }
        self.run(|m| check_place(m, &place, &drive))?;
        if !request.overwrite {
            let label = refuse_strangers(&drive, &place)?;
            self.run(|m| refuse_other_half(m, &drive, label.as_ref()))?;
        }
        let one = std::slice::from_ref(&drive);
        let mut plan = if request.overwrite { overwritten(one)? } else { Vec::new() };
        plan.extend(crate::drives::undo::ended_by(one)?);
        plan.extend(self.run(|m| plan_replacement(m, &place, &drive))?);
        let result = if request.dry_run {
            "planned"
        } else {
            if request.overwrite {
                erase_foreign(&drive, &mut control_wait())?;
            }
            replace_now(self, &place, drive, Wish::Command)?;
            "changed"
        };
        let array = Some(self.run(|m| m.array(&place.array))?);
        Ok(ArrayChange { result: result.into(), array, plan, ..Default::default() })
    }

    /// Replaces the first member that is out by a drive.
    ///
    /// # Errors
    /// If no member is out, and the errors of [`replace_member`](Self::replace_member).
    pub fn add_drive(&self, request: &AddDriveRequest) -> Result<ArrayChange, ControlError> {
        let member = self.run(|m| first_out(m, &request.name))?;
        self.replace_member(&ReplaceMemberRequest {
            name: request.name.clone(),
            member,
            drive: request.drive.clone(),
            dry_run: request.dry_run,
            overwrite: request.overwrite,
        })
    }
}

/// Prepares the reserved and checked `drive`, and puts it in its slot.
pub(crate) fn replace_now(
    control: &Control,
    place: &Place,
    drive: Drive,
    wish: Wish,
) -> Result<(), ControlError> {
    control.run(|m| {
        if wish == Wish::Upkeep && !m.records.settings(&place.array).auto_replace {
            let what = format!("auto-replace of array {} was switched off", place.name);
            return Err(ControlError::state(what));
        }
        // Nothing is written for a replacement that the array refuses.
        let at = m.find_running(&place.array)?;
        m.running[at].array.check_replacement(place.member, &drive)?;
        end_pauses(m);
        m.records.remember_also(&place.array, &drive)
    })?;
    control.run(|m| m.records.remember_copy(place, &drive))?;
    let begun = begin_replacement(control, place, drive);
    if begun.is_err() {
        control.run(|m| forget_copy(m, &place.array, place.member))?;
    }
    begun
}

/// Refuses a drive that is not empty, unless it was in this slot before.
fn refuse_strangers(drive: &Drive, place: &Place) -> Result<Option<Superblock>, ControlError> {
    let label = inspect(drive)?.label;
    let was_here =
        label.as_ref().is_some_and(|l| l.array.to_string() == place.array && l.member == place.was);
    // A former drive of this slot with a new file system is in other use, although its label is still intact.
    if was_here && let Some(other) = written_over(drive)? {
        let what =
            format!("{} was this member, but now holds {other}; use another drive", drive.path);
        return Err(ControlError::refused(what).unless(Amendment::Overwrite, NOT_NEEDED));
    }
    if !was_here {
        refuse_occupied(std::slice::from_ref(drive))?;
    }
    Ok(label)
}

impl Manager {
    /// Returns the slot of a member of a running array, and the keys that reserve it.
    pub(crate) fn place(
        &mut self,
        name: &str,
        member: u32,
    ) -> Result<(Place, Vec<String>), ControlError> {
        self.check_open()?;
        let at = self.find_running(name)?;
        let (member, _) = member_at(self, at, member)?;
        let running = &self.running[at];
        let (array, name) = (running.uuid(), running.array.name().to_string());
        let was = running.array.status().members[member.at()].uuid;
        let keys = vec![array_key(&array)];
        Ok((Place { array, name, member, was }, keys))
    }
}

fn begin_fail(manager: &mut Manager, request: &FailMemberRequest) -> Result<Fail, ControlError> {
    manager.check_open()?;
    let at = manager.find_running(&request.name)?;
    let (member, state) = member_at(manager, at, request.member)?;
    let status = manager.running[at].array.status();
    let mut plan = vec![format!("take member {member} of array {} out of use", status.name)];
    let answer = |result: &str, plan, array| {
        Ok(Fail::Answer(Box::new(ArrayChange {
            result: result.into(),
            array,
            plan,
            ..Default::default()
        })))
    };
    if state == MemberState::Faulty {
        return answer("unchanged", plan, Some(manager.view(at)));
    }
    let drop = redundancy_drop(&status, member)?;
    check_accepted(&request.accept)?;
    let mut costs = Vec::new();
    let mut accept = Vec::new();
    if let Some((before, after)) = drop {
        plan.push(format!("member failures tolerated: {before} now, {after} afterwards"));
        costs.push(format!(
            "is in sync; member failures tolerated: {before} now, {after} without it"
        ));
        accept.push(REDUNDANCY.to_owned());
    }
    // What is suspect already was accepted, or could not be helped.
    let known = suspect_now(manager, at);
    let mut suspect = suspect_ranges(manager, at, absent_members(&status).with(member));
    suspect.retain(|range| !known.iter().any(|known| holds(*known, *range)));
    if drop.is_some() && !suspect.is_empty() {
        let suspect = words(&suspect);
        plan.push(format!(
            "afterwards, {suspect} may be wrong, also after a rebuild of the member"
        ));
        costs.push(format!(
            "without this member, {suspect} may be wrong, because stripes may be inconsistent"
        ));
        accept.push(DATA.to_owned());
    }
    if accept.iter().any(|loss| !request.accept.contains(loss)) {
        let name = &status.name;
        let what =
            format!("member {member} of array {name} {}. To fail it anyway: ", costs.join("; "));
        let anyway = FailMemberRequest { accept, dry_run: false, ..request.clone() };
        let text = say(what).run(anyway).say("; to replace its drive without loss of redundancy: ");
        return Err(ControlError::refused(text.run(replace(name, Some(member.0.into()), ""))));
    }
    if request.dry_run {
        return answer("planned", plan, Some(manager.view(at)));
    }
    let pending = manager.running[at].array.begin_fail(member)?;
    Ok(Fail::Begun { pending, array: manager.running[at].uuid(), plan })
}

fn member_at(
    manager: &Manager,
    at: usize,
    member: u32,
) -> Result<(MemberIndex, MemberState), ControlError> {
    let status = manager.running[at].array.status();
    let found = status.members.get(member as usize).map(|m| (MemberIndex(member as u8), m.state));
    found.ok_or_else(|| {
        let last = status.members.len() - 1;
        ControlError::usage(format!("array {} has members 0 to {last}, not {member}", status.name))
    })
}

fn plan_replacement(
    manager: &Manager,
    place: &Place,
    drive: &Drive,
) -> Result<Vec<String>, ControlError> {
    let (name, member, path) = (&place.name, place.member, &drive.path);
    let label = format!("label {path} as member {member} of array {name}");
    Ok(if is_serving(manager, place)? {
        vec![
            format!(
                "copy member {member} to {path} while the member serves, so that no redundancy is lost"
            ),
            label,
            "release its former drive".to_owned(),
        ]
    } else {
        let at = manager.find_running(&place.array)?;
        let suspect = suspect_now(manager, at);
        let mut plan = vec![label, format!("rebuild member {member} while the array serves")];
        if !suspect.is_empty() {
            plan.push(format!(
                "{} may be reconstructed wrongly, because stripes may be inconsistent",
                words(&suspect)
            ));
        }
        plan
    })
}

/// Detects a repeated request for the same drive in the same slot.
fn replaced_already(
    manager: &mut Manager,
    place: &Place,
    drive: &Drive,
) -> Result<Option<ArrayChange>, ControlError> {
    let at = manager.find_running(&place.array)?;
    let status = manager.running[at].array.status();
    let live = matches!(
        status.members[place.member.at()].state,
        MemberState::InSync | MemberState::Rebuilding { .. }
    );
    let here = manager.running[at].drives[place.member.at()].as_ref();
    let next = manager.running[at].replacement.as_ref().filter(|next| next.slot == place.member);
    let same = here
        .into_iter()
        .chain(next.map(|next| &next.drive))
        .any(|here| here.device.identity() == drive.device.identity());
    Ok((live && same).then(|| ArrayChange {
        result: "unchanged".into(),
        array: Some(manager.view(at)),
        ..ArrayChange::default()
    }))
}

/// Checks that `drive` fits and is not in other use. It may be the former drive of this slot.
fn check_place(manager: &mut Manager, place: &Place, drive: &Drive) -> Result<(), ControlError> {
    let at = manager.find_running(&place.array)?;
    let running = &manager.running[at];
    running.array.check_replacement(place.member, drive)?;
    let identity = drive.device.identity();
    let here = running.drives[place.member.at()].as_ref();
    if here.is_some_and(|here| here.device.identity() == identity) {
        return Ok(());
    }
    refuse_members_but(
        manager,
        std::slice::from_ref(drive),
        Some((&place.array, place.member.at())),
    )
}

/// Refuses a drive with writes that its array lacks, because a rebuild of the drive would lose them permanently.
fn refuse_other_half(
    manager: &Manager,
    drive: &Drive,
    label: Option<&Superblock>,
) -> Result<(), ControlError> {
    match label.filter(|label| manager.is_other_half(label)) {
        None => Ok(()),
        Some(label) => {
            let what = format!(
                "{} was member {} of array {} and was later used without the other members: it contains writes that \
                    exist on no other drive; use another drive",
                drive.path, label.slot, label.name
            );
            Err(ControlError::refused(what).unless(Amendment::Overwrite, NOT_NEEDED))
        }
    }
}

fn first_out(manager: &Manager, name: &str) -> Result<u32, ControlError> {
    let at = manager.find_running(name)?;
    let status = manager.running[at].array.status();
    status.members.iter().position(is_out).map(|member| member as u32).ok_or_else(|| {
        ControlError::state(format!(
            "array {} has all its members, so no slot is free; fail or replace a member",
            status.name
        ))
    })
}

/// Closes the block devices of missing members, because another device may get the same number. A PCI device that was
/// removed is closed too, because the kernel cannot remove it earlier. A file stays open until its member is re-added
/// or replaced.
pub(crate) fn close_absent(manager: &mut Manager, uuid: &str) {
    let Some(running) = manager.running.iter_mut().find(|r| r.uuid() == uuid) else { return };
    let status = running.array.status();
    for (drive, member) in running.drives.iter_mut().zip(&status.members) {
        let closes = drive.as_ref().is_some_and(|d| {
            let absent = d.path.starts_with("/dev/") && member.state == MemberState::Missing;
            (absent && !manager.reserved.contains(&drive_key(&d.device.identity())))
                || (is_out(member) && is_gone(d))
        });
        if closes {
            *drive = None;
        }
    }
    manager.close_unused_drives();
}

fn check_accepted(accept: &[String]) -> Result<(), ControlError> {
    match accept.iter().find(|loss| !LOSSES.contains(&loss.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(ControlError::usage(format!(
            "unknown loss {unknown:?}; these can be accepted: {}",
            LOSSES.join(", ")
        ))),
    }
}
