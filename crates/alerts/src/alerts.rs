//! All hooks, and the thread on which they run.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use strake_api::v1::{self, Event, ListHooksRequest, RemoveHookRequest, TestHookRequest};
use strake_wording::command;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;

use crate::clock::{Clock, SystemClock};
use crate::error::{AlertError, AlertErrorKind};
use crate::hook::Hook;
use crate::limits::{HOOKS_MAX, Limits, RESOLVER_THREADS};
use crate::program::Programs;
use crate::spec::{Checked, HookSpec};
use crate::way::{Inside, Setting};

/// The kind of event that a daemon may record about a failing hook. It is never delivered, because the failing hook
/// would fail again and cause the next event.
pub const KIND_HOOK_FAILED: &str = "hook_failed";

/// The settings of [`Alerts`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of this host, for recipients of events from several hosts.
    pub host: String,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The limits of the rate and of the duration.
    pub limits: Limits,
    /// Certificates (DER) that are trusted in addition to those of the host.
    pub roots: Vec<Vec<u8>>,
    /// The programs that hooks may start.
    pub programs: Programs,
}

impl Settings {
    /// Returns the default settings of the host named `host`.
    #[must_use]
    pub fn new(host: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            clock: Arc::new(SystemClock::default()),
            limits: Limits::default(),
            roots: Vec::new(),
            programs: Programs::default(),
        }
    }
}

/// The result of adding a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The hook is new.
    Created,
    /// The same hook already existed.
    Unchanged,
}

/// The hooks of a daemon. Clones share the same hooks.
#[derive(Clone, Debug)]
pub struct Alerts {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    setting: Arc<Setting>,
    runtime: Handle,
    stopping: watch::Sender<bool>,
    hooks: Mutex<BTreeMap<String, Working>>,
    /// Dropping the sender ends the thread.
    thread: Mutex<Option<oneshot::Sender<()>>>,
}

#[derive(Debug)]
struct Working {
    hook: Arc<Hook>,
    task: AbortHandle,
    /// The other end is dropped with the task. The call that stops takes this receiver.
    ended: Option<Receiver<()>>,
}

impl Alerts {
    /// Starts the thread that delivers, without hooks.
    ///
    /// # Errors
    /// `System`: the host has no thread or descriptor left.
    pub fn new(settings: Settings) -> Result<Self, AlertError> {
        Self::start(settings, Inside::Loopback)
    }

