//! Does a number of requests on one thread, for `cargo xtask instructions` to count what they execute.
//!
//! `instructions CASE REQUESTS`: prints the parity kernel. Time is a number that goes up by a microsecond per turn, so
//! every run executes the same.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;

use strake_block::{BlockDevice, BufMut, CompletionBatch, Durability, Io, Op, Token};
use strake_dev_mem::NullDevice;
use strake_engine::{Array, Consistency, CreateSpec, Drive, Ids, Options, create, plan_create};
use strake_load::{Load, Order, Pattern, Progress};
use strake_parity::Kernel;
use strake_raid::Level;
use strake_reactor::Poller as _;
use strake_units::{BlockSize, CoreIndex, Lba, MemberIndex, Nanos, Uuid};
use strake_volume::{Answer, Pool, PoolSpec, Request, SpacePolicy};

const USAGE: &str = "instructions CASE REQUESTS";
const DRIVE_BYTES: u64 = 512 << 20;
/// Blocks of a whole stripe of 6 strips.
const STRIPE_BLOCKS: u32 = 192;

/// Blocks of a volume: 86 clusters.
const VOLUME_BLOCKS: u64 = 1 << 14;

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
    /// True for requests to a volume on the array, whose clusters were all written.
    volume: bool,
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
        volume: false,
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
            "volume-read" => Self { volume: true, places: VOLUME_BLOCKS, ..Self::READ },
            "volume-write" => Self { volume: true, places: VOLUME_BLOCKS, ..Self::WRITE },
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
    let mut device = array.device();
    let mut _pool = None;
    if case.volume {
        let (pool, volume) = volume(device, &mut pollers, &mut now)?;
        (_pool, device) = (Some(pool), volume);
    }
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

/// Starts a pool on an array, and returns a volume in it whose clusters are all written.
fn volume(
    below: Arc<dyn BlockDevice>,
    pollers: &mut Vec<Box<dyn strake_reactor::Poller>>,
    now: &mut Nanos,
) -> Result<(Pool, Arc<dyn BlockDevice>), String> {
    let name = "pool".parse().map_err(|e| format!("{e}"))?;
    let spec = PoolSpec { name, pool: Uuid([3; 16]), nonce: 1 };
    let mut turn = |pollers: &mut Vec<Box<dyn strake_reactor::Poller>>| {
        *now = now.plus(Nanos::MICRO);
        for poller in pollers {
            let _ = poller.turn(*now);
        }
        *now
    };
    let opened = strake_volume::create(below, &spec, &mut || Some(turn(pollers)));
    let opened = opened.map_err(|e| e.to_string())?;
    let (pool, driver) = Pool::start_here(opened).map_err(|e| e.to_string())?;
    pollers.push(driver);
    let name = "volume".parse().map_err(|e| format!("{e}"))?;
    let policy = SpacePolicy { reserved: true, quota: None };
    let made = pool.ask(Request::Create { name, blocks: VOLUME_BLOCKS, policy });
    let answer = loop {
        if let Some(answer) = made.poll().map_err(|e| e.to_string())? {
            break answer.map_err(|e| e.to_string())?;
        }
        turn(pollers);
    };
    let Answer::Created(made) = answer else { return Err("no volume was created".into()) };
    let opening = pool.open(made[0]);
    turn(pollers);
    let facts = opening.poll().map_err(|e| e.to_string())?.ok_or("the volume does not open")?;
    let device = pool.device_of(made[0], facts);
    let mut queue = device.open_queue(CoreIndex(0), 1).map_err(|e| e.to_string())?;
    let mut batch = CompletionBatch::new(1);
    for at in (0..VOLUME_BLOCKS).step_by(STRIPE_BLOCKS as usize) {
        let blocks = (VOLUME_BLOCKS - at).min(u64::from(STRIPE_BLOCKS));
        let data = BufMut::alone((blocks as usize) << BlockSize::B4096.shift()).freeze();
        let op = Op::Write { at: Lba(at), data: data.into(), durability: Durability::Normal };
        queue.submit(Io { token: Token(0), op }).map_err(|_| "the queue has no room")?;
        while batch.is_empty() {
            let now = turn(pollers);
            queue.poll(now, &mut batch);
        }
        batch.drain().try_for_each(|done| done.result).map_err(|e| e.to_string())?;
    }
    Ok((pool, device))
}
