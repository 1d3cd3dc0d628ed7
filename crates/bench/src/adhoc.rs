//! `strake bench load`: any load on any drives.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use strake_block::blocking::Blocking;
use strake_block::{BlockDevice, BufMut};
use strake_dev_uring::{Access, OpenOptions, UringDevice, control_wait};
use strake_engine::{Drive, refuse_occupied};
use strake_units::{ByteSize, CoreIndex, Lba, LbaRange};

use crate::machine::{Machine, Others, available_memory};
use crate::rig::{Sample, pass};
use crate::scenario::{Case, Made, Subject};
use strake_load::histogram::Counts;

/// Where an array keeps its labels and notes, at either end of a drive: what has to be empty before and is again after.
const EDGE_BYTES: u64 = 16 << 20;
/// Bytes read or zeroed at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// Of the memory that is free, the part that buffers may take.
const MEMORY_SHARE: usize = 2;
/// How long the load runs on a raw null drive, to see what it costs itself.
const OWN_SPAN: Duration = Duration::from_millis(200);

/// What the load runs on.
#[derive(Clone, Debug, PartialEq)]
pub enum Bay {
    /// So many drives made of memory, of so many bytes unless they are of the usual size.
    Made(Made, usize, Option<u64>),
    /// Files and block devices.
    Paths(Vec<PathBuf>),
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// What the load is; its drives are those of `bay`.
    pub case: Case,
    /// The drives.
    pub bay: Bay,
    /// How long.
    pub span: Duration,
    /// Compare what is read with what was written.
    pub verify: bool,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The load, in words.
    pub case: String,
    /// Where it ran.
    pub machine: Machine,
    /// Seconds that were measured.
    pub seconds: f64,
    /// Reads and what they took.
    pub reads: Kind,
    /// Writes and what they took.
    pub writes: Kind,
    /// Requests that failed.
    pub failed: u64,
    /// Reads that found something else than was written; null without verification.
    pub wrong: Option<u64>,
    /// How parity is kept true across a crash.
    pub protection: String,
    /// Nanoseconds per request and core that the same load takes on a raw null drive.
    pub own_ns: f64,
    /// What has to be known to read the numbers.
    pub notes: Vec<String>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct Kind {
    /// Per second.
    pub per_second: f64,
    /// In GB/s.
    pub gb_per_second: f64,
    /// How long they took; null when there were none.
    pub latency: Option<Latency>,
}

/// How long requests took, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latency {
    /// The mean.
    pub mean_us: f64,
    /// Half of them were faster.
    pub p50_us: f64,
    /// 90 of 100 were.
    pub p90_us: f64,
    /// 99 of 100 were.
    pub p99_us: f64,
    /// 999 of 1000 were.
    pub p999_us: f64,
    /// 9999 of 10,000 were.
    pub p9999_us: f64,
    /// The slowest.
    pub max_us: f64,
}

impl Latency {
    /// Of what was counted; `None` when nothing was.
    #[must_use]
    pub fn of(counts: &Counts) -> Option<Self> {
        let at = |per_mille| counts.percentile(per_mille).map(|ns| ns as f64 / 1e3);
        Some(Self {
            mean_us: counts.mean(1000.0)? / 1e3,
            p50_us: at(500.0)?,
            p90_us: at(900.0)?,
            p99_us: at(990.0)?,
            p999_us: at(999.0)?,
            p9999_us: at(999.9)?,
            max_us: at(1000.0)?,
        })
    }
}

/// Does what `wish` says, telling `live` every half second what was done since.
///
/// # Errors
/// Why it cannot be done; drives that hold something are refused before anything is written to them.
pub fn run(wish: &Wish, mut live: impl FnMut(&Sample)) -> Result<Outcome, String> {
    let (drives, real) = drives(wish)?;
    let writes = wish.case.level.is_some() || wish.case.write_percent > 0;
    let mut emptied = Vec::new();
    if real && writes {
        drives.iter().try_for_each(refuse_full)?;
        emptied.extend(drives.iter().map(|drive| Arc::clone(&drive.device)));
    }
    let own_ns = own_cost(&wish.case)?;
    // Whatever becomes of it, the array has left its drives before they are emptied, and they are emptied.
    let others = Others::now();
    let measured = on_drives(wish, drives, !real, &mut live);
    let machine = Machine { others: others.since(), ..Machine::here() };
    emptied.iter().try_for_each(empty_edges)?;
    let (sample, seconds, failed) = measured?;
    Ok(outcome(wish, machine, &sample, (seconds, failed, own_ns)))
}

fn on_drives(
    wish: &Wish,
    drives: Vec<Drive>,
    overwrite: bool,
    live: &mut impl FnMut(&Sample),
) -> Result<(Sample, f64, u64), String> {
    let subject = Subject::over(&wish.case, drives, overwrite)?;
    let subject = if wish.verify { subject.verified() } else { subject };
    let memory = subject.memory();
    if memory > available_memory() / MEMORY_SHARE {
        let needed = ByteSize(memory as u64);
        return Err(format!(
            "buffers for so many requests take {needed}: use a smaller depth or block size"
        ));
    }
    const BEAT: Duration = Duration::from_millis(500);
    let running = subject.load()?;
    pass((wish.span / 10).min(BEAT));
    let (first, since) = (running.warm()?, Instant::now());
    let mut last = first.clone();
    while since.elapsed() < wish.span {
        pass(BEAT.min(wish.span.saturating_sub(since.elapsed())));
        let now = running.picture();
        live(&now.since(&last));
        last = now;
    }
    let seconds = since.elapsed().as_secs_f64();
    let failed = running.stop()?;
    Ok((last.since(&first), seconds, failed))
}

