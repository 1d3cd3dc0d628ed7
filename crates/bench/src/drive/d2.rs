//! D2: what the driver and the engine add to a drive when requests come one at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_block::{BlockDevice, BufPool};
use strake_dev_nvme::NvmeDevice;
use strake_engine::{Drive, Maintenance};
use strake_raid::Level;

use super::calls::{Caller, Kind, Where};
use super::models::{Model, Models};
use super::{Found, Line, add_round};
use crate::report::{Metric, Target};
use crate::rig::{Rig, Sample};
use crate::scenario::{Case, Made, Options, Subject};

const DRIVES: usize = 8;
/// A member of an array, with 12 MiB of data.
const BLOCKS: u64 = 1 << 13;
/// Queue pairs of a model: of the array, of the drive by itself, of the calls, and of the creation of the array, whose
/// queues are deleted a little after their use.
const QUEUES: u16 = 16;
const LEVELS: [(Level, &str); 2] = [(Level::Raid10, "raid10 x8"), (Level::Raid6, "raid6 6+2")];
/// The requests of 1000, the fastest, whose mean counts.
const FASTEST: f64 = 900.0;
const GOAL: Target = Target { anchor: None, goal: Some(0.25), moonshot: Some(0.15) };

pub(super) fn lines() -> Vec<Line> {
    let mut lines: Vec<Line> = LEVELS.iter().flat_map(|(_, name)| of_level(name)).collect();
    let interrupts = Target { anchor: None, goal: Some(1.0), moonshot: None };
    lines.push(Line::new(
        "1000 reads per second on an interrupt queue: processor",
        Metric::Cpu,
        interrupts,
        "",
    ));
    lines
}

fn of_level(name: &str) -> [Line; 5] {
    let line = |what: &str, target, note: &str| {
        Line::new(format!("{name} {what}"), Metric::Latency, target, note)
    };
    let mean = "mean of the fastest 90 %; the models on another core";
    let calls =
        "submission, doorbell and completion; the time of the clock is measured and left out";
    [
        line("beside: randread 4KiB qd1 of one model", Target::NONE, mean),
        line("randread 4KiB qd1", Target::NONE, mean),
        line("randread 4KiB qd1: added by the engine", Target::NONE, "difference of the two rows"),
        line("randread 4KiB qd1: calls of the driver", Target::NONE, calls),
        line("randread 4KiB qd1: added by engine and driver", GOAL, "sum of the two rows"),
    ]
}

pub(super) fn measure(
    rig: &Rig,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Found, String> {
    let mut found = Found::new();
    for (level, name) in LEVELS {
        match one_level(rig, options, (level, name), progress) {
            Ok(values) => found.extend(values),
            Err(why) => found.extend(of_level(name).map(|_| Err(why.clone()))),
        }
    }
    found.push(Err("the driver has no interrupt queues yet".to_owned()));
    Ok(found)
}

fn one_level(
    rig: &Rig,
    options: &Options,
    (level, name): (Level, &str),
    progress: &mut dyn FnMut(&str),
) -> Result<Found, String> {
    let handles = rig.handles();
    let [driver, stepper] = handles.as_slice() else { return Err("there are no cores".to_owned()) };
    progress(&format!("{name}: starting models"));
    let models = Models::new(DRIVES, BLOCKS, QUEUES, stepper)?;
    let _stepping = models.step()?;
    let made = |device: Arc<dyn BlockDevice>, at| Drive { device, path: format!("model{at}") };
    let drives: Vec<Drive> = (0..).zip(models.drives()).map(|(at, d)| made(d, at)).collect();
    let array = Case { made: Made::Real, depth: 1, ..Case::array(level, DRIVES) };
    let raw = Case { made: Made::Real, depth: 1, ..Case::RAW };
    let alone = Subject::over(&raw, drives[..1].to_vec(), false)?;
    let array = Subject::over(&array, drives, true)?;
    if let Some(array) = array.array() {
        array.set_maintenance(Maintenance { paused: true, ..Maintenance::default() });
    }
    let (mut found, repeats, span) = (Found::new(), options.repeats(), options.span);
    let before = models.stats();
    for number in 1..=repeats {
        progress(&format!("{number} of {repeats}: {name}"));
        let (beside, whole) = (mean(&alone.sample(span)?)?, mean(&array.sample(span)?)?);
        let (one, pool) = (models.one(0), models.pool(1)?);
        let calls = driver.call(move |_| calls(&one, pool, span)).map_err(|e| e.to_string())??;
        let engine = whole - beside;
        let round = [beside, whole, engine, calls, engine + calls];
        add_round(&mut found, round.into_iter().map(Ok).collect());
        models.check(&before)?;
    }
    Ok(found)
}

/// Microseconds of a request.
fn mean(sample: &Sample) -> Result<f64, String> {
    let mean = sample.latency().mean(FASTEST).ok_or("no request completed")?;
    Ok(mean / 1e3)
}

/// Microseconds of the driver's calls for one request by itself.
fn calls(
    (device, model): &(Arc<NvmeDevice>, Arc<Model>),
    pool: BufPool,
    span: Duration,
) -> Result<f64, String> {
    let mut caller = Caller::new((device, model), Where::Elsewhere, Kind::Read, (1, pool))?;
    let spent = caller.bursts(span)?;
    // Each of the two intervals contains one read of the clock.
    Ok(spent.driver_us() - 2.0 * clock_us())
}

/// Microseconds of a read of the clock.
fn clock_us() -> f64 {
    const READS: u32 = 10_000;
    let since = Instant::now();
    for _ in 0..READS {
        std::hint::black_box(Instant::now());
    }
    since.elapsed().as_secs_f64() * 1e6 / f64::from(READS)
}
