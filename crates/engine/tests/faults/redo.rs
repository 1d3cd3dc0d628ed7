//! Tests of the redo log: a crash during a write to a stripe without a member causes no damage, and neither does a
//! crash during the recovery from it.

use strake_block::{BufMut, Durability, IoErrorKind, Op, Sg};
use strake_dev_mem::{Effect, Ops, Rule, TearUnit, When};
use strake_engine::{ArrayEventKind, Consistency, Outcome, Recovery};
use strake_raid::{Level, MemberState};
use strake_units::{Lba, LbaRange, MemberIndex, MemberSet, Nanos};

use crate::stage::{DATA, DEGRADED, STRICTLY, Set, Stage};

/// The range of the redo log on a member, in bytes.
pub const LOG: std::ops::Range<u64> = 6 << 20..16 << 20;

/// The offset of the first record in the log, after two slots for marks.
const RECORDS: usize = 8 << 10;

/// Converts a range of bytes to blocks of the drives.
pub fn bytes(stage: &Stage, range: std::ops::Range<u64>) -> LbaRange {
    let shift = stage.set.disk_block.shift();
    LbaRange::new(Lba(range.start >> shift), (range.end - range.start) >> shift)
}

/// Waits until the label records that every write to the stripes of absent members is in the log.
pub fn until_logged(stage: &mut Stage) {
    stage.until("the log being relied on", |stage| {
        let status = stage.status();
        let out = status.members.iter().enumerate();
        let out = out.filter(|(_, member)| member.state != MemberState::InSync);
        let out: MemberSet = out.map(|(at, _)| at).collect();
        out.is_subset(status.logged)
    });
}

/// Returns an array with data, without the members `out`.
pub fn degraded(set: Set, out: &[u8]) -> Stage {
    let mut stage = set.filled(2000, 170, 3);
    for member in out {
        stage.fail(*member).expect("allowed");
    }
    until_logged(&mut stage);
    stage
}

/// Checks that all blocks are unchanged, except the blocks `at` to `at + blocks`, each of which is old or that of
/// `seed`. The found content is then the expected one.
pub fn verify_old_or_new(stage: &mut Stage, at: u64, blocks: u64, seed: u64) {
    let block = 1_usize << stage.size.shift();
    let found = stage.read(0, at, blocks).expect("readable");
    let new = Stage::pattern(blocks as usize * block, seed);
    let from = (at as usize) * block;
    for (nth, found) in found.chunks(block).enumerate() {
        let here = nth * block..(nth + 1) * block;
        let old = &stage.model[from + here.start..from + here.end];
        assert!(found == old || found == &new[here], "block {} is a mixture", at + nth as u64);
    }
    stage.model[from..from + found.len()].copy_from_slice(&found);
    stage.verify(2000);
}

/// Rebuilds the missing members and checks that all members are consistent in every stripe.
pub fn check_rebuilt(stage: &mut Stage, out: &[u8]) {
    for member in out {
        stage.replace(*member).expect("replaceable");
    }
    stage.healthy();
    stage.until("resynchronizing", |stage| stage.status().resync.is_none());
    stage.check_parity(40);
    stage.verify(2000);
}

/// Checks a crash during a write of `blocks` at `at` whose part for the data area of `stuck` has not reached the drive.
fn check_torn(set: Set, out: &[u8], (at, blocks): (u64, u64), stuck: usize) {
    if out.contains(&(stuck as u8)) {
        return;
    }
    let mut stage = degraded(set, out);
    let area = stage.data_area();
    stage.disks[stuck].plan.add(Rule::new(Ops::WRITE.and(Ops::ZEROES), Effect::Hang).within(area));
    stage.submit_write(0, at, blocks, 99);
    stage.rounds(300);
    stage.disks[stuck].plan.clear();
    let whole = stage.set.group.is_none();
    let doubt = stage.again(STRICTLY);
    assert!(
        doubt == 0 || !whole,
        "{doubt} regions are in doubt; only those of whole groups may be"
    );
    verify_old_or_new(&mut stage, at, blocks, 99);
    check_rebuilt(&mut stage, out);
}

