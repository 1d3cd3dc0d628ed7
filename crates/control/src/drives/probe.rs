//! Looking at drives that may not answer: each on a thread of its own, all of them for a bounded time.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use strake_nvme_wire::health::Smart;
use strake_ondisk::{FOREIGN_HEAD_BYTES, FOREIGN_TAIL_BYTES, OnDrive};

use crate::drives::health::{HealthSource, smart_of};

/// How long all drives together have to answer. A healthy one takes milliseconds; the kernel's own time-out, after
/// which a read of a sick one ends, is 30 seconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is on a drive, or why that is unknown.
pub type Contents = Result<OnDrive, String>;

/// A drive to look at.
pub struct Target {
    /// Its device node or file.
    pub path: String,
    /// Its bytes, when what it holds is to be looked at.
    pub bytes: Option<u64>,
    /// Whom to ask for its health, if it can say that.
    pub(crate) health: Option<Arc<dyn HealthSource>>,
}

/// What a look has shown.
pub struct Probe {
    /// What it holds; nothing when that was not asked.
    pub contents: Contents,
    /// What it says of itself, when it says something.
    pub health: Option<Smart>,
}

impl Probe {
    fn silent(why: &str) -> Self {
        Self { contents: Err(why.to_owned()), health: None }
    }
}

/// Looks, those under way among them.
#[derive(Clone, Default)]
pub struct Probes {
    /// Drives whose thread has not come back: not one more thread is spent on them.
    away: Arc<Mutex<BTreeSet<String>>>,
}

impl Probes {
    /// Looks at `targets`, in their order, all at the same time.
    #[must_use]
    pub fn look(&self, targets: Vec<Target>) -> Vec<(String, Probe)> {
        let (send, receive) = mpsc::channel();
        let mut seen: Vec<(String, Option<Probe>)> = Vec::new();
        let mut waiting = 0;
        for (at, target) in targets.into_iter().enumerate() {
            let path = target.path.clone();
            let early = self.begin(at, target, send.clone());
            waiting += usize::from(early.is_none());
            seen.push((path, early));
        }
        drop(send);
        let deadline = Instant::now() + PATIENCE;
        while waiting > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((at, probe)) = receive.recv_timeout(left) else { break };
            let (_, place): &mut (String, Option<Probe>) = &mut seen[at];
            *place = Some(probe);
            waiting -= 1;
        }
        let silent = || Probe::silent("it did not answer within 3 seconds");
        seen.into_iter().map(|(path, probe)| (path, probe.unwrap_or_else(silent))).collect()
    }

    /// Starts a look, or says at once how it ends.
    fn begin(
        &self,
        at: usize,
        target: Target,
        send: mpsc::Sender<(usize, Probe)>,
    ) -> Option<Probe> {
        if target.bytes.is_none() && target.health.is_none() {
            return Some(Probe { contents: Ok(OnDrive::default()), health: None });
        }
        if !self.away().insert(target.path.clone()) {
            return Some(Probe::silent("it has not answered since the last check"));
        }
        let probes = self.clone();
        let path = target.path.clone();
        let look = move || {
            let probe = look_at(&target);
            probes.away().remove(&target.path);
            // The caller may have stopped waiting.
            let _ = send.send((at, probe));
        };
        let started = thread::Builder::new().name("drive look".to_owned()).spawn(look);
        started.err().map(|error| {
            self.away().remove(&path);
            Probe::silent(&format!("it cannot be inspected: {error}"))
        })
    }

    fn away(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        // A set of names is right whatever panicked beside it.
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look_at(target: &Target) -> Probe {
    let contents = match target.bytes {
        Some(bytes) => contents(&target.path, bytes),
        None => Ok(OnDrive::default()),
    };
    // A drive without a health page, or one that we may not ask, is not worse for it.
    let health = target.health.as_deref().and_then(|source| smart_of(source).ok());
    Probe { contents, health }
}

/// What is on a device, read through the page cache.
fn contents(path: &str, bytes: u64) -> Contents {
    let read = || -> std::io::Result<(Vec<u8>, Vec<u8>)> {
        let mut file = File::open(path)?;
        let tail = FOREIGN_TAIL_BYTES.min(bytes);
        let mut head = vec![0; FOREIGN_HEAD_BYTES.min(bytes) as usize];
        file.read_exact(&mut head)?;
        file.seek(SeekFrom::Start(bytes - tail))?;
        let mut tail = vec![0; tail as usize];
        file.read_exact(&mut tail)?;
        Ok((head, tail))
    };
    let (head, tail) = read().map_err(|e| format!("it cannot be read: {e}"))?;
    Ok(OnDrive::read(&head, &tail))
}
