//! `--restart RUNS`: the time to the first answer after the daemon was killed.

use std::process::ExitCode;

use strake_dev_mem::Profile;
use strake_engine::Consistency;
use strake_raid::Level;
use strake_sim::load::Spec;
use strake_sim::load::client::Work;
use strake_sim::load::restart::{Restart, SLOW, Stand, percentile, restart};
use strake_units::Nanos;

use crate::crash;

/// What every start has to keep to.
const GOAL: Nanos = Nanos(5 * Nanos::SECOND.0);

/// The same where a drive hangs on the way.
const GOAL_HUNG: Nanos = Nanos(20 * Nanos::SECOND.0);

/// Bytes of a drive of 7.68 TB (IDEMA LBA1-03).
const DRIVE_BYTES: u64 = 7_681_501_126_656;

/// Load that marks most regions and has the log go around.
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

/// What is started: its drives, how many, and how it stood.
struct Shape {
    profile: Profile,
    drives: u8,
    stand: Stand,
}

const fn shape(profile: Profile, drives: u8, stand: Stand) -> Shape {
    Shape { profile, drives, stand }
}

/// Bitmaps alone; the redo log of a degraded array; the log of everything; slow drives and many; drives that hang.
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

/// Runs what the words ask for.
///
/// # Errors
/// When they ask for nothing that there is.
pub fn run(words: &[String]) -> Result<ExitCode, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [_, runs, rest @ ..] = &words[..] else { return Err("--restart needs a number".into()) };
    let runs: u64 = runs.parse().map_err(|_| format!("{runs} is no number of starts"))?;
    let seed = crash::seed(rest)?;
    println!("seed {seed}");
    let (mut violations, mut told) = (0, Vec::new());
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
                    violations += 1;
                }
            }
        }
        let (text, late) = describe(shape, &found);
        println!("{text}");
        violations += late;
        told.push(text);
    }
    println!(
        "{{\"runs\":{},\"violations\":{violations},\"level\":\"6\",\"drive_bytes\":{DRIVE_BYTES},\
         \"goal_ms\":{},\"goal_hung_ms\":{},\"restarts\":[{}],\"seed\":{seed}}}",
        runs * SHAPES.len() as u64,
        GOAL.0 / Nanos::MILLI.0,
        GOAL_HUNG.0 / Nanos::MILLI.0,
        told.join(",")
    );
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What starts of one shape took, as JSON, and how many of them were late.
fn describe(shape: &Shape, found: &[Restart]) -> (String, u64) {
    let mut took: Vec<Nanos> = found.iter().map(|restart| restart.took).collect();
    took.sort_unstable();
    let millis = |percent| percentile(&took, percent).0 as f64 / Nanos::MILLI.0 as f64;
    let most = |of: fn(&Restart) -> u64| found.iter().map(of).max().unwrap_or(0);
    let goal = |restart: &&Restart| restart.took > if restart.hung { GOAL_HUNG } else { GOAL };
    let late = found.iter().filter(goal).count() as u64;
    let Stand { consistency, degraded, depth, .. } = shape.stand;
    let text = format!(
        "{{\"drives\":{},\"modelled\":\"{}\",\"mode\":\"{consistency:?}\",\"degraded\":{degraded},\
         \"outstanding\":{depth},\"hung\":{},\"p50_ms\":{:.1},\"p99_ms\":{:.1},\"max_ms\":{:.1},\
         \"late\":{late},\"redone_max\":{},\"regions_max\":{}}}",
        shape.drives,
        shape.profile.name,
        found.iter().filter(|restart| restart.hung).count(),
        millis(50),
        millis(99),
        millis(100),
        most(|restart| restart.redone),
        most(|restart| restart.regions.into())
    );
    (text, late)
}
