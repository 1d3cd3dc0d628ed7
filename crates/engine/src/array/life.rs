//! Replacements, and re-added members.

use std::sync::{Arc, mpsc};

use strake_ondisk::{Returning, Superblock, returning};
use strake_raid::MemberState;
use strake_units::{MemberIndex, Uuid};

use super::pending::Claim;
use super::pending::Pending;
use super::{Array, Replacing};
use crate::drive::Drive;
use crate::error::{ArrayError, ArrayRemedy};
use crate::message::{Change, Control, IncomingDrive, Reconfigure};
use crate::settling;
use crate::shared_device::SharedDevice;

impl Array {
    /// Puts `drive` in the slot of a failed or missing `member` and starts a rebuild. The caller has
    /// [prepared](crate::prepare_drive) the drive with `uuid`.
    ///
    /// # Errors
    /// If the member does not exist or is in use, or the drive is too small or has larger blocks.
    pub fn begin_replace(
        &self,
        member: MemberIndex,
        drive: &Drive,
        uuid: Uuid,
    ) -> Result<Replacing, ArrayError> {
        self.check_replacement(member, drive)?;
        let incoming = incoming(member, uuid, drive);
        if self.shared.members()[member.at()].state == MemberState::InSync {
            let place = MemberIndex(self.geometry.members() as u8);
            return self.begin_open(member, place, drive, Reconfigure::BeginReplacement(incoming));
        }
        self.begin_open(member, member, drive, Reconfigure::Replace(incoming))
    }

    /// Cancels the replacement of a `member` that is in use. The member keeps its slot.
    ///
    /// # Errors
    /// If the member does not exist.
    pub fn begin_cancel_replace(&self, member: MemberIndex) -> Result<Pending, ArrayError> {
        self.check_member(member)?;
        Ok(self.change(Change::Reconfigure(Reconfigure::CancelReplacement { member })))
    }

    /// Opens `drive` on every core at `place` for `member`, and then sends the change to the leader.
    fn begin_open(
        &self,
        member: MemberIndex,
        place: MemberIndex,
        drive: &Drive,
        then: Reconfigure,
    ) -> Result<Replacing, ArrayError> {
        if !self.shared.begin_replacing(member) {
            return Err(ArrayError::state(format!(
                "member {member} of array {} is being replaced already",
                self.name()
            )));
        }
        let claim = Claim { shared: Arc::clone(&self.shared), member };
        self.shared.mark(settling::mark([&*drive.device]));
        let device = SharedDevice::new(&drive.device);
        let opening = (0..self.shards.len())
            .map(|at| {
                self.ask(at, |reply| Control::Install {
                    member: place,
                    device: device.clone(),
                    reply,
                })
            })
            .collect();
        let (reply, answer) = mpsc::channel();
        Ok(Replacing {
            opening,
            shards: self.shards.clone(),
            place,
            then: Some(Control::Change { change: Change::Reconfigure(then), reply }),
            recorded: Pending { name: self.name(), answer },
            _claim: claim,
        })
    }

    /// Checks that `drive` can replace `member`. Changes nothing.
    ///
    /// # Errors
    /// As [`begin_replace`](Self::begin_replace).
    pub fn check_replacement(&self, member: MemberIndex, drive: &Drive) -> Result<(), ArrayError> {
        self.check_member(member)?;
        let status = &self.shared.members()[member.at()];
        if self.shared.members().iter().any(|m| !m.replacement.is_empty()) {
            return Err(ArrayError::state(format!(
                "a member of array {} is being replaced while it serves; wait until the replacement ends, or cancel \
                 it",
                self.name()
            )));
        }
        if status.state == MemberState::InSync && self.geometry.members() >= 64 {
            return Err(ArrayError::state(format!(
                "array {} has 64 members, so there is no place for another drive; fail member {member} first",
                self.name()
            )));
        }
        if matches!(status.state, MemberState::Rebuilding { .. }) {
            return Err(ArrayError::state(format!(
                "member {member} of array {} is being rebuilt; fail it before replacing it",
                self.name()
            )));
        }
        self.check_fit(member, drive)
    }

