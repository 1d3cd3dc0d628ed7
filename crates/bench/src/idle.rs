//! G12: what a daemon takes that has nothing to do: processor time, and the first answer after a rest.

use std::time::{Duration, Instant};

use crate::daemon::{Client, Daemon};
use crate::measure::Samples;
use crate::report::{Drives, Metric, Report, Row, Target};
use crate::rig::pass;
use crate::scenario::Options;
use crate::wake::Sleeper;

const DRIVES: usize = 8;
const VOLUMES: usize = 4;
/// How long its silence is watched each time.
const REST: Duration = Duration::from_secs(2);
/// Reads of a client that is busy, after each rest.
const BUSY_READS: usize = 101;

/// What one round found.
struct Round {
    /// Processor time, in percent of a core.
    cpu: f64,
    /// By how much longer the first read took than those after it, in microseconds.
    wake: f64,
    /// The same without a daemon.
    own_wake: f64,
}

/// Measures and adds the rows.
pub fn answer(report: &mut Report, options: &Options, mut progress: impl FnMut(&str)) {
    let wanted =
        |row: &Row| options.filter.as_ref().is_none_or(|part| row.case.contains(part.as_str()));
    if !rows(&Err(String::new())).iter().any(wanted) {
        return;
    }
    let rounds = measure(options, &mut progress);
    report.rows.extend(rows(&rounds).into_iter().filter(wanted));
}

type Line = (&'static str, Metric, Target, &'static str, fn(&Round) -> f64);

fn rows(rounds: &Result<Vec<Round>, String>) -> Vec<Row> {
    let lines: [Line; 3] = [
        (
            "idle daemon, 8 drives, 4 volumes, 4 silent clients: processor",
            Metric::Cpu,
            Target::new(100.0, 1.0, 0.2),
            "anchor: an SPDK target polls",
            |round| round.cpu,
        ),
        (
            "array whose core sleeps: first read after 5 ms of rest",
            Metric::Latency,
            Target { anchor: None, goal: Some(20.0), moonshot: None },
            "longer than the median of the 101 reads after it; RAID 1 of null drives in this process, asked by another \
             data core that does not sleep: no export, no socket",
            |round| round.own_wake,
        ),
        (
            "idle daemon: first read after 2 s of rest",
            Metric::Latency,
            Target { anchor: None, goal: Some(20.0), moonshot: None },
            "longer than the median of the 101 reads after it; over NBD and the page cache, the client's own waking in \
             it",
            |round| round.wake,
        ),
    ];
    let row = |(case, metric, target, note, value): Line| {
        let row = match rounds {
            Ok(rounds) => {
                let samples = Samples::new(rounds.iter().map(value).collect());
                Row::new(case, metric, &samples, target)
            }
            Err(why) => Row::open(case, metric, target, why.as_str()),
        };
        let drives = if case.starts_with("array") { Drives::Null } else { Drives::Real };
        row.on(drives).protected("intent bitmap").note(note)
    };
    lines.into_iter().map(row).collect()
}

fn measure(options: &Options, progress: &mut impl FnMut(&str)) -> Result<Vec<Round>, String> {
    progress("starting a daemon");
    let daemon = Daemon::start("idle", DRIVES, &[])?;
    let mut clients = (0..VOLUMES).map(|at| volume(&daemon, at)).collect::<Result<Vec<_>, _>>()?;
    let sleeper = Sleeper::new()?;
    let repeats = options.repeats();
    let mut rounds = Vec::new();
    for round in 0..repeats {
        progress(&format!("{} of {repeats}: watching the daemon rest", round + 1));
        let (before, since) = (daemon.cpu()?, Instant::now());
        pass(REST);
        let cpu = 100.0 * (daemon.cpu()? - before) / since.elapsed().as_secs_f64();
        let client = &mut clients[0];
        let first = client.read()?;
        let busy = (0..BUSY_READS).map(|_| client.read()).collect::<Result<Vec<_>, _>>()?;
        let wake = (first - Samples::new(busy).median()) * 1e6;
        rounds.push(Round { cpu, wake, own_wake: sleeper.wake()? });
    }
    Ok(rounds)
}

/// A volume of two drives with a client that is connected.
fn volume(daemon: &Daemon, at: usize) -> Result<Client, String> {
    let name = format!("volume{at}");
    let drives = format!("./drive{},./drive{}", 2 * at, 2 * at + 1);
    daemon.ask(&["array", "create", &name, "--level", "1", "--drives", &drives])?;
    daemon.export(&name)
}
