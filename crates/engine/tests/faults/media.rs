//! Tests of unreadable blocks.

use strake_block::{Durability, IoErrorKind, Op};
use strake_dev_mem::{Effect, Fate, Ops, Rule, RuleId, When};
use strake_engine::Maintenance;
use strake_raid::{Level, MemberState};

use crate::stage::{LOSSY, STRICTLY, Seen, Set, Stage};

/// Makes the blocks of the drive with array blocks `at..at+blocks` unreadable.
fn spoil(stage: &Stage, at: u64, blocks: u64) -> (usize, RuleId) {
    let (member, byte) = stage.home(at);
    let range = stage.on_disk(byte, blocks);
    let rule = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium)).within(range);
    (member, stage.disks[member].plan.add(rule))
}

/// Checks that one unreadable block can be read and is rewritten, and that its member remains in use.
fn check_repair(level: Level, members: usize) {
    let mut stage = Set::new(level, members).filled(1000, 100, 3);
    let (member, rule) = spoil(&stage, 40, 1);
    stage.watch();
    for _ in 0..4 {
        let bytes = stage.read(0, 38, 6).expect("there is redundancy");
        assert_eq!(bytes, stage.model[38 << 9..44 << 9]);
    }
    let (_, byte) = stage.home(40);
    stage.rounds(100);
    let covers =
        |s: &Seen| s.op == 'w' && s.drive == member && s.byte <= byte && s.byte + s.bytes > byte;
    assert!(stage.seen().iter().any(covers), "the block is written back");
    assert!(stage.status().counters.repairs >= 1);
    assert!(stage.status().counters.medium_errors >= 1);
    assert_eq!(stage.state(member), MemberState::InSync);
    stage.disks[member].plan.remove(rule);
    stage.verify(1000);
    stage.check_parity(10);
}

#[test]
fn an_unreadable_block_is_made_up_and_written_back() {
    check_repair(Level::Raid5, 4);
    check_repair(Level::Raid6, 6);
    check_repair(Level::Raid1, 2);
    check_repair(Level::Raid10, 4);
}

/// The history of the bug: a strip of several bands was read with one I/O. After a failure of this I/O, only its first
/// band was reconstructed, and the rest of the buffer was returned unchanged.
#[test]
fn a_failed_read_of_a_whole_long_strip_is_made_up_as_a_whole() {
    let mut stage = Set { strip: 256 << 10, ..Set::new(Level::Raid5, 4) }.filled(2048, 128, 3);
    for at in [0, 300, 511] {
        let (member, rule) = spoil(&stage, at, 1);
        assert_eq!(stage.read(0, 0, 512).expect("there is redundancy"), stage.model[..512 << 9]);
        stage.disks[member].plan.remove(rule);
    }
    stage.verify(2048);
}

/// A write with an unreadable old block must still make parity consistent.
#[test]
fn a_small_write_over_an_unreadable_block_works() {
    for (level, members) in [(Level::Raid5, 5), (Level::Raid6, 8)] {
        let mut stage = Set::new(level, members).filled(1000, 100, 3);
        let (member, rule) = spoil(&stage, 40, 1);
        assert_eq!(stage.write(39, 3, 77), Ok(()));
        stage.disks[member].plan.remove(rule);
        assert_eq!(stage.state(member), MemberState::InSync);
        stage.verify(1000);
        stage.check_parity(10);
    }
}

#[test]
fn without_redundancy_left_only_the_block_is_lost() {
    let mut stage = Set::new(Level::Raid5, 4).filled(1000, 100, 3);
    let (member, _) = stage.home(40);
    stage.fail((member as u8 + 1) % 4).expect("one is allowed");
    let (_, rule) = spoil(&stage, 40, 1);
    assert_eq!(stage.read(0, 40, 1).err(), Some(IoErrorKind::Lost));
    assert_eq!(
        stage.read(0, 41, 8).expect("the neighbours are there"),
        stage.model[41 << 9..49 << 9]
    );
    assert!(!stage.status().lost);
    // An overwrite makes the block readable again.
    stage.disks[member].plan.remove(rule);
    assert_eq!(stage.write(40, 1, 5), Ok(()));
    stage.verify(1000);
}

