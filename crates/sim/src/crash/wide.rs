//! Shapes of arrays whose check is expensive: strips of several bands, groups, logs for a part of the array, several
//! cores. Their combinations are drawn.

use strake_engine::Consistency;
use strake_raid::{Geometry, Level};
use strake_units::{BlockSize, Lba, LbaRange, MemberIndex, MemberSet};

use super::case::{Before, Case, Ground, Plot, Request};
use super::disk::{Lie, Pace};
use super::jobs::Job;
use super::player::REQUEST_BYTES_MAX;
use super::record::{BAND_BYTES, TALL_BYTES, stripes};
use crate::rng::{Rng, mix};

/// A level, its members, and the members of a group.
#[derive(Clone, Copy, Debug)]
struct Shape {
    level: Level,
    members: usize,
    group_size: Option<u8>,
}

const fn shape(level: Level, members: usize) -> Shape {
    Shape { level, members, group_size: None }
}

const fn groups(level: Level, size: u8, count: usize) -> Shape {
    Shape { level, members: size as usize * count, group_size: Some(size) }
}

/// Shapes with tall strips.
const TALL: [Shape; 6] = [
    shape(Level::Raid5, 3),
    shape(Level::Raid6, 4),
    shape(Level::Raid10, 4),
    // Wide enough for small writes, and with enough parity strips for partial-write records.
    shape(Level::Raid6, 6),
    shape(Level::Raid73, 6),
    groups(Level::Raid50, 3, 2),
];

/// Shapes with groups.
const GROUPED: [Shape; 6] = [
    groups(Level::Raid50, 3, 2),
    groups(Level::Raid50, 4, 2),
    groups(Level::Raid60, 4, 2),
    groups(Level::Raid60, 6, 2),
    groups(Level::Raid70, 5, 2),
    groups(Level::Raid50, 3, 3),
];

/// Modes with guarantees after a crash; the mode that logs a part of an array is listed twice.
const MODES: [Consistency; 4] =
    [Consistency::Safe, Consistency::Safe, Consistency::Strict, Consistency::Resync];

/// The divisors of the number of states of a case with tall strips, and of other cases.
const FEWER: [usize; 2] = [6, 3];

/// The case of this number in a run with seed `run`.
pub(super) fn case(run: u64, number: u64, lie: Lie) -> Case {
    let seed = mix(run ^ 0x7769_6465 ^ mix(number.wrapping_add(1)));
    let mut rng = Rng::new(seed);
    let tall = number % 3 == 2;
    let shapes = if tall { &TALL } else { &GROUPED };
    let Shape { level, members, group_size } = shapes[(number / 3 % 6) as usize];
    let size = if rng.one_in(4) { BlockSize::B512 } else { BlockSize::B4096 };
    let strip_bytes =
        if tall { BAND_BYTES as u32 * rng.pick(&[2, 2, 4]) } else { rng.pick(&[4, 4, 8]) << 10 };
    let mut case = Case {
        seed,
        level,
        members,
        group_size,
        mode: rng.pick(&MODES),
        cached: rng.one_in(2),
        strip_bytes,
        disk_block: size,
        array_block: size,
        cores: rng.pick(&[1, 2, 2, 3]),
        ground: Ground::Start,
        failed: Vec::new(),
        pulled: rng.one_in(3),
        before: rng.pick(&[Before::Busy, Before::Rested, Before::Restarted]),
        lie,
        pace: Pace::Even,
        around: false,
        stops: false,
        job: None,
        plot: Plot::Drawn(rng.fork()),
    };
    let mut slots: Vec<u8> = (0..members as u8).collect();
    rng.shuffle(&mut slots);
    let wanted = rng.pick(&[0, 1, 1, 2]);
    for slot in slots {
        let out = case.out().with(MemberIndex(slot));
        if case.failed.len() < wanted && case.placement().tolerates(out) {
            case.failed.push(slot);
        }
    }
    case.job = job(&case, &mut rng);
    case.pulled &= !matches!(case.job, Some(Job::Readd(_)));
    case
}

/// One of three cases has a re-added or replaced member, or a change of the mode.
fn job(case: &Case, rng: &mut Rng) -> Option<Job> {
    let out = case.failed.first().copied();
    match (rng.below(9), out) {
        (0, Some(out)) => Some(Job::Replace(out)),
        (1, Some(out)) => Some(Job::Readd(out)),
        (2, _) if case.mode != Consistency::Strict => Some(Job::Mode(Consistency::Strict)),
        (2, _) => Some(Job::Mode(Consistency::Safe)),
        _ => None,
    }
}

/// The number of states of a case, instead of `most`.
pub(super) fn states(case: &Case, most: usize) -> usize {
    let [tall, other] = FEWER;
    (most / if is_tall(case) { tall } else { other }).max(5)
}

fn is_tall(case: &Case) -> bool {
    u64::from(case.strip_bytes) >= TALL_BYTES
}

/// The names of a case in counts.
pub(super) fn words(case: &Case) -> impl Iterator<Item = &'static str> {
    let grouped = case.group_size.is_some();
    let some = case.placement().groups_with(case.out());
    let all = MemberSet::first_n(case.members);
    let in_part = case.mode == Consistency::Safe && !some.is_empty() && some != all;
    [
        ("one_band", !is_tall(case)),
        ("two_bands", u64::from(case.strip_bytes) == 2 * BAND_BYTES),
        ("four_bands", u64::from(case.strip_bytes) == 4 * BAND_BYTES),
        ("one_group", !grouped),
        ("raid_50", case.level == Level::Raid50),
        ("raid_60", case.level == Level::Raid60),
        ("raid_70", case.level == Level::Raid70),
        ("logged_in_part", in_part),
        ("one_core", case.cores == 1),
        ("two_cores", case.cores == 2),
        ("three_cores", case.cores == 3),
        ("uneven", case.pace == Pace::Uneven),
        ("two_regions", case.ground != Ground::Start),
    ]
    .into_iter()
    .filter_map(|(word, so)| so.then_some(word))
}

/// A request to an array with tall strips, mostly at or over a border of strips or bands.
pub(super) fn request(geometry: &Geometry, rng: &mut Rng) -> Request {
    let size = geometry.block_size();
    let band = BAND_BYTES >> size.shift();
    let (strip, stripe) = (u64::from(geometry.strip_blocks()), geometry.stripe_data_blocks());
    let few = (4096 >> size.shift()).max(2);
    let ground =
        (stripe * (stripes(geometry.strip_bytes().into()) - 1)).min(geometry.capacity_blocks());
    let stripes = (ground / stripe).min(2);
    let border = rng.below(stripes) * stripe + rng.below(geometry.data_strips().into()) * strip;
    let border = border + rng.below(strip / band) * band;
    let start = match rng.below(4) {
        0 | 1 => border,
        2 => border + rng.below(few),
        _ => border.saturating_sub(1 + rng.below(few)),
    };
    let blocks = match rng.below(12) {
        0..=4 => 1,
        5..=8 => rng.between(1, 2 * few),
        9 => band,
        10 => rng.between(band, strip),
        _ => stripe,
    };
    let blocks = blocks.min(ground - start).min(REQUEST_BYTES_MAX >> size.shift());
    let range = LbaRange::new(Lba(start), blocks);
    let fua = rng.one_in(3);
    match rng.below(8) {
        0 => Request::Flush,
        1 => Request::Zeroes { range, fua },
        _ => Request::Write { range, fua },
    }
}