#[test]
fn f02_a_write_cut_short_while_degraded_harms_no_other() {
    for (level, members, out) in [
        (Level::Raid5, 4, &[1][..]),
        (Level::Raid6, 6, &[1]),
        (Level::Raid6, 6, &[1, 4]),
        (Level::Raid73, 7, &[0, 6]),
        (Level::Raid50, 8, &[2]),
    ] {
        let mut set = Set::new(level, members);
        set.group = level.is_grouped().then_some(4);
        for stuck in 0..members {
            set.cores = 1 + (stuck % 2) as u16;
            // The writes are a small write, a write of several strips, and a whole stripe with parts of its neighbours.
            check_torn(set.clone(), out, (5, 3), stuck);
            check_torn(set.clone(), out, (20, 60), stuck);
            check_torn(set.clone(), out, (10, 300), stuck);
        }
    }
}

/// The record is not complete at the crash: no part of the write may be on any member.
#[test]
fn a_record_cut_short_means_that_nothing_was_written() {
    for stuck in [0, 2, 3] {
        let mut stage = degraded(Set::new(Level::Raid5, 4), &[1]);
        let log = bytes(&stage, LOG);
        stage.disks[stuck].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(log));
        stage.watch();
        stage.submit_write(0, 0, 96, 99);
        stage.rounds(300);
        let touched = stage.seen().iter().any(|seen| seen.op == 'w' && seen.byte >= DATA);
        assert!(!touched, "the data area is written before the record is whole");
        stage.disks[stuck].plan.clear();
        let Recovery { crashed, redone, never_begun, resync_regions, .. } =
            stage.recovered(STRICTLY);
        assert!(crashed && redone == 0 && never_begun > 0 && resync_regions == 0, "{stuck} stuck");
        stage.verify(2000);
        check_rebuilt(&mut stage, &[1]);
    }
}

/// Crashes after every possible number of rounds, with many writes in progress, on drives that complete in any order.
#[test]
fn a_crash_at_any_round_while_degraded_is_survived() {
    for rounds in (0..120).step_by(5) {
        let mut set = Set::new(Level::Raid6, 6);
        set.cores = 1 + (rounds % 2) as u16;
        set.cached = rounds % 4 == 0;
        let mut stage = degraded(set, &[2]);
        for disk in &stage.disks {
            disk.plan.add(Rule::new(Ops::WRITE, Effect::Delay(Nanos(7000))).when(When::Every(3)));
        }
        let places: Vec<u64> = (0..30).map(|nth| nth * 37 % 400 * 4).collect();
        let mut ids = Vec::new();
        for (nth, at) in places.iter().enumerate() {
            let op = stage.write_op(*at, 3, 500 + nth as u64);
            ids.push((stage.submit(0, op), *at, 500 + nth as u64));
            stage.rounds(2);
        }
        stage.rounds(rounds);
        let mut open = Vec::new();
        for (id, at, seed) in ids {
            match stage.answers.remove(&id) {
                Some(done) => {
                    assert!(done.result.is_ok());
                    stage.expect(at, 3, seed);
                }
                None => open.push((at, seed)),
            }
        }
        stage.disks.iter().for_each(|disk| disk.plan.clear());
        if stage.set.cached {
            // The host fails, and a random part of the data that is not stable is lost. This is no data of completed
            // writes, because these were logged.
            for (nth, disk) in stage.disks.iter().enumerate() {
                disk.plan.power_cut(rounds * 8 + nth as u64, Some(TearUnit::B512));
            }
        }
        assert_eq!(stage.again(STRICTLY), 0);
        settle(&mut stage, &open, 3);
        stage.verify(2000);
        check_rebuilt(&mut stage, &[2]);
    }
}