    pub(crate) fn start(settings: Settings, inside: Inside) -> Result<Self, AlertError> {
        let Settings { host, clock, limits, roots, programs } = settings;
        let failed = |e: std::io::Error| {
            AlertError::new(AlertErrorKind::System, format!("hooks cannot receive events: {e}"))
        };
        let runtime = Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(RESOLVER_THREADS)
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || {
            // An error means that the other end was dropped, which also requests the end.
            let _ = runtime.block_on(ended);
            // This call does not wait for an unresponsive resolver.
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("strake-alerts".into()).spawn(run).map_err(failed)?;
        let inner = Inner {
            setting: Arc::new(Setting { host, clock, limits, roots, programs, inside }),
            runtime: handle,
            stopping: watch::Sender::new(false),
            hooks: Mutex::default(),
            thread: Mutex::new(Some(end)),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Adds a hook at the operator's request.
    ///
    /// # Errors
    /// `Usage`: the hook is invalid, or its program may not be run. `Exists`: another hook has the name. `TooMany`:
    /// there are already [`HOOKS_MAX`] hooks. `Stopped`: alerts were stopped.
    pub fn add(&self, spec: HookSpec) -> Result<(Added, v1::Hook), AlertError> {
        let checked = self.checked(spec)?;
        self.install(checked)
    }

    /// Adds a hook that was recorded earlier. In contrast to [`Self::add`], its program may be missing at this moment:
    /// a hook must not be lost because a file system is mounted late.
    ///
    /// # Errors
    /// As [`Self::add`], except about the program.
    pub fn restore(&self, spec: HookSpec) -> Result<(Added, v1::Hook), AlertError> {
        self.install(Checked::new(spec)?)
    }

    fn install(&self, checked: Checked) -> Result<(Added, v1::Hook), AlertError> {
        let name = checked.spec.name.clone();
        let mut hooks = self.inner.hooks();
        if let Some(present) = self.present(&hooks, &checked)? {
            return Ok(present);
        }
        let hook = Arc::new(Hook::new(checked, self.inner.setting.clone()));
        let listed = hook.listed();
        hooks.insert(name, self.inner.employ(hook));
        Ok((Added::Created, listed))
    }

    /// Checks the fields and the program of a hook, without regard to the hooks in use.
    ///
    /// # Errors
    /// `Usage`: a field is invalid, or the program of an exec hook may not be run.
    pub fn check_spec(&self, spec: &HookSpec) -> Result<(), AlertError> {
        self.checked(spec.clone()).map(drop)
    }

    fn checked(&self, spec: HookSpec) -> Result<Checked, AlertError> {
        let checked = Checked::new(spec)?;
        checked.check(&self.inner.setting.programs)?;
        Ok(checked)
    }

    /// Checks whether the program of a recorded hook may run at this moment. Other hooks, and hooks that were removed,
    /// have no program.
    ///
    /// # Errors
    /// `Usage`: the program is missing or may not be run, with the reason and the remedy.
    pub fn check_program(&self, name: &str) -> Result<(), AlertError> {
        // The check may read a slow file system, so the lock is not held.
        let hook = self.inner.hooks().get(name).map(|working| Arc::clone(&working.hook));
        hook.map_or(Ok(()), |hook| hook.checked.check(&self.inner.setting.programs))
    }

    /// Returns the result that [`Self::add`] would return, without adding the hook.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub fn check(&self, spec: HookSpec) -> Result<Added, AlertError> {
        let checked = self.checked(spec)?;
        let present = self.present(&self.inner.hooks(), &checked)?;
        Ok(present.map_or(Added::Created, |(added, _)| added))
    }

    /// Returns the hook if it already exists, or the error if it cannot be added.
    fn present(
        &self,
        hooks: &BTreeMap<String, Working>,
        checked: &Checked,
    ) -> Result<Option<(Added, v1::Hook)>, AlertError> {
        if *self.inner.stopping.borrow() {
            return Err(stopped());
        }
        if let Some(present) = hooks.get(&checked.spec.name) {
            return same(&present.hook, checked).map(Some);
        }
        if hooks.len() >= HOOKS_MAX {
            let what = format!(
                "there are {HOOKS_MAX} hooks already; remove one with: {}",
                command(&RemoveHookRequest::default())
            );
            return Err(AlertError::new(AlertErrorKind::TooMany, what));
        }
        Ok(None)
    }

    /// Removes a hook. Its undelivered events are dropped, and a running delivery is cancelled. Returns the removed
    /// hook.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn remove(&self, name: &str) -> Result<v1::Hook, AlertError> {
        let working = self.inner.hooks().remove(name).ok_or_else(|| not_found(name))?;
        working.task.abort();
        Ok(working.hook.listed())
    }

    /// Returns all hooks, sorted by name, without credentials.
    #[must_use]
    pub fn list(&self) -> Vec<v1::Hook> {
        self.inner.hooks().values().map(|working| working.hook.listed()).collect()
    }

    /// Returns all hooks, sorted by name, in the form to record: with credentials.
    #[must_use]
    pub fn specs(&self) -> Vec<HookSpec> {
        self.inner.hooks().values().map(|working| working.hook.checked.spec.clone()).collect()
    }

    /// Offers `event` to every hook that requests events of its severity. Never waits for a delivery and never fails.
    /// Events that do not fit into a queue are counted and summarized in a later message.
    pub fn offer(&self, event: &Event) {
        if event.kind == KIND_HOOK_FAILED {
            return;
        }
        for working in self.inner.hooks().values() {
            working.hook.offer(event);
        }
    }

    /// Sends one test event immediately, in one attempt, without regard to the queue, the severity and the pace. Waits
    /// for the outcome, for at most the limits of one attempt. Must not be called on a thread that other work waits
    /// for.
    ///
    /// # Errors
    /// `NotFound`; `Delivery` with the reason; `Stopped` if alerts were stopped in the meantime.
    pub fn test(&self, name: &str) -> Result<v1::Hook, AlertError> {
        let hook = {
            let hooks = self.inner.hooks();
            hooks.get(name).ok_or_else(|| not_found(name))?.hook.clone()
        };
        let (sender, outcome) = channel();
        let event = test_event(name);
        let tested = hook.clone();
        let mut stopping = self.inner.stopping.subscribe();
        self.inner.runtime.spawn(async move {
            tokio::select! {
                done = tested.attempt(event) => drop(sender.send(done)),
                _ = stopping.wait_for(|stop| *stop) => {}
            }
        });
        let done = outcome.recv().map_err(|_| stopped())?;
        hook.count(done.clone());
        done.map_err(|e| {
            let what = format!("hook {name:?}: the test event did not arrive: {}", e.what);
            AlertError::new(AlertErrorKind::Delivery, what)
        })?;
        Ok(hook.listed())
    }

    /// Stops the delivery. Every hook sends its remaining events in one message and one attempt. Deliveries that have
    /// not finished after `limit` are cancelled. Hooks remain listed, and a second call does nothing.
    pub fn stop(&self, limit: Duration) -> Stopped {
        self.inner.stopping.send_replace(true);
        let mut ending = Vec::new();
        for working in self.inner.hooks().values_mut() {
            ending.extend(working.ended.take().map(|ended| (ended, working.task.clone())));
        }
        // From here on the lock is not held, so that no offer of an event waits.
        let start = Instant::now();
        let mut broken_off = 0;
        for (ended, task) in ending {
            // The task never sends a value; it drops its end.
            let left = limit.saturating_sub(start.elapsed());
            if ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                task.abort();
                broken_off += 1;
            }
        }
        self.inner.end();
        Stopped { broken_off }
    }
}

