//! For any damage, a scrub that repairs makes no correct strip wrong.

use strake_engine::ScrubMode;
use strake_raid::Level;

use crate::scrub::{KIB, Shape, Strip, corrupt, finished, harm, media, member_of, scrub, staged};
use crate::stage::Stage;

/// A sequence of numbers that a seed determines.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A column of 4 KiB of a stripe, and the members that are wrong in it.
struct Damage {
    row: u64,
    wrong: Vec<usize>,
}

/// Damages `count` columns in up to `most` strips each, but no strip of the member `spared`.
fn damage(
    stage: &Stage,
    chance: &mut Chance,
    (count, most): (u64, u64),
    spared: Option<usize>,
) -> Vec<Damage> {
    let geometry = stage.status().geometry;
    let (data, parity) = (geometry.data_strips(), geometry.parity_strips());
    let mut strips: Vec<Strip> = (0..data).map(Strip::Data).collect();
    strips.extend((0..parity).map(Strip::Parity));
    let mut damages = Vec::new();
    for nth in 0..count {
        let stripe = nth * 3 % geometry.stripes();
        let column = chance.below(16) * 4 * KIB;
        let mut left = strips.clone();
        let mut wrong = Vec::new();
        for _ in 0..=chance.below(most) {
            let strip = left.swap_remove(chance.below(left.len() as u64) as usize);
            let (from, bytes) = (chance.below(4000), chance.below(96) + 1);
            let harm = harm(stripe, strip, column + from, column + from + bytes);
            if Some(member_of(stage, &harm)) != spared {
                corrupt(stage, &harm);
                wrong.push(member_of(stage, &harm));
            }
        }
        let row =
            geometry.member_lba(strake_units::StripeIndex(stripe), 0).bytes(stage.size) + column;
        damages.push(Damage { row, wrong });
    }
    damages
}

/// Checks that a correct strip stays correct. If at most `reported` strips of a column are wrong, the scrub repairs
/// them; all other columns are unchanged, and a second scrub finds them again.
fn check(shape: Shape, seed: u64, (most, reported): (u64, usize), out: Option<u8>) {
    let mut chance = Chance(seed);
    let mut stage = staged(shape, 2);
    if let Some(member) = out {
        stage.fail(member).expect("allowed");
    }
    let sound = media(&stage);
    let spared = out.map(usize::from);
    let damages = damage(&stage, &mut chance, (20, most), spared);
    let harmed = media(&stage);
    let (status, found) = scrub(&mut stage, ScrubMode::Repair);
    let mut want = harmed;
    let mut left = 0;
    for Damage { row, wrong } in damages {
        let column = row as usize..(row + 4 * KIB) as usize;
        if wrong.len() <= reported {
            wrong
                .iter()
                .for_each(|m| want[*m][column.clone()].copy_from_slice(&sound[*m][column.clone()]));
        } else {
            left += 1;
        }
    }
    let context = format!("{shape:?}, seed {seed}, {out:?} is out: {found:?}");
    for (member, (is, want)) in media(&stage).iter().zip(&want).enumerate() {
        assert!(is == want, "member {member}, {context}");
    }
    assert_eq!(status.counts.left(), left * 4 * KIB, "{context}");
    stage.array().begin_scrub(ScrubMode::Repair).expect("the other is over");
    let again = finished(&mut stage).counts;
    assert_eq!((again.found(), again.repaired), (status.counts.left(), 0), "{context}");
}

#[test]
fn what_was_right_stays_right_whatever_is_damaged() {
    for seed in 1..=4 {
        check((Level::Raid5, 4, None), seed, (2, 0), None);
        check((Level::Raid50, 6, Some(3)), seed, (2, 0), None);
        check((Level::Raid6, 4, None), seed, (2, 1), None);
        check((Level::Raid6, 6, None), seed, (4, 1), None);
        check((Level::Raid60, 10, Some(5)), seed, (3, 1), None);
        check((Level::Raid73, 7, None), seed, (5, 2), None);
        check((Level::Parity(4), 9, None), seed, (5, 2), None);
    }
}

#[test]
fn what_was_right_stays_right_while_a_member_is_out() {
    for seed in 1..=4 {
        let out = Some((seed % 4) as u8);
        check((Level::Raid6, 6, None), seed, (3, 0), out);
        check((Level::Raid73, 7, None), seed, (4, 1), out);
        check((Level::Parity(4), 9, None), seed, (4, 1), out);
    }
}