/// Reads each block of writes without a completion, and expects the found content from then on if it is old or new.
fn settle(stage: &mut Stage, open: &[(u64, u64)], blocks: u64) {
    let block = 1_usize << stage.size.shift();
    for (at, seed) in open {
        let new = Stage::pattern(blocks as usize * block, *seed);
        let found = stage.read(0, *at, blocks).expect("readable");
        let from = (*at as usize) * block;
        for nth in 0..blocks as usize {
            let here = nth * block..(nth + 1) * block;
            let old = &stage.model[from + here.start..from + here.end];
            assert!(
                found[here.clone()] == *old || found[here.clone()] == new[here],
                "block {at}+{nth}"
            );
        }
        stage.model[from..from + found.len()].copy_from_slice(&found);
    }
}

/// The recovery from a crash is itself cut short, at every write, and then once more.
#[test]
fn a_crash_in_the_middle_of_the_replay_is_one_more_of_the_same() {
    for nth in 1..12 {
        let mut stage = degraded(Set::new(Level::Raid6, 6), &[2]);
        let area = stage.data_area();
        let strip = 32;
        for stuck in [0, 3] {
            stage.disks[stuck].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(area));
        }
        let writes = [(3, 2), (strip * 9 + 1, 40), (strip * 30, 128)];
        for (at, blocks) in writes {
            stage.submit_write(0, at, blocks, at);
        }
        stage.rounds(400);
        stage.disks.iter().for_each(|disk| disk.plan.clear());
        let all = stage.disks.clone();
        for disk in &all {
            disk.plan.add(Rule::new(Ops::WRITE, Effect::Vanish).when(When::Nth(nth)));
        }
        // All drives vanish after a number of writes of the recovery.
        let ready = matches!(stage.find_any(STRICTLY), Some(Outcome::Ready(_)));
        stage.disks.iter().for_each(|disk| {
            disk.plan.clear();
            disk.plan.return_device();
        });
        assert!(!ready || nth > 5, "the start fails when drives vanish");
        assert_eq!(stage.again(STRICTLY), 0);
        for (at, blocks) in writes {
            settle(&mut stage, &[(at, at)], blocks);
        }
        stage.verify(2000);
        check_rebuilt(&mut stage, &[2]);
    }
}

/// Records of blocks that were overwritten later must not be replayed, for any method of the newer writes.
#[test]
fn an_older_record_never_undoes_a_newer_write() {
    for cores in [1, 2] {
        let set = Set { cores, ..Set::new(Level::Raid6, 6) };
        let mut stage = degraded(set, &[2]);
        for round in 0..3 {
            assert_eq!(stage.write(64, 8, 100 + round), Ok(()));
            assert_eq!(stage.write(66, 128, 200 + round), Ok(()));
        }
        // A request for a whole stripe of zeroes contains no data, but must nevertheless be logged.
        let range = LbaRange::new(Lba(0), 128);
        let zeroes = Op::WriteZeroes { range, durability: Durability::Normal };
        assert_eq!(stage.run(0, zeroes), Ok(()));
        stage.model[..128 << 9].fill(0);
        assert_eq!(stage.again(STRICTLY), 0);
        stage.verify(2000);
        // This write is newer than all records and is not logged, because no member is missing now.
        assert_eq!(stage.write(64, 8, 300), Ok(()));
        stage.replace(2).expect("replaceable");
        stage.healthy();
        assert_eq!(stage.write(60, 20, 301), Ok(()));
        stage.again(STRICTLY);
        stage.verify(2000);
        // The same member goes out again after parity is consistent. Before that, regions would be in doubt.
        stage.until("the resync", |stage| stage.status().resync.is_none());
        stage.fail(2).expect("allowed");
        until_logged(&mut stage);
        assert_eq!(stage.again(STRICTLY), 0);
        stage.verify(2000);
        check_rebuilt(&mut stage, &[2]);
    }
}

