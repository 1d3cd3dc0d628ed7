//! What an operator, or a program that manages the array, may ask of it while it serves.

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
    /// Takes `member` out of use. What is not being written at that moment is flushed and unmarked first, so that a
    /// machine that dies while the member is out leaves as little in doubt as possible.
    ///
    /// # Errors
    /// When there is no such member, or the array would lose data without it.
    pub fn begin_fail(&self, member: MemberIndex) -> Result<Pending, ArrayError> {
        self.fail_as(member, MemberEvent::OperatorFailed)
    }

    /// Takes `member` out of use because its drive is no longer where it was, though it may still answer: it was
    /// pulled. It is recorded as missing, and may come back.
    ///
    /// # Errors
    /// As [`begin_fail`](Self::begin_fail): a drive that the data depends on is used for as long as it answers.
    pub fn begin_vanish(&self, member: MemberIndex) -> Result<Pending, ArrayError> {
        self.fail_as(member, MemberEvent::Vanished)
    }

    fn fail_as(&self, member: MemberIndex, event: MemberEvent) -> Result<Pending, ArrayError> {
        self.check_member(member)?;
        Ok(self.change(Change::Fail { member, reason: FailReason::Request(event) }))
    }

    /// Says how resync and rebuild shall go from now on. Takes effect with the next turn of every core; what has been
    /// begun is finished.
    pub fn set_maintenance(&self, maintenance: Maintenance) {
        self.shared.set_maintenance(maintenance);
        for shard in &self.shards {
            shard.tell(Control::Pace);
        }
    }

    /// Tries again to resynchronize and rebuild what had to stop.
    #[must_use]
    pub fn begin_resume(&self) -> Pending {
        self.ask(0, |reply| Control::Resume { reply })
    }

    /// Begins to scrub the array, on every core, after resync and rebuild and at their pace.
    ///
    /// # Errors
    /// When a scrub is under way, or the array is lost.
    pub fn begin_scrub(&self, mode: ScrubMode) -> Result<(), ArrayError> {
        self.begin_scrub_in(mode, ScrubState::Running)
    }

    /// Begins a scrub that is paused: no core reads anything for it until [`pause_scrub`](Self::pause_scrub) resumes
    /// it.
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

    /// Takes up a scrub where it was interrupted when the array last ran, or shows one that has ended. False when there
    /// was a scrub since the array was started, or `position` is not one in this array.
    pub fn take_up_scrub(&self, position: &ScrubPosition) -> bool {
        let taken = !self.shared.is_lost() && self.shared.take_up_scrub(position);
        if taken {
            self.tell_scrub();
        }
        taken
    }

    /// From where the scrub that was begun last could be taken up if it were interrupted now, for
    /// [`take_up_scrub`](Self::take_up_scrub).
    #[must_use]
    pub fn scrub_position(&self) -> Option<ScrubPosition> {
        self.shared.scrub_position()
    }

    /// Lets the scrub that is under way rest, or go on. False when there is none, or it does so already.
    pub fn pause_scrub(&self, pause: bool) -> bool {
        self.change_scrub(if pause { ScrubState::Paused } else { ScrubState::Running })
    }

    /// Ends the scrub that is under way. False when there is none.
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

    /// What the scrub that was begun last has found, by address in the array. At most 1024 findings; the status counts
    /// the rest.
    #[must_use]
    pub fn scrub_findings(&self) -> Vec<ScrubFinding> {
        self.shared.scrub_findings()
    }

    /// Gives the array another name, in the labels of every member in use.
    #[must_use]
    pub fn begin_rename(&self, name: Name) -> Pending {
        self.change(Change::Rename { name })
    }

    /// Has writes made safe against crashes in another way. A stronger one is recorded as soon as no write is under way
    /// that was begun before, which [`status`](Self::status) shows.
    #[must_use]
    pub fn begin_set_consistency(&self, mode: Consistency) -> Pending {
        self.change(Change::Consistency { mode })
    }

    /// What happened since this was last asked, the oldest first. Of events that are not fetched the oldest are
    /// dropped, and counted.
    #[must_use]
    pub fn drain_events(&self) -> Vec<ArrayEvent> {
        self.shared.drain_events()
    }
}
