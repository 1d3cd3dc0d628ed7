//! Tests of bugs of other programs, each with its history. Other such tests are next to the tested function, and in the
//! scenarios of the simulator; `docs/scenarios.md` lists all of them.

use strake_block::{IoErrorKind, Op};
use strake_dev_mem::{Effect, Ops, Rule, When};
use strake_engine::Consistency;
use strake_raid::Level;
use strake_units::{Lba, LbaRange, MemberSet, Nanos};

use crate::scrub::{clean, media};
use crate::stage::{DATA, STRICTLY, Set, Stage};

/// Returns the position of a block of a RAID 0 of `members` according to the textbook: member and byte of its data
/// area.
fn textbook(at: u64, members: u64, strip: u64) -> (usize, usize) {
    let (nth, offset) = (at / strip, at % strip);
    ((nth % members) as usize, ((nth / members * strip + offset) * 512) as usize)
}

/// With drives of different sizes, RAID 0 of md had two layouts in different kernel versions: an array that was moved
/// to the newer version read its data at wrong addresses (`c84a1372df92`). In Strake, all members are used up to the
/// size of the smallest, and the layout of the textbook applies for all sizes.
#[test]
fn b01_no_size_of_a_drive_moves_a_block() {
    for disk_bytes in [28 << 20, 29 << 20, (31 << 20) + 4096] {
        for members in 2..5u64 {
            let set = Set { disk_bytes, ..Set::new(Level::Raid0, members as usize) };
            let stage = set.filled(3000, 170, 3);
            let media = media(&stage);
            for at in 0..3000 {
                let (member, byte) = textbook(at, members, 32);
                let model = &stage.model[at as usize * 512..(at as usize + 1) * 512];
                assert!(
                    media[member][byte..byte + 512] == *model,
                    "block {at} of {members} members"
                );
            }
        }
    }
}

/// RAID 0 of md computed the address of a deallocation with another layout than that of writes, and erased other data
/// (`e836007089`). The test searches for the deallocated blocks on the drives.
#[test]
fn b02_a_deallocation_reaches_the_blocks_that_a_write_reaches() {
    for members in 2..5u64 {
        let mut stage = Set::new(Level::Raid0, members as usize).filled(3000, 170, 3);
        for (at, blocks) in [(0, 1), (31, 2), (64, 96), (500, 333), (1024, 1024)] {
            assert_eq!(
                stage.run(0, Op::Deallocate { range: LbaRange::new(Lba(at), blocks) }),
                Ok(())
            );
            let before = stage.model.clone();
            let media = media(&stage);
            for block in 0..3000u64 {
                let (member, byte) = textbook(block, members, 32);
                let found = &media[member][byte..byte + 512];
                let from = block as usize * 512;
                let kept = found == &before[from..from + 512];
                let inside = (at..at + blocks).contains(&block);
                assert!(kept || inside && found.iter().all(|b| *b == 0), "block {block}");
                stage.model[from..from + 512].copy_from_slice(found);
            }
        }
        stage.verify(3000);
    }
}

/// A degraded RAID 6 of md never completed a write that was not aligned to pages: it waited for blocks that it did not
/// read (`67f455486d2e`). The test uses every alignment within 4 KiB, with every set of members out.
#[test]
fn b07_a_degraded_write_at_any_alignment_ends() {
    let all = (0..5u8).flat_map(|one| (one..5).map(move |other| (one, other)));
    for (one, other) in all {
        for level in [Level::Raid6, Level::Raid5] {
            if level == Level::Raid5 && one != other {
                continue;
            }
            let mut stage = Set::new(level, 5).filled(1000, 170, 3);
            stage.fail(one).expect("allowed");
            if other != one {
                stage.fail(other).expect("allowed");
            }
            for blocks in [1, 3, 7, 8, 9, 33] {
                for at in (0..8).map(|nth| 90 + nth * 33) {
                    assert_eq!(stage.write(at, blocks, at * 64 + blocks), Ok(()));
                }
            }
            stage.verify(1000);
            stage.replace(one).expect("replaceable");
            if other != one {
                stage.replace(other).expect("replaceable");
            }
            stage.verify_rebuilt(1000);
            stage.check_parity(12);
        }
    }
}