/// Only parity can reconstruct the missing data, so that no other member has the record, and a write in progress keeps
/// the floor below it. If the payload of the newest record is damaged, its header still proves that the previous record
/// is done (found by `cargo xtask corrupt`).
#[test]
fn a_record_without_its_contents_still_ends_the_one_before() {
    let mut stage = degraded(Set::new(Level::Raid5, 4), &[1]);
    let on = |stage: &Stage, member, from| {
        (from..2000).find(|at| stage.home(*at).0 == member).expect("it has a share of the data")
    };
    let (far, near) = (on(&stage, 0, 1000), on(&stage, 1, 0));
    let (member, byte) = stage.home(far);
    let stuck = Rule::new(Ops::WRITE, Effect::Hang).within(stage.on_disk(byte, 1));
    stage.disks[member].plan.add(stuck);
    stage.submit_write(0, far, 1, 99);
    stage.rounds(100);
    assert_eq!(stage.write(near, 1, 1), Ok(()));
    assert_eq!(stage.write(near, 1, 2), Ok(()));
    let mut newest = (0, 0, 0);
    let mut block = vec![0; 4096];
    for (member, disk) in stage.disks.iter().enumerate().filter(|(member, _)| *member != 1) {
        for offset in LOG.step_by(4096) {
            disk.ram.read_at(offset, &mut block).expect("inside");
            if let Some(record) = strake_ondisk::decode_redo(&block, offset) {
                newest = newest.max((record.header.sequence, member, offset));
            }
        }
    }
    let (sequence, member, offset) = newest;
    assert_eq!(sequence, 3, "each write is on record");
    stage.disks[member].ram.write_at(offset + 4096, &[0xa5; 4096]).expect("inside");
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    assert_eq!(stage.recovered(STRICTLY).redone, 1, "the write that was under way");
    verify_old_or_new(&mut stage, far, 1, 99);
}

/// The log is much smaller than the written data.
#[test]
fn the_log_goes_around() {
    let set = Set { strip: 128 << 10, cores: 2, ..Set::new(Level::Raid5, 4) };
    let mut stage = degraded(set, &[1]);
    for round in 0..8 {
        stage.fill(12_000, 700, round * 77);
    }
    assert_eq!(stage.again(STRICTLY), 0);
    stage.verify(12_000);
    check_rebuilt(&mut stage, &[1]);
}

/// Clients may write data that looks like a header of the log, even a copy of a previous record.
#[test]
fn what_looks_like_a_record_is_not_taken_for_one() {
    let set = Set { strip: 128 << 10, ..Set::new(Level::Raid5, 4) };
    let mut stage = degraded(set, &[1]);
    assert_eq!(stage.write(0, 8, 1), Ok(()));
    let mut log = vec![0; 1 << 20];
    stage.disks[0].ram.read_at(LOG.start, &mut log).expect("inside");
    assert!(log[RECORDS..].starts_with(b"STRAKERL"), "there is a record");
    // The data is a copy of a part of the log, aligned to a block of the payload.
    let copy = &log[RECORDS..RECORDS + (64 << 10)];
    let mut buf = BufMut::alone(copy.len());
    buf.as_mut_slice().copy_from_slice(copy);
    let data = Sg::from(buf.freeze());
    for at in [256, 0] {
        let write = Op::Write { at: Lba(at), data: data.clone(), durability: Durability::Normal };
        assert_eq!(stage.run(0, write), Ok(()));
        let from = (at as usize) << 9;
        stage.model[from..from + copy.len()].copy_from_slice(copy);
    }
    let mut changed = 0;
    for disk in &stage.disks {
        disk.ram.read_at(LOG.start, &mut log).expect("inside");
        for (nth, block) in log.chunks(4096).enumerate() {
            let offset = LOG.start + nth as u64 * 4096;
            let header = strake_ondisk::decode_redo(block, offset).is_some();
            assert_eq!(header, block.starts_with(b"STRAKERL"), "only records begin like one");
            changed += usize::from(block[1..].starts_with(b"TRAKERL") && !header);
        }
    }
    assert!(changed > 0, "there was something to be changed");
    assert_eq!(stage.again(STRICTLY), 0);
    stage.verify(2000);
    check_rebuilt(&mut stage, &[1]);
}

