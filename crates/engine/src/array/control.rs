//! What a person, or whoever looks after an array, may ask of it while it serves.

use strake_raid::MemberEvent;
use strake_units::{MemberIndex, Name};

use super::{Array, Pending};
use crate::error::ArrayError;
use crate::events::ArrayEvent;
use crate::message::Control;
use crate::pacing::Maintenance;

impl Array {
    /// Takes `member` out of use. What is not being written at that moment is flushed and unmarked first, so that a
    /// machine that dies while the member is out leaves as little in doubt as possible.
    ///
    /// # Errors
    /// When there is no such member, or the array would lose data without it.
    pub fn begin_fail(&self, member: MemberIndex) -> Result<Pending, ArrayError> {
        self.check_member(member)?;
        Ok(self.ask(0, |reply| Control::Fail { member, event: MemberEvent::OperatorFailed, reply }))
    }

    /// Takes `member` out of use because its drive is no longer where it was, though it may still answer: somebody
    /// pulled it. It is recorded as missing, and may come back.
    ///
    /// # Errors
    /// As [`begin_fail`](Self::begin_fail): a drive that the data depends on is used for as long as it answers.
    pub fn begin_vanish(&self, member: MemberIndex) -> Result<Pending, ArrayError> {
        self.check_member(member)?;
        Ok(self.ask(0, |reply| Control::Fail { member, event: MemberEvent::Vanished, reply }))
    }

    /// Says how resync and rebuild shall go from now on. Takes effect with the next turn of every core; what has been
    /// begun is finished.
    pub fn set_maintenance(&self, maintenance: Maintenance) {
        self.board.set_maintenance(maintenance);
        for shard in &self.shards {
            shard.tell(Control::Pace);
        }
    }

    /// Tries again to resynchronize and rebuild what had to stop.
    #[must_use]
    pub fn begin_resume(&self) -> Pending {
        self.ask(0, |reply| Control::Resume { reply })
    }

    /// Gives the array another name, in the labels of every member in use.
    #[must_use]
    pub fn begin_rename(&self, name: Name) -> Pending {
        self.ask(0, |reply| Control::Rename { name, reply })
    }

    /// What happened since this was last asked, the oldest first. Of events that nobody fetches the oldest are
    /// dropped, and counted.
    #[must_use]
    pub fn drain_events(&self) -> Vec<ArrayEvent> {
        self.board.drain_events()
    }
}
