//! Calls into the kernel that may never return, each on a thread of its own and waited for within a limit.
//!
//! `open`, `stat` and `close` of a file on FUSE or NFS, or of a drive whose controller hangs, may sleep in the kernel
//! for as long as the other side is silent, and no signal ends that. Such a call is made by a thread that can be left
//! behind. What was left behind is remembered by its path: until its call has returned, no other is made there, so that
//! a silent drive costs one thread and not one with every look.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{ControlError, ControlErrorKind};
use crate::limits::GLANCE_LIMIT;

/// Paths whose calls were left behind, and since when each is silent.
#[derive(Clone, Default)]
pub(crate) struct Asked {
    away: Arc<Mutex<BTreeMap<String, Away>>>,
}

struct Away {
    since: Instant,
    /// Calls that have not come back.
    calls: u32,
}

/// Paths are the machine's, so the whole process remembers them in one place.
static ASKED: LazyLock<Asked> = LazyLock::new(Asked::default);

/// Runs `job`, which asks something of what is at `path`, and waits for its answer.
///
/// # Errors
/// When it does not come back within `limit`, or an earlier one has not come back yet.
pub(crate) fn ask<T: Send + 'static>(
    path: &str,
    limit: Duration,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Silent> {
    ASKED.ask(path, limit, job)
}

/// A short look at what is at `path`. Device nodes are looked at on the spot: the kernel knows them by itself.
///
/// # Errors
/// As [`ask`].
pub(crate) fn look<T: Send + 'static>(
    path: &str,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Silent> {
    if path.starts_with("/dev/") {
        return Ok(job());
    }
    ask(path, GLANCE_LIMIT, job)
}

/// Work that has a name.
pub(crate) type Job<T> = (String, Box<dyn FnOnce() -> T + Send>);

/// Runs `jobs` side by side and waits until `deadline`. What came back, and the names of those that are left to
/// themselves.
pub(crate) fn side_by_side<T: Send + 'static>(
    jobs: Vec<Job<T>>,
    deadline: Instant,
) -> (Vec<T>, Vec<String>) {
    let (send, receive) = mpsc::channel();
    let mut late = BTreeMap::new();
    for (at, (name, job)) in jobs.into_iter().enumerate() {
        let send = send.clone();
        let run = move || {
            // The caller may have stopped waiting.
            let _ = send.send((at, job()));
        };
        // One without a thread is as late as can be.
        let _ = thread::Builder::new().name("side by side".to_owned()).spawn(run);
        late.insert(at, name);
    }
    drop(send);
    let mut done = Vec::new();
    while !late.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok((at, result)) = receive.recv_timeout(left) else { break };
        late.remove(&at);
        done.push(result);
    }
    (done, late.into_values().collect())
}

/// How long `path` is silent; `None` when it answers as far as is known.
pub(crate) fn silent(path: &str) -> Option<Silent> {
    ASKED.silent(path)
}

/// A path that did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Silent {
    path: String,
    /// For how long by now.
    pub(crate) for_: Duration,
}

impl From<Silent> for ControlError {
    fn from(silent: Silent) -> Self {
        let Silent { path, for_ } = silent;
        let what = format!(
            "{path} has not answered for {} s; check cables, network and the process behind a FUSE mount, or remove \
             it",
            for_.as_secs()
        );
        Self::new(ControlErrorKind::Silent, what)
    }
}

/// Runs `job` on a thread called `name`; `None` when it has not come back within `limit`, and it is left to itself
/// then. Where no thread can be had, that counts as no answer.
pub(crate) fn within<T: Send + 'static>(
    name: &str,
    limit: Duration,
    job: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (send, receive) = mpsc::channel();
    let run = move || {
        // The caller may have stopped waiting.
        let _ = send.send(job());
    };
    thread::Builder::new().name(name.to_owned()).spawn(run).ok()?;
    receive.recv_timeout(limit).ok()
}

