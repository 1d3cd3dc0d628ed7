//! `--restart RUNS`: the time to the first answer after the daemon was killed.

use std::process::ExitCode;

use strake_dev_mem::Profile;
use strake_engine::Consistency;
use strake_raid::Level;
use strake_sim::load::Spec;
use strake_sim::load::restart::{Restart, Stand, percentile, restart};
use strake_units::Nanos;

use crate::crash;

/// What 99 of 100 starts have to keep to.
const GOAL: Nanos = Nanos(5 * Nanos::SECOND.0);

/// Bytes of a drive of 7.68 TB (IDEMA LBA1-03).
const DRIVE_BYTES: u64 = 7_681_501_126_656;

/// Load that marks most regions and has the log go around.
const LOAD: Nanos = Nanos(100 * Nanos::MILLI.0);

/// Bitmaps alone; the redo log of a degraded array; the log of everything.
const STANDS: [Stand; 3] = [
    Stand { consistency: Consistency::Safe, degraded: false, load: LOAD },
    Stand { consistency: Consistency::Safe, degraded: true, load: LOAD },
    Stand { consistency: Consistency::Strict, degraded: false, load: LOAD },
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
    let spec = Spec { member_bytes: DRIVE_BYTES, ..Spec::of(Level::Raid6, Profile::SN861) };
    let (mut violations, mut told) = (0, Vec::new());
    for stand in STANDS {
        let mut found = Vec::new();
        for number in 0..runs {
            match restart(&spec, stand, seed.wrapping_add(number)) {
                Ok(restart) => found.push(restart),
                Err(what) => {
                    eprintln!("{stand:?}, seed {}: {what}", seed.wrapping_add(number));
                    violations += 1;
                }
            }
        }
        let (text, p99) = describe(stand, &found);
        violations += u64::from(p99 > GOAL);
        told.push(text);
    }
    println!(
        "{{\"runs\":{},\"violations\":{violations},\"level\":\"6\",\"drives\":{},\"drive_bytes\":{DRIVE_BYTES},\
         \"modelled\":\"SN861\",\"goal_p99_ms\":{},\"restarts\":[{}],\"seed\":{seed}}}",
        runs * STANDS.len() as u64,
        spec.drives,
        GOAL.0 / Nanos::MILLI.0,
        told.join(",")
    );
    Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What starts of one kind took, as JSON, and what 99 of 100 kept to.
fn describe(stand: Stand, found: &[Restart]) -> (String, Nanos) {
    let mut took: Vec<Nanos> = found.iter().map(|restart| restart.took).collect();
    took.sort_unstable();
    let millis = |percent| percentile(&took, percent).0 as f64 / Nanos::MILLI.0 as f64;
    let most = |of: fn(&Restart) -> u64| found.iter().map(of).max().unwrap_or(0);
    let text = format!(
        "{{\"mode\":\"{:?}\",\"degraded\":{},\"p50_ms\":{:.1},\"p99_ms\":{:.1},\"max_ms\":{:.1},\
         \"redone_max\":{},\"regions_max\":{}}}",
        stand.consistency,
        stand.degraded,
        millis(50),
        millis(99),
        millis(100),
        most(|restart| restart.redone),
        most(|restart| restart.regions.into())
    );
    (text, percentile(&took, 99))
}
