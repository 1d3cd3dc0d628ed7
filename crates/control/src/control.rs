//! The manager behind its lock, and who may work on what at the same time.
//!
//! Looking at things, and everything that only changes memory and records, is a method of [`Manager`] called under
//! the lock, which is held shortly. A command that talks to drives is a method of [`Control`]: it looks and reserves
//! what it needs under the lock, does its I/O without it, and takes note of the outcome under it again. So a drive
//! that is slow holds up the command that uses it, and no other.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use strake_engine::Drive;

use crate::error::{ControlError, ControlErrorKind};
use crate::events::Events;
use crate::limits::RESERVE_WAIT;
use crate::manager::{Manager, drive_key};

/// What a command found out under the lock, and the keys it reserves for what follows.
pub(crate) type Planned<T> = Result<(T, Vec<String>), ControlError>;

struct Inner {
    manager: Mutex<Manager>,
    /// Told when something is no longer reserved.
    freed: Condvar,
    events: Arc<Events>,
}

/// The control plane, to be shared by everybody who calls it.
#[derive(Clone)]
pub struct Control {
    inner: Arc<Inner>,
}

/// Things that one command works on, until it is dropped. Never dropped under the lock.
pub(crate) struct Reserved {
    control: Control,
    keys: Vec<String>,
}

impl Control {
    /// Reserves `keys` unless another command holds one of them.
    pub(crate) fn try_reserve(&self, keys: Vec<String>) -> Result<Option<Reserved>, ControlError> {
        let mut manager = self.lock()?;
        if keys.iter().any(|key| manager.reserved.contains(key)) {
            return Ok(None);
        }
        manager.reserved.extend(keys.iter().cloned());
        Ok(Some(Reserved { control: self.clone(), keys }))
    }
}

impl Reserved {
    /// Opens a drive and reserves it as well, unless another command works on it.
    pub(crate) fn open_now(&mut self, spec: &str) -> Result<Drive, ControlError> {
        let mut manager = self.control.lock()?;
        let drive = manager.drives.open(spec)?;
        let key = drive_key(&drive.device.info().identity);
        if self.keys.contains(&key) {
            return Ok(drive);
        }
        if !manager.reserved.insert(key.clone()) {
            return Err(ControlError::state(format!("{spec} is in use by another command")));
        }
        drop(manager);
        self.keys.push(key);
        Ok(drive)
    }

    /// Opens a drive and reserves it as well. Waits while another command works on it.
    pub(crate) fn open(&mut self, spec: &str) -> Result<Drive, ControlError> {
        let (drive, mut further) = {
            let own = &self.keys;
            self.control.reserve(|manager| {
                let drive = manager.drives.open(spec)?;
                let key = drive_key(&drive.device.info().identity);
                let keys = if own.contains(&key) { Vec::new() } else { vec![key] };
                Ok((drive, keys))
            })?
        };
        self.keys.append(&mut further.keys);
        Ok(drive)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        // A panic elsewhere does not make the set of names wrong.
        let mut manager = self.control.inner.manager.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &self.keys {
            manager.reserved.remove(key);
        }
        manager.close_unused_drives();
        drop(manager);
        self.control.inner.freed.notify_all();
    }
}

impl Control {
    /// Shares `manager`.
    #[must_use]
    pub fn new(manager: Manager) -> Self {
        let events = manager.events();
        let inner = Inner { manager: Mutex::new(manager), freed: Condvar::new(), events };
        Self { inner: Arc::new(inner) }
    }

    /// Events, which need no lock of the manager.
    #[must_use]
    pub fn events(&self) -> &Arc<Events> {
        &self.inner.events
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
    /// What `job` returns, or that an earlier command panicked.
    pub fn run<T>(
        &self,
        job: impl FnOnce(&mut Manager) -> Result<T, ControlError>,
    ) -> Result<T, ControlError> {
        job(&mut *self.lock()?)
    }

    /// Runs `plan` under the lock and reserves the keys it returns. While another command holds one of them, waits
    /// for that one's end and plans anew.
    pub(crate) fn reserve<T>(
        &self,
        mut plan: impl FnMut(&mut Manager) -> Planned<T>,
    ) -> Result<(T, Reserved), ControlError> {
        let deadline = Instant::now() + RESERVE_WAIT;
        let mut manager = self.lock()?;
        loop {
            let (planned, keys) = plan(&mut manager)?;
            let Some(taken) = keys.iter().find(|key| manager.reserved.contains(*key)) else {
                manager.reserved.extend(keys.iter().cloned());
                drop(manager);
                return Ok((planned, Reserved { control: self.clone(), keys }));
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ControlError::state(format!(
                    "another command has been working on {taken} for {} seconds; try again when it has ended",
                    RESERVE_WAIT.as_secs()
                )));
            }
            // Nothing that was planned may be kept: it is planned anew from what is there then.
            drop(planned);
            let woken = self.inner.freed.wait_timeout(manager, left);
            manager = woken.map_err(|_| ControlError::state("the control plane is unusable"))?.0;
        }
    }
}