impl Asked {
    /// Runs `job`, which asks something of what is at `path`.
    ///
    /// # Errors
    /// When it does not come back within `limit`, or an earlier one has not come back yet.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        path: &str,
        limit: Duration,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Silent> {
        if let Some(silent) = self.silent(path) {
            return Err(silent);
        }
        let begun = Instant::now();
        let (send, receive) = mpsc::channel();
        // Whether the answer is still waited for. Held while it is sent, and while it is given up.
        let wanted = Arc::new(Mutex::new(true));
        let (asked, at, is_wanted) = (self.clone(), path.to_owned(), Arc::clone(&wanted));
        let run = move || {
            let answer = job();
            let is_wanted = is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
            if *is_wanted {
                // The waiting thread receives it, or has panicked.
                let _ = send.send(answer);
            } else {
                asked.has_answered(&at);
            }
        };
        let silent = || Silent { path: path.to_owned(), for_: begun.elapsed() };
        thread::Builder::new().name("drive call".to_owned()).spawn(run).map_err(|_| silent())?;
        match receive.recv_timeout(limit) {
            Ok(answer) => return Ok(answer),
            // It panicked, and will not come back.
            Err(RecvTimeoutError::Disconnected) => return Err(silent()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let mut wanted = wanted.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have come in the last moment.
        if let Ok(answer) = receive.try_recv() {
            return Ok(answer);
        }
        *wanted = false;
        self.leave(path, begun);
        Err(silent())
    }

    /// How long `path` is silent; `None` when it answers as far as is known.
    pub(crate) fn silent(&self, path: &str) -> Option<Silent> {
        let away = self.away();
        let since = away.get(path)?.since;
        Some(Silent { path: path.to_owned(), for_: since.elapsed() })
    }

    fn leave(&self, path: &str, begun: Instant) {
        let mut away = self.away();
        let entry = away.entry(path.to_owned()).or_insert(Away { since: begun, calls: 0 });
        entry.since = entry.since.min(begun);
        entry.calls += 1;
    }

    fn has_answered(&self, path: &str) {
        let mut away = self.away();
        let Some(entry) = away.get_mut(path) else { return };
        entry.calls = entry.calls.saturating_sub(1);
        if entry.calls == 0 {
            away.remove(path);
        }
    }

    fn away(&self) -> MutexGuard<'_, BTreeMap<String, Away>> {
        // A set of names is right whatever panicked beside it.
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Job, side_by_side, within};
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    const SHORT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_silent_path_is_asked_by_one_thread_until_it_answers() {
        let asked = Asked::default();
        let (go, gate) = mpsc::channel::<()>();
        let silent = asked.ask("/d", SHORT, move || gate.recv());
        assert!(silent.is_err());
        // Not asked again, however long one would wait.
        let again = asked.ask("/d", LONG, || 9);
        assert_eq!(again.err().map(|s| s.path), Some("/d".to_owned()));
        // Another path is another matter.
        assert_eq!(asked.ask("/e", LONG, || 7), Ok(7));
        go.send(()).expect("the call is still in progress");
        while asked.silent("/d").is_some() {
            std::thread::yield_now();
        }
        assert_eq!(asked.ask("/d", LONG, || 8), Ok(8));
    }

    #[test]
    fn what_takes_too_long_is_left_to_itself() {
        let (go, gate) = mpsc::channel::<()>();
        assert_eq!(within("left", SHORT, move || gate.recv().is_ok()), None);
        assert_eq!(within("quick", LONG, || 5), Some(5));
        drop(go);
    }
    #[test]
    fn what_hangs_beside_others_is_named_and_holds_up_none() {
        let (go, gate) = mpsc::channel::<()>();
        let hang: Job<u32> = ("hung".to_owned(), Box::new(move || gate.recv().map_or(0, |()| 1)));
        let quick: Job<u32> = ("quick".to_owned(), Box::new(|| 2));
        // The quick one may be as late on a busy machine; then it is named as well, and nothing hangs.
        let (done, late) = side_by_side(vec![hang, quick], Instant::now() + Duration::from_secs(2));
        assert_eq!((done, late), (vec![2], vec!["hung".to_owned()]));
        drop(go);
    }
}