/// In ZFS, writes overtook a manual trim of the same blocks, and the trim then discarded the written data
/// (`8a74070128`). In this test, deallocations of the drives are slow, and writes to some of the blocks are submitted
/// meanwhile.
#[test]
fn b16_a_trim_is_never_done_after_a_newer_write() {
    for (level, members) in
        [(Level::Raid0, 4), (Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 6)]
    {
        for slow in 0..members {
            let mut stage = Set::new(level, members).filled(2000, 170, 3);
            let delay = Rule::new(Ops::DEALLOCATE.and(Ops::ZEROES), Effect::Delay(Nanos(400_000)));
            stage.disks[slow].plan.add(delay);
            // The range contains whole stripes of every level.
            let range = LbaRange::new(Lba(0), 3 * 4 * 32);
            let trim = stage.submit(0, Op::Deallocate { range });
            stage.rounds(5);
            let mut ids = Vec::new();
            for at in (0..384).step_by(24) {
                let op = stage.write_op(at, 5, at + 1);
                ids.push((stage.submit(0, op), at));
            }
            for (id, at) in ids {
                assert_eq!(stage.result(id), Ok(()));
                stage.expect(at, 5, at + 1);
            }
            assert_eq!(stage.result(trim), Ok(()));
            stage.rounds(1000);
            for at in (0..384).step_by(24) {
                let from = at as usize * 512;
                let found = stage.read(0, at, 5).expect("readable");
                assert!(found == stage.model[from..from + found.len()], "{level:?}, block {at}");
            }
            if level.is_grouped() || matches!(level, Level::Raid5 | Level::Raid6) {
                stage.check_parity(4);
            }
            if level != Level::Raid0 {
                clean(&mut stage);
            }
        }
    }
}

/// raid5f of SPDK computed parity in scratch memory that another request used at the time of a retry (`f84f0cc811`):
/// the parity was wrong without an error. In this test, scratch memory is sufficient for one plan at a time, so that
/// all plans wait for it, and reads fail repeatedly, so that all plans are retried.
#[test]
fn b20_memory_of_a_plan_that_is_tried_again_is_its_own() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 6), (Level::Raid73, 7)] {
        for cores in [1, 2] {
            let mut set = Set::new(level, members);
            (set.options.scratch_bytes, set.options.cache, set.cores) = (0, false, cores);
            let mut stage = set.filled(2000, 170, 3);
            for (nth, disk) in stage.disks.iter().enumerate() {
                let fails = Effect::Fail(IoErrorKind::Medium);
                let rule = Rule::new(Ops::READ, fails).when(When::Every(5 + nth as u64 % 3));
                disk.plan.add(rule.limit(40));
                disk.plan
                    .add(Rule::new(Ops::READ, Effect::Delay(Nanos(9000))).when(When::Every(2)));
            }
            let mut ids = Vec::new();
            for round in 0..60u64 {
                // The writes do not overlap.
                let at = round * 33;
                let op = stage.write_op(at, 1 + round % 32, 700 + round);
                ids.push((stage.submit(0, op), at, 1 + round % 32, 700 + round));
            }
            for (id, at, blocks, seed) in ids {
                match stage.result(id) {
                    Ok(()) => stage.expect(at, blocks, seed),
                    // If two drives cannot read the same block, one parity is not sufficient.
                    Err(error) => assert_eq!((error, level), (IoErrorKind::Medium, Level::Raid5)),
                }
            }
            stage.disks.iter().for_each(|disk| disk.plan.clear());
            if level != Level::Raid5 {
                clean(&mut stage);
                stage.fail(1).expect("allowed");
                stage.verify(2000);
            }
        }
    }
}

