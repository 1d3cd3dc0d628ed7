//! Where the time of G1 and G2 goes: a data core under load, looked at a thousand times a second by perf, as a picture.
//!
//! Timer samples (`cpu-clock`), because virtual machines often have no hardware counters. A sample says where the core
//! was when the kernel next had a say, which is a few instructions late.

use std::path::Path;
use std::process::Stdio;

use crate::run::{self, Outcome, Tally};

mod draw;
mod fold;
#[cfg(test)]
mod tests;

/// What is looked at: the picture, its heading, and the load.
const CASES: [(&str, &str, &str); 2] = [
    ("flame-g1.svg", "G1: RAID 6 6+2, null drives, 4 KiB random read, QD 128, 1 core", "randread"),
    (
        "flame-g2.svg",
        "G2: RAID 6 6+2, null drives, 4 KiB random write, QD 128, 1 core",
        "randwrite",
    ),
];
const FOLDER: &str = "docs/benchmarks";
/// How long the load runs.
const SECONDS: &str = "5";
/// Samples a second: not a divisor of anything that might happen regularly.
const RATE: &str = "997";
/// How calls are followed: by the unwind tables, over so many bytes of the stack.
const STACK: &str = "dwarf,32768";
/// Seconds after which perf is taken for hung.
const SECONDS_MAX: &str = "300";
/// What a data core's thread is called.
const THREAD: &str = "strake-core-0";

/// Makes both pictures.
pub fn make(root: &Path) -> Outcome {
    if let Err(why) = run::probe(&mut run::command(root, &["perf", "--version"])) {
        let how = "apt-get install linux-perf (Debian) or linux-tools-generic (Ubuntu)";
        return Outcome::skipped(format!("no perf ({why}): {how}"));
    }
    let words = ["cargo", "build", "--release", "--quiet", "-p", "strake-bench"];
    let built = run::check(&mut run::command(root, &words));
    if built.tally.failed > 0 {
        return built;
    }
    let mut outcome = Outcome::default();
    for (file, title, load) in CASES {
        let done = one(root, title, load).and_then(|(picture, about)| {
            let path = root.join(FOLDER).join(file);
            std::fs::write(&path, picture).map_err(|e| format!("cannot write {file}: {e}"))?;
            println!("{FOLDER}/{file}: {about}");
            Ok(())
        });
        outcome.tally.add(Tally::of(done.is_ok()));
        if let Err(why) = done {
            outcome.note += &why;
        }
    }
    outcome
}

/// The picture of one load, and the crates that most of its time is spent in.
fn one(root: &Path, title: &str, load: &str) -> Result<(String, String), String> {
    let target = crate::ci::target_folder(root);
    let program = target.join("release/strake-bench");
    let data = target.join("flamegraph.perf");
    let timeout = ["timeout", "--kill-after=5", SECONDS_MAX, "perf"];
    let mut record = run::command(root, &timeout);
    record.args(["record", "-q", "-e", "cpu-clock", "-F", RATE, "--call-graph", STACK, "-o"]);
    record.arg(&data).arg("--").arg(&program);
    record.args(["load", "--drives", "null:8", "--level", "6", "--rw", load]);
    record.args(["--depth", "128", "--seconds", SECONDS]);
    run::probe(&mut record)
        .map_err(|why| format!("perf cannot record ({why}): see kernel.perf_event_paranoid"))?;
    let mut script = run::command(root, &timeout);
    script.arg("script").args(["-F", "comm,tid,ip,sym", "-i"]).arg(&data);
    let output = script.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run perf script: {error}"))?;
    // The recording is of no further use, and large.
    let _ = std::fs::remove_file(&data);
    let tree = fold::busiest(&String::from_utf8_lossy(&output.stdout), THREAD);
    if tree.count == 0 {
        return Err(format!("perf saw nothing of {THREAD}"));
    }
    Ok((draw::svg(title, &tree), fold::by_crate(&tree)))
}
