//! Scenarios by name: failures that occurred elsewhere or might occur, as scripts for the real engine with verifying
//! clients. `docs/scenarios.md` lists the tests.

mod bugs;
mod labels;
mod md;
mod md_ddf;
mod members;

use strake_raid::Level;
use strake_sim::Settings;
use strake_sim::stage::{Cast, Stage, play};

/// The number of interleavings per script.
const SEEDS: u64 = 4;

/// The number of printed trace lines when a script fails.
const LINES_PRINTED: usize = 120;

/// Plays `script` in several interleavings; reports the first violation with the preceding events.
fn check(cast: &Cast, script: impl Fn(&mut Stage) -> Result<(), String>) {
    for seed in 0..SEEDS {
        let Some(violation) = play(seed, cast, Settings::default(), &script).violation else {
            continue;
        };
        let settings = Settings { keep: true, ..Settings::default() };
        let record = play(seed, cast, settings, &script).trace.to_string();
        let lines: Vec<&str> = record.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES_PRINTED)..].join("\n");
        panic!("seed {seed} of {cast:?}:\n{last}\n{violation}");
    }
}

/// Plays `script` on small arrays of every level with redundancy.
fn check_levels(script: impl Fn(&mut Stage) -> Result<(), String>) {
    for cast in redundant() {
        check(&cast, &script);
    }
}

fn redundant() -> Vec<Cast> {
    let grouped =
        |level, members, width| Cast { group_size: Some(width), ..Cast::new(level, members) };
    vec![
        Cast::new(Level::Raid1, 2),
        Cast::new(Level::Raid10, 4),
        Cast::new(Level::Raid5, 4),
        Cast::new(Level::Raid6, 5),
        Cast::new(Level::Raid73, 6),
        Cast::new(Level::Parity(4), 7),
        grouped(Level::Raid50, 6, 3),
        grouped(Level::Raid60, 8, 4),
    ]
}
