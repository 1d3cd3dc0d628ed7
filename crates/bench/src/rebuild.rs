//! G11: how fast a lost member is rebuilt, idle and beside clients, and what the clients feel of it.

use std::time::{Duration, Instant};

use strake_raid::Level;

use crate::bay::Bay;
use crate::measure::Samples;
use crate::report::{Drives, Metric, Report, Row, Target};
use crate::rig::{Running, pass};
use crate::scenario::{Case, Made, Options};

/// Bytes of a member: a rebuild takes half a second where only the drive limits it.
const MEMBER_BYTES: u64 = 4 << 30;
const DRIVES: usize = 8;
/// The member that is lost, again and again.
const LOST: u8 = 3;
/// Requests that clients have out.
const CLIENT_DEPTH: u32 = 32;

/// What one round found.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Bytes per second written to the replacement, without clients.
    idle: f64,
    /// The same beside clients.
    busy: f64,
    /// 99 of 100 requests of clients were back within this, in nanoseconds: without a rebuild, and beside one.
    calm: f64,
    disturbed: f64,
}

/// Measures and adds the rows.
pub fn answer(report: &mut Report, options: &Options, mut progress: impl FnMut(&str)) {
    let limit = options.profile.write_bytes_per_s as f64;
    let wanted =
        |row: &Row| options.filter.as_ref().is_none_or(|part| row.case.contains(part.as_str()));
    if !rows(&Err(String::new()), limit).iter().any(wanted) {
        return;
    }
    report.notes.push(
        "A member has 4 GiB; bytes are those written to the replacement; no driver or DMA cost."
            .to_owned(),
    );
    let rounds = measure(options, &mut progress);
    report.rows.extend(rows(&rounds, limit).into_iter().filter(wanted));
}

fn measure(options: &Options, progress: &mut impl FnMut(&str)) -> Result<Vec<Round>, String> {
    progress("filling the array");
    let made = Made::Model(options.profile);
    let bay = Bay::new(made, Level::Raid6, DRIVES, MEMBER_BYTES, LOST)?;
    bay.fill()?;
    let repeats = options.repeats();
    let one = |number| {
        progress(&format!("{} of {repeats}: rebuild, idle and beside clients", number + 1));
        round(&bay, options.span)
    };
    (0..repeats).map(one).collect()
}

/// A row before it is measured.
struct Line {
    case: String,
    metric: Metric,
    target: Target,
    note: &'static str,
    /// What a round says, beside the drive's limit in bytes per second.
    value: fn(&Round, f64) -> f64,
}

fn lines() -> [Line; 4] {
    let base = "raid6 6+2 rebuild";
    let load = format!("randrw 70/30 4KiB qd{CLIENT_DEPTH}");
    // Starting, ending and recording the end are in the time, so the limit itself cannot be reached.
    let near = Target { anchor: Some(100.0 * 3.18 / 7.2), goal: Some(97.0), moonshot: None };
    [
        Line {
            case: format!("{base} idle model cores=1"),
            metric: Metric::Bandwidth,
            target: Target { anchor: Some(3.18), ..Target::NONE },
            note: "anchor: xiRAID Opus, RAID 5 of 10 QLC drives",
            value: |round, _| round.idle / 1e9,
        },
        Line {
            case: format!("{base} idle model cores=1 of the replacement's write limit"),
            metric: Metric::Share,
            target: near,
            note: "97 % counts as reaching the limit; anchor: xiRAID Opus, on drives of another kind",
            value: |round, limit| 100.0 * round.idle / limit,
        },
        Line {
            case: format!("{base} beside {load} model cores=1 of idle"),
            metric: Metric::Share,
            target: Target::new(10.0, 30.0, 50.0),
            note: "anchor: xiRAID Opus under load",
            value: |round, _| 100.0 * round.busy / round.idle,
        },
        Line {
            case: format!("raid6 6+2 {load} model cores=1 p99 beside rebuild"),
            metric: Metric::Slowdown,
            target: Target { anchor: None, goal: Some(2.0), moonshot: None },
            note: "p99 beside the rebuild divided by p99 before it, with the member out",
            value: |round, _| round.disturbed / round.calm,
        },
    ]
}

fn rows(rounds: &Result<Vec<Round>, String>, limit: f64) -> Vec<Row> {
    let row = |line: Line| {
        let values = rounds.as_ref().map(|rounds| {
            rounds.iter().map(|round| (line.value)(round, limit)).collect::<Vec<_>>()
        });
        let row = match values {
            Ok(values) if values.iter().all(|value| value.is_finite()) => {
                Row::new(line.case, line.metric, &Samples::new(values), line.target)
            }
            Ok(_) => {
                Row::open(line.case, line.metric, line.target, "the profile has no write limit")
            }
            Err(why) => Row::open(line.case, line.metric, line.target, why.as_str()),
        };
        row.on(Drives::Model).protected("intent bitmap").note(line.note)
    };
    lines().into_iter().map(row).collect()
}

/// A rebuild without clients, and one beside them.
fn round(bay: &Bay, span: Duration) -> Result<Round, String> {
    bay.lose()?;
    let since = Instant::now();
    bay.replace()?;
    bay.settle()?;
    let idle = bay.bytes_of_member() as f64 / since.elapsed().as_secs_f64();
    bay.lose()?;
    let clients = Case { write_percent: 30, depth: CLIENT_DEPTH, ..Case::RAW };
    let running = bay.load(&bay.pattern(&clients))?;
    pass(span / 3);
    let p99 = |running: &Running, span| {
        let found = running.sample(span)?.latency().percentile(990.0);
        found.map(|ns| ns as f64).ok_or_else(|| "clients got no answer".to_owned())
    };
    let calm = p99(&running, span)?;
    bay.replace()?;
    let (before, since) = (bay.rebuilt(), Instant::now());
    let disturbed = p99(&running, 2 * span)?;
    let (after, took) = (bay.rebuilt(), since.elapsed());
    running.stop()?;
    bay.settle()?;
    Ok(Round { idle, busy: (after - before) as f64 / took.as_secs_f64(), calm, disturbed })
}
