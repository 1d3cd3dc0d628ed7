//! What the daemon does by itself, twice a second: starts what waits, notices drives that went and came back, uses
//! spares, and tells what changed.
//!
//! What waits for drives is done by actions beside a round, so that one drive that hangs holds up none of the others.

use std::time::Duration;

use strake_reactor::monotonic;

use crate::actions::Pace;
use crate::control::Control;
use crate::error::ControlError;

pub(crate) mod adopt;
pub(crate) mod copies;
pub(crate) mod exports;
pub(crate) mod lost;
pub(crate) mod member_config;
pub(crate) mod newest;
pub(crate) mod prospects;
pub(crate) mod pulled;
pub(crate) mod remotes;
pub(crate) mod replacement;
pub(crate) mod returned;
pub(crate) mod returns;
pub(crate) mod scrubs;
pub(crate) mod shutdown;
pub(crate) mod sick;
pub(crate) mod spares;
pub(crate) mod starting;
pub(crate) mod watch;

impl Control {
    /// One round of upkeep, which waits for no drive: what does so goes on beside it.
    ///
    /// # Errors
    /// When an earlier command panicked; whatever else goes wrong is told by an event.
    pub fn round(&self) -> Result<(), ControlError> {
        self.tend(Pace::Beside)
    }

    /// One round of upkeep with all that it does, one piece after the other.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub fn tick(&self) -> Result<(), ControlError> {
        self.tend(Pace::InTurn)
    }

    fn tend(&self, pace: Pace) -> Result<(), ControlError> {
        self.tend_remotes()?;
        self.launch_starts()?;
        if pace == Pace::InTurn {
            while !self.starts_are_over(Duration::MAX)? {}
        }
        self.run(|m| {
            m.observe();
            m.end_pauses();
            Ok(())
        })?;
        self.set_aside_lost()?;
        self.act(pace, "ask drives".to_owned(), Self::ask_drives)?;
        self.run(|m| {
            m.notice_sick();
            if let Err(error) = m.settle_replacements() {
                tracing::warn!(reason = %error, "the drive that took a member's place is not recorded");
            }
            Ok(())
        })?;
        self.notice_pulled(pace)?;
        // Before spares: the drive of a copy may be recorded as one.
        self.resume_copies(pace)?;
        // At once: what is written from here on is missing on whoever is out.
        self.note_newest()?;
        self.readd_returned(pace)?;
        self.tend_spares(pace)?;
        self.use_spares(pace)?;
        self.tend_scrubs()?;
        // After spares: a drive that is out may take long to answer.
        self.look_at_prospects(pace)?;
        self.record_on_members(pace)?;
        self.note_newest()?;
        self.run(|m| {
            m.observe();
            m.tell_rejections(monotonic());
            m.tell_unrecorded();
            m.watch_crowds();
            m.watch_state_dir();
            m.watch_hooks();
            Ok(())
        })
    }
}
