//! Writes of several cores that are in flight while the array changes.
//!
//! The stripes are on both sides of a border of two regions, so that two cores serve them, and some I/Os take many
//! times as long as others. So one core may have a write in flight when another has none, and a write may complete
//! after the labels have promised a state that did not hold when it started.

use strake_engine::Consistency;
use strake_raid::Level;
use strake_units::BlockSize;

use super::case::{Before, Case, Ground, Plot};
use super::disk::{Lie, Pace};
use super::jobs::Job;
use crate::rng::{Rng, mix};

/// Level, members, and members of a group.
const SHAPES: [(Level, usize, Option<u8>); 5] = [
    (Level::Raid5, 3, None),
    (Level::Raid6, 4, None),
    (Level::Raid6, 6, None),
    (Level::Raid50, 6, Some(3)),
    (Level::Raid73, 6, None),
];

/// Modes that use a log or a bitmap.
const MODES: [Consistency; 3] = [Consistency::Safe, Consistency::Strict, Consistency::Resync];

/// The case of this number in a run with seed `run`.
pub(super) fn case(run: u64, number: u64, lie: Lie) -> Case {
    let seed = mix(run ^ 0x636f_7265 ^ mix(number.wrapping_add(1)));
    let mut rng = Rng::new(seed);
    let (level, members, group_size) = SHAPES[(number % SHAPES.len() as u64) as usize];
    let size = if rng.one_in(4) { BlockSize::B512 } else { BlockSize::B4096 };
    let any = rng.below(members as u64) as u8;
    let mut case = Case {
        seed,
        level,
        members,
        group_size,
        mode: rng.pick(&MODES),
        cached: rng.one_in(2),
        strip_bytes: rng.pick(&[4, 4, 8]) << 10,
        disk_block: size,
        array_block: size,
        cores: rng.pick(&[2, 2, 3]),
        ground: Ground::Border(rng.bits()),
        failed: if rng.one_in(3) { vec![any] } else { Vec::new() },
        pulled: false,
        before: rng.pick(&[Before::Busy, Before::Rested, Before::Restarted]),
        lie,
        pace: Pace::Uneven,
        around: false,
        stops: false,
        job: None,
        plot: Plot::Drawn(rng.fork()),
    };
    case.job = job(&case, &mut rng);
    case
}

/// Half of the cases have a change of the mode or a re-added member.
fn job(case: &Case, rng: &mut Rng) -> Option<Job> {
    let others = MODES.into_iter().filter(|mode| *mode != case.mode);
    match (rng.below(4), case.failed.first()) {
        (0, Some(out)) => Some(Job::Readd(*out)),
        (0 | 1, _) => Some(Job::Mode(rng.pick(&others.collect::<Vec<_>>()))),
        _ => None,
    }
}