/// The result of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// The number of hooks whose last delivery was cancelled.
    pub broken_off: usize,
}

impl Inner {
    fn hooks(&self) -> MutexGuard<'_, BTreeMap<String, Working>> {
        // Single calls change the map, so a panic cannot leave a partial change.
        self.hooks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn employ(&self, hook: Arc<Hook>) -> Working {
        let (alive, ended) = channel::<()>();
        let work = hook.clone().work(self.stopping.subscribe());
        let task = self.runtime.spawn(async move {
            let _alive: Sender<()> = alive;
            work.await;
        });
        Working { hook, task: task.abort_handle(), ended: Some(ended) }
    }

    fn end(&self) {
        drop(self.thread.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn same(present: &Hook, asked: &Checked) -> Result<(Added, v1::Hook), AlertError> {
    if present.checked.spec == asked.spec {
        return Ok((Added::Unchanged, present.listed()));
    }
    let name = &asked.spec.name;
    let what = format!(
        "there is another hook called {name:?}; choose another name, or remove that one first with: {}",
        command(&RemoveHookRequest { name: name.clone() })
    );
    Err(AlertError::new(AlertErrorKind::Exists, what))
}

fn not_found(name: &str) -> AlertError {
    let what = format!(
        "there is no hook called {:?}; see them with: {}",
        crate::text::one_line(name),
        command(&ListHooksRequest {})
    );
    AlertError::new(AlertErrorKind::NotFound, what)
}

fn stopped() -> AlertError {
    AlertError::new(AlertErrorKind::Stopped, "straked is stopping; hooks receive no more events")
}

/// The event that a test sends. A real event never has number 0.
fn test_event(name: &str) -> Event {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Event {
        number: 0,
        time_us: u64::try_from(since.as_micros()).unwrap_or(u64::MAX),
        severity: "info".into(),
        kind: "test".into(),
        object: "daemon".into(),
        what: format!("this is a test of the hook {name:?}"),
        cause: format!("requested with: {}", command(&TestHookRequest { name: name.into() })),
        actor: "straked".into(),
        ..Event::default()
    }
}
