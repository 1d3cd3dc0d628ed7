//! The manager behind its lock, and the reservations of commands.
//!
//! Code that only reads, or changes memory and records, works on the [`Manager`] under the lock, which is held only for
//! a short time. A command that accesses drives is a method of [`Control`]: it plans and reserves under the lock, does
//! its I/O without the lock, and records the result under the lock. Therefore a slow drive delays only the command that
//! uses the drive. The steps of a command are functions of its module in `commands`. The steps of automatic work are
//! functions of the modules in `upkeep`.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use strake_engine::Drive;

use crate::actions::{Actions, Pace};
use crate::audit::Audit;
use crate::bounded::{self, within};
use crate::drives::{Lookup, OpenDrive, Sighting, open_at};
use crate::error::{ControlError, ControlErrorKind};
use crate::events::Events;
use crate::limits::{CLOSE_LIMIT, LOOK_LIMIT, RESERVE_WAIT};
use crate::manager::Manager;
use crate::names::drive_key;

/// The plan of a command, made under the lock, and the keys that it reserves.
pub(crate) type Planned<T> = Result<(T, Vec<String>), ControlError>;

struct Inner {
    manager: Mutex<Manager>,
    /// Notified when a key is released.
    freed: Condvar,
    events: Arc<Events>,
    audit: Arc<Audit>,
    actions: Actions,
}

/// The control plane, shared by its callers.
#[derive(Clone)]
pub struct Control {
    inner: Arc<Inner>,
}

/// The keys that one command has reserved, until this value is dropped. It is never dropped under the lock.
pub(crate) struct Reserved {
    control: Control,
    keys: Vec<String>,
    /// Keys that another part of the same work has reserved.
    borrowed: Vec<String>,
    /// Time limit of a drive.
    limit: Duration,
    /// The number of the command. A stop waits for commands.
    command: Option<u64>,
    /// Whether drives are opened that a format, a sanitize operation or an update keeps from other uses.
    purpose: Purpose,
}

/// Why drives are opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Their use: drives under maintenance are refused.
    Use,
    /// Their maintenance.
    Maintenance,
}

impl Control {
    /// Reserves `keys` for upkeep unless another command holds one of them.
    pub(crate) fn try_reserve(&self, keys: Vec<String>) -> Result<Option<Reserved>, ControlError> {
        let mut manager = self.lock()?;
        if keys.iter().any(|key| manager.reserved.contains(key)) {
            return Ok(None);
        }
        manager.reserved.extend(keys.iter().cloned());
        let mut reserved = Reserved::nothing(self, LOOK_LIMIT);
        reserved.keys = keys;
        Ok(Some(reserved))
    }
}

/// The next step of opening a drive.
enum Step {
    /// The drive is open.
    Found(Drive),
    /// The file system must be queried about this path.
    Look(String),
    /// The drive must be opened.
    Open(String, Sighting),
}

impl Reserved {
    /// Creates an empty reservation. Drives that are opened with it have the time limit `limit`.
    pub(crate) fn nothing(control: &Control, limit: Duration) -> Self {
        let (keys, borrowed) = (Vec::new(), Vec::new());
        let purpose = Purpose::Use;
        Self { control: control.clone(), keys, borrowed, limit, command: None, purpose }
    }

    /// Opens and reserves a drive, unless another command works on it.
    pub(crate) fn open_now(&mut self, spec: &str) -> Result<Drive, ControlError> {
        self.open_within(spec, Duration::ZERO)
    }

    /// Opens and reserves a drive. Waits while another command works on it.
    pub(crate) fn open(&mut self, spec: &str) -> Result<Drive, ControlError> {
        self.open_within(spec, RESERVE_WAIT)
    }

