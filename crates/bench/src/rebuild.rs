//! G11: how fast a lost member is rebuilt, idle and beside clients, and what the clients feel of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_block::BlockDevice;
use strake_engine::{Array, Drive, prepare_drive};
use strake_raid::Level;
use strake_reactor::monotonic;
use strake_units::{MemberIndex, Nanos, Uuid};

use crate::load::{Order, Pattern};
use crate::measure::Samples;
use crate::report::{Drives, Metric, Report, Row, Target};
use crate::rig::{Rig, Running, Shape, fail, pass};
use crate::scenario::{Made, Options};

/// Bytes of a member: a rebuild takes half a second where only the drive limits it.
const MEMBER_BYTES: u64 = 4 << 30;
const DRIVES: usize = 8;
const DATA: u64 = 6;
const STRIP: u32 = 128 << 10;
/// The member that is lost, again and again.
const LOST: u8 = 3;
/// Longest that one rebuild, or the first filling of the array, may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(2);
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
    let mut bay = Bay::new(options)?;
    bay.fill()?;
    let repeats = options.repeats();
    let round = |number| {
        progress(&format!("{} of {repeats}: rebuild, idle and beside clients", number + 1));
        bay.round(options.span)
    };
    (0..repeats).map(round).collect()
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

/// An array whose member is lost and rebuilt onto a new drive, over and over.
struct Bay {
    // Dropped before the cores it runs on.
    array: Array,
    device: Arc<dyn BlockDevice>,
    rig: Rig,
    made: Made,
    replaced: u8,
}

impl Bay {
    fn new(options: &Options) -> Result<Self, String> {
        let made = Made::Model(options.profile);
        let rig = Rig::start(1)?;
        let drive =
            |at| Ok(Drive { device: made.drive(MEMBER_BYTES)?, path: format!("drive{at}") });
        let drives = (0..DRIVES).map(drive).collect::<Result<_, String>>()?;
        let shape = Shape { level: Level::Raid6, strip_bytes: STRIP, overwrite: true };
        let array = rig.array(&shape, drives)?;
        Ok(Self { device: array.device(), array, rig, made, replaced: 0 })
    }

    fn pattern(&self, write_percent: u8, bytes: u32, depth: u32, order: Order) -> Pattern {
        let info = self.device.info();
        let block_bytes = info.block_size.bytes();
        let blocks = bytes / block_bytes;
        let places = info.blocks / u64::from(blocks);
        Pattern { write_percent, blocks, block_bytes, order, depth, places, ..Pattern::default() }
    }

    /// Writes everything once: what was never written is not rebuilt.
    fn fill(&self) -> Result<(), String> {
        let pattern = self.pattern(100, DATA as u32 * STRIP, 32, Order::Sequential);
        let running = self.rig.load(&self.device, &[pattern])?;
        self.until("the array was not filled", || running.done() >= pattern.places)?;
        running.stop().map(|_| ())
    }

    fn round(&mut self, span: Duration) -> Result<Round, String> {
        fail(&self.array, LOST)?;
        let idle = self.rebuild_idle()?;
        fail(&self.array, LOST)?;
        let pattern = self.pattern(30, 4096, CLIENT_DEPTH, Order::Random);
        let running = self.rig.load(&self.device, &[pattern])?;
        pass(span / 3);
        let p99 = |running: &Running, span| {
            let found = running.sample(span)?.latency().percentile(990.0);
            found.map(|ns| ns as f64).ok_or_else(|| "clients got no answer".to_owned())
        };
        let calm = p99(&running, span)?;
        self.replace()?;
        let (before, since) = (self.rebuilt(), Instant::now());
        let disturbed = p99(&running, 2 * span)?;
        let (after, took) = (self.rebuilt(), since.elapsed());
        running.stop()?;
        self.until("the rebuild did not end", || self.array.status().rebuild.is_none())?;
        Ok(Round { idle, busy: (after - before) as f64 / took.as_secs_f64(), calm, disturbed })
    }

    /// Bytes per second of a whole rebuild.
    fn rebuild_idle(&mut self) -> Result<f64, String> {
        let since = Instant::now();
        self.replace()?;
        self.until("the rebuild did not end", || self.array.status().rebuild.is_none())?;
        Ok(self.member_bytes() as f64 / since.elapsed().as_secs_f64())
    }

    /// Puts a new drive in the place of the lost member.
    fn replace(&mut self) -> Result<(), String> {
        self.replaced = self.replaced.wrapping_add(1);
        let path = format!("replacement{}", self.replaced);
        let drive = Drive { device: self.made.drive(MEMBER_BYTES)?, path };
        let uuid = Uuid([200, self.replaced, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        let until = monotonic().plus(Nanos(PATIENCE.as_nanos() as u64));
        let mut wait = || Some(monotonic()).filter(|now| *now < until);
        prepare_drive(&drive, uuid, &mut wait).map_err(|e| e.to_string())?;
        let replacing = self.array.begin_replace(MemberIndex(LOST), &drive, uuid);
        replacing.and_then(|replacing| replacing.wait()).map_err(|e| e.to_string())
    }

    /// Bytes of a member that hold data.
    fn member_bytes(&self) -> u64 {
        self.device.info().bytes() / DATA
    }

    /// Bytes that the replacement has.
    fn rebuilt(&self) -> u64 {
        let progress = self.array.status().rebuild;
        progress.map_or(self.member_bytes(), |progress| progress.done_bytes / DATA)
    }

    fn until(&self, otherwise: &str, is_true: impl Fn() -> bool) -> Result<(), String> {
        let since = Instant::now();
        while !is_true() {
            if since.elapsed() > PATIENCE {
                return Err(format!("{otherwise} within {PATIENCE:?}"));
            }
            pass(LOOK);
        }
        Ok(())
    }
}
