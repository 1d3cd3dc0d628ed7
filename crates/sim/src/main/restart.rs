//! `--restart RUNS`: the time to the first completions after the daemon was killed.

use std::process::ExitCode;

use strake_dev_mem::Profile;
use strake_engine::Consistency;
use strake_raid::Level;
use strake_sim::load::Spec;
use strake_sim::load::client::Work;
use strake_sim::load::restart::{Restart, SLOW, Stand, percentile, restart};
use strake_units::Nanos;

use crate::crash;

/// The time limit of every start.
const GOAL: Nanos = Nanos(5 * Nanos::SECOND.0);

/// The time limit if a drive hangs during the start.
const GOAL_HUNG: Nanos = Nanos(20 * Nanos::SECOND.0);

/// Bytes of a drive of 7.68 TB (IDEMA LBA1-03).
const DRIVE_BYTES: u64 = 7_681_501_126_656;

/// Load that marks most regions and makes the log wrap around.
const LOADED: Stand = Stand {
    consistency: Consistency::Safe,
    degraded: false,
    load: Nanos(100 * Nanos::MILLI.0),
    work: Work::Mixed,
    depth: 128,
    hang: false,
};

/// A thousand writes outstanding at the kill.
const THOUSAND: Stand = Stand {
    consistency: Consistency::Safe,
    degraded: true,
    load: Nanos(500 * Nanos::MILLI.0),
    work: Work::RandomWrite,
    depth: 1000,
    hang: false,
};

/// The shape of a start: its drives, their number, and the state of the array.
struct Shape {
    profile: Profile,
    drives: u8,
    stand: Stand,
}

const fn shape(profile: Profile, drives: u8, stand: Stand) -> Shape {
    Shape { profile, drives, stand }
}

/// Bitmaps alone; the redo log of a degraded array; the log of everything; slow drives and many drives; unresponsive
/// drives.
const SHAPES: [Shape; 8] = [
    shape(Profile::SN861, 8, LOADED),
    shape(Profile::SN861, 8, Stand { degraded: true, ..LOADED }),
    shape(Profile::SN861, 8, Stand { consistency: Consistency::Strict, ..LOADED }),
    shape(SLOW, 8, THOUSAND),
    shape(SLOW, 64, THOUSAND),
    shape(Profile::SN861, 8, Stand { degraded: true, hang: true, ..LOADED }),
    shape(Profile::SN861, 8, Stand { consistency: Consistency::Strict, hang: true, ..LOADED }),
    shape(SLOW, 8, Stand { hang: true, ..THOUSAND }),
];