#[test]
fn a_rebuild_works_around_an_unreadable_block_and_mends_it() {
    let mut stage = Set::new(Level::Raid6, 6).filled(1000, 100, 3);
    let (member, rule) = spoil(&stage, 40, 1);
    let target = (member as u8 + 1) % 6;
    stage.fail_and_replace(target);
    stage.healthy();
    stage.disks[member].plan.remove(rule);
    assert_eq!(stage.state(member), MemberState::InSync);
    stage.verify(1000);
    stage.check_parity(20);
}

/// The history of the bug: after a crash, parity was old where a write had been cut short. While the resync
/// reconstructed an unreadable block, a block of another strip was also unreadable. The whole other strip was
/// reconstructed from parity for the computation of the new parity, but was not written: parity was inconsistent with
/// the content of the drive (seed 3003745 of the simulator).
#[test]
fn a_strip_that_becomes_unreadable_while_another_is_mended_is_mended_too() {
    for (first, second) in [(1, 0), (2, 0), (3, 0)] {
        let mut stage = Set::new(Level::Raid73, 7).filled(1000, 100, 3);
        let (home, _) = stage.home(5);
        for other in (0..7).filter(|at| *at != home) {
            stage.disks[other].hang(Ops::WRITE);
        }
        stage.submit_write(0, 5, 3, 99);
        stage.rounds(400);
        stage.expect(5, 3, 99);
        let fail = || Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
        let place = |strip: u64| {
            let (member, byte) = stage.home(strip * 32 + 20);
            (member, stage.on_disk(byte, 1))
        };
        let (early, late) = (place(first), place(second));
        stage.disks.iter().for_each(|disk| disk.plan.clear());
        stage.down();
        stage.disks[early.0].plan.add(fail().within(early.1).when(When::Nth(1)));
        stage.disks[late.0].plan.add(fail().within(late.1).when(When::Nth(2)));
        assert!(stage.again(STRICTLY) > 0, "there is something to resynchronize");
        stage.until("the resync", |stage| stage.status().resync.is_none());
        stage.check_parity(10);
        // The readable blocks next to the unreadable block are not reconstructed from parity that may be old.
        stage.verify(1000);
    }
}

/// The history of the bug, for a client request before the resync of the stripe: the whole strip with the unreadable
/// block was reconstructed, for a read or for a write of a neighbour, from parity that was old in some of its columns.
#[test]
fn where_parity_may_be_old_only_what_cannot_be_read_is_made_up() {
    for writes in [false, true] {
        let mut stage = Set::new(Level::Raid5, 4).filled(1000, 100, 3);
        let (home, _) = stage.home(5);
        for other in (0..4).filter(|at| *at != home) {
            stage.disks[other].hang(Ops::WRITE);
        }
        stage.submit_write(0, 5, 3, 99);
        stage.rounds(400);
        stage.expect(5, 3, 99);
        let (member, byte) = stage.home(32 + 20);
        let fail = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
        let fail = fail.within(stage.on_disk(byte, 1));
        stage.disks.iter().for_each(|disk| disk.plan.clear());
        stage.down();
        assert!(stage.again(STRICTLY) > 0, "there is something to resynchronize");
        stage.array().set_maintenance(Maintenance { priority: 50, paused: true });
        let rule = stage.disks[member].plan.add(fail);
        if writes {
            assert_eq!(stage.write(64, 32, 7), Ok(()));
        } else {
            let bytes = stage.read(0, 32, 32).expect("there is redundancy");
            assert!(bytes == stage.model[32 << 9..64 << 9], "what was readable is not made up");
        }
        assert!(stage.status().resync.is_some(), "nobody was faster");
        stage.disks[member].plan.remove(rule);
        stage.verify(1000);
        stage.array().set_maintenance(Maintenance { priority: 50, paused: false });
        stage.until("the resync", |stage| stage.status().resync.is_none());
        stage.check_parity(10);
        stage.verify(1000);
    }
}

