//! G13: what memory a daemon takes, and what for: for itself, an array, a client, and for what clients have out.

use crate::daemon::Daemon;
use crate::measure::Samples;
use crate::report::{Drives, Metric, Report, Row, Target};
use crate::scenario::Options;

const DRIVES: usize = 8;
/// Requests that the client has out.
const DEPTH: usize = 1024;
/// How often it has that many out, to read and to write, before the end.
const BURSTS: usize = 8;

/// Memory in use, in MiB, after one thing more each time.
#[derive(Clone, Copy, Debug)]
struct Stages {
    started: f64,
    array: f64,
    client: f64,
    busy: f64,
}

/// A row: its name, its target, what has to be known, and its number.
type Line = (&'static str, Target, &'static str, fn(&Stages) -> f64);

const LINES: [Line; 5] = [
    (
        "daemon with 8 drives as RAID 6, 1 client that has had 1024 requests out",
        Target::goals(256.0, 64.0),
        "resident set of the process at the end of the rows below; one data core per CPU, at most 2",
        |s| s.busy,
    ),
    ("of that, the daemon without arrays", Target::NONE, "fixed at start", |s| s.started),
    ("of that, an array of 8 drives", Target::NONE, "per array", |s| s.array - s.started),
    ("of that, an export with a silent client", Target::NONE, "per client", |s| s.client - s.array),
    (
        "of that, 1024 requests of 4 KiB out",
        Target::NONE,
        "per depth: reads and writes by turns, which also use what was only reserved before",
        |s| s.busy - s.client,
    ),
];

/// Measures and adds the rows.
pub fn answer(report: &mut Report, options: &Options, mut progress: impl FnMut(&str)) {
    let wanted =
        |row: &Row| options.filter.as_ref().is_none_or(|part| row.case.contains(part.as_str()));
    if !rows(&Err(String::new())).iter().any(wanted) {
        return;
    }
    let repeats = options.repeats();
    let one = |number| {
        progress(&format!("{number} of {repeats}: a daemon's memory"));
        stages()
    };
    let found: Result<Vec<Stages>, String> = (1..=repeats).map(one).collect();
    report.rows.extend(rows(&found).into_iter().filter(wanted));
}

fn rows(found: &Result<Vec<Stages>, String>) -> Vec<Row> {
    let row = |(case, target, note, value): Line| {
        let row = match found {
            Ok(all) => {
                let samples = Samples::new(all.iter().map(value).collect());
                Row::new(case, Metric::Memory, &samples, target)
            }
            Err(why) => Row::open(case, Metric::Memory, target, why.as_str()),
        };
        row.on(Drives::Real).protected("intent bitmap").note(note)
    };
    LINES.into_iter().map(row).collect()
}

fn stages() -> Result<Stages, String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = if cpus < 2 { "0" } else { "0,1" };
    let daemon = Daemon::start("memory", DRIVES, &["--cores", cores])?;
    let started = daemon.memory()?;
    let drives: Vec<String> = (0..DRIVES).map(|at| format!("./drive{at}")).collect();
    daemon.ask(&["array", "create", "tank", "--level", "6", "--drives", &drives.join(",")])?;
    let array = daemon.memory()?;
    let mut client = daemon.export("tank")?;
    let silent = daemon.memory()?;
    for _ in 0..BURSTS {
        client.burst(DEPTH)?;
    }
    Ok(Stages { started, array, client: silent, busy: daemon.memory()? })
}

#[cfg(test)]
mod tests {
    use super::{Stages, rows};
    use crate::report::Meets;

    #[test]
    fn parts_add_up_to_the_whole() {
        let stages = Stages { started: 10.0, array: 25.0, client: 32.0, busy: 63.0 };
        let rows = rows(&Ok(vec![stages]));
        let found: Vec<Option<f64>> = rows.iter().map(|row| row.median).collect();
        assert_eq!(found, [63.0, 10.0, 15.0, 7.0, 31.0].map(Some));
        assert_eq!(rows[0].meets, Meets::Moonshot);
        assert!(rows[1..].iter().all(|row| row.goal.is_none()));
    }

    #[test]
    fn a_daemon_that_does_not_start_says_why_in_every_row() {
        let rows = rows(&Err("there is no straked".to_owned()));
        assert!(rows.iter().all(|row| row.median.is_none() && row.note.contains("no straked")));
    }
}
