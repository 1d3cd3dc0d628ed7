//! D1: a request through the driver, and requests per second of driver and model.

use std::sync::Arc;
use std::time::Duration;

use strake_block::BufPool;
use strake_dev_nvme::NvmeDevice;

use super::calls::{Caller, Kind, Where};
use super::models::{Model, Models};
use super::{Found, Line, add_round};
use crate::report::{Metric, Target};
use crate::rig::Rig;
use crate::scenario::Options;

const BLOCKS: u64 = 1 << 12;
/// Queue pairs of a model: one is in use while the one before is deleted.
const QUEUES: u16 = 2;

/// What a row shows of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    /// The time of the driver's calls, with the model there.
    Calls(Where),
    /// The time of the model's own steps, on the driver's thread.
    Model,
    /// Requests per second of both, each on its core.
    Rate,
}

impl Show {
    /// Where the model runs.
    const fn place(self) -> Where {
        match self {
            Self::Calls(place) => place,
            Self::Model => Where::Here,
            Self::Rate => Where::Elsewhere,
        }
    }
}

const CASES: [(Show, Kind, u32); 14] = [
    (Show::Calls(Where::Elsewhere), Kind::Read, 128),
    (Show::Calls(Where::Elsewhere), Kind::Read, 32),
    (Show::Calls(Where::Elsewhere), Kind::Write, 128),
    (Show::Calls(Where::Elsewhere), Kind::Write, 32),
    (Show::Calls(Where::Here), Kind::Read, 128),
    (Show::Calls(Where::Here), Kind::Write, 128),
    (Show::Model, Kind::Read, 128),
    (Show::Model, Kind::Write, 128),
    (Show::Rate, Kind::Read, 1),
    (Show::Rate, Kind::Read, 32),
    (Show::Rate, Kind::Read, 128),
    (Show::Rate, Kind::Write, 1),
    (Show::Rate, Kind::Write, 32),
    (Show::Rate, Kind::Write, 128),
];

pub(super) fn lines() -> Vec<Line> {
    CASES.iter().map(line).collect()
}

fn line((show, kind, depth): &(Show, Kind, u32)) -> Line {
    let what = format!("{} 4KiB qd{depth}", kind.word());
    let calls = "submission, doorbell and completion of bursts that fill the queue; the clock runs only during calls; \
                 mean of the fastest 90 % of bursts";
    let (name, metric, note) = match show {
        Show::Calls(Where::Elsewhere) => {
            (format!("driver {what}, model on another core"), Metric::Latency, calls)
        }
        Show::Calls(Where::Here) => {
            (format!("driver {what}, model on the same core"), Metric::Latency, calls)
        }
        Show::Model => (
            format!("model {what}, by itself"),
            Metric::Latency,
            "the model's steps, with its copy of the data; mean of the fastest 90 % of bursts",
        ),
        Show::Rate => (
            format!("driver and model {what}, a core each"),
            Metric::Iops,
            "the model, which also copies the data, is the limit above QD 1",
        ),
    };
    let is_goal = (*show, *kind, *depth) == (Show::Calls(Where::Elsewhere), Kind::Read, 128);
    let target = if is_goal { Target::goals(0.060, 0.045) } else { Target::NONE };
    Line::new(name, metric, target, note)
}

pub(super) fn measure(
    rig: &Rig,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Result<Found, String> {
    let handles = rig.handles();
    let [driver, stepper] = handles.as_slice() else { return Err("there are no cores".to_owned()) };
    // Each case has a model of its own, which is stepped alone.
    let models = Models::new(CASES.len(), BLOCKS, QUEUES, stepper)?;
    let (mut found, repeats, span) = (Found::new(), options.repeats(), options.span);
    let before = models.stats();
    for number in 1..=repeats {
        let mut round = Vec::new();
        for (at, case) in CASES.iter().enumerate() {
            progress(&format!("{number} of {repeats}: {}", line(case).case));
            let stepping = match case.0.place() {
                Where::Here => None,
                Where::Elsewhere => Some(models.step_one(at)?),
            };
            let (case, pool, one) = (*case, models.pool(case.2 as usize)?, models.one(at));
            let value = driver.call(move |_| sample(&one, case, pool, span));
            round.push(value.map_err(|e| e.to_string())?);
            drop(stepping);
            models.settle()?;
        }
        add_round(&mut found, round);
        models.check(&before)?;
    }
    Ok(found)
}

fn sample(
    (device, model): &(Arc<NvmeDevice>, Arc<Model>),
    (show, kind, depth): (Show, Kind, u32),
    pool: BufPool,
    span: Duration,
) -> Result<f64, String> {
    let mut caller = Caller::new((device, model), show.place(), kind, (depth, pool))?;
    match show {
        Show::Calls(_) => Ok(caller.bursts(span)?.driver_us()),
        Show::Model => Ok(caller.bursts(span)?.model_us()),
        Show::Rate => caller.rate(span),
    }
}
