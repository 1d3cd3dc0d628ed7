//! Scans of drives that may be unresponsive. Each scan runs on its own thread, and all scans together have a time
//! limit.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use strake_nvme_wire::health::Smart;
use strake_ondisk::{FOREIGN_HEAD_BYTES, FOREIGN_TAIL_BYTES, OnDrive};

use crate::drives::health::{HealthSource, smart_of};

/// Time limit of all scans together. A healthy drive takes milliseconds. The kernel aborts reads of a defective drive
/// after 30 seconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// The contents of a drive, or the reason why they are unknown.
pub type Contents = Result<OnDrive, String>;

/// A drive to scan.
pub struct Target {
    /// Device node or file of the drive.
    pub path: String,
    /// Size in bytes, if the contents must be read.
    pub bytes: Option<u64>,
    /// The health source, if any.
    pub(crate) health: Option<Arc<dyn HealthSource>>,
}

/// The result of a scan.
pub struct Probe {
    /// The contents; empty if not requested.
    pub contents: Contents,
    /// The health page, if available.
    pub health: Option<Smart>,
}

impl Probe {
    fn silent(why: &str) -> Self {
        Self { contents: Err(why.to_owned()), health: None }
    }
}

/// The scans, including scans in progress.
#[derive(Clone, Default)]
pub struct Probes {
    /// Drives whose thread has not returned. No further thread is started for them.
    away: Arc<Mutex<BTreeSet<String>>>,
}

impl Probes {
    /// Scans `targets` concurrently. The results are in the order of the targets.
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

    /// Starts a scan, or returns its result immediately.
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
        // The set of names is valid even if a thread panicked while it held the lock.
        self.away.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn look_at(target: &Target) -> Probe {
    let contents = match target.bytes {
        Some(bytes) => contents(&target.path, bytes),
        None => Ok(OnDrive::default()),
    };
    // A missing or inaccessible health page is not a problem of the drive.
    let health = target.health.as_deref().and_then(|source| smart_of(source).ok());
    Probe { contents, health }
}

/// Reads the contents of a device through the page cache.
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
