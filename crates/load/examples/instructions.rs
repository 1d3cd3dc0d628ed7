//! Does a number of requests on one thread, for `cargo xtask instructions` to count what they execute.
//!
//! `instructions CASE REQUESTS`: prints the parity kernel. Time is a number that goes up by a microsecond per turn, so
//! every run executes the same.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;

use strake_dev_mem::NullDevice;
use strake_engine::{Array, Consistency, CreateSpec, Drive, Ids, Options, create, plan_create};
use strake_load::{Load, Order, Pattern, Progress};
use strake_parity::Kernel;
use strake_raid::Level;
use strake_reactor::Poller as _;
use strake_units::{BlockSize, CoreIndex, MemberIndex, Nanos, Uuid};

const USAGE: &str = "instructions CASE REQUESTS";
const DRIVE_BYTES: u64 = 512 << 20;
/// Blocks of a whole stripe of 6 strips.
const STRIPE_BLOCKS: u32 = 192;

/// An array, and what one core asks of it.
#[derive(Clone, Copy)]
struct Case {
    level: Level,
    drives: u8,
    /// Members that are out.
    lost: u8,
    cores: u16,
    consistency: Consistency,
    write_percent: u8,
    blocks: u32,
    order: Order,
    depth: u32,
    /// Requests that fit into the part that is used: few enough that the first requests, which are not counted, mark
    /// all of its regions; of random requests, so many that no column is written twice at once.
    places: u64,
}

impl Case {
    /// Reads of a block, of RAID 6 6+2.
    const READ: Self = Self {
        level: Level::Raid6,
        drives: 8,
        lost: 0,
        cores: 1,
        consistency: Consistency::Safe,
        write_percent: 0,
        blocks: 1,
        order: Order::Random,
        depth: 32,
        places: 1 << 18,
    };
    const WRITE: Self = Self { write_percent: 100, ..Self::READ };

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "read" => Self::READ,
            "read-deep" => Self { depth: 128, ..Self::READ },
            "read-degraded" => Self { lost: 2, ..Self::READ },
            "write" => Self::WRITE,
            "write-deep" => Self { depth: 128, ..Self::WRITE },
            "write-strict" => Self { consistency: Consistency::Strict, ..Self::WRITE },
            "write-degraded" => Self { lost: 1, ..Self::WRITE },
            "write-remote" => Self { cores: 2, ..Self::WRITE },
            "mirror" => Self { level: Level::Raid1, drives: 2, ..Self::WRITE },
            "stripe" => {
                let (blocks, order) = (STRIPE_BLOCKS, Order::Sequential);
                Self { blocks, order, depth: 4, places: 64, ..Self::WRITE }
            }
            _ => return None,
        })
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, requests] = arguments.as_slice() else { return refuse(USAGE) };
    let Some(case) = Case::named(name) else { return refuse(USAGE) };
    let Ok(requests) = requests.parse::<u64>() else { return refuse(USAGE) };
    match run(case, requests) {
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

fn run(case: Case, requests: u64) -> Result<(), String> {
    let (array, mut pollers) = array(case)?;
    let mut now = Nanos(0);
    for member in 0..case.lost {
        let mut failing = array.begin_fail(MemberIndex(member)).map_err(|e| e.to_string())?;
        while failing.poll().is_none() {
            now = now.plus(Nanos::MICRO);
            for poller in &mut pollers {
                let _ = poller.turn(now);
            }
        }
    }
    let device = array.device();
    let Case { write_percent, blocks, order, depth, .. } = case;
    let places = (device.info().blocks / u64::from(blocks)).min(case.places);
    let pattern = Pattern { write_percent, blocks, order, depth, places, ..Pattern::default() };
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

/// An array of null drives and its shards.
fn array(case: Case) -> Result<Parts, String> {
    let Case { level, drives, cores, consistency, .. } = case;
    let null = || NullDevice::new(DRIVE_BYTES >> BlockSize::B4096.shift(), BlockSize::B4096);
    let drive = |at| Drive { device: Arc::new(null()), path: format!("drive{at}") };
    let all: Vec<Drive> = (0..drives).map(drive).collect();
    let name = "bench".parse().map_err(|e| format!("{e}"))?;
    let spec = CreateSpec {
        name,
        level,
        group_size: None,
        strip_bytes: 128 << 10,
        block_size: None,
        consistency,
    };
    let plan = plan_create(&spec, &all).map_err(|e| e.to_string())?;
    let members = (0..drives).map(|at| Uuid([100 + at; 16])).collect();
    let ids = Ids { array: Uuid([1; 16]), epoch: Uuid([2; 16]), members };
    let made = create(&plan, all, &ids, true, &mut || Some(Nanos(0))).map_err(|e| e.to_string())?;
    Array::start_here(made, cores, Options::default()).map_err(|e| e.to_string())
}