/// A write that started when no member was missing is not in the log. If the host fails during this write, shortly
/// after a member went out, the array must not count as safe.
#[test]
fn f03_what_was_begun_before_a_member_went_out_is_not_called_safe() {
    let mut stage = Set::new(Level::Raid5, 4).filled(2000, 170, 3);
    let (member, byte) = stage.home(5);
    let range = stage.on_disk(byte, 3);
    stage.disks[member].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(range));
    stage.submit_write(0, 5, 3, 99);
    stage.rounds(50);
    let other = (0..4).find(|other| *other != member).expect("there are others");
    let mut pending = stage.array().begin_fail(MemberIndex(other as u8)).expect("a member");
    let mut out = false;
    stage.until("going out", |_| {
        out |= pending.poll().is_some();
        out
    });
    stage.rounds(500);
    assert_eq!(stage.status().logged, MemberSet::EMPTY, "an older write is under way");
    stage.disks[member].plan.clear();
    assert!(matches!(stage.find(STRICTLY), Outcome::Refused { .. }));
}

/// The history of the bug: the rebuild of a returned member is not logged. Records of the log for this member from
/// before the rebuild must not be replayed. The simulator found that they were, and that parity became inconsistent
/// (seed 5632).
#[test]
fn a_member_that_was_away_is_not_given_what_is_older_than_its_return() {
    for consistency in [Consistency::Safe, Consistency::Strict] {
        for rounds in (0..=360).step_by(60) {
            let set = Set { consistency, cores: 2, ..Set::new(Level::Raid6, 6) };
            let mut stage = degraded(set, &[2]);
            assert_eq!(stage.write(0, 400, 7), Ok(()));
            stage.fail(4).expect("allowed");
            until_logged(&mut stage);
            assert_eq!(stage.write(0, 400, 8), Ok(()));
            stage.readd(4).expect("it can come back");
            // The host fails during the rebuild, or later.
            stage.rounds(rounds);
            if rounds == 360 {
                stage.until("rebuilding", |stage| stage.state(4) == MemberState::InSync);
            }
            assert_eq!(stage.again(STRICTLY), 0);
            stage.verify(2000);
            stage.until("rebuilding", |stage| stage.state(4) == MemberState::InSync);
            // The data is verified with all members, and without another member.
            stage.verify(2000);
            stage.fail(0).expect("allowed");
            stage.verify(2000);
            check_rebuilt(&mut stage, &[0, 2]);
        }
    }
}

/// Another member goes out while the array relies on the log, and a member returns.
#[test]
fn members_come_and_go_while_the_log_is_relied_on() {
    for stuck in [0, 1, 3, 5] {
        let set = Set { cores: 2, ..Set::new(Level::Raid6, 6) };
        let mut stage = degraded(set, &[2]);
        stage.fill(700, 30, 9);
        stage.fail(4).expect("allowed");
        until_logged(&mut stage);
        stage.fill(700, 30, 10);
        stage.replace(2).expect("replaceable");
        stage.until("rebuilding", |stage| stage.state(2) == MemberState::InSync);
        until_logged(&mut stage);
        stage.cut_write(stuck, 35, 50);
        assert_eq!(stage.again(STRICTLY), 0);
        verify_old_or_new(&mut stage, 35, 50, 99);
        check_rebuilt(&mut stage, &[4]);
    }
}

/// A member in sync is lost in the crash: if a parity is left, blocks of writes in progress are old or new, and no
/// other block is changed.
#[test]
fn a_member_lost_in_the_crash_costs_nothing_while_parity_is_left() {
    for lost in [0, 1, 3, 4, 5] {
        for stuck in [0, 3, 5] {
            let mut stage = degraded(Set::new(Level::Raid6, 6), &[2]);
            stage.cut_write(stuck, 35, 50);
            stage.disks[lost].vanish();
            assert_eq!(stage.again(DEGRADED), 0);
            verify_old_or_new(&mut stage, 35, 50, 99);
        }
    }
}

/// A member fails the write of its part of a record: it is out before any data is written.
#[test]
fn a_member_that_fails_its_part_of_a_record_is_out_first() {
    for victim in [0, 3, 5] {
        let mut stage = degraded(Set::new(Level::Raid6, 6), &[2]);
        let log = bytes(&stage, LOG);
        let fail = Effect::Fail(IoErrorKind::Device);
        stage.disks[victim].plan.add(Rule::new(Ops::WRITE, fail).within(log));
        assert_eq!(stage.write(0, 100, 99), Ok(()));
        assert_eq!(stage.state(victim), MemberState::Faulty);
        until_logged(&mut stage);
        assert_eq!(stage.again(STRICTLY), 0);
        stage.verify(2000);
        stage.disks[victim].plan.clear();
        check_rebuilt(&mut stage, &[2, victim as u8]);
    }
}

