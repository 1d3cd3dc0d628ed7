//! Load in the background, while the scenario goes on.

use crate::demo::area::{Area, GRANULE};
use crate::demo::load::{self, Ended, Job, Tally, Work};
use crate::demo::report::Moved;
use crate::error::CliError;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;

/// Connections at a time.
pub const CONNECTIONS: usize = 2;
/// Areas, and so requests in flight, of a connection.
pub const AREAS: usize = 16;
/// Length of an area: 8 MiB.
const AREA_GRANULES: u32 = (8 << 20) / GRANULE as u32;

/// Where the load goes and what it has done.
pub struct Bench {
    socket: PathBuf,
    export: String,
    /// Counted over all phases.
    pub tally: Arc<Tally>,
    areas: Vec<Vec<Area>>,
    phases: u64,
}

/// Load that is running. Dropping it stops the load.
pub struct Running {
    stop: Arc<AtomicBool>,
    connections: Vec<oneshot::Receiver<Ended>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Bench {
    /// Areas all over an export of `size` bytes from byte `from` on, none of them written yet. They begin at odd
    /// multiples of 4 KiB, so that requests cross strips and stripes wherever they can.
    #[must_use]
    pub fn new(socket: PathBuf, export: &str, from: u64, size: u64) -> Self {
        let granule = GRANULE as u64;
        let count = (CONNECTIONS * AREAS) as u64;
        let stride = (size.saturating_sub(from) / count) / (2 * granule) * (2 * granule);
        let room = u32::try_from(stride / granule).unwrap_or(u32::MAX).saturating_sub(1);
        let area = |i: u64| Area::new(from + i * stride + granule, room.min(AREA_GRANULES));
        let mut areas = vec![Vec::new(); CONNECTIONS];
        for index in 0..count {
            areas[index as usize % CONNECTIONS].push(area(index));
        }
        Self { socket, export: export.to_owned(), tally: Arc::default(), areas, phases: 0 }
    }

    /// Bytes that the areas have together.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.areas.iter().flatten().map(|a| u64::from(a.granules()) * GRANULE as u64).sum()
    }

    /// What has been moved so far, to take differences of.
    #[must_use]
    pub fn moved(&self) -> Moved {
        // Figures to print: nothing is synchronized with them.
        Moved { bytes: self.tally.bytes.load(Ordering::Relaxed), requests: self.tally.requests() }
    }

    /// What has been moved since `before` was taken.
    #[must_use]
    pub fn moved_since(&self, before: Moved) -> Moved {
        let now = self.moved();
        Moved { bytes: now.bytes - before.bytes, requests: now.requests - before.requests }
    }

    /// Begins `work` on every connection, each on a thread of its own.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(&mut self, work: Work) -> Result<Running, CliError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut connections = Vec::new();
        self.phases += 1;
        for (index, areas) in self.areas.iter_mut().enumerate() {
            let areas = std::mem::take(areas);
            let job = Job {
                socket: self.socket.clone(),
                export: self.export.clone(),
                work,
                tally: Arc::clone(&self.tally),
                stop: Arc::clone(&stop),
                seed: self.phases << 32 | (index as u64) << 24,
            };
            let (tell, ended) = oneshot::channel();
            std::thread::Builder::new()
                .name(format!("load-{index}"))
                .spawn(move || tell.send(load::run(&job, areas)))
                .map_err(|e| CliError::io("cannot start a thread for the load", &e))?;
            connections.push(ended);
        }
        Ok(Running { stop, connections })
    }

    /// Asks `running` to stop and waits for it; gives why connections broke, as far as they did.
    ///
    /// # Errors
    /// When a thread is gone without an answer.
    pub async fn stop(&mut self, running: Running) -> Result<Vec<String>, CliError> {
        running.stop.store(true, Ordering::Relaxed);
        self.end(running).await
    }

    /// Waits until `running` is done; gives why connections broke, as far as they did.
    ///
    /// # Errors
    /// When a thread is gone without an answer.
    pub async fn end(&mut self, mut running: Running) -> Result<Vec<String>, CliError> {
        let mut broken = Vec::new();
        for (index, ended) in std::mem::take(&mut running.connections).into_iter().enumerate() {
            let ended =
                ended.await.map_err(|_| CliError::mismatch("a load thread has panicked"))?;
            self.areas[index] = ended.areas;
            broken.extend(ended.broken.map(|e| e.to_string()));
        }
        Ok(broken)
    }

    /// Does `work` from beginning to end.
    ///
    /// # Errors
    /// When a connection broke.
    pub async fn through(&mut self, work: Work) -> Result<Moved, CliError> {
        let before = self.moved();
        let running = self.start(work)?;
        unbroken(&self.end(running).await?)?;
        Ok(self.moved_since(before))
    }
}

/// # Errors
/// When a connection broke although nothing was done to break it.
pub fn unbroken(broken: &[String]) -> Result<(), CliError> {
    match broken.first() {
        None => Ok(()),
        Some(why) => Err(CliError::mismatch(format!("a connection to the export broke: {why}"))),
    }
}
