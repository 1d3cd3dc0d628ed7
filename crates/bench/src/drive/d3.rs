//! D3: the memory of the driver, and a turn of a queue without requests.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use strake_block::{BufPool, CompletionBatch};
use strake_dev_nvme::{Footprint, NvmeDevice};
use strake_reactor::{CoreHandle, monotonic};

use super::calls::{Caller, Kind, Where};
use super::models::{Model, Models};
use super::{Found, Line, add_round};
use crate::report::{Metric, Target};
use crate::rig::Rig;
use crate::scenario::Options;

const DRIVES: usize = 24;
const CORES: u16 = 2;
const BLOCKS: u64 = 1 << 8;
/// Requests of a queue. Its rings then have 512 entries.
const DEPTH: u32 = 256;
/// Turns between two reads of the clock of the benchmark.
const TURNS: u32 = 1000;

pub(super) fn lines() -> Vec<Line> {
    let memory = |case: &str, target, note: &str| Line::new(case, Metric::Memory, target, note);
    let idle = |case: &str, target, note: &str| Line::new(case, Metric::Latency, target, note);
    let goal = Target { anchor: None, goal: Some(0.003), moonshot: None };
    vec![
        memory(
            "memory of a drive and core, 256 requests",
            Target::goals(0.125, 0.0625),
            "computed by the driver: rings of 512 entries, lists, slots",
        ),
        memory(
            "memory of a drive, whatever the number of cores",
            Target::NONE,
            "computed by the driver: almost all of it is 2 MiB for data that must be copied",
        ),
        memory(
            "memory of 24 drives x 2 cores, 256 requests",
            Target::NONE,
            "24 times the row of the drive and 48 times the row of the drive and core",
        ),
        idle(
            "idle queue, 24 drives x 2 cores: poll",
            goal,
            "of the slower core; an array does not poll a queue without requests",
        ),
        idle(
            "idle queue, 24 drives x 2 cores: doorbell and poll",
            Target::NONE,
            "of the slower core",
        ),
    ]
}

pub(super) fn measure(
    rig: &Rig,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Found, String> {
    let handles = rig.handles();
    let [first, second] = handles.as_slice() else { return Err("there are no cores".to_owned()) };
    progress("starting 24 models");
    let models = Models::new(DRIVES, BLOCKS, 2 * CORES, second)?;
    let (mut found, repeats, span) = (Found::new(), options.repeats(), options.span / 2);
    let before = models.stats();
    for number in 1..=repeats {
        progress(&format!("{number} of {repeats}: polling idle queues"));
        let [one, other] = on_both(&models, [first, second], span)?;
        let mut round = memory(models.devices[0].footprint(DEPTH)).to_vec();
        round.extend([one[0].max(other[0]), one[1].max(other[1])]);
        add_round(&mut found, round.into_iter().map(Ok).collect());
        models.settle()?;
        models.check(&before)?;
    }
    Ok(found)
}

/// MiB of the three rows about memory.
fn memory(Footprint { queue, drive }: Footprint) -> [f64; 3] {
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    [mib(queue), mib(drive), mib(DRIVES * (drive + usize::from(CORES) * queue))]
}

/// Microseconds of a turn of an idle queue, without and with the doorbell, measured on both cores at once.
fn on_both(
    models: &Models,
    cores: [&CoreHandle; 2],
    span: Duration,
) -> Result<[[f64; 2]; 2], String> {
    let ready = Arc::new(Barrier::new(usize::from(CORES)));
    let run = |core: &CoreHandle| {
        let ready = Arc::clone(&ready);
        let all: Vec<_> = (0..DRIVES).map(|at| (models.one(at), models.pool(1))).collect();
        let done = core.call(move |_| {
            let opened: Result<Vec<Caller>, String> = all.into_iter().map(open).collect();
            ready.wait();
            let mut callers = opened?;
            Ok::<_, String>([false, true].map(|rings| turn(&mut callers, rings, span)))
        });
        done.map_err(|e| e.to_string())?
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(cores[1]));
        (run(cores[0]), other.join())
    });
    Ok([one?, other.map_err(|_| "a measurement panicked".to_owned())??])
}

/// A queue that had requests and has none.
fn open(
    (one, pool): ((Arc<NvmeDevice>, Arc<Model>), Result<BufPool, String>),
) -> Result<Caller, String> {
    Caller::new((&one.0, &one.1), Where::Here, Kind::Read, (1, pool?))
}

/// Microseconds of a turn of one queue.
fn turn(callers: &mut [Caller], rings: bool, span: Duration) -> f64 {
    let (since, mut turns, mut batch) = (Instant::now(), 0_u64, CompletionBatch::new(1));
    while since.elapsed() < span || turns == 0 {
        let now = monotonic();
        for _ in 0..TURNS {
            for caller in &mut *callers {
                if rings {
                    caller.queue().ring_doorbell(now);
                }
                caller.queue().poll(now, &mut batch);
            }
        }
        turns += u64::from(TURNS) * callers.len() as u64;
    }
    since.elapsed().as_secs_f64() * 1e6 / turns as f64
}