    /// Sets the time limit of drives that are opened from now on.
    pub(crate) fn limit_to(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Permits drives that a format, a sanitize operation or an update keeps from other uses. The caller checks them.
    pub(crate) fn for_maintenance(&mut self) {
        self.purpose = Purpose::Maintenance;
    }

    /// Returns the time limit of a drive.
    pub(crate) const fn limit(&self) -> Duration {
        self.limit
    }

    /// Opens and reserves a drive. Waits for `patience` while another command works on it. The wait for the drive
    /// itself happens without the lock.
    pub(crate) fn open_within(
        &mut self,
        spec: &str,
        patience: Duration,
    ) -> Result<Drive, ControlError> {
        let control = self.control.clone();
        let deadline = Instant::now() + patience;
        let mut sighted: Option<(String, Sighting)> = None;
        let mut manager = control.lock()?;
        loop {
            let step = match &sighted {
                None => match manager.drives.look_up(spec)? {
                    Lookup::Open(drive) => Step::Found(drive),
                    Lookup::At(path) => Step::Look(path),
                },
                Some((path, seen)) => match manager.drives.seen_as(path, seen) {
                    Some(drive) => Step::Found(drive),
                    None => Step::Open(path.clone(), seen.clone()),
                },
            };
            match step {
                Step::Found(drive) => {
                    if self.purpose == Purpose::Use {
                        manager.maintenance.refuse(&drive.device.identity())?;
                    }
                    let key = drive_key(&drive.device.identity());
                    if self.keys.contains(&key) || self.borrowed.contains(&key) {
                        return Ok(drive);
                    }
                    if manager.reserved.insert(key.clone()) {
                        self.keys.push(key);
                        return Ok(drive);
                    }
                }
                Step::Look(path) => {
                    let machine = manager.drives.machine().clone();
                    drop(manager);
                    let seen = Sighting::within(&path, &machine, self.limit)?;
                    sighted = Some((path, seen));
                    manager = control.lock()?;
                    continue;
                }
                Step::Open(path, seen) => {
                    let opening = seen.opening_key(&path);
                    if manager.reserved.insert(opening.clone()) {
                        drop(manager);
                        let at = path.clone();
                        let opened = bounded::ask(&path, self.limit, move || open_at(&at, seen));
                        manager = control.lock()?;
                        manager.reserved.remove(&opening);
                        control.inner.freed.notify_all();
                        let opened = opened.map_err(ControlError::from).flatten();
                        let opened = opened.inspect_err(|_| manager.drives.note_refused(&path))?;
                        sighted = Some((path, opened.sighting()));
                        manager.drives.add(opened);
                        continue;
                    }
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ControlError::state(format!("{spec} is in use by another command")));
            }
            let woken = control.inner.freed.wait_timeout(manager, left);
            manager = woken.map_err(|_| ControlError::state("the control plane is unusable"))?.0;
        }
    }

    /// Ends the command, but not its reservations: a stop no longer waits for it.
    pub(crate) fn end_command(&mut self) {
        if let Some(command) = self.command.take() {
            self.control.free(&[], Some(command));
        }
    }

    /// Returns the reserved keys.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.keys.clone()
    }

    /// Treats `keys`, which the same piece of work has reserved, as reserved here.
    pub(crate) fn borrow(&mut self, keys: Vec<String>) {
        self.borrowed = keys;
    }

    /// Takes over the keys of `other`.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        self.keys.append(&mut other.keys);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.keys.is_empty() && self.command.is_none() {
            return;
        }
        self.control.free(&self.keys, self.command);
    }
}

/// Closes drives, without waiting for unresponsive drives.
fn close(drives: Vec<OpenDrive>) {
    if drives.is_empty() {
        return;
    }
    let paths: Vec<String> = drives.iter().map(|d| d.drive.path.clone()).collect();
    if within("drive close", CLOSE_LIMIT, move || drop(drives)).is_none() {
        tracing::warn!(drives = ?paths, "not closed yet: a drive does not answer");
    }
}

impl Control {
    /// Shares `manager`.
    #[must_use]
    pub fn new(manager: Manager) -> Self {
        let events = manager.events();
        let audit = manager.audit();
        let (freed, actions) = (Condvar::new(), Actions::default());
        let inner = Inner { manager: Mutex::new(manager), freed, events, audit, actions };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the events, which do not need the lock of the manager.
    #[must_use]
    pub fn events(&self) -> &Arc<Events> {
        &self.inner.events
    }

    /// Returns the audit log, which does not need the lock of the manager.
    #[must_use]
    pub fn audit(&self) -> &Arc<Audit> {
        &self.inner.audit
    }

    /// Returns the actions of upkeep.
    pub(crate) fn actions(&self) -> &Actions {
        &self.inner.actions
    }

    fn lock(&self) -> Result<MutexGuard<'_, Manager>, ControlError> {
        self.inner.manager.lock().map_err(|_| {
            ControlError::new(
                ControlErrorKind::Internal,
                "an earlier command panicked and left the control plane unusable; restart straked",
            )
        })
    }

    /// Runs `job` under the lock; it must not wait for drives.
    ///
    /// # Errors
    /// The error of `job`, or an error if an earlier command panicked.
    pub fn run<T>(
        &self,
        job: impl FnOnce(&mut Manager) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        let mut manager = self.lock()?;
        let done = job(&mut manager);
        self.close_unused(manager);
        done
    }

    /// Runs a `job` that cannot fail under the lock.
    ///
    /// # Errors
    /// If an earlier command panicked.
    pub(crate) fn with<T>(&self, job: impl FnOnce(&mut Manager) -> T) -> Result<T, ControlError> {
        self.run(|manager| Ok(job(manager)))
    }

