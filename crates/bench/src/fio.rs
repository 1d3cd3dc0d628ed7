//! G14: io_uring through a RAID 0 of four files, beside fio on the same files with the same depth.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde::Deserialize;
use strake_dev_uring::{OpenOptions, UringDevice, create_sparse};
use strake_engine::Drive;
use strake_raid::Level;

use crate::folder::Folder;
use crate::measure::Samples;
use crate::report::{Drives, Metric, Report, Row, Target, size};
use crate::run::Compare;
use crate::scenario::{Case, Made, Options, Subject};
use strake_load::Order;

const FILES: usize = 4;
const FILE_BYTES: u64 = 256 << 20;

/// Measures and adds the rows.
pub fn answer(
    report: &mut Report,
    options: &Options,
    compare: Compare,
    mut progress: impl FnMut(&str),
) {
    let random = Case { made: Made::Real, ..Case::array(Level::Raid0, FILES) };
    let sequential =
        Case { order: Order::Sequential, bytes: 128 << 10, depth: 32, ..random.clone() };
    for case in [random, sequential] {
        let beside = if compare == Compare::Fio { " beside fio" } else { "" };
        let name = format!("{}{beside}", case.name());
        if options.filter.as_ref().is_some_and(|part| !name.contains(part.as_str())) {
            continue;
        }
        let row = match measure(&case, options, compare, &mut progress) {
            Ok((ours, Some(theirs))) => {
                let anchor = theirs.median();
                let target = Target::new(anchor, anchor, 1.3 * anchor);
                let ratio = ours.median() / anchor;
                Row::new(name, Metric::Iops, &ours, target)
                    .note(format!("{ratio:.2} times fio"))
                    .note("anchor: fio io_uring on the same files, one job, in turns with ours")
            }
            Ok((ours, None)) => Row::new(name, Metric::Iops, &ours, Target::NONE).note("by itself"),
            Err(why) => Row::open(name, Metric::Iops, Target::NONE, why),
        };
        report.rows.push(row.on(Drives::Real));
    }
}

fn measure(
    case: &Case,
    options: &Options,
    compare: Compare,
    progress: &mut impl FnMut(&str),
) -> Result<(Samples, Option<Samples>), String> {
    progress("filling files");
    let folder = Folder::new(&format!("fio-{}", size(case.bytes).replace(' ', "")))?;
    let paths = files(folder.path())?;
    let open = |path: &PathBuf| {
        let (device, _) =
            UringDevice::open(path, OpenOptions::default()).map_err(|e| e.to_string())?;
        Ok(Drive { device: Arc::new(device), path: path.display().to_string() })
    };
    let drives = paths.iter().map(open).collect::<Result<_, String>>()?;
    let subject = Subject::over(case, drives, true)?;
    subject.fill()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..options.repeats() {
        progress(&format!("{} of {}: {}", round + 1, options.repeats(), case.name()));
        ours.push(subject.sample(options.span)?.rate());
        if compare == Compare::Fio {
            theirs.push(fio(case, &paths, options)?);
        }
    }
    let theirs = (!theirs.is_empty()).then(|| Samples::new(theirs));
    Ok((Samples::new(ours), theirs))
}

/// Files without a byte in them yet.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let file = |at| {
        let path = folder.join(format!("drive{at}"));
        create_sparse(&path, FILE_BYTES)
            .map_err(|e| format!("cannot make {}: {e}", path.display()))?;
        Ok(path)
    };
    (0..FILES).map(file).collect()
}

/// What fio reads per second.
fn fio(case: &Case, paths: &[PathBuf], options: &Options) -> Result<f64, String> {
    let order = if case.order == Order::Sequential { "read" } else { "randread" };
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    let milliseconds = options.span.as_millis().max(100);
    let output = Command::new("fio")
        .args(["--name=beside", "--ioengine=io_uring", "--direct=1", "--time_based"])
        .args(["--registerfiles=1", "--fixedbufs=1", "--norandommap=1", "--output-format=json"])
        .args(["--file_service_type=roundrobin", "--cpus_allowed=0", "--thread=1"])
        .arg(format!("--filename={}", names.join(":")))
        .arg(format!("--rw={order}"))
        .arg(format!("--bs={}", case.bytes))
        .arg(format!("--iodepth={}", case.depth))
        .arg(format!("--runtime={milliseconds}ms"))
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot run fio ({e}): install it to compare"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("fio: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    parse(&text)
}

#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    read: Reads,
}

#[derive(Deserialize)]
struct Reads {
    iops: f64,
}

/// Reads per second out of fio's JSON, which may have words before it.
fn parse(text: &str) -> Result<f64, String> {
    let json = text.find('{').map_or("", |at| &text[at..]);
    let output: Output = serde_json::from_str(json).map_err(|e| format!("fio's answer: {e}"))?;
    let job = output.jobs.first().ok_or("fio's answer has no job")?;
    Ok(job.read.iops)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn reads_per_second_are_found_behind_words() {
        let json = r#"note: both iodepth >= 1
{"fio version": "fio-3.36", "jobs": [{"jobname": "x", "read": {"iops": 1234.5, "bw": 7}, "write": {"iops": 0}}]}"#;
        assert_eq!(parse(json), Ok(1234.5));
        assert!(parse("nothing").is_err());
        assert!(parse(r#"{"jobs": []}"#).is_err_and(|why| why.contains("no job")));
    }
}