/// The log of a strict array contains every write, so that a member that is lost in the crash causes no loss of data.
#[test]
fn f03_a_strict_array_loses_nothing_to_a_crash_that_costs_a_member() {
    for (level, members, lost) in [
        (Level::Raid5, 4, &[1][..]),
        (Level::Raid5, 4, &[3]),
        (Level::Raid6, 6, &[0, 3]),
        (Level::Raid60, 8, &[1, 2, 6]),
    ] {
        for stuck in 0..members {
            let set = Set { group: level.is_grouped().then_some(4), ..Set::strict(level, members) };
            let mut stage = set.filled(2000, 170, 3);
            stage.cut_write(stuck, 35, 50);
            for member in lost {
                stage.disks[*member as usize].vanish();
            }
            assert_eq!(stage.again(DEGRADED), 0, "{level:?} without {lost:?}, {stuck} stuck");
            verify_old_or_new(&mut stage, 35, 50, 99);
            let reported = stage.array().drain_events();
            let redone = |kind| matches!(kind, ArrayEventKind::WritesRedone { count } if count > 0);
            assert!(reported.iter().any(|event| redone(event.kind)), "it is told");
        }
    }
}

/// The history of the bug: a record was on every member except one, which was absent at the next start. The array was
/// started without it, and the record was replayed on the others; the host failed again before a label recorded this.
/// Then the member returned without its part, so that the record counted as one that the array had not acted on, and
/// parity was inconsistent with the data (found by interrupted recoveries, `cargo xtask crash`).
#[test]
fn f03_a_member_without_its_part_of_a_record_may_come_back_between_two_crashes() {
    for nth in 1..48 {
        let mut stage = Set::strict(Level::Raid5, 4).filled(2000, 170, 3);
        let lost = nth as usize % 4;
        let log = bytes(&stage, LOG);
        stage.disks[lost].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(log));
        stage.submit_write(0, 35, 50, 99);
        stage.rounds(400);
        stage.down();
        stage.disks[lost].plan.clear();
        for (at, disk) in stage.disks.iter().enumerate() {
            let rule = Rule::new(if at == lost { Ops::ANY } else { Ops::WRITE }, Effect::Vanish);
            disk.plan.add(if at == lost { rule } else { rule.when(When::Nth(1 + nth / 4)) });
        }
        let _ = stage.find_any(DEGRADED);
        stage.disks.iter().for_each(|disk| {
            disk.plan.clear();
            disk.plan.return_device();
        });
        assert_eq!(stage.again(STRICTLY), 0);
        verify_old_or_new(&mut stage, 35, 50, 99);
        if stage.state(lost) == MemberState::InSync {
            stage.check_parity(8);
        }
    }
}

/// In mode `none`, a crash is ignored, and an absent member lacks all data.
#[test]
fn an_array_without_care_marks_nothing() {
    let set = Set { consistency: Consistency::None, ..Set::new(Level::Raid5, 4) };
    let mut stage = set.build().expect("sound");
    stage.watch();
    stage.fill(2000, 170, 3);
    let metadata = stage.seen().iter().filter(|seen| seen.op == 'w' && seen.byte < DATA).count();
    assert_eq!(metadata, 0, "nothing but data is written");
    assert_eq!(stage.again(STRICTLY), 0);
    stage.verify(2000);
    for (member, crash) in [(2, true), (1, false)] {
        stage.fail(member).expect("allowed");
        stage.fill(1000, 50, u64::from(member));
        if crash {
            assert_eq!(stage.again(STRICTLY), 0);
            stage.verify(2000);
        }
        stage.readd(member).expect("it can come back");
        stage.verify_rebuilt(2000);
        stage.check_parity(40);
    }
}
