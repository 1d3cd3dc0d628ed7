//! Does a number of requests on one thread, for `cargo xtask instructions` to count what they execute.
//!
//! `instructions CASE REQUESTS`: prints the parity kernel. Time is a number that goes up by a microsecond per turn, so
//! every run executes the same.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;

use strake_bench::load::{Load, Pattern, Progress};
use strake_bench::scenario::Made;
use strake_engine::{Array, CreateSpec, Drive, Ids, Options, create, plan_create};
use strake_parity::Kernel;
use strake_raid::Level;
use strake_reactor::Poller as _;
use strake_units::{CoreIndex, MemberIndex, Nanos, Uuid};

const USAGE: &str = "instructions read|write|mirror|degraded REQUESTS";
const DRIVE_BYTES: u64 = 512 << 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case, requests] = arguments.as_slice() else { return refuse(USAGE) };
    let (level, drives, write_percent, lost) = match case.as_str() {
        "read" => (Level::Raid6, 8, 0, 0),
        "write" => (Level::Raid6, 8, 100, 0),
        "mirror" => (Level::Raid1, 2, 100, 0),
        "degraded" => (Level::Raid6, 8, 0, 2),
        _ => return refuse(USAGE),
    };
    let Ok(requests) = requests.parse::<u64>() else { return refuse(USAGE) };
    match run((level, drives), lost, write_percent, requests) {
        Ok(()) => {
            println!("{}", Kernel::fit().name());
            ExitCode::SUCCESS
        }
        Err(error) => refuse(&error),
    }
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::FAILURE
}

fn run(
    (level, drives): (Level, u8),
    lost: u8,
    write_percent: u8,
    requests: u64,
) -> Result<(), String> {
    let (array, mut pollers) = array(level, drives)?;
    let mut now = Nanos(0);
    for member in 0..lost {
        let mut failing = array.begin_fail(MemberIndex(member)).map_err(|e| e.to_string())?;
        while failing.poll().is_none() {
            now = now.plus(Nanos::MICRO);
            for poller in &mut pollers {
                let _ = poller.turn(now);
            }
        }
    }
    let device = array.device();
    // Few enough places that the regions they are in are marked by the first requests, which are not counted, and too
    // many for the same columns to be written again at once.
    let places = device.info().blocks.min(1 << 18);
    let pattern = Pattern { write_percent, depth: 32, places, ..Pattern::default() };
    let queue = device.open_queue(CoreIndex(0), pattern.depth).map_err(|e| e.to_string())?;
    let progress = Arc::new(Progress::default());
    let (reported, _stopped) = mpsc::sync_channel(1);
    let mut load = Load::new(queue, &pattern, Arc::clone(&progress), reported);
    while progress.reads.load(Relaxed) + progress.writes.load(Relaxed) < requests {
        now = now.plus(Nanos::MICRO);
        let _ = load.turn(now);
        for poller in &mut pollers {
            let _ = poller.turn(now);
        }
    }
    match progress.failed.load(Relaxed) {
        0 => Ok(()),
        failed => Err(format!("{failed} requests failed")),
    }
}

type Parts = (Array, Vec<Box<dyn strake_reactor::Poller>>);

/// An array of null drives and its one shard.
fn array(level: Level, drives: u8) -> Result<Parts, String> {
    let drive =
        |at| Ok(Drive { device: Made::Null.drive(DRIVE_BYTES)?, path: format!("drive{at}") });
    let all: Vec<Drive> = (0..drives).map(drive).collect::<Result<_, String>>()?;
    let name = "bench".parse().map_err(|e| format!("{e}"))?;
    let spec = CreateSpec {
        name,
        level,
        group_size: None,
        strip_bytes: 128 << 10,
        block_size: None,
        consistency: strake_engine::Consistency::Safe,
    };
    let plan = plan_create(&spec, &all).map_err(|e| e.to_string())?;
    let members = (0..drives).map(|at| Uuid([100 + at; 16])).collect();
    let ids = Ids { array: Uuid([1; 16]), epoch: Uuid([2; 16]), members };
    let made = create(&plan, all, &ids, true, &mut || Some(Nanos(0))).map_err(|e| e.to_string())?;
    Array::start_here(made, 1, Options::default()).map_err(|e| e.to_string())
}
