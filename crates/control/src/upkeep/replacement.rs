//! Drives that are filled to take the place of members that still serve.
//!
//! The engine copies and decides when devices change places; until then the array has both drives, and here is kept
//! which one is to come.

use strake_engine::{Drive, Pending};
use strake_raid::MemberState;
use strake_units::{MemberIndex, Uuid};

use crate::error::ControlError;
use crate::manager::Manager;
use crate::state::running::{Place, Replacement};

impl Manager {
    /// Whether the place is that of a member that serves, so that its drive is copied and not made up from others.
    pub(crate) fn is_serving(&self, place: &Place) -> Result<bool, ControlError> {
        let at = self.find_running(&place.array)?;
        let status = self.running[at].array.status();
        Ok(status.members[place.member.at()].state == MemberState::InSync)
    }

    /// Takes note of a drive that the array has taken as `uuid`: in its place already, or to be filled first.
    pub(crate) fn took(
        &mut self,
        place: &Place,
        uuid: Uuid,
        drive: Drive,
    ) -> Result<(), ControlError> {
        let at = self.find_running(&place.array)?;
        if self.running[at].array.status().members[place.member.at()].uuid == uuid {
            return self.install(place, drive);
        }
        // One whose copy had ended before this one began may not be noted in its place yet.
        let settled = self.settle_replacements();
        self.running[at].replacement = Some(Replacement { slot: place.member, uuid, drive });
        settled.and(self.settle_replacements())
    }

    /// Lets go of the drives of members whose replacements have taken their places, and of replacements that never
    /// will.
    ///
    /// # Errors
    /// When the new drive could not be recorded; it serves all the same.
    pub(crate) fn settle_replacements(&mut self) -> Result<(), ControlError> {
        let mut result = Ok(());
        for at in 0..self.running.len() {
            let running = &mut self.running[at];
            let status = running.array.status();
            let over = |next: &mut Replacement| {
                let member = &status.members[next.slot.at()];
                member.uuid == next.uuid || member.replacement.is_empty() || status.lost
            };
            let Some(next) = running.replacement.take_if(over) else { continue };
            let (uuid, slot) = (running.uuid(), next.slot);
            if status.members[slot.at()].uuid != next.uuid && !status.lost {
                // Called off, or its drive failed: nothing is to be begun again.
                result = result.and(self.forget_copy(&uuid, slot));
            }
            let running = &self.running[at];
            if status.members[next.slot.at()].uuid == next.uuid {
                let (array, name) = (running.uuid(), status.name.to_string());
                let place = Place { array, name, member: next.slot, was: next.uuid };
                result = result.and(self.install(&place, next.drive));
            }
            self.close_unused_drives();
        }
        result
    }

    /// Begins to give up the copy of a member of the array at `at`.
    pub(crate) fn begin_cancel(&mut self, at: usize, member: u32) -> Result<Pending, ControlError> {
        let member = MemberIndex(member as u8);
        let array = &self.running[at].array;
        let uuid = array.status().members[member.at()].uuid;
        let pending = array.begin_cancel_replace(member)?;
        // Who called it off does not want it begun again by itself.
        self.sick.leave_alone(uuid);
        Ok(pending)
    }
}
