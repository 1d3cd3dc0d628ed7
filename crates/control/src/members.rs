//! Failing and replacing members.

use strake_api::v1::{AddDriveRequest, ArrayChange, FailMemberRequest, ReplaceMemberRequest};
use strake_dev_uring::control_wait;
use strake_engine::{Drive, prepare_drive};
use strake_raid::MemberState;
use strake_units::MemberIndex;

use crate::arrays::{refuse_occupied, remembered};
use crate::error::ControlError;
use crate::label::inspect;
use crate::manager::{Manager, fresh_uuid};

impl Manager {
    /// Takes a member out of use. One that is out already is "unchanged".
    ///
    /// # Errors
    /// When there is no such array or member, or data would be lost.
    pub fn fail_member(
        &mut self,
        request: &FailMemberRequest,
    ) -> Result<ArrayChange, ControlError> {
        self.check_open()?;
        let at = self.find_running(&request.name)?;
        let (member, state) = self.member(at, request.member)?;
        let name = self.running[at].array.name().clone();
        let steps = vec![format!("take member {member} of array {name} out of use")];
        let result = if state == MemberState::Faulty {
            "unchanged"
        } else if request.dry_run {
            self.refuse_loss(at, member)?;
            "planned"
        } else {
            self.refuse_loss(at, member)?;
            self.running[at].array.begin_fail(member)?.wait()?;
            tracing::warn!(array = %name, member = member.0, "member failed by the operator");
            "changed"
        };
        Ok(ArrayChange {
            result: result.into(),
            array: Some(self.view(at)),
            plan: steps,
            warnings: Vec::new(),
        })
    }

    /// Refuses to fail a member that data depends on.
    fn refuse_loss(&self, at: usize, member: MemberIndex) -> Result<(), ControlError> {
        let status = self.running[at].array.status();
        let absent =
            status.members.iter().enumerate().filter(|(_, m)| m.state != MemberState::InSync);
        let absent = absent.fold(1u64 << member.0, |mask, (slot, _)| mask | 1 << slot);
        if status.geometry.tolerates(absent) {
            return Ok(());
        }
        Err(ControlError::refused(format!(
            "array {} would lose data without member {member}; replace the members that are out first",
            status.name
        )))
    }

    fn member(&self, at: usize, member: u32) -> Result<(MemberIndex, MemberState), ControlError> {
        let status = self.running[at].array.status();
        let found =
            status.members.get(member as usize).map(|m| (MemberIndex(member as u8), m.state));
        found.ok_or_else(|| {
            let last = status.members.len() - 1;
            ControlError::usage(format!(
                "array {} has members 0 to {last}, not {member}",
                status.name
            ))
        })
    }

    /// Puts a drive in the place of a failed or missing member and starts the rebuild.
    ///
    /// # Errors
    /// When the member is in use, the drive does not fit or holds something, or the state cannot be recorded.
    pub fn replace_member(
        &mut self,
        request: &ReplaceMemberRequest,
    ) -> Result<ArrayChange, ControlError> {
        self.check_open()?;
        let outcome = self.try_replace(request);
        self.close_unused_drives();
        outcome
    }

    fn try_replace(&mut self, request: &ReplaceMemberRequest) -> Result<ArrayChange, ControlError> {
        let at = self.find_running(&request.name)?;
        let (member, _) = self.member(at, request.member)?;
        if let Some(unchanged) = self.replaced_already(at, member, &request.drive) {
            return Ok(unchanged);
        }
        let drive = self.drives.open(&request.drive)?;
        self.running[at].array.check_replacement(member, &drive)?;
        self.check_drive(at, member, &drive, request.overwrite)?;
        let name = self.running[at].array.name().clone();
        let steps = vec![
            format!("label {} as member {member} of array {name}", drive.path),
            format!("rebuild member {member} while the array serves"),
        ];
        let result = if request.dry_run {
            "planned"
        } else {
            self.replace_now(at, member, drive)?;
            "changed"
        };
        Ok(ArrayChange {
            result: result.into(),
            array: Some(self.view(at)),
            plan: steps,
            warnings: Vec::new(),
        })
    }

