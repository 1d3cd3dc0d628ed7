//! Data cores, arrays on them, and load on those.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use strake_block::{BlockDevice, DeviceError};
use strake_engine::{Array, Consistency, CreateSpec, Drive, Ids, Options, create, plan_create};
use strake_raid::Level;
use strake_reactor::{CoreConfig, CoreHandle, CoreThread, Pinning, PollerId, monotonic};
use strake_units::{CoreIndex, MemberIndex, Nanos, Uuid};

use crate::scenario::Off;
use strake_load::histogram::Counts;
use strake_load::{Load, Pattern, Progress};

/// How long requests may take to come back after the last was sent.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// How long creation may wait for the drives.
const CREATE_WITHIN: Nanos = Nanos(60 * Nanos::SECOND.0);

/// Data cores. They sleep while nothing is measured on them, so several rigs share the CPUs in turns.
pub struct Rig {
    cores: Vec<CoreThread>,
}

/// What an array is like, apart from its drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its level.
    pub level: Level,
    /// Bytes of a strip.
    pub strip_bytes: u32,
    /// Whether drives that hold something are overwritten.
    pub overwrite: bool,
    /// How its writes are made safe against crashes.
    pub consistency: Consistency,
    /// What of the engine is turned off.
    pub off: Off,
}

impl Rig {
    /// Starts `count` cores, each pinned to the CPU of its number.
    ///
    /// # Errors
    /// When the machine has no threads left.
    pub fn start(count: u16) -> Result<Self, String> {
        let config =
            |at: u16| CoreConfig { cpu: Some(usize::from(at)), ..CoreConfig::new(CoreIndex(at)) };
        let cores = (0..count).map(|at| CoreThread::start(config(at)));
        let cores = cores
            .collect::<Result<_, _>>()
            .map_err(|e| format!("cannot start a data core: {e}"))?;
        Ok(Self { cores })
    }

    /// How many cores it has.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.cores.len()
    }

    /// Whether every core has its CPU.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.cores.iter().all(|core| matches!(core.pinning(), Pinning::Pinned { .. }))
    }

    /// A sentence about the CPUs that the kernel refused, when it did.
    #[must_use]
    pub fn unpinned(&self) -> Option<String> {
        let refused = |core: &CoreThread| match core.pinning() {
            Pinning::Refused { cpu, .. } => Some(cpu.to_string()),
            Pinning::Any | Pinning::Pinned { .. } => None,
        };
        let cpus: Vec<String> = self.cores.iter().filter_map(refused).collect();
        let names = cpus.join(" and ");
        (!cpus.is_empty()).then(|| {
            format!("The kernel refused CPU {names} to data cores, which ran anywhere: times are worse and vary more.")
        })
    }

    /// Handles to the cores, in order.
    #[must_use]
    pub fn handles(&self) -> Vec<CoreHandle> {
        self.cores.iter().map(CoreThread::handle).collect()
    }

    /// An array over `drives`, in use on all cores.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn array(&self, shape: &Shape, drives: Vec<Drive>) -> Result<Array, String> {
        let name = "bench".parse().map_err(|e| format!("{e}"))?;
        let Shape { level, strip_bytes, overwrite, consistency, off } = *shape;
        let spec = CreateSpec {
            name,
            level,
            group_size: None,
            strip_bytes,
            block_size: None,
            consistency,
        };
        let plan = plan_create(&spec, &drives).map_err(|e| e.to_string())?;
        let members = (0..drives.len()).map(|i| Uuid([100 + i as u8; 16])).collect();
        let ids = Ids { array: Uuid([1; 16]), epoch: Uuid([2; 16]), members };
        let until = monotonic().plus(CREATE_WITHIN);
        let mut wait = || Some(monotonic()).filter(|now| *now < until);
        let assembled =
            create(&plan, drives, &ids, overwrite, &mut wait).map_err(|e| e.to_string())?;
        let options = Options {
            merge: !off.merge,
            steer: !off.steer,
            cache: !off.cache,
            ..Options::default()
        };
        Array::start(assembled, &self.handles(), options).map_err(|e| e.to_string())
    }

    /// Starts load on `device`: a pattern for each core.
    ///
    /// # Errors
    /// When the device has no queue.
    pub fn load(
        &self,
        device: &Arc<dyn BlockDevice>,
        patterns: &[Pattern],
    ) -> Result<Running, String> {
        let mut running = Running { loads: Vec::new() };
        for (core, pattern) in self.cores.iter().zip(patterns) {
            let progress = Arc::new(Progress::default());
            let (device, pattern, shared) = (Arc::clone(device), *pattern, Arc::clone(&progress));
            let (reported, stopped) = mpsc::sync_channel(1);
            let started = core.handle().call(move |core| {
                let queue = device.open_queue(core.index(), pattern.depth)?;
                Ok(core.add(Box::new(Load::new(queue, &pattern, shared, reported))))
            });
            let poller =
                started.map_err(|e| e.to_string())?.map_err(|e: DeviceError| e.to_string())?;
            running.loads.push(OnCore { core: core.handle(), poller, progress, stopped });
        }
        Ok(running)
    }
}