/// Crucible delayed writes so that newer ones overtook them, and replayed writes in progress over later writes
/// (`862cd981`, `b7b9d566`); its repair waited forever after the failure of all members (`ba953748`). In this test,
/// overlapping writes are submitted repeatedly at the same time, and the process stops during them. The result must be
/// one of the writes that had not completed, or the last completed write, and never an older one.
#[test]
fn b28_overlapping_writes_are_one_after_the_other_also_over_a_crash() {
    for (consistency, out) in
        [(Consistency::Safe, true), (Consistency::Strict, false), (Consistency::Resync, false)]
    {
        for rounds in [0, 3, 9, 20, 60, 200] {
            let mut set = Set::new(Level::Raid6, 6);
            (set.consistency, set.cores) = (consistency, 1 + (rounds % 2) as u16);
            let mut stage = set.filled(500, 50, 3);
            if out {
                stage.fail(2).expect("allowed");
                stage.until("the log", |stage| stage.status().logged == MemberSet::of(2));
            }
            for disk in &stage.disks {
                disk.plan
                    .add(Rule::new(Ops::WRITE, Effect::Delay(Nanos(7000))).when(When::Every(3)));
            }
            // The writes of a wave are submitted after the completion of all writes of the previous wave.
            for wave in 0..4u64 {
                for seed in wave * 10..wave * 10 + 5 {
                    stage.submit_write(0, 40, 6, seed);
                }
                if wave < 3 {
                    stage.until("the answers", |stage| stage.answers.len() == 5);
                    stage.answers.clear();
                    let found = stage.read(0, 40, 6).expect("readable");
                    let of_wave = |seed| found == Stage::pattern(6 * 512, seed);
                    assert!((wave * 10..wave * 10 + 5).any(of_wave), "wave {wave} is a mixture");
                }
            }
            stage.rounds(rounds);
            let answered = !stage.answers.is_empty();
            stage.disks.iter().for_each(|disk| disk.plan.clear());
            stage.again(STRICTLY);
            let found = stage.read(0, 40, 6).expect("readable");
            let oldest = if answered { 30 } else { 20 };
            for (nth, block) in found.chunks(512).enumerate() {
                let of = |seed| Stage::pattern(6 * 512, seed)[nth * 512..(nth + 1) * 512] == *block;
                let known = (oldest..25).chain(30..35).any(of);
                assert!(known, "{consistency:?}, {rounds} rounds: block {nth} is older");
            }
            stage.model[40 * 512..46 * 512].copy_from_slice(&found);
            stage.until("resynchronizing", |stage| stage.status().resync.is_none());
            stage.verify(500);
            if out {
                stage.replace(2).expect("replaceable");
                stage.healthy();
            }
            clean(&mut stage);
        }
    }
}

/// After the failure of all members, no request waits forever: the caller receives a result.
#[test]
fn b28_a_repair_ends_when_everything_has_failed() {
    for level in [Level::Raid5, Level::Raid6, Level::Raid1] {
        let mut stage = Set::new(level, 4).filled(2000, 170, 3);
        stage.fail_and_replace(1);
        let id = stage.submit_write(0, 5, 40, 9);
        stage.disks.iter().for_each(|disk| disk.plan.vanish());
        assert!(stage.result(id).is_err());
        assert!(stage.read(0, 0, 8).is_err());
        stage.until("the end of the rebuild", |stage| stage.status().lost);
        let pending = stage.array().begin_stop();
        // No member remains that could record the stop.
        assert!(stage.asked(pending).is_err() || stage.status().lost);
    }
}

/// A copy program ignored errors of later parts and reported success (libnbd, CVE-2022-0485). In this test, any one
/// part of a request fails on the only drive that has its data, and the request must fail.
#[test]
fn b29_an_error_of_any_part_fails_the_request() {
    for part in 0..6u64 {
        for effect in [Effect::Fail(IoErrorKind::Medium), Effect::Fail(IoErrorKind::Device)] {
            let mut stage = Set::new(Level::Raid0, 3).filled(1000, 170, 3);
            let (member, byte) = stage.home(part * 32 + 7);
            assert!(byte >= DATA);
            let range = stage.on_disk(byte, 1);
            stage.disks[member].plan.add(Rule::new(Ops::READ, effect).within(range));
            assert!(stage.read(0, 0, 6 * 32).is_err(), "part {part}");
        }
    }
}
