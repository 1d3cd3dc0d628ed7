//! Kernel calls that may never return. Each call runs on its own thread, and the caller waits at most for a time limit.
//!
//! `open`, `stat` and `close` of a file on FUSE or NFS, or of a drive with an unresponsive controller, may block in the
//! kernel as long as the other side does not answer, and no signal interrupts them. Such a call runs on a thread that
//! can be abandoned. The path of an abandoned call is recorded: until the call has returned, no other call is made at
//! this path, so that an unresponsive drive costs one thread, not one thread for each check.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{ControlError, ControlErrorKind};
use crate::limits::GLANCE_LIMIT;

/// Paths of abandoned calls, and the start of the silence of each path.
#[derive(Clone, Default)]
pub(crate) struct Asked {
    away: Arc<Mutex<BTreeMap<String, Away>>>,
}

struct Away {
    since: Instant,
    /// Calls that have not returned.
    calls: u32,
}

/// Paths belong to the host, so the process has one global table.
static ASKED: LazyLock<Asked> = LazyLock::new(Asked::default);

/// Runs `job`, which accesses the file or device at `path`, and waits for its result.
///
/// # Errors
/// If the job does not return within `limit`, or an earlier job has not returned yet.
pub(crate) fn ask<T: Send + 'static>(
    path: &str,
    limit: Duration,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Silent> {
    ASKED.ask(path, limit, job)
}

/// Runs a short job at `path`. For device nodes, the job runs on the calling thread, because the kernel answers from
/// memory.
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

/// A job with a name.
pub(crate) type Job<T> = (String, Box<dyn FnOnce() -> T + Send>);

/// Runs `jobs` concurrently and waits until `deadline`. Returns the results, and the names of unfinished jobs.
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
        // A job without a thread counts as unfinished.
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

/// Returns the silence of `path`; `None` if no call is outstanding.
pub(crate) fn silent(path: &str) -> Option<Silent> {
    ASKED.silent(path)
}

/// An unresponsive path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Silent {
    path: String,
    /// Duration of the silence.
    pub(crate) for_: Duration,
}

impl From<Silent> for ControlError {
    fn from(silent: Silent) -> Self {
        let Silent { path, for_ } = silent;
        let what = format!(
            "{path} has not answered for {} s; check cables, network and the process behind a FUSE mount, or remove \
                {path}",
            for_.as_secs()
        );
        Self::new(ControlErrorKind::Silent, what)
    }
}

/// Runs `job` on a thread with the name `name`. Returns `None` if the job has not returned within `limit`; the thread
/// is then abandoned. A failure to start a thread counts as no answer.
pub(crate) fn within<T: Send + 'static>(
    name: &str,
    limit: Duration,
    job: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    begin(name, limit, job).ok().flatten()
}

/// Runs `job` as [`within`] does: `None` means that the job continues.
///
/// # Errors
/// No thread could be started, or the job panicked.
pub(crate) fn begin<T: Send + 'static>(
    name: &str,
    limit: Duration,
    job: impl FnOnce() -> T + Send + 'static,
) -> io::Result<Option<T>> {
    let (send, receive) = mpsc::channel();
    let run = move || {
        // The caller may have stopped waiting.
        let _ = send.send(job());
    };
    thread::Builder::new().name(name.to_owned()).spawn(run)?;
    match receive.recv_timeout(limit) {
        Ok(done) => Ok(Some(done)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("it ended without a result")),
    }
}

impl Asked {
    /// Runs `job`, which accesses the file or device at `path`.
    ///
    /// # Errors
    /// If the job does not return within `limit`, or an earlier job has not returned yet.
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
        // True while the caller waits for the answer. The lock is held while the answer is sent, and while the caller
        // stops waiting.
        let wanted = Arc::new(Mutex::new(true));
        let (asked, at, is_wanted) = (self.clone(), path.to_owned(), Arc::clone(&wanted));
        let run = move || {
            let answer = job();
            let is_wanted = is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
            if *is_wanted {
                // The waiting thread receives the answer, or has panicked.
                let _ = send.send(answer);
            } else {
                asked.has_answered(&at);
            }
        };
        let silent = || Silent { path: path.to_owned(), for_: begun.elapsed() };
        thread::Builder::new().name("drive call".to_owned()).spawn(run).map_err(|_| silent())?;
        match receive.recv_timeout(limit) {
            Ok(answer) => return Ok(answer),
            // The job panicked and will not return.
            Err(RecvTimeoutError::Disconnected) => return Err(silent()),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let mut wanted = wanted.lock().unwrap_or_else(PoisonError::into_inner);
        // The answer may have arrived at the last moment.
        if let Ok(answer) = receive.try_recv() {
            return Ok(answer);
        }
        *wanted = false;
        self.leave(path, begun);
        Err(silent())
    }

    /// Returns the silence of `path`; `None` if no call is outstanding.
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
        // The set of names is valid even if a thread panicked while it held the lock.
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Job, begin, side_by_side, within};
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
        // No second call is made, regardless of the time limit.
        let again = asked.ask("/d", LONG, || 9);
        assert_eq!(again.err().map(|s| s.path), Some("/d".to_owned()));
        // Another path is independent.
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
    fn a_job_that_panics_does_not_count_as_continuing() {
        let ended = begin("ended", LONG, || -> u32 { std::panic::resume_unwind(Box::new(())) });
        assert!(ended.is_err());
    }

    #[test]
    fn what_hangs_beside_others_is_named_and_holds_up_none() {
        let (go, gate) = mpsc::channel::<()>();
        let hang: Job<u32> = ("hung".to_owned(), Box::new(move || gate.recv().map_or(0, |()| 1)));
        let quick: Job<u32> = ("quick".to_owned(), Box::new(|| 2));
        // On a busy host, the quick job may be late too. Then it is named as well.
        let (done, late) = side_by_side(vec![hang, quick], Instant::now() + Duration::from_secs(2));
        assert_eq!((done, late), (vec![2], vec!["hung".to_owned()]));
        drop(go);
    }
}
