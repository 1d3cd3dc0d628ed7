//! Notification hooks. The crate `strake-alerts` delivers events; this module records hooks, and converts their
//! failures into events that no hook delivers.

use std::collections::BTreeMap;
use std::fs;

use strake_alerts::{AlertError, AlertErrorKind, Alerts, Programs, Settings};
use strake_api::v1::Hook;

use crate::bounded;
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Events, Note};
use crate::limits::{HOOKS_STOP, LOOK_LIMIT};
use crate::record::store::Config;

impl From<AlertError> for ControlError {
    fn from(error: AlertError) -> Self {
        let kind = match error.kind {
            AlertErrorKind::Usage => ControlErrorKind::Usage,
            AlertErrorKind::Exists => ControlErrorKind::Exists,
            AlertErrorKind::NotFound => ControlErrorKind::NotFound,
            AlertErrorKind::TooMany => ControlErrorKind::State,
            AlertErrorKind::Delivery | AlertErrorKind::System => ControlErrorKind::Device,
            AlertErrorKind::Stopped => ControlErrorKind::Stopped,
        };
        Self::new(kind, error.what)
    }
}

/// The hooks in use, and the last report about each hook.
pub(crate) struct Hooks {
    pub(crate) alerts: Alerts,
    seen: BTreeMap<String, Seen>,
}

/// The last observed state of a hook.
#[derive(Clone, Copy, Default)]
struct Seen {
    delivered: u64,
    failed: u64,
    /// True if a failure was reported and the hook has delivered nothing since.
    reported: bool,
}

impl Hooks {
    /// Starts the recorded hooks before the first event of this run. A hook that cannot start is reported, and stays
    /// recorded.
    pub(crate) fn start(
        config: &Config,
        events: &Events,
        programs: Programs,
    ) -> Result<Self, ControlError> {
        let alerts = Alerts::new(Settings { programs, ..Settings::new(host()) })?;
        for spec in &config.hooks {
            if let Err(error) = alerts.restore(spec.clone()) {
                let what = format!("the recorded hook {:?} is not in use", spec.name);
                events.record(Note::new(EventKind::HookFailed, "daemon", what).cause(error.what));
            }
        }
        for spec in &config.hooks {
            if let Some(why) = refusal(&alerts, &spec.name) {
                tracing::warn!(hook = spec.name, "the program of this hook would not run: {why}");
            }
        }
        let listener = alerts.clone();
        events.listen(move |event| listener.offer(event));
        Ok(Self { alerts, seen: BTreeMap::new() })
    }

    /// Waits for the pending deliveries of every hook.
    pub(crate) fn stop(&self) {
        let stopped = self.alerts.stop(HOOKS_STOP);
        if stopped.broken_off > 0 {
            tracing::warn!(
                hooks = stopped.broken_off,
                "the last events of hooks were not delivered"
            );
        }
    }

    /// True if a hook has delivered nothing since its last known failure.
    pub(crate) fn is_failing(&self, hook: &Hook) -> bool {
        let seen = self.seen.get(&hook.name).copied().unwrap_or_default();
        hook.failed > seen.failed || (seen.reported && hook.delivered == seen.delivered)
    }

    /// Forgets a hook that was removed.
    pub(crate) fn forget(&mut self, name: &str) {
        self.seen.remove(name);
    }

    /// Returns the hooks that started to fail since the last call.
    pub(crate) fn failing(&mut self) -> Vec<Hook> {
        let mut failing = Vec::new();
        for hook in self.alerts.list() {
            let seen = self.seen.entry(hook.name.clone()).or_default();
            let reported = seen.reported && hook.delivered == seen.delivered;
            let fails = hook.failed > seen.failed;
            *seen = Seen {
                delivered: hook.delivered,
                failed: hook.failed,
                reported: reported || fails,
            };
            if fails && !reported {
                failing.push(hook);
            }
        }
        failing
    }
}

/// Returns the reason why the program of the hook `name` would not run, with the remedy. A program whose file system
/// does not answer may run later.
pub(crate) fn refusal(alerts: &Alerts, name: &str) -> Option<String> {
    let (alerts, name) = (alerts.clone(), name.to_owned());
    let checked = bounded::within("hook program", LOOK_LIMIT, move || alerts.check_program(&name));
    checked?.err().map(|error| error.what)
}

/// Returns the name of the host, for recipients of events from several hosts.
fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}
