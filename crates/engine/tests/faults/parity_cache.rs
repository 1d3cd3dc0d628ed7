//! Tests of repeated overwrites of blocks: a write uses the cached data of a previous write, and never uses outdated
//! data.

use strake_block::{Durability, IoErrorKind, Op};
use strake_dev_mem::{Effect, Ops, Rule};
use strake_raid::{Level, MemberState};
use strake_units::{Lba, LbaRange};

use crate::stage::{DATA, Set, Stage};

/// Blocks of one strip.
const STRIP: u64 = 32;

fn stage(level: Level, members: usize) -> Stage {
    let mut set = Set::new(level, members);
    set.options.cache = true;
    set.filled(2000, 170, 7)
}

/// Returns the number of reads of data of members during `work`.
fn reads(stage: &mut Stage, work: impl FnOnce(&mut Stage)) -> usize {
    stage.watch();
    work(stage);
    stage.seen().iter().filter(|seen| seen.op == 'r' && seen.done && seen.byte >= DATA).count()
}

/// Checks the number of strips that each of four writes of one block reads, and then a write of the same column in
/// another strip.
fn check_reads(level: Level, members: usize, expected: [usize; 5]) {
    let mut stage = stage(level, members);
    let mut found = [0; 5];
    for (turn, found) in found.iter_mut().enumerate() {
        let at = if turn == 4 { 3 + STRIP } else { 3 };
        *found = reads(&mut stage, |stage| {
            assert_eq!(stage.write(at, 1, 100 + turn as u64), Ok(()));
        });
    }
    assert_eq!(found, expected, "{level:?}");
    stage.verify(2000);
    stage.check_parity(20);
}

#[test]
fn a_block_that_is_written_again_is_not_read() {
    // The second write causes the column to be cached, and is the last one that reads.
    check_reads(Level::Raid5, 5, [2, 2, 0, 0, 1]);
    check_reads(Level::Raid6, 8, [3, 3, 0, 0, 1]);
    check_reads(Level::Raid73, 8, [4, 4, 0, 0, 1]);
}

/// Sequential writes in a stripe find the parities of their columns in the cache from the third strip.
#[test]
fn writes_that_go_on_find_parities() {
    let mut stage = stage(Level::Raid6, 8);
    let mut found = Vec::new();
    for strip in 0..6 {
        found.push(reads(&mut stage, |stage| {
            assert_eq!(stage.write(3 + strip * STRIP, 1, 200 + strip), Ok(()));
        }));
    }
    assert_eq!(found, [3, 3, 1, 1, 1, 1]);
    stage.verify(2000);
    stage.check_parity(20);
}

/// Writes a block until it is cached, runs `between`, and writes the block again: parity must be consistent, and the
/// data must be correct without any two members.
fn check_between(what: &str, between: impl Fn(&mut Stage)) {
    let mut stage = stage(Level::Raid6, 8);
    for seed in 0..3 {
        assert_eq!(stage.write(3, 1, 50 + seed), Ok(()));
    }
    between(&mut stage);
    for seed in 0..3 {
        assert_eq!(stage.write(3, 1, 60 + seed), Ok(()), "after {what}");
    }
    stage.check_parity(20);
    let (own, _) = stage.home(3);
    for victim in [own, (own + 1) % 8] {
        stage.fail(victim as u8).expect("redundant");
    }
    stage.verify(2000);
}

#[test]
fn what_is_kept_is_forgotten_when_others_write_there() {
    check_between("nothing", |_| ());
    check_between("a write of several strips", |stage| {
        assert_eq!(stage.write(0, 3 * STRIP, 70), Ok(()));
    });
    check_between("a full stripe", |stage| assert_eq!(stage.write(0, 6 * STRIP, 71), Ok(())));
    check_between("a larger write of the same strip", |stage| {
        assert_eq!(stage.write(2, 3, 72), Ok(()));
    });
    check_between("a larger write in another strip", |stage| {
        assert_eq!(stage.write(2 + STRIP, 3, 74), Ok(()));
    });
    check_between("a write of the column in another strip", |stage| {
        assert_eq!(stage.write(3 + 2 * STRIP, 1, 73), Ok(()));
    });
    check_between("zeroes", |stage| {
        let range = LbaRange::new(Lba(0), 6 * STRIP);
        let zeroes = Op::WriteZeroes { range, durability: Durability::Normal };
        assert_eq!(stage.run(0, zeroes), Ok(()));
        stage.model[..(6 * STRIP as usize) << stage.size.shift()].fill(0);
    });
}

#[test]
fn what_is_kept_outlives_no_change_of_members() {
    for member in 0..8 {
        check_between("a member was rebuilt", |stage| {
            stage.fail(member).expect("redundant");
            assert_eq!(stage.write(3, 1, 80), Ok(()));
            assert_eq!(stage.write(3 + STRIP, 1, 81), Ok(()));
            stage.replace(member).expect("replaceable");
            stage.healthy();
        });
    }
}

/// A failed write leaves nothing in the cache, because its parities may be on no member.
#[test]
fn a_write_that_fails_leaves_nothing_behind() {
    for victim in 0..8 {
        check_between("a member that could not be written", |stage| {
            let area = stage.on_disk(DATA, 8000);
            let fails = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device)).within(area);
            stage.disks[victim].plan.add(fails);
            assert_eq!(stage.write(3, 1, 90), Ok(()));
            stage.disks[victim].plan.clear();
            // A member without a part of the block received no I/O.
            if stage.state(victim) == MemberState::Faulty {
                stage.replace(victim as u8).expect("replaceable");
                stage.healthy();
            }
        });
    }
}