/// The history of the bug: parity was being initialized and was not valid. An unreadable strip was reconstructed from P
/// and written, was unreadable again, and was reconstructed from other strips with another result: parity was computed
/// from the second result, and the drive still had the first (seed 3776 of the simulator).
#[test]
fn what_parity_is_made_from_is_what_drives_hold() {
    for (late, nth) in (1..4).flat_map(|late| (10..26).map(move |nth| (late, nth))) {
        let mut set = Set::new(Level::Raid6, 4);
        set.deallocate = strake_block::DeallocateReads::Unspecified;
        set.garbage = Some(0xa5);
        let mut stage = set.build().expect("sound");
        let (member, byte) = stage.home(20);
        let fail = || Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
        let range = stage.on_disk(byte, 1);
        stage.down();
        stage.disks[member].plan.add(fail().within(range));
        let other = (member + late) % 4;
        stage.disks[other].plan.add(fail().within(range).when(When::Nth(nth)));
        assert!(stage.again(STRICTLY) > 0, "there is something to initialize");
        stage.until("initializing", |stage| stage.status().resync.is_none());
        stage.disks.iter().for_each(|disk| disk.plan.clear());
        stage.check_parity(1);
    }
}

/// The history of the bug: parity was never initialized. A write made parity of its stripe consistent, for which it
/// rewrote an unreadable strip with reconstructed bytes. These bytes were in the cache of their drive when the write
/// was acknowledged. A power failure discarded them, and the written block, on a lost member, was reconstructed from
/// the old bytes of that strip (seed 2026112720001502 of the simulator).
#[test]
fn what_parity_is_made_from_is_stable() {
    for level in [Level::Raid5, Level::Raid6] {
        let mut set = Set::strict(level, 6);
        set.deallocate = strake_block::DeallocateReads::Unspecified;
        set.garbage = Some(0xa5);
        set.cached = true;
        let mut stage = set.build().expect("sound");
        stage.array().set_maintenance(Maintenance { priority: 50, paused: true });
        let strip = u64::from(stage.status().geometry.strip_blocks());
        let (lost, _) = stage.home(5);
        let (member, rule) = spoil(&stage, strip + 5, 1);
        for stripe in 0..40 {
            let at = 5 + stripe * strip * u64::from(stage.status().geometry.data_strips());
            let Op::Write { at, data, .. } = stage.write_op(at, 1, 7) else { unreachable!() };
            assert_eq!(stage.run(0, Op::Write { at, data, durability: Durability::Fua }), Ok(()));
            stage.expect(at.0, 1, 7);
        }
        assert!(stage.status().resync.is_some(), "parity is not trusted yet");
        stage.disks[member].plan.remove(rule);
        stage.down();
        stage.disks.iter().for_each(|disk| disk.plan.power_cut_with(|_| Fate::Drop));
        stage.disks[lost].vanish();
        stage.again(LOSSY);
        let wanted = stage.model[5 << 9..6 << 9].to_vec();
        assert_eq!(stage.read(0, 5, 1).expect("there is redundancy"), wanted, "{level:?}");
    }
}

/// The history of the bug: a write with an unreadable strip first made parity consistent, which rewrote that strip, and
/// then continued as if the strip were still unreadable. With the next failed strip, too few strips remained, and the
/// write failed although no data was lost (seed 4170 of the simulator).
#[test]
fn what_a_write_had_mended_counts_as_readable_again() {
    let mut stage = Set::new(Level::Raid5, 5).filled(1000, 100, 3);
    stage.down();
    assert!(stage.again(STRICTLY) > 0, "there is something to resynchronize");
    stage.array().set_maintenance(Maintenance { priority: 50, paused: true });
    let write = stage.submit_write(0, 0, 1, 7);
    let parity = (0..5).find(|drive| (0..4).all(|strip| stage.home(strip * 32).0 != *drive));
    let (_, byte) = stage.home(0);
    for strip in 1..4 {
        let (home, rule) = spoil(&stage, strip * 32, 1);
        for drive in [home, parity.expect("one of five")] {
            stage.until("writing it back, and parity", |stage| {
                let seen = stage.seen();
                stage.watch();
                let written = |s: &Seen| s.op == 'w' && s.drive == drive && s.byte == byte;
                seen.iter().any(written) || stage.answers.contains_key(&write)
            });
            stage.disks[home].plan.remove(rule);
        }
    }
    assert_eq!(stage.answer(write).result, Ok(()));
    stage.expect(0, 1, 7);
    stage.verify(1000);
}