    /// Closes unused drives without the lock. Until then, their paths are reserved as if they were being opened, so a
    /// command for such a drive waits instead of finding the drive in use.
    fn close_unused(&self, mut manager: MutexGuard<'_, Manager>) {
        let closed = manager.drives.take_closed();
        if closed.is_empty() {
            return;
        }
        let openings = closed.iter().map(|d| d.sighting().opening_key(&d.drive.path));
        let openings: Vec<String> =
            openings.filter(|key| manager.reserved.insert(key.clone())).collect();
        drop(manager);
        close(closed);
        // The set of names is valid even after a panic elsewhere.
        let mut manager = self.inner.manager.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &openings {
            manager.reserved.remove(key);
        }
        drop(manager);
        self.inner.freed.notify_all();
    }

    /// Waits until `done` returns true, at most for `limit`. Returns the last result. `done` is called whenever a key
    /// is released.
    pub(crate) fn wait_until(
        &self,
        limit: Duration,
        done: impl Fn(&Manager) -> bool,
    ) -> Result<bool, ControlError> {
        let begun = Instant::now();
        let mut manager = self.lock()?;
        while !done(&manager) {
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            let woken = self.inner.freed.wait_timeout(manager, left.min(LOOK_LIMIT));
            manager = woken.map_err(|_| ControlError::state("the control plane is unusable"))?.0;
        }
        Ok(true)
    }

    /// Wakes all waiting tasks, which check their conditions again.
    pub(crate) fn wake_waiters(&self) {
        self.inner.freed.notify_all();
    }

    /// Releases `keys`, and closes unused drives.
    fn free(&self, keys: &[String], command: Option<u64>) {
        // The set of names is valid even after a panic elsewhere.
        let mut manager = self.inner.manager.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            manager.reserved.remove(key);
        }
        manager.close_unused_drives();
        self.close_unused(manager);
        if let Some(command) = command {
            // This is the last step of the command.
            let mut manager = self.inner.manager.lock().unwrap_or_else(PoisonError::into_inner);
            manager.commands.end(command);
        }
        self.inner.freed.notify_all();
    }

    /// Runs `plan` under the lock and reserves the returned keys. If another command holds one of the keys, waits for
    /// its release and plans again.
    pub(crate) fn reserve<T>(
        &self,
        mut plan: impl FnMut(&mut Manager) -> Planned<T>,
    ) -> Result<(T, Reserved), ControlError> {
        self.reserve_within(RESERVE_WAIT, &mut plan)
    }

    /// Like [`reserve`](Self::reserve), but waits at most for `limit`.
    pub(crate) fn reserve_within<T>(
        &self,
        limit: Duration,
        mut plan: impl FnMut(&mut Manager) -> Planned<T>,
    ) -> Result<(T, Reserved), ControlError> {
        let deadline = Instant::now() + limit;
        let mut manager = self.lock()?;
        loop {
            let (planned, keys) = plan(&mut manager)?;
            let Some(taken) = keys.iter().find(|key| manager.reserved.contains(*key)) else {
                manager.reserved.extend(keys.iter().cloned());
                let command = Some(manager.commands.begin(&keys));
                drop(manager);
                let mut reserved = Reserved::nothing(self, LOOK_LIMIT);
                (reserved.keys, reserved.command) = (keys, command);
                return Ok((planned, reserved));
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ControlError::state(format!(
                    "another command has been working on {taken} for {} seconds; try again when that command has ended",
                    limit.as_secs()
                )));
            }
            // The plan is dropped completely, because the next plan starts from the state after the wait.
            drop(planned);
            let woken = self.inner.freed.wait_timeout(manager, left);
            manager = woken.map_err(|_| ControlError::state("the control plane is unusable"))?.0;
        }
    }
}

impl Control {
    /// Runs `job` as the action `name`.
    ///
    /// # Errors
    /// If the job ran in turn and an earlier command panicked.
    pub(crate) fn act(
        &self,
        pace: Pace,
        name: String,
        job: impl FnOnce(&Self) -> Result<(), ControlError> + Send + 'static,
    ) -> Result<(), ControlError> {
        if pace == Pace::InTurn {
            return job(self);
        }
        let Some(under_way) = self.actions().begin(name) else { return Ok(()) };
        let control = self.clone();
        let run = move || {
            if let Err(error) = job(&control) {
                tracing::warn!(action = %under_way.name, reason = %error, "not done");
            }
            drop(under_way);
        };
        // Without a thread, the next round tries again.
        if let Err(error) = thread::Builder::new().name("upkeep".to_owned()).spawn(run) {
            tracing::warn!(reason = %error, "no thread for upkeep");
        }
        Ok(())
    }
}