    /// Checks that the data of `member` fit on `drive`.
    fn check_fit(&self, member: MemberIndex, drive: &Drive) -> Result<(), ArrayError> {
        let info = drive.device.info();
        let used = self.geometry.member_blocks_used() << self.geometry.block_size().shift();
        let needs = self.shared.superblock().format.least_device_bytes(used);
        if info.bytes() < needs {
            return Err(ArrayError::too_small(&drive.path, member, info.bytes(), needs));
        }
        if info.block_size > self.geometry.block_size() {
            return Err(ArrayError::usage(format!(
                "{} has blocks of {} bytes, the array has {}; use a drive with smaller blocks",
                drive.path,
                info.block_size,
                self.geometry.block_size()
            )));
        }
        Ok(())
    }

    /// Checks that `drive`, which has the label `label`, can be re-added as `member`. Changes nothing. Returns the
    /// number of bytes that a re-add would copy: the data that were written while the member was out.
    ///
    /// # Errors
    /// If the member does not exist or is in use, or the drive does not fit. Also if the label shows another drive, an
    /// older snapshot of the drive, or a drive that continued without the array.
    pub fn check_readd(
        &self,
        member: MemberIndex,
        drive: &Drive,
        label: &Superblock,
    ) -> Result<u64, ArrayError> {
        self.check_member(member)?;
        let status = &self.shared.members()[member.at()];
        if matches!(status.state, MemberState::InSync | MemberState::Rebuilding { .. }) {
            return Err(ArrayError::state(format!(
                "member {member} of array {} is in use; there is nothing to re-add",
                self.name()
            )));
        }
        check_returning(&self.shared.superblock(), member, label)?;
        self.check_fit(member, drive)?;
        let recorded = label.own_record().map_or(0, |row| row.bytes);
        if drive.device.info().bytes() < recorded {
            return Err(ArrayError::refused(format!(
                "{} is smaller than it was as member {member} of array {}; replace the member with a drive \
                 that is large enough",
                drive.path,
                self.name()
            )));
        }
        Ok(self.shared.member_bytes_of(self.shared.stale_regions(member)))
    }

    /// Re-adds `drive`, which has the label `label`, as `member`, and copies the data that were written while the
    /// member was out.
    ///
    /// # Errors
    /// As [`check_readd`](Self::check_readd).
    pub fn begin_readd(
        &self,
        member: MemberIndex,
        drive: &Drive,
        label: &Superblock,
    ) -> Result<Replacing, ArrayError> {
        self.check_readd(member, drive, label)?;
        let incoming = incoming(member, label.member, drive);
        let label = Box::new(label.clone());
        self.begin_open(member, member, drive, Reconfigure::Readd { drive: incoming, label })
    }
}

fn incoming(member: MemberIndex, uuid: Uuid, drive: &Drive) -> IncomingDrive {
    IncomingDrive { member, uuid, bytes: drive.device.info().bytes(), path: drive.path.clone() }
}

/// Checks that the drive with `label` is `member` of the array described by `newest`, in the state in which the member
/// went out.
pub(crate) fn check_returning(
    newest: &Superblock,
    member: MemberIndex,
    label: &Superblock,
) -> Result<(), ArrayError> {
    let name = &newest.name;
    let instead = "to use the drive anyway, replace the member with it, which copies everything";
    let refused = |what| ArrayError::refused(what).with(ArrayRemedy::Replace(name.clone(), member));
    match returning(newest, label) {
        Returning::Current | Returning::Stale if label.slot == member => Ok(()),
        Returning::Current | Returning::Stale | Returning::Foreign => Err(refused(format!(
            "the drive is not member {member} of array {name}: its label names member {} ({}) of array {} ({}); \
                 {instead}",
            label.slot, label.member, label.name, label.array
        ))),
        Returning::TooOld { own, held } => Err(refused(format!(
            "the drive is an old copy of member {member} of array {name}: its label has generation {own}, and the \
             member had {held} when it went out of use, so the writes that it lacks are unknown; {instead}"
        ))),
        Returning::Fork { own, newest } => Err(ArrayError::refused(format!(
            "member {member} of array {name} was used without the array: it is at generation {} of epoch {}, the \
             array at generation {} of epoch {}. Writes to it exist nowhere else and would be lost: keep the drive \
             until you have chosen one side",
            own.0, own.1, newest.0, newest.1
        ))),
    }
}
