//! Commands that add, remove and test hooks.

use strake_alerts::{Added, AlertErrorKind, HookSpec};
use strake_api::v1::{
    AddHookRequest, Hook, HookChange, ListHooksRequest, ListHooksResponse, RemoveHookRequest,
    TestHookRequest,
};
use strake_wording::say;

use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;

impl Control {
    /// Adds a hook, which reports events from now on. For an existing equal hook, the result is "unchanged".
    ///
    /// # Errors
    /// If the hook is invalid, its name is in use, there are too many hooks, or it cannot be recorded.
    pub fn add_hook(&self, request: &AddHookRequest) -> Result<HookChange, ControlError> {
        let spec = HookSpec::from(request.clone());
        // The check reads the program of an exec hook, possibly from a slow file system, so the lock is not held.
        let alerts = self.with(|m| m.hooks.alerts.clone())?;
        alerts.check_spec(&spec)?;
        self.run(|m| add_hook(m, spec))
    }

    /// Removes a hook.
    ///
    /// # Errors
    /// If there is no such hook, or the removal cannot be recorded.
    pub fn remove_hook(&self, request: &RemoveHookRequest) -> Result<HookChange, ControlError> {
        self.run(|m| remove_hook(m, &request.name))
    }

    /// Delivers a test event and returns the result: "delivered" or "failed". Waits for the receiver without the lock.
    ///
    /// # Errors
    /// If there is no such hook, or the daemon is stopping.
    pub fn test_hook(&self, request: &TestHookRequest) -> Result<HookChange, ControlError> {
        let alerts = self.run(|m| {
            m.check_open()?;
            Ok(m.hooks.alerts.clone())
        })?;
        let (result, what) = match alerts.test(&request.name) {
            Ok(hook) => ("delivered", format!("a test event was delivered to {}", hook.target)),
            Err(error) if error.kind == AlertErrorKind::Delivery => ("failed", error.what),
            Err(error) => return Err(error.into()),
        };
        let hook = alerts.list().into_iter().find(|hook| hook.name == request.name);
        Ok(HookChange { result: result.into(), hook, what })
    }
}

impl Manager {
    /// Returns all hooks without their credentials.
    #[must_use]
    pub fn list_hooks(&self) -> ListHooksResponse {
        ListHooksResponse { hooks: self.hooks.alerts.list() }
    }
}

/// Returns true if the hook would be added. Refuses the same hooks as [`Control::add_hook`].
pub(crate) fn would_add_hook(manager: &Manager, spec: HookSpec) -> Result<bool, ControlError> {
    manager.check_open()?;
    Ok(manager.hooks.alerts.check(spec)? == Added::Created)
}

fn add_hook(manager: &mut Manager, spec: HookSpec) -> Result<HookChange, ControlError> {
    manager.check_open()?;
    let mut config = manager.records.config.clone();
    config.hooks.retain(|h| h.name != spec.name);
    config.hooks.push(spec.clone());
    // The hook is recorded first. The record is dropped if the hook is refused.
    let prepared = manager.records.store.prepare(&config)?;
    let (added, hook) = manager.hooks.alerts.restore(spec)?;
    let what = format!("{}: minimum severity {}", hook.target, at_least(&hook));
    let result = match added {
        Added::Unchanged => "unchanged",
        Added::Created => {
            match prepared.commit() {
                Ok(config) => manager.records.config = config,
                Err(error) => {
                    // A hook that is not recorded must not stay in use.
                    drop(manager.hooks.alerts.remove(&hook.name));
                    return Err(error);
                }
            }
            let reported = format!("hook {} was added: {what}", hook.name);
            manager.record(Note::new(EventKind::HookChanged, "daemon", reported));
            "created"
        }
    };
    Ok(HookChange { result: result.into(), hook: Some(hook), what })
}

fn remove_hook(manager: &mut Manager, name: &str) -> Result<HookChange, ControlError> {
    manager.check_open()?;
    let Some(recorded) = manager.records.hooks.iter().find(|h| h.name == name).cloned() else {
        let what = format!("there is no hook called {name:?}; see them with: ");
        return Err(ControlError::not_found(say(what).run(ListHooksRequest {})));
    };
    manager.records.change(|config| config.hooks.retain(|h| h.name != name))?;
    // A hook that this version does not support is recorded but not in use.
    let hook = manager.hooks.alerts.remove(name).or_else(|_| recorded.listed()).ok();
    manager.hooks.forget(name);
    let what = format!("hook {name} was removed");
    manager.record(Note::new(EventKind::HookChanged, "daemon", what));
    let what = "the hook delivers no more events; undelivered events are dropped".into();
    Ok(HookChange { result: "removed".into(), hook, what })
}

/// Records an event when a hook starts to fail.
pub(crate) fn watch_hooks(manager: &mut Manager) {
    for hook in manager.hooks.failing() {
        let what = format!("hook {}: delivery to {} failed", hook.name, hook.target);
        let note = Note::new(EventKind::HookFailed, "daemon", what).cause(hook.last_error);
        manager.record(note.next(TestHookRequest { name: hook.name }));
    }
}

fn at_least(hook: &Hook) -> String {
    match hook.severity.as_str() {
        "critical" => "critical".to_owned(),
        severity => format!("{severity} and worse"),
    }
}
