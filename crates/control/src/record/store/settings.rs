//! Recorded settings of an array.

use serde::{Deserialize, Serialize};
use strake_api::v1::ArraySettings;
use strake_engine::Maintenance;

/// Default number of seconds between scrubs: 30 days. A silently corrupted block is then usually found before another
/// strip of its stripe is lost.
const SCRUB_EVERY_S: u64 = 30 * 24 * 3600;

/// The kinds of jobs that the operator paused. Empty in the records of releases that did not record it: the pause may
/// have been given to any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PausedJobs {
    /// The rebuild.
    pub rebuild: bool,
    /// The copy to a replacement.
    pub replace: bool,
    /// The resync, or the initialization.
    pub resync: bool,
}

impl PausedJobs {
    fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// Adds a job of `kind`. A scrub records its own pause, and a growth cannot be paused.
    pub(crate) fn set(&mut self, kind: &str) {
        match kind {
            "rebuild" => self.rebuild = true,
            "replace" => self.replace = true,
            "resync" | "initialize" => self.resync = true,
            _ => {}
        }
    }

    /// True if one of these jobs is in `listed`.
    pub(crate) fn are_in(self, listed: Self) -> bool {
        let known = if self == Self::default() {
            Self { rebuild: true, replace: true, resync: true }
        } else {
            self
        };
        let both = |ours, theirs| ours && theirs;
        both(known.rebuild, listed.rebuild)
            || both(known.replace, listed.replace)
            || both(known.resync, listed.resync)
    }
}

/// Settings of an array. `ArraySettings` of the interface documents each setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Priority of rebuild, replace and resync, 0 to 100.
    pub rebuild_priority: u8,
    /// The priority that the operator gave to the jobs in progress. It ends with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_priority: Option<u8>,
    /// A spare is used by itself.
    pub auto_replace: bool,
    /// True if a returning member is re-added automatically.
    pub auto_readd: bool,
    /// Errors after which a serving member is replaced; 0 for never.
    pub replace_after_errors: u32,
    /// Percent of the rated endurance of its drive at which a serving member is reported; 0 for never.
    pub report_at_wear_percent: u8,
    /// True if the operator paused the jobs of the array.
    pub paused: bool,
    /// The jobs that the operator paused. The pause ends with them.
    #[serde(skip_serializing_if = "PausedJobs::is_unknown")]
    pub paused_jobs: PausedJobs,
    /// Seconds from one scrub to the next; 0 for never.
    pub scrub_every_s: u64,
    /// True if scheduled scrubs repair.
    pub scrub_repair: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rebuild_priority: 50,
            job_priority: None,
            auto_replace: true,
            auto_readd: true,
            replace_after_errors: 20,
            report_at_wear_percent: 95,
            paused: false,
            paused_jobs: PausedJobs::default(),
            scrub_every_s: SCRUB_EVERY_S,
            scrub_repair: false,
        }
    }
}

impl Settings {
    /// Returns the settings for the engine.
    pub(crate) fn maintenance(self) -> Maintenance {
        Maintenance { priority: self.priority(), paused: self.paused }
    }

    /// The priority of its jobs now.
    pub(crate) fn priority(self) -> u8 {
        self.job_priority.unwrap_or(self.rebuild_priority)
    }

    /// Returns the settings with a paused job of `kind`, which pauses all jobs of the array.
    pub(crate) fn with_pause_of(mut self, kind: &str) -> Self {
        self.paused = true;
        self.paused_jobs.set(kind);
        self
    }

    /// Returns the settings without a pause.
    pub(crate) fn without_pause(self) -> Self {
        Self { paused: false, paused_jobs: PausedJobs::default(), ..self }
    }

    /// Returns the settings as a message.
    pub(crate) fn message(self) -> ArraySettings {
        ArraySettings {
            rebuild_priority: u32::from(self.rebuild_priority),
            auto_replace: self.auto_replace,
            auto_readd: self.auto_readd,
            replace_after_errors: self.replace_after_errors,
            report_at_wear_percent: self.report_at_wear_percent.into(),
            scrub_every_s: self.scrub_every_s,
            scrub_repair: self.scrub_repair,
        }
    }
}
