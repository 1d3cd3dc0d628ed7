//! Opening in a separate thread, so that it cannot block the caller, with one attempt per path at a time.

use crate::device::{OpenOptions, Shared};
use crate::error::Notice;
use crate::limits::OPEN_LIMIT;
use crate::open;
use crate::wait::now;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use strake_block::{DeviceError, IoErrorKind};
use strake_units::Nanos;

type Opened = Result<(Shared, Vec<Notice>), DeviceError>;

/// Paths that are being opened, and the start of each attempt.
static OPENINGS: Mutex<BTreeMap<PathBuf, Nanos>> = Mutex::new(BTreeMap::new());
/// Notified when an attempt has finished.
static DONE: Condvar = Condvar::new();

fn openings() -> MutexGuard<'static, BTreeMap<PathBuf, Nanos>> {
    // Every change of the map is one step, so a thread that panicked left it consistent.
    OPENINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The exclusive right to open a path.
struct Turn(PathBuf);

impl Turn {
    /// Waits for an earlier attempt, at most for `limit`; returns the start of that attempt if it has not finished.
    fn take(path: &Path, limit: Duration) -> Result<Self, Nanos> {
        let (mut openings, _) = DONE
            .wait_timeout_while(openings(), limit, |openings| openings.contains_key(path))
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = openings.get(path) {
            return Err(*since);
        }
        openings.insert(path.to_owned(), now());
        Ok(Self(path.to_owned()))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        openings().remove(&self.0);
        DONE.notify_all();
    }
}

fn hangs(path: &Path, since: Nanos) -> DeviceError {
    let seconds = now().since(since).0 / Nanos::SECOND.0;
    let what = format!(
        "hangs: the kernel has not opened it for {seconds} s; it can be opened when it answers, or after it was \
         power-cycled"
    );
    DeviceError::new(IoErrorKind::Timeout, path.display().to_string(), what)
}

/// As [`open::open`], with a timeout of [`OPEN_LIMIT`]. The attempt then continues until the kernel returns; until then
/// there is no other attempt at this path.
pub(crate) fn open(path: &Path, options: OpenOptions) -> Opened {
    open_within(path, options, OPEN_LIMIT)
}

/// As [`open()`], with a timeout of `limit`.
pub(crate) fn open_within(path: &Path, options: OpenOptions, limit: Duration) -> Opened {
    let since = now();
    let turn = Turn::take(path, limit).map_err(|since| hangs(path, since))?;
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("strake-open".to_owned());
    let attempt = move || {
        let opened = open::open(&turn.0, options);
        // If the caller has timed out, the file is closed here, before the next attempt.
        drop(sender.send(opened));
        drop(turn);
    };
    thread.spawn(attempt).map_err(|error| {
        let what = "cannot be opened: the system does not give us another thread";
        DeviceError::new(IoErrorKind::Device, path.display().to_string(), what).with_source(error)
    })?;
    match receiver.recv_timeout(limit) {
        Ok(opened) => opened,
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Err(hangs(path, since)),
    }
}