struct OnCore {
    core: CoreHandle,
    poller: PollerId,
    progress: Arc<Progress>,
    stopped: mpsc::Receiver<()>,
}

/// Load that is under way. Dropped, it stops.
pub struct Running {
    loads: Vec<OnCore>,
}

/// What load has done until one moment, on each core.
#[derive(Clone, Debug)]
pub struct Picture {
    cores: Vec<OnePicture>,
}

#[derive(Clone, Debug)]
struct OnePicture {
    at: Nanos,
    reads: u64,
    writes: u64,
    failed: u64,
    wrong: u64,
    read_latency: Counts,
    write_latency: Counts,
}

/// What was done between two pictures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Reads per second, of all cores together.
    pub reads: f64,
    /// Writes per second.
    pub writes: f64,
    /// Requests per second of each core.
    pub by_core: Vec<f64>,
    /// Requests that failed.
    pub failed: u64,
    /// Reads that found something else than was written.
    pub wrong: u64,
    /// How long reads took.
    pub read_latency: Counts,
    /// How long writes took.
    pub write_latency: Counts,
}

impl Sample {
    /// Requests per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.reads + self.writes
    }

    /// How long requests took.
    #[must_use]
    pub fn latency(&self) -> Counts {
        let mut all = self.read_latency.clone();
        all.add(&self.write_latency);
        all
    }
}

impl Picture {
    /// What was done from `earlier` until this picture.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Sample {
        let mut sample = Sample::default();
        for (now, then) in self.cores.iter().zip(&earlier.cores) {
            let per_second = 1e9 / now.at.since(then.at).0.max(1) as f64;
            let reads = (now.reads - then.reads) as f64 * per_second;
            let writes = (now.writes - then.writes) as f64 * per_second;
            sample.reads += reads;
            sample.writes += writes;
            sample.by_core.push(reads + writes);
            sample.failed += now.failed - then.failed;
            sample.wrong += now.wrong - then.wrong;
            sample.read_latency.add(&now.read_latency.since(&then.read_latency));
            sample.write_latency.add(&now.write_latency.since(&then.write_latency));
        }
        sample
    }
}

impl Running {
    /// What it has done so far.
    #[must_use]
    pub fn picture(&self) -> Picture {
        let one = |load: &OnCore| {
            let progress = &*load.progress;
            OnePicture {
                at: Nanos(progress.at.load(Relaxed)),
                reads: progress.reads.load(Relaxed),
                writes: progress.writes.load(Relaxed),
                failed: progress.failed.load(Relaxed),
                wrong: progress.wrong.load(Relaxed),
                read_latency: progress.read_latency.counts(),
                write_latency: progress.write_latency.counts(),
            }
        };
        Picture { cores: self.loads.iter().map(one).collect() }
    }

    /// How many requests have come back.
    #[must_use]
    pub fn done(&self) -> u64 {
        let done =
            |load: &OnCore| load.progress.reads.load(Relaxed) + load.progress.writes.load(Relaxed);
        self.loads.iter().map(done).sum()
    }