fn outcome(
    wish: &Wish,
    machine: Machine,
    sample: &Sample,
    (seconds, failed, own_ns): (f64, u64, f64),
) -> Outcome {
    let kind = |per_second: f64, latency: &Counts| Kind {
        per_second,
        gb_per_second: per_second * wish.case.bytes as f64 / 1e9,
        latency: Latency::of(latency),
    };
    let note = match wish.case.made {
        Made::Null => "Null drives move no data.",
        Made::Ram => "Drives in memory copy every byte with the CPU.",
        Made::Model(_) => "Modelled drives hold no driver or DMA cost, and move no data.",
        Made::Real => {
            "What was written is still on the drives, except for their first and last 16 MiB."
        }
    };
    Outcome {
        case: wish.case.name(),
        machine,
        seconds,
        reads: kind(sample.reads, &sample.read_latency),
        writes: kind(sample.writes, &sample.write_latency),
        failed,
        wrong: wish.verify.then_some(sample.wrong),
        protection: wish.case.protection().to_owned(),
        own_ns,
        notes: vec![note.to_owned()],
    }
}

/// Nanoseconds per request and core that the load, the reactor and a null drive take by themselves.
fn own_cost(case: &Case) -> Result<f64, String> {
    // A drive takes no more at a time.
    let bytes = case.bytes.min(PIECE_BYTES as usize);
    let raw = Case { level: None, count: 1, out: 0, made: Made::Null, bytes, ..case.clone() };
    let rate = Subject::new(&raw)?.sample(OWN_SPAN)?.rate();
    Ok(1e9 * f64::from(case.cores) / rate)
}

/// The drives, and whether they are real.
fn drives(wish: &Wish) -> Result<(Vec<Drive>, bool), String> {
    match &wish.bay {
        Bay::Made(made, count, bytes) => {
            let bytes = bytes.unwrap_or(made.usual_bytes());
            let one = |at| Ok(Drive { device: made.drive(bytes)?, path: format!("drive{at}") });
            Ok(((0..*count).map(one).collect::<Result<_, String>>()?, false))
        }
        Bay::Paths(paths) => {
            let reads = wish.case.level.is_none() && wish.case.write_percent == 0;
            let access = if reads { Access::ReadOnly } else { Access::ReadWrite };
            let options = OpenOptions { access, ..OpenOptions::default() };
            let one = |path: &PathBuf| {
                let (device, _) = UringDevice::open(path, options).map_err(|e| e.to_string())?;
                Ok(Drive {
                    device: Arc::new(device) as Arc<dyn BlockDevice>,
                    path: path.display().to_string(),
                })
            };
            Ok((paths.iter().map(one).collect::<Result<_, String>>()?, true))
        }
    }
}

/// Refuses a drive that is known to hold something, or that has anything but zeros at either end.
fn refuse_full(drive: &Drive) -> Result<(), String> {
    refuse_occupied(drive, &mut control_wait()).map_err(|e| e.to_string())?;
    let info = drive.device.info();
    let block = u64::from(info.block_size.bytes());
    let queue = drive.device.open_queue(CoreIndex(0), 1).map_err(|e| e.to_string())?;
    let mut wait = control_wait();
    let mut io = Blocking::new(queue, &mut wait);
    for (at, bytes) in edges(info.bytes(), block) {
        let data =
            io.read(Lba(at / block), BufMut::alone(bytes as usize)).map_err(|e| e.to_string())?;
        if data.as_slice().iter().any(|byte| *byte != 0) {
            return Err(format!(
                "{} is not empty: there is something at byte {at}; a load that writes takes drives of zeros only",
                drive.path
            ));
        }
    }
    Ok(())
}

/// Makes both ends zeros again, labels and all.
fn empty_edges(device: &Arc<dyn BlockDevice>) -> Result<(), String> {
    let info = device.info();
    let block = u64::from(info.block_size.bytes());
    let queue = device.open_queue(CoreIndex(0), 1).map_err(|e| e.to_string())?;
    let mut wait = control_wait();
    let mut io = Blocking::new(queue, &mut wait);
    for (at, bytes) in edges(info.bytes(), block) {
        let range = LbaRange::new(Lba(at / block), bytes / block);
        io.write_zeroes(range)
            .map_err(|e| format!("{}: its ends cannot be emptied: {e}", info.identity))?;
    }
    io.flush().map_err(|e| format!("{}: cannot be flushed: {e}", info.identity))
}

/// Pieces of both ends of a device, by first byte and length.
fn edges(bytes: u64, block: u64) -> Vec<(u64, u64)> {
    let bytes = bytes / block * block;
    let head = EDGE_BYTES.min(bytes);
    let tail = bytes.saturating_sub(EDGE_BYTES).max(head) / block * block;
    let pieces = |from: u64, to: u64| {
        let starts = (from..to).step_by(PIECE_BYTES as usize);
        starts.map(move |at| (at, PIECE_BYTES.min(to - at)))
    };
    pieces(0, head).chain(pieces(tail, bytes)).collect()
}

#[cfg(test)]
mod tests;
