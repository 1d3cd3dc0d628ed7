//! How an array behaves, as it is recorded.

use serde::{Deserialize, Serialize};
use strake_api::v1::ArraySettings;
use strake_engine::Maintenance;

/// Seconds between scrubs of arrays for which the operator set nothing else: 30 days. A block that went bad silently is
/// then found while, most likely, nothing else of its stripe is lost.
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

    /// Whether one of these jobs is among `listed`.
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

/// How an array behaves; what each means is said in the interface's `ArraySettings`.
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
    /// A member that comes back is taken by itself.
    pub auto_readd: bool,
    /// Errors after which a member that serves is replaced; 0 for never.
    pub replace_after_errors: u32,
    /// Its jobs are paused, on the order of the operator.
    pub paused: bool,
    /// The jobs that the operator paused. The pause ends with them.
    #[serde(skip_serializing_if = "PausedJobs::is_unknown")]
    pub paused_jobs: PausedJobs,
    /// Seconds from one scrub to the next; 0 for never.
    pub scrub_every_s: u64,
    /// A scrub that begins by itself repairs.
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
            paused: false,
            paused_jobs: PausedJobs::default(),
            scrub_every_s: SCRUB_EVERY_S,
            scrub_repair: false,
        }
    }
}

impl Settings {
    /// As the engine takes it.
    pub(crate) fn maintenance(self) -> Maintenance {
        Maintenance { priority: self.priority(), paused: self.paused }
    }

    /// The priority of its jobs now.
    pub(crate) fn priority(self) -> u8 {
        self.job_priority.unwrap_or(self.rebuild_priority)
    }

    /// The same with a job of `kind` paused, and with it all jobs of the array.
    pub(crate) fn with_pause_of(mut self, kind: &str) -> Self {
        self.paused = true;
        self.paused_jobs.set(kind);
        self
    }

    /// The same without any pause.
    pub(crate) fn without_pause(self) -> Self {
        Self { paused: false, paused_jobs: PausedJobs::default(), ..self }
    }

    /// As a message.
    pub(crate) fn message(self) -> ArraySettings {
        ArraySettings {
            rebuild_priority: u32::from(self.rebuild_priority),
            auto_replace: self.auto_replace,
            auto_readd: self.auto_readd,
            replace_after_errors: self.replace_after_errors,
            scrub_every_s: self.scrub_every_s,
            scrub_repair: self.scrub_repair,
        }
    }
}