    /// The same drive in the same place again: nothing to do.
    fn replaced_already(
        &mut self,
        at: usize,
        member: MemberIndex,
        path: &str,
    ) -> Option<ArrayChange> {
        let status = self.running[at].array.status();
        let live = matches!(
            status.members[member.at()].state,
            MemberState::InSync | MemberState::Rebuilding { .. }
        );
        let open = self.drives.by_path(path)?.drive.device.info().identity;
        let here = self.running[at].drives[member.at()].as_ref()?.device.info().identity;
        (live && open == here).then(|| ArrayChange {
            result: "unchanged".into(),
            array: Some(self.view(at)),
            ..ArrayChange::default()
        })
    }

    /// A replacement may be an empty drive, or the very drive that was in this place before.
    fn check_drive(
        &self,
        at: usize,
        member: MemberIndex,
        drive: &Drive,
        overwrite: bool,
    ) -> Result<(), ControlError> {
        let identity = drive.device.info().identity;
        let running = &self.running[at];
        let own = running.drives[member.at()]
            .as_ref()
            .is_some_and(|d| d.device.info().identity == identity);
        if own {
            return Ok(());
        }
        self.refuse_members(std::slice::from_ref(drive))?;
        let label = inspect(drive)?.label;
        let status = running.array.status();
        let was_here = label.is_some_and(|l| {
            l.array == status.uuid && l.member == status.members[member.at()].uuid
        });
        if was_here || overwrite {
            return Ok(());
        }
        refuse_occupied(std::slice::from_ref(drive))
    }

    fn replace_now(
        &mut self,
        at: usize,
        member: MemberIndex,
        drive: Drive,
    ) -> Result<(), ControlError> {
        let uuid = self.running[at].uuid();
        let mut drives = self.running[at].drives.clone();
        drives[member.at()] = Some(drive.clone());
        let mut config = self.config.clone();
        if let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == uuid) {
            let here: Vec<Drive> = drives.iter().flatten().cloned().collect();
            record.drives = remembered(&here);
        }
        self.remember_also(&uuid, &drive)?;
        let prepared = self.store.prepare(&config)?;
        let member_uuid = fresh_uuid()?;
        let mut wait = control_wait();
        prepare_drive(&drive, member_uuid, &mut wait)?;
        self.running[at].array.begin_replace(member, &drive, member_uuid)?.wait()?;
        self.running[at].drives = drives;
        self.config = prepared.commit()?;
        let name = self.running[at].array.name();
        tracing::info!(array = %name, member = member.0, drive = %drive.path, "member replaced");
        Ok(())
    }

    /// Records `drive` beside the array's drives before any label names it: after a crash in between it is looked
    /// at, and found to be the member that the labels on the others wait for.
    fn remember_also(&mut self, uuid: &str, drive: &Drive) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == uuid) else { return Ok(()) };
        for path in remembered(std::slice::from_ref(drive)) {
            if !record.drives.contains(&path) {
                record.drives.push(path);
            }
        }
        self.config = self.store.prepare(&config)?.commit()?;
        Ok(())
    }

    /// Gives a drive to the first member that is out.
    ///
    /// # Errors
    /// When no member is out, and as [`replace_member`](Self::replace_member).
    pub fn add_drive(&mut self, request: &AddDriveRequest) -> Result<ArrayChange, ControlError> {
        self.check_open()?;
        let at = self.find_running(&request.name)?;
        let status = self.running[at].array.status();
        let out = status
            .members
            .iter()
            .position(|m| matches!(m.state, MemberState::Faulty | MemberState::Missing));
        let Some(member) = out else {
            return Err(ControlError::state(format!(
                "array {} has all its members; fail or replace one, there is no place for another drive",
                status.name
            )));
        };
        self.replace_member(&ReplaceMemberRequest {
            name: request.name.clone(),
            member: member as u32,
            drive: request.drive.clone(),
            dry_run: request.dry_run,
            overwrite: request.overwrite,
        })
    }
}
