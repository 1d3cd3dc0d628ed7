//! Control operations on a running array.

use strake_ondisk::Consistency;
use strake_raid::MemberEvent;
use strake_units::{MemberIndex, Name};

use super::{Array, Pending};
use crate::error::ArrayError;
use crate::events::ArrayEvent;
use crate::message::{Change, Control, FailReason};
use crate::pacing::Maintenance;
use crate::scrub::{ScrubFinding, ScrubMode, ScrubPosition, ScrubState};

impl Array {
    /// Takes `member` out of use. First, idle regions are flushed and cleared in the write-intent bitmap, so that a
    /// crash while the member is out leaves few regions in doubt.
    ///
    /// # Errors
    /// If the member does not exist, or the array would lose data without the member.
    pub fn begin_fail(&self, member: MemberIndex) -> Result<Pending, ArrayError> {
        self.fail_as(member, MemberEvent::OperatorFailed)
    }

    /// Takes `member` out of use because its drive was pulled, although the drive may still answer. The labels record
    /// the member as missing, and it can be re-added.
    ///
    /// # Errors
    /// As [`begin_fail`](Self::begin_fail): the engine keeps using a drive that the data depend on as long as the drive
    /// answers.
    pub fn begin_vanish(&self, member: MemberIndex) -> Result<Pending, ArrayError> {
        self.fail_as(member, MemberEvent::Vanished)
    }

    fn fail_as(&self, member: MemberIndex, event: MemberEvent) -> Result<Pending, ArrayError> {
        self.check_member(member)?;
        Ok(self.change(Change::Fail { member, reason: FailReason::Request(event) }))
    }

    /// Sets the priority and the pause of resync and rebuild. The settings take effect in the next turn of every core.
    /// Bands in progress are completed.
    pub fn set_maintenance(&self, maintenance: Maintenance) {
        self.shared.set_maintenance(maintenance);
        for shard in &self.shards {
            shard.tell(Control::Pace);
        }
    }

    /// Resumes a halted resync or rebuild.
    #[must_use]
    pub fn begin_resume(&self) -> Pending {
        self.ask(0, |reply| Control::Resume { reply })
    }

    /// Starts a scrub of the array on every core. The scrub follows resync and rebuild, and has the same priority.
    ///
    /// # Errors
    /// If a scrub is in progress, or the array has failed.
    pub fn begin_scrub(&self, mode: ScrubMode) -> Result<(), ArrayError> {
        self.begin_scrub_in(mode, ScrubState::Running)
    }

    /// Starts a paused scrub: no core reads for the scrub until [`pause_scrub`](Self::pause_scrub) resumes the scrub.
    ///
    /// # Errors
    /// As [`begin_scrub`](Self::begin_scrub).
    pub fn begin_paused_scrub(&self, mode: ScrubMode) -> Result<(), ArrayError> {
        self.begin_scrub_in(mode, ScrubState::Paused)
    }

    fn begin_scrub_in(&self, mode: ScrubMode, state: ScrubState) -> Result<(), ArrayError> {
        let name = self.name();
        if self.shared.is_lost() {
            let what = format!("array {name} is lost; there is nothing to scrub it with");
            return Err(ArrayError::state(what));
        }
        if !self.shared.begin_scrub(mode, state) {
            return Err(ArrayError::state(format!(
                "array {name} is being scrubbed; wait until it ends, or stop it"
            )));
        }
        self.tell_scrub();
        Ok(())
    }

    /// Continues a scrub that was interrupted when the array last ran, or shows a finished scrub. Returns false if a
    /// scrub was started since the start of the array, or if `position` does not fit this array.
    pub fn take_up_scrub(&self, position: &ScrubPosition) -> bool {
        let taken = !self.shared.is_lost() && self.shared.take_up_scrub(position);
        if taken {
            self.tell_scrub();
        }
        taken
    }

    /// The position from which the last scrub could continue after an interruption now, for
    /// [`take_up_scrub`](Self::take_up_scrub).
    #[must_use]
    pub fn scrub_position(&self) -> Option<ScrubPosition> {
        self.shared.scrub_position()
    }

    /// Pauses or resumes the scrub. Returns false without a scrub in progress, or if the scrub has this state already.
    pub fn pause_scrub(&self, pause: bool) -> bool {
        self.change_scrub(if pause { ScrubState::Paused } else { ScrubState::Running })
    }

    /// Stops the scrub. Returns false without a scrub in progress.
    pub fn stop_scrub(&self) -> bool {
        self.change_scrub(ScrubState::Stopped)
    }

    fn change_scrub(&self, state: ScrubState) -> bool {
        let changed = self.shared.change_scrub(state);
        if changed {
            self.tell_scrub();
        }
        changed
    }

    fn tell_scrub(&self) {
        for shard in &self.shards {
            shard.tell(Control::Scrub);
        }
    }

    /// The findings of the last scrub by address in the array, at most 1024. The status counts all findings.
    #[must_use]
    pub fn scrub_findings(&self) -> Vec<ScrubFinding> {
        self.shared.scrub_findings()
    }

    /// Renames the array in the labels of every member in use.
    #[must_use]
    pub fn begin_rename(&self, name: Name) -> Pending {
        self.change(Change::Rename { name })
    }

    /// Changes the consistency mode. A stronger mode is recorded as soon as all writes that were started before have
    /// completed; [`status`](Self::status) shows the recorded mode.
    #[must_use]
    pub fn begin_set_consistency(&self, mode: Consistency) -> Pending {
        self.change(Change::Consistency { mode })
    }

    /// Returns the events since the last call, the oldest first. If the events exceed the limit, the oldest events are
    /// dropped and counted.
    #[must_use]
    pub fn drain_events(&self) -> Vec<ArrayEvent> {
        self.shared.drain_events()
    }
}
