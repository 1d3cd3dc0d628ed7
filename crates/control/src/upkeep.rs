//! The work that the daemon does automatically, every 400 ms: it starts recorded arrays, notices drives that were
//! removed or returned, uses spares, and reports what changed.
//!
//! Actions that run concurrently with a round do the work that waits for drives. An unresponsive drive therefore does
//! not delay the other drives.

use std::time::{Duration, Instant};

use strake_reactor::monotonic;

use crate::actions::Pace;
use crate::commands::exports::retry_exports;
use crate::commands::hooks::watch_hooks;
use crate::commands::hosts::withdraw_old_keys;
use crate::control::Control;
use crate::error::ControlError;
use crate::upkeep::appeared::notice_appeared;
use crate::upkeep::copies::resume_copies;
use crate::upkeep::doubt::tend_doubts;
use crate::upkeep::lights::tend_lights;
use crate::upkeep::lost::set_aside_lost;
use crate::upkeep::maintenance::follow_sanitize;
use crate::upkeep::member_config::record_on_members;
use crate::upkeep::newest::note_newest;
use crate::upkeep::pools::tend_pools;
use crate::upkeep::prospects::look_at_prospects;
use crate::upkeep::pulled::notice_pulled;
use crate::upkeep::readd::readd_returned;
use crate::upkeep::remotes::tend_remotes;
use crate::upkeep::replacement::settle_replacements;
use crate::upkeep::scrubs::tend_scrubs;
use crate::upkeep::settings::end_pauses;
use crate::upkeep::sick::{ask_drives, notice_sick};
use crate::upkeep::slow::compare_drives;
use crate::upkeep::spares::{tend_spares, use_spares};
use crate::upkeep::starting::launch_starts;
use crate::upkeep::taken::take_late;

pub(crate) mod adopt;
pub(crate) mod appeared;
pub(crate) mod check_readd;
pub(crate) mod copies;
pub(crate) mod doubt;
pub(crate) mod lights;
pub(crate) mod lost;
pub(crate) mod maintenance;
pub(crate) mod member_config;
pub(crate) mod newest;
pub(crate) mod pools;
pub(crate) mod prospects;
pub(crate) mod pulled;
pub(crate) mod readd;
pub(crate) mod remotes;
pub(crate) mod replacement;
pub(crate) mod scrubs;
pub(crate) mod settings;
pub(crate) mod shutdown;
pub(crate) mod sick;
pub(crate) mod silent;
pub(crate) mod slow;
pub(crate) mod spares;
pub(crate) mod starting;
pub(crate) mod taken;
pub(crate) mod watch;

impl Control {
    /// Runs one round of upkeep. The round waits for no drive: the work that waits for drives runs concurrently.
    ///
    /// # Errors
    /// An earlier command panicked. An event reports every other failure.
    pub fn round(&self) -> Result<(), ControlError> {
        tend(self, Pace::Beside)
    }

    /// Runs one round of upkeep, with all its actions in sequence.
    ///
    /// # Errors
    /// As [`round`](Self::round).
    pub fn tick(&self) -> Result<(), ControlError> {
        tend(self, Pace::InTurn)
    }
}

fn tend(control: &Control, pace: Pace) -> Result<(), ControlError> {
    // This step comes first: work with drives that fails or takes long does not extend the time of replaced keys. A
    // state directory that refuses changes is reported by its own check.
    control.with(|m| drop(withdraw_old_keys(m, Instant::now())))?;
    if control.audit().is_due() {
        control.act(pace, "write the audit log".to_owned(), |control| {
            control.audit().flush();
            Ok(())
        })?;
    }
    tend_remotes(control)?;
    // This step comes before any block device is opened: the block devices of taken drives are taken first.
    control.with(notice_appeared)?;
    control.act(pace, "take drives".to_owned(), take_late)?;
    launch_starts(control)?;
    if pace == Pace::InTurn {
        while !control.starts_are_over(Duration::MAX)? {}
    }
    control.with(|m| {
        m.observe();
        end_pauses(m);
    })?;
    set_aside_lost(control)?;
    tend_pools(control, pace)?;
    control.act(pace, "ask drives".to_owned(), ask_drives)?;
    if pace == Pace::InTurn || control.with(|m| m.maintenance.is_due(Instant::now()))? {
        control.act(pace, "follow sanitize operations".to_owned(), follow_sanitize)?;
    }
    if control.with(|m| m.slow.is_due())? {
        control.act(pace, "compare drives".to_owned(), compare_drives)?;
    }
    control.with(|m| {
        notice_sick(m);
        if let Err(error) = settle_replacements(m) {
            tracing::warn!(reason = %error, "the drive that replaced a member is not recorded");
        }
    })?;
    notice_pulled(control, pace)?;
    // This step comes before spares are used: the drive of a copy may be recorded as a spare.
    resume_copies(control, pace)?;
    // This step is not delayed: members that are out lack every later write.
    note_newest(control)?;
    readd_returned(control, pace)?;
    tend_spares(control, pace)?;
    use_spares(control, pace)?;
    tend_doubts(control)?;
    tend_scrubs(control)?;
    // This step comes after spares are used: the drive of a member that is out may answer late.
    look_at_prospects(control, pace)?;
    record_on_members(control, pace)?;
    note_newest(control)?;
    tend_lights(control, pace)?;
    control.with(|m| {
        m.observe();
        let mut news = m.exports.rejections(monotonic());
        news.extend(m.exports.unrecorded_news(&m.records));
        news.extend(m.exports.address_news(Instant::now()));
        news.into_iter().for_each(|note| m.record(note));
        retry_exports(m, Instant::now());
        m.watch_state_dir();
        watch_hooks(m);
    })
}