    /// Waits until something came back on every core, so that the clock of what follows is one of work.
    ///
    /// # Errors
    /// When nothing does.
    pub fn warm(&self) -> Result<Picture, String> {
        self.moved(&vec![0; self.loads.len()])
    }

    /// Waits until something came back on every core after the time that `since` says of it.
    fn moved(&self, since: &[u64]) -> Result<Picture, String> {
        let until = Instant::now() + STOP_WITHIN;
        let stands = || {
            let mut cores = self.loads.iter().zip(since);
            cores.any(|(load, since)| load.progress.at.load(Relaxed) <= *since)
        };
        while stands() {
            if Instant::now() > until {
                return Err(format!("no request completed within {STOP_WITHIN:?}"));
            }
            pass(Duration::from_millis(1));
        }
        Ok(self.picture())
    }

    /// What it does while this waits for `span`.
    ///
    /// # Errors
    /// When nothing comes back.
    pub fn sample(&self, span: Duration) -> Result<Sample, String> {
        self.sample_with(span, &mut || Ok(()))
    }

    /// What it does while this waits for `span` and calls `beat` ten times a second.
    ///
    /// # Errors
    /// When nothing comes back, or `beat` fails.
    pub fn sample_with(
        &self,
        span: Duration,
        beat: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Sample, String> {
        const BEAT: Duration = Duration::from_millis(100);
        let before = self.warm()?;
        let since = Instant::now();
        for nth in 0.. {
            let next = (nth * BEAT).min(span);
            pass(next.saturating_sub(since.elapsed()));
            if next == span {
                break;
            }
            beat()?;
        }
        let until = Instant::now() + STOP_WITHIN;
        let mut last = before.clone();
        while Instant::now() < until {
            let times: Vec<u64> = last.cores.iter().map(|core| core.at.0).collect();
            last = self.moved(&times)?;
            let sample = last.since(&before);
            // The first picture may have the counts of a turn and not yet its time: such a turn is no sample.
            if sample.failed > 0 || (sample.rate() > 0.0 && sample.latency().total() > 0) {
                return Ok(sample);
            }
        }
        Err(format!("no request completed within {STOP_WITHIN:?}"))
    }

    /// Stops it and waits until no request is out. Returns how many requests failed since it began.
    ///
    /// # Errors
    /// When requests do not come back.
    pub fn stop(mut self) -> Result<u64, String> {
        self.halt()
    }

    fn halt(&mut self) -> Result<u64, String> {
        let loads = std::mem::take(&mut self.loads);
        for load in &loads {
            load.progress.stop.store(true, Relaxed);
            load.core.wake();
        }
        let until = Instant::now() + STOP_WITHIN;
        let is_out = |load: &OnCore| {
            let left = until.saturating_duration_since(Instant::now());
            load.stopped.recv_timeout(left) == Err(mpsc::RecvTimeoutError::Timeout)
        };
        let lost = loads.iter().filter(|load| is_out(load)).count() > 0;
        let failed = loads.iter().map(|load| load.progress.failed.load(Relaxed)).sum();
        for OnCore { core, poller, .. } in loads {
            // A stopped core has dropped its pollers.
            let _ = core.call(move |core| drop(core.remove(poller)));
        }
        if lost {
            Err(format!("requests did not complete within {STOP_WITHIN:?}"))
        } else {
            Ok(failed)
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A caller that wants to know whether requests came back calls `stop`.
        let _ = self.halt();
    }
}

/// Lets `span` go by: what is measured happens on other threads meanwhile.
pub fn pass(span: Duration) {
    let until = Instant::now() + span;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        // Waking up early is allowed to it, and harmless.
        std::thread::park_timeout(left);
    }
}

/// Takes `member` out of use and waits for that.
///
/// # Errors
/// When the array refuses.
pub fn fail(array: &Array, member: u8) -> Result<(), String> {
    let pending = array.begin_fail(MemberIndex(member)).map_err(|e| e.to_string())?;
    pending.wait().map_err(|e| e.to_string())
}