/// Runs the requested command.
///
/// Returns an error if the arguments are invalid.
pub fn run(words: &[String]) -> Result<ExitCode, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [_, runs, rest @ ..] = &words[..] else { return Err("--restart needs a number".into()) };
    let runs: u64 = runs.parse().map_err(|_| format!("{runs} is no number of starts"))?;
    let seed = crash::seed(rest)?;
    println!("seed {seed}");
    let mut sum = Sum::default();
    for shape in &SHAPES {
        let level = Spec::of(Level::Raid6, shape.profile);
        let spec = Spec { member_bytes: DRIVE_BYTES, drives: shape.drives, ..level };
        let mut found = Vec::new();
        for number in 0..runs {
            let seed = seed.wrapping_add(number);
            match restart(&spec, shape.stand, seed) {
                Ok(restart) => found.push(restart),
                Err(what) => {
                    eprintln!("{:?}, {} drives, seed {seed}: {what}", shape.stand, shape.drives);
                    sum.violations += 1;
                }
            }
        }
        println!("{}", describe(shape, &found));
        sum.take(shape, &found);
    }
    println!("{}", sum.closing(runs * SHAPES.len() as u64, seed));
    Ok(if sum.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The sums of all starts.
#[derive(Default)]
struct Sum {
    violations: u64,
    /// Starts that exceeded the time limit.
    late: u64,
    hung: u64,
    /// The longest start by shape, as members of a JSON object.
    longest: Vec<String>,
}

impl Sum {
    fn take(&mut self, shape: &Shape, found: &[Restart]) {
        let late = found.iter().filter(|restart| is_late(restart)).count() as u64;
        self.late += late;
        self.violations += late;
        self.hung += found.iter().filter(|restart| restart.hung).count() as u64;
        let took = found.iter().map(|restart| restart.took).max().unwrap_or(Nanos(0));
        let redone = found.iter().map(|restart| restart.redone).max().unwrap_or(0);
        self.longest.push(format!(
            "\"{}\":{{\"ms_max\":{:.1},\"redone_max\":{redone}}}",
            shape.name(),
            millis(took)
        ));
    }

    /// The counts; names that end in `_max` are maxima.
    fn closing(&self, runs: u64, seed: u64) -> String {
        let Self { violations, late, hung, longest } = self;
        format!(
            "{{\"runs\":{runs},\"violations\":{violations},\"late\":{late},\"hung\":{hung},\
             \"goal_ms_max\":{},\"goal_hung_ms_max\":{},\"starts\":{{{}}},\"seed\":{seed}}}",
            millis(GOAL),
            millis(GOAL_HUNG),
            longest.join(",")
        )
    }
}

fn is_late(restart: &Restart) -> bool {
    restart.took > if restart.hung { GOAL_HUNG } else { GOAL }
}

fn millis(time: Nanos) -> f64 {
    time.0 as f64 / Nanos::MILLI.0 as f64
}

impl Shape {
    /// A name that distinguishes the shape.
    fn name(&self) -> String {
        let Stand { consistency, degraded, depth, hang, .. } = self.stand;
        let out = if degraded { ", a member out" } else { "" };
        let hang = if hang { ", one hangs" } else { "" };
        let (drives, model) = (self.drives, self.profile.name);
        format!("{drives} x {model}, {consistency}{out}, {depth} outstanding{hang}")
    }
}

/// The durations of the starts of one shape, as JSON.
fn describe(shape: &Shape, found: &[Restart]) -> String {
    let mut took: Vec<Nanos> = found.iter().map(|restart| restart.took).collect();
    took.sort_unstable();
    let percent = |percent| millis(percentile(&took, percent));
    let most = |of: fn(&Restart) -> u64| found.iter().map(of).max().unwrap_or(0);
    let Stand { consistency, degraded, depth, .. } = shape.stand;
    format!(
        "{{\"level\":\"6\",\"drives\":{},\"drive_bytes\":{DRIVE_BYTES},\"modelled\":\"{}\",\
         \"mode\":\"{consistency:?}\",\"degraded\":{degraded},\"outstanding\":{depth},\"hung\":{},\
         \"p50_ms\":{:.1},\"p99_ms\":{:.1},\"max_ms\":{:.1},\"late\":{},\"redone_max\":{},\
         \"regions_max\":{}}}",
        shape.drives,
        shape.profile.name,
        found.iter().filter(|restart| restart.hung).count(),
        percent(50),
        percent(99),
        percent(100),
        found.iter().filter(|restart| is_late(restart)).count(),
        most(|restart| restart.redone),
        most(|restart| restart.regions.into())
    )
}

#[cfg(test)]
mod tests {
    use super::{GOAL, GOAL_HUNG, Nanos, Restart, SHAPES, Sum};

    fn start(took: Nanos, hung: bool) -> Restart {
        Restart { took, redone: 7, regions: 0, hung }
    }

    #[test]
    fn a_start_that_takes_longer_than_the_goal_is_a_violation() {
        let mut sum = Sum::default();
        sum.take(&SHAPES[4], &[start(GOAL, false), start(GOAL_HUNG, true)]);
        assert_eq!((sum.late, sum.violations, sum.hung), (0, 0, 1));
        sum.take(&SHAPES[4], &[start(GOAL.plus(Nanos(1)), false)]);
        sum.take(&SHAPES[4], &[start(GOAL_HUNG.plus(Nanos(1)), true)]);
        assert_eq!((sum.late, sum.violations, sum.hung), (2, 2, 2));
        let closing = sum.closing(4, 9);
        assert!(closing.contains(r#""runs":4,"violations":2,"late":2"#), "{closing}");
        let name = "64 x 10 ms, safe, a member out, 1000 outstanding";
        assert!(closing.contains(name), "{closing}");
    }
}
