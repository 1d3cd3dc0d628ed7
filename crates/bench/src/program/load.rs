//! `strake bench load`.

use super::args::{BenchLoad, Consistency, Part, Rw};
use super::failure::Failure;
use super::{drive_profile, progress, tables};
use crate::adhoc::{self, Bay, Wish};
use crate::report::number;
use crate::rig::Sample;
use crate::scenario::{self, Case, Made, Off};
use std::path::PathBuf;
use std::time::Duration;
use strake_load::Order;
use strake_terminal::output::Output;
use strake_units::ByteSize;

/// Drives made of memory, at most: members of an array.
const DRIVES_MAX: usize = 64;

pub(super) fn run(arguments: &BenchLoad, out: &Output) -> Result<(), Failure> {
    let wish = wish(arguments)?;
    let bytes = f64::from(arguments.bs);
    let outcome = adhoc::run(&wish, |sample| progress(&line(sample, bytes)));
    progress("");
    let outcome = outcome.map_err(Failure::usage)?;
    Ok(out.print(&outcome, tables::load)?)
}

/// What was done in the last half second.
fn line(sample: &Sample, bytes: f64) -> String {
    let counts = sample.latency();
    let at = |per_mille| {
        counts.percentile(per_mille).map_or("-".to_owned(), |ns| number(ns as f64 / 1e3, "us"))
    };
    let (rate, bandwidth) =
        (number(sample.rate(), "1/s"), number(sample.rate() * bytes / 1e9, "GB/s"));
    format!("{rate}, {bandwidth}, p50 {}, p99 {}, p99.9 {}", at(500.0), at(990.0), at(999.0))
}

fn wish(arguments: &BenchLoad) -> Result<Wish, Failure> {
    let (made, bay) = bay(arguments)?;
    let count = match &bay {
        Bay::Made(_, count, _) => *count,
        Bay::Paths(paths) => paths.len(),
    };
    let level = arguments
        .level
        .as_ref()
        .map(|level| level.parse().map_err(|e| Failure::usage(format!("--level {level}: {e}"))));
    let level = level.transpose()?;
    if level.is_none() && count != 1 {
        return Err(Failure::usage(
            "several drives need a --level; without one, name a single drive",
        ));
    }
    if arguments.verify && matches!(made, Made::Null | Made::Model(_)) {
        return Err(Failure::usage(
            "null and modelled drives keep no data to verify: use ram:COUNT, or paths",
        ));
    }
    let case = Case {
        made,
        level,
        count,
        strip: arguments.strip,
        out: arguments.out,
        consistency: consistency(arguments.consistency),
        off: off(&arguments.off),
        cores: arguments.cores,
        bytes: arguments.bs as usize,
        write_percent: write_percent(arguments),
        order: order(arguments)?,
        depth: arguments.depth,
        ..Case::RAW
    };
    let span = Duration::from_secs(arguments.seconds);
    Ok(Wish { case, bay, span, verify: arguments.verify })
}

const fn consistency(mode: Consistency) -> scenario::Consistency {
    use scenario::Consistency as Mode;
    match mode {
        Consistency::Resync => Mode::Resync,
        Consistency::Safe => Mode::Safe,
        Consistency::Strict => Mode::Strict,
        Consistency::None => Mode::None,
    }
}

fn off(parts: &[Part]) -> Off {
    let has = |part| parts.contains(&part);
    Off { merge: has(Part::Merge), steer: has(Part::Steer), cache: has(Part::Cache) }
}

const fn write_percent(arguments: &BenchLoad) -> u8 {
    match arguments.rw {
        Rw::Read | Rw::Randread => 0,
        Rw::Write | Rw::Randwrite => 100,
        Rw::Rw | Rw::Randrw => arguments.writes,
    }
}

fn order(arguments: &BenchLoad) -> Result<Order, Failure> {
    match (arguments.rw, arguments.zipf) {
        (Rw::Read | Rw::Write | Rw::Rw, None) => Ok(Order::Sequential),
        (Rw::Read | Rw::Write | Rw::Rw, Some(_)) => {
            Err(Failure::usage("--zipf is for --rw randread, randwrite and randrw"))
        }
        (Rw::Randread | Rw::Randwrite | Rw::Randrw, None) => Ok(Order::Random),
        (Rw::Randread | Rw::Randwrite | Rw::Randrw, Some(theta)) => Ok(Order::Zipf(theta)),
    }
}

/// "null:8", "ram:4:1GiB", or paths; a device's name alone is one in /dev.
fn bay(arguments: &BenchLoad) -> Result<(Made, Bay), Failure> {
    let text = &arguments.drives;
    let Some((kind, rest)) =
        text.split_once(':').filter(|(kind, _)| ["null", "ram", "model"].contains(kind))
    else {
        let path = |word: &str| {
            let device = PathBuf::from("/dev").join(word);
            if word.contains('/') || !device.exists() { PathBuf::from(word) } else { device }
        };
        return Ok((Made::Real, Bay::Paths(text.split(',').map(path).collect())));
    };
    let (count, size) =
        rest.split_once(':').map_or((rest, None), |(count, size)| (count, Some(size)));
    let count = count.parse().ok().filter(|count| (1..=DRIVES_MAX).contains(count));
    let count = count.ok_or_else(|| {
        Failure::usage(format!("--drives {text}: a count of 1 to {DRIVES_MAX} follows {kind}:"))
    })?;
    let size = size.map(|size| {
        size.parse::<ByteSize>().map_err(|e| Failure::usage(format!("--drives {text}: {e}")))
    });
    let made = match kind {
        "null" => Made::Null,
        "ram" => Made::Ram,
        _ => Made::Model(drive_profile(arguments.profile.as_deref())?),
    };
    Ok((made, Bay::Made(made, count, size.transpose()?.map(|size| size.0))))
}
