//! G9: the parity kernels beside ISA-L.
//!
//! Encoding with one to four parities, updating, and recovering one to three strips; small and large strips;
//! few and many drives; with the bytes in a cache and with the bytes in memory. Where ISA-L can do a thing in
//! two ways, both run, and the faster one is the anchor.

mod cases;
mod ways;

use std::path::PathBuf;

use strake_parity::Kernel;

use crate::bandwidth;
use crate::goals;
use crate::isal::Isal;
use crate::machine::available_memory;
use crate::measure::{Effort, Samples, in_turns};
use crate::pool::{Pool, Stripe};
use crate::report::{Drives, Metric, Report, Row, Target};
use cases::{Case, Memory, Operation};
use ways::Named;

/// What a person may choose.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only cases whose name has this in it.
    pub filter: Option<String>,
    /// Samples behind every median.
    pub repeats: usize,
    /// The file of ISA-L; the system's otherwise.
    pub isal: Option<PathBuf>,
    /// The kernel of ours to measure.
    pub kernel: Kernel,
}

/// Samples behind a median by default: they are short, and disturbances by the machine are longer.
pub const REPEATS: usize = 21;

/// A hot stripe stays in one core's caches, so little memory does; but a sample must be long enough to time.
const SAMPLE_NS_HOT: u64 = 150_000;
/// Reading from memory is slow enough that one stripe of the usual size is a sample.
const SAMPLE_NS_COLD: u64 = 400_000;
/// The memory of cold stripes: several times the last cache, as far as the machine has it.
const COLD_CACHES: usize = 3;
const COLD_MIN: usize = 512 << 20;
/// Of the memory that is free, the part that may be taken.
const COLD_SHARE: usize = 4;

/// Runs every case that `options` ask for, calling `progress` before each.
#[must_use]
pub fn run(options: &Options, mut progress: impl FnMut(&str)) -> Report {
    let isal = Isal::open(options.isal.as_deref());
    let title = goals::find("G9").map_or("", |goal| goal.work);
    let mut report = Report::new("G9", title);
    let theirs = isal.as_ref().map_or_else(ToString::to_string, |isal| isal.name().to_owned());
    report.notes.push(format!("Ours: kernel {}; theirs: {theirs}.", options.kernel.name()));
    let wanted = |case: &Case| {
        options.filter.as_ref().is_none_or(|part| case.name().contains(part.as_str()))
    };
    let cases: Vec<Case> = cases::all().into_iter().filter(wanted).collect();
    progress("preparing memory");
    let mut pool = Pool::new(pool_len(&cases, report.machine.last_cache));
    let read_gbps = bandwidth::read_gbps(pool.bytes(), options.repeats);
    report.notes.push(format!("One core reads memory at {read_gbps:.1} GB/s in this run."));
    for case in &cases {
        progress(&case.name());
        let rows = measure(case, &mut pool, isal.as_ref().ok(), options, read_gbps);
        report.rows.extend(rows);
    }
    report
}

fn pool_len(cases: &[Case], last_cache: usize) -> usize {
    let largest = cases.iter().map(|case| case.shape().bytes()).max().unwrap_or(0);
    if cases.iter().all(|case| case.memory == Memory::Hot) {
        return largest.max(64 << 20);
    }
    let affordable = (available_memory() / COLD_SHARE).max(COLD_MIN);
    (last_cache * COLD_CACHES).clamp(COLD_MIN, affordable).max(2 * largest)
}

fn measure(
    case: &Case,
    pool: &mut Pool,
    isal: Option<&Isal>,
    options: &Options,
    read_gbps: f64,
) -> Vec<Row> {
    let (limit, sample_ns) = match case.memory {
        Memory::Hot => (1, SAMPLE_NS_HOT),
        Memory::Cold => (usize::MAX, SAMPLE_NS_COLD),
    };
    let mut stripes = pool.stripes(case.shape(), limit);
    let mut named = ways::of(case, options.kernel, isal);
    agree(case, &mut named, &mut stripes[0]);
    let (names, mut ways): (Vec<&str>, Vec<_>) = named.into_iter().unzip();
    let effort = Effort { repeats: options.repeats, sample_ns };
    let samples = in_turns(&mut ways, &mut stripes, effort);
    let theirs = names.iter().zip(&samples).skip(1);
    let best = theirs.min_by(|a, b| a.1.median().total_cmp(&b.1.median()));
    let mut rows = vec![row(case, &samples[0], best.map(|(name, samples)| (*name, samples)))];
    if case.operation == Operation::Encode && case.memory == Memory::Cold {
        rows.push(wall_row(case, &samples[0], read_gbps));
    }
    rows
}

/// Every way must give the same bytes: what is compared is the same work.
///
/// # Panics
/// When one does not: no number of such a run would mean anything.
fn agree(case: &Case, ways: &mut [Named<'_>], stripe: &mut Stripe<'_>) {
    let copy = |stripe: &Stripe<'_>| -> Vec<Vec<u8>> {
        stripe.outputs.iter().map(|output| output.to_vec()).collect()
    };
    let before = copy(stripe);
    let mut first: Option<Vec<Vec<u8>>> = None;
    for (name, way) in ways {
        for (output, old) in stripe.outputs.iter_mut().zip(&before) {
            output.copy_from_slice(old);
        }
        way(stripe);
        let found = copy(stripe);
        let expected = first.get_or_insert_with(|| found.clone());
        assert!(*expected == found, "{}: {name} gives other bytes than ours", case.name());
    }
}

fn row(case: &Case, ours: &Samples, anchor: Option<(&str, &Samples)>) -> Row {
    let gbps = |seconds: f64| case.work() as f64 / seconds * 1e-9;
    let ours = ours.map(gbps);
    let theirs = anchor.map(|(_, samples)| gbps(samples.median()));
    let name = match (anchor, theirs) {
        (Some((name, _)), Some(theirs)) => {
            format!("GB/s of data; anchor: {name}, {:.2} times as fast", ours.median() / theirs)
        }
        _ => "GB/s of data; nothing here to compare with".to_owned(),
    };
    let target = against(theirs, case.goal(), case.goal().max(MOONSHOT));
    Row::new(case.name(), Metric::Bandwidth, &ours, target).on(Drives::Real).note(name)
}

/// How many times as fast as ISA-L we would like to be.
const MOONSHOT: f64 = 1.15;

/// Goals that are multiples of the anchor, which there may be none of.
fn against(anchor: Option<f64>, goal: f64, moonshot: f64) -> Target {
    let times = |factor: f64| anchor.map(|anchor| anchor * factor);
    Target { anchor, goal: times(goal), moonshot: times(moonshot) }
}

/// The same samples beside the wall: the bytes of data that went by, and what reading alone does.
fn wall_row(case: &Case, ours: &Samples, read_gbps: f64) -> Row {
    const WITHIN: f64 = 0.9;
    let name = format!("{} beside reading alone", case.name());
    let ours = ours.map(|seconds| case.work() as f64 / seconds * 1e-9);
    let times = ours.median() / read_gbps;
    let target = against(Some(read_gbps), WITHIN, 1.0);
    Row::new(name, Metric::Bandwidth, &ours, target)
        .on(Drives::Real)
        .note(format!("anchor: read bandwidth of one core, {times:.2} times as fast"))
}
