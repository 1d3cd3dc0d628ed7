//! Notification hooks. The crate `strake-alerts` delivers events; this module records hooks, and converts their
//! failures into events that no hook delivers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::{fs, thread};

use strake_alerts::{AlertError, AlertErrorKind, Alerts, Programs, Settings};
use strake_api::v1::Hook;

use crate::bounded::{self, Job};
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Events, Note};
use crate::limits::{GLANCE_LIMIT, HOOKS_STOP, LOOK_LIMIT};
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
        let checked = alerts.clone();
        look_later(move || refusals(&checked));
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

/// Logs the result of `refusals`, on a thread: arrays must not wait for the file systems of programs.
fn look_later(refusals: impl FnOnce() -> Vec<(String, String)> + Send + 'static) {
    let look = move || {
        for (hook, why) in refusals() {
            tracing::warn!(hook, "the program of this hook would not run: {why}");
        }
    };
    if let Err(error) = thread::Builder::new().name("hook programs".to_owned()).spawn(look) {
        tracing::warn!(%error, "the programs of hooks are not checked at this start");
    }
}

/// Returns the names of hooks whose program would not run, each with the reason and the remedy. A program whose file
/// system does not answer may run later.
pub(crate) fn refusals(alerts: &Alerts) -> Vec<(String, String)> {
    let checking = alerts.clone();
    let why = move |name: &str| checking.check_program(name).err().map(|error| error.what);
    refused_by(alerts.list(), LOOK_LIMIT, why)
}

/// Returns the names of the exec hooks that `why` refuses, each with the reason. The hooks are checked side by side,
/// and a program that does not answer occupies one thread, regardless of the number of calls.
fn refused_by(
    hooks: Vec<Hook>,
    limit: Duration,
    why: impl Fn(&str) -> Option<String> + Clone + Send + 'static,
) -> Vec<(String, String)> {
    let job = |Hook { name, target, .. }: Hook| -> Job<Option<(String, String)>> {
        let (why, of, hook) = (why.clone(), name.clone(), name.clone());
        let check = move || {
            let refusal = bounded::ask(&target, limit, move || why(&of)).ok()??;
            Some((hook, refusal))
        };
        (name, Box::new(check))
    };
    let jobs = hooks.into_iter().filter(|hook| hook.kind == "exec").map(job).collect();
    // Every job ends by itself; the reserve lets it record a program that does not answer.
    let (refused, _) = bounded::side_by_side(jobs, Instant::now() + limit + GLANCE_LIMIT);
    refused.into_iter().flatten().collect()
}

/// Returns the name of the host, for recipients of events from several hosts.
fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::{look_later, refused_by};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Barrier, Mutex, PoisonError, mpsc};
    use std::time::Duration;
    use strake_api::v1::Hook;

    const LONG: Duration = Duration::from_secs(60);

    fn hook(name: &str, kind: &str) -> Hook {
        let (name, kind) = (name.to_owned(), kind.to_owned());
        Hook { target: format!("/absent/hooks-of-tests/{name}"), name, kind, ..Hook::default() }
    }

    /// The gate opens after the call. A start that waited for the check would never open it.
    #[test]
    fn a_start_does_not_wait_for_a_hook_program_that_does_not_answer() {
        let (open, gate) = mpsc::channel::<()>();
        let (done, looked) = mpsc::channel();
        look_later(move || {
            gate.recv().expect("the gate opens");
            done.send(()).expect("the test waits");
            Vec::new()
        });
        open.send(()).expect("the check waits");
        looked.recv_timeout(LONG).expect("the check continues");
    }

    #[test]
    fn only_programs_are_checked_and_each_has_its_own_reason() {
        let hooks =
            vec![hook("a", "exec"), hook("b", "webhook"), hook("c", "exec"), hook("d", "exec")];
        let mut refused =
            refused_by(hooks, LONG, |name| (name != "d").then(|| format!("not {name}")));
        refused.sort();
        let expected = [("a", "not a"), ("c", "not c")];
        assert_eq!(refused, expected.map(|(name, why)| (name.to_owned(), why.to_owned())));
    }

    /// The checks meet: one after the other would never meet.
    #[test]
    fn programs_are_checked_side_by_side() {
        let hooks: Vec<Hook> = ["e", "f", "g"].map(|name| hook(name, "exec")).into();
        let meeting = Arc::new(Barrier::new(hooks.len()));
        let refused = refused_by(hooks, LONG, move |name| {
            meeting.wait();
            Some(name.to_owned())
        });
        assert_eq!(refused.len(), 3, "{refused:?}");
    }

    /// A second call starts no second thread at a program that does not answer.
    #[test]
    fn a_silent_program_is_asked_once() {
        let (open, gate) = mpsc::channel::<()>();
        let (gate, calls) = (Arc::new(Mutex::new(gate)), Arc::new(AtomicU32::new(0)));
        let ask = || {
            let (gate, calls) = (Arc::clone(&gate), Arc::clone(&calls));
            refused_by(vec![hook("h", "exec")], Duration::from_secs(1), move |_| {
                calls.fetch_add(1, Ordering::Relaxed);
                let gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
                gate.recv().err().map(|error| error.to_string())
            })
        };
        assert_eq!(ask(), []);
        assert_eq!(ask(), []);
        assert!(calls.load(Ordering::Relaxed) <= 1, "{calls:?}");
        drop(open);
    }
}
