//! Tests with copies that differ after a crash, until the resync has made them consistent.

use strake_block::{DeallocateReads, IoErrorKind};
use strake_dev_mem::{Effect, Fate, Ops, Rule, When};
use strake_engine::Maintenance;
use strake_ondisk::{BadEvent, BadList};
use strake_raid::{Level, MemberState};
use strake_units::{Lba, LbaRange, MemberIndex, Nanos};

use crate::stage::{DATA, STRICTLY, Seen, Set, Stage, bytes_of};

/// A mirror, or mirrors, of which one copy has the write of block 7 to 9 that a crash cut short.
pub struct Differing {
    pub stage: Stage,
    /// The member that has it.
    newest: usize,
    /// Where it lies on the drives.
    pub place: LbaRange,
}

/// Makes one on `cores` cores, whose maintenance is paused.
fn differing(level: Level, members: usize, cores: u16) -> Differing {
    differing_on(Set { cores, ..Set::new(level, members) }, None)
}

/// Makes one of `set`, in which `newest` has the write; otherwise the first of the members that have the block.
fn differing_on(mut set: Set, newest: Option<usize>) -> Differing {
    set.options.maintenance.paused = true;
    let mut stage = set.filled(200, 50, 3);
    let (first, byte) = stage.home(7);
    let newest = newest.unwrap_or(first);
    let place = stage.on_disk(byte, 8);
    for (_, disk) in stage.disks.iter().enumerate().filter(|(at, _)| *at != newest) {
        disk.plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(place));
    }
    stage.submit_write(0, 7, 3, 9);
    stage.rounds(20);
    stage.down();
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    assert_eq!(stage.again(STRICTLY), 1, "the crash left it untrusted");
    Differing { stage, newest, place }
}

/// The content of block 7 since this write.
pub fn new() -> Vec<u8> {
    Stage::pattern(3 * 512, 9)[..512].to_vec()
}

/// A read returned what one copy holds. Then that member went out before the resync of the band, and a later read
/// returned the block as it was before the write. A file system that replayed its journal by the first read was damaged
/// by the second. Found by the simulator.
#[test]
fn a_read_of_copies_that_differ_is_repeatable() {
    for (level, members, cores) in
        [(Level::Raid1, 2, 1), (Level::Raid1, 3, 2), (Level::Raid10, 4, 2)]
    {
        let Differing { mut stage, newest, .. } = differing(level, members, cores);
        // Two members at the same time, and one member that has only a part of the write.
        let ops = [stage.read_op(7, 1), stage.read_op(8, 2), stage.read_op(6, 8)];
        let ids = ops.map(|op| stage.submit(0, op));
        let seen = ids.map(|id| bytes_of(stage.answer(id)).expect("it can be read"));
        assert_eq!(seen[0], new(), "{level:?}");
        stage.fail(newest as u8).expect("allowed");
        for ((at, blocks), seen) in [(7, 1), (8, 2), (6, 8)].into_iter().zip(seen) {
            assert_eq!(stage.read(0, at, blocks), Ok(seen), "{level:?} x{members}: block {at}");
        }
    }
}

/// The member that holds the new data fails one read, and goes out for that. What it held was not compared, so no read
/// may return it after that: the second try of the same read did.
#[test]
fn a_member_that_fails_the_comparison_is_read_no_more() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid10, 4)] {
        let Differing { mut stage, newest, place } = differing(level, members, 1);
        let fail = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Device)).within(place);
        stage.disks[newest].plan.add(fail.when(When::Nth(1)));
        let first = stage.read(0, 7, 1);
        stage.until("the member is out", |stage| stage.state(newest) == MemberState::Faulty);
        assert_eq!(stage.read(0, 7, 1), first, "{level:?} x{members}");
    }
}

/// The same in the resync, while labels take two seconds: the region was trusted before the member was out, and reads
/// returned either copy.
#[test]
fn a_resync_trusts_no_copy_that_it_could_not_read() {
    let Differing { mut stage, newest, place } = differing(Level::Raid1, 2, 1);
    stage.down();
    let fail = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Device)).within(place);
    stage.disks[newest].plan.add(fail.when(When::Nth(1)));
    stage.set.options.maintenance.paused = false;
    stage.again(STRICTLY);
    let metadata = LbaRange::new(Lba(0), DATA >> 9);
    for disk in &stage.disks {
        let delay = Effect::Delay(Nanos(2_000_000_000));
        disk.plan.add(Rule::new(Ops::WRITE, delay).within(metadata));
    }
    stage.step = Nanos(10_000_000);
    stage.until("the end of the resync", |stage| stage.status().resync.is_none());
    assert_eq!(stage.state(newest), MemberState::Faulty);
    assert_ne!(stage.read(0, 7, 1), Ok(new()), "its data went with it");
}

/// A mirror, or mirrors, of drives that promise nothing, each with other bytes. Its initialization is paused.
fn uninitialized(level: Level, members: usize) -> Stage {
    let mut set = Set::new(level, members);
    (set.deallocate, set.options.maintenance.paused) = (DeallocateReads::Unspecified, true);
    let stage = set.build().expect("sound");
    for (at, disk) in stage.disks.iter().enumerate() {
        let bytes = Stage::pattern(1 << 20, 70 + at as u64);
        disk.ram.write_at(DATA, &bytes).expect("inside");
    }
    stage
}

/// Bytes that went to the first MiB of data since the stage is watched, each write by itself.
fn written(stage: &mut Stage) -> Vec<u64> {
    let data = |io: &Seen| !io.done && (DATA..DATA + (1 << 20)).contains(&io.byte);
    let seen = stage.seen().into_iter().filter(data);
    seen.filter(|io| !matches!(io.op, 'r' | 'f')).map(|io| io.bytes).collect()
}

/// Returns the bytes that a read of one block writes.
fn written_by_read(stage: &mut Stage, at: u64) -> Vec<u64> {
    stage.watch();
    stage.read(0, at, 1).expect("it can be read");
    written(stage)
}

/// Blocks of a strip of a band here, and its bytes.
const BAND: u64 = 32;
const BAND_BYTES: u64 = 16 << 10;

/// Each read of a block wrote it to the other copies, until the resync came there, and waited for all of them.
#[test]
fn copies_that_agree_are_not_written_again() {
    for (level, members, cores) in
        [(Level::Raid1, 2, 1), (Level::Raid1, 3, 2), (Level::Raid10, 4, 2)]
    {
        let Differing { mut stage, newest, .. } = differing(level, members, cores);
        let others = if level == Level::Raid1 { members - 1 } else { 1 };
        assert_eq!(written_by_read(&mut stage, 9), vec![BAND_BYTES; others], "{level:?}");
        let nothing: [u64; 0] = [];
        for at in [9, 9, 7, 0, BAND - 1] {
            assert_eq!(written_by_read(&mut stage, at), nothing, "{level:?}: block {at}");
        }
        let seen = stage.read(0, 0, BAND);
        stage.fail(newest as u8).expect("allowed");
        assert_eq!(stage.read(0, 0, BAND), seen, "{level:?} x{members}");
        // Copies of other strips and bands are unchanged.
        let next = written_by_read(&mut stage, BAND);
        assert_eq!(next.len(), if level == Level::Raid1 { others - 1 } else { 1 }, "{level:?}");
    }
}

/// What was never written reads the same again too, also without the member that was read.
#[test]
fn a_read_of_a_mirror_before_its_initialization_is_repeatable() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid10, 4)] {
        let mut stage = uninitialized(level, members);
        assert_ne!(written_by_read(&mut stage, 5), []);
        assert_eq!(written_by_read(&mut stage, 20), []);
        let seen = stage.read(0, 0, BAND).expect("it can be read");
        stage.fail(stage.home(0).0 as u8).expect("allowed");
        assert_eq!(stage.read(0, 0, BAND), Ok(seen), "{level:?} x{members}");
    }
}

/// A write of a whole strip of a band reaches every copy. A write of a part does not affect the rest.
#[test]
fn copies_that_were_written_whole_agree() {
    let mut stage = uninitialized(Level::Raid1, 2);
    stage.write(0, BAND, 1).expect("it works");
    assert_eq!(written_by_read(&mut stage, 3), []);
    stage.write(BAND, BAND - 1, 2).expect("it works");
    let last = 2 * BAND - 1;
    assert_eq!(written_by_read(&mut stage, last), [BAND_BYTES]);
    let seen = stage.read(0, last, 1);
    stage.fail(0).expect("allowed");
    assert_eq!(stage.read(0, last, 1), seen);
    stage.verify(last);
}

/// The initialization leaves alone what reads have made agree, and only that: not the other strip of the same band.
#[test]
fn an_initialization_goes_on_behind_reads() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid10, 4)] {
        let mut stage = uninitialized(level, members);
        stage.read(0, 0, 1).expect("it can be read");
        stage.watch();
        stage.array().set_maintenance(Maintenance::default());
        stage.until("the initialization", |stage| stage.status().resync.is_none());
        let seen = stage.seen();
        let first = |io: &&Seen| io.op == 'w' && !io.done && io.byte == DATA;
        let other_strip = if level == Level::Raid1 { 0 } else { 2 };
        assert_eq!(seen.iter().filter(first).count(), other_strip, "{level:?}");
        for pair in stage.disks.chunks(2) {
            let [a, b] = [0, 1].map(|at: usize| {
                let mut bytes = vec![0; 1 << 20];
                pair[at].ram.read_at(DATA, &mut bytes).expect("inside");
                bytes
            });
            assert!(a == b, "{level:?}: copies differ");
        }
        assert_eq!(written_by_read(&mut stage, BAND), []);
    }
}

/// A part was made to agree while a member was out: that one has it from its rebuild.
#[test]
fn a_part_that_agreed_without_a_member_is_rebuilt_on_it() {
    let Differing { mut stage, .. } = differing(Level::Raid1, 3, 1);
    stage.fail(2).expect("allowed");
    assert_ne!(written_by_read(&mut stage, 7), []);
    assert_eq!(written_by_read(&mut stage, 7), []);
    stage.readd(2).expect("it is the member");
    stage.array().set_maintenance(Maintenance::default());
    stage.healthy();
    stage.until("the end of the resync", |stage| stage.status().resync.is_none());
    let seen = stage.read(0, 0, BAND);
    for out in 0..2 {
        stage.fail(out).expect("allowed");
        assert_eq!(stage.read(0, 0, BAND), seen, "without {out}");
    }
}

/// A block that no copy could show was not compared. It is made to agree when it can be read again. The others of its
/// strip agree meanwhile, and are not written again.
#[test]
fn copies_that_could_not_be_read_are_not_taken_to_agree() {
    let Differing { mut stage, newest, place } = differing(Level::Raid1, 2, 1);
    let block = LbaRange::new(place.start, 1);
    for disk in &stage.disks {
        let fail = Effect::Fail(IoErrorKind::Medium);
        disk.plan.add(Rule::new(Ops::READ, fail).within(block));
    }
    stage.read(0, 8, 1).expect("other blocks can be read");
    stage.read(0, 7, 1).expect_err("no copy can be read");
    assert_eq!(written_by_read(&mut stage, 9), []);
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    let seen = stage.read(0, 7, 1);
    assert_eq!(seen, Ok(new()));
    stage.fail(newest as u8).expect("allowed");
    assert_eq!(stage.read(0, 7, 1), seen);
}

/// A mirror, or mirrors, whose resync met a block of the write that no copy could show. All copies can be read again.
fn resynced_around_a_block(level: Level, members: usize) -> Differing {
    resynced_on(Set::new(level, members), None)
}

/// The same of `set`, in which `newest` has the write.
pub fn resynced_on(set: Set, newest: Option<usize>) -> Differing {
    let (level, members) = (set.level, set.members);
    let Differing { mut stage, newest, place } = differing_on(set, newest);
    stage.down();
    let block = LbaRange::new(place.start, 1);
    for member in holders(level, members, newest) {
        let fail = Effect::Fail(IoErrorKind::Medium);
        stage.disks[member].plan.add(Rule::new(Ops::READ, fail).within(block));
    }
    stage.set.options.maintenance.paused = false;
    stage.again(STRICTLY);
    stage.until("the end of the resync", |stage| stage.status().resync.is_none());
    stage.read(0, 7, 1).expect_err("no copy can be read");
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    Differing { stage, newest, place }
}

/// Returns the members with a copy of block 7.
fn holders(level: Level, members: usize, newest: usize) -> Vec<usize> {
    if level == Level::Raid1 { (0..members).collect() } else { vec![newest, newest ^ 1] }
}

/// The resync listed a block that no copy could show, and its region was trusted. When the drives could read it again,
/// a read took one copy off the list, and later reads returned another one.
#[test]
fn a_listed_block_that_copies_show_again_is_repeatable() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid10, 4)] {
        let Differing { newest, .. } = differing(level, members, 1);
        for out in holders(level, members, newest) {
            let Differing { mut stage, .. } = resynced_around_a_block(level, members);
            let seen = stage.read(0, 5, 4).expect("it can be read");
            assert_eq!(stage.status().bad_ranges, [], "{level:?}");
            for _ in 0..4 {
                assert_eq!(stage.read(0, 5, 4).as_ref(), Ok(&seen), "{level:?} x{members}");
            }
            stage.fail(out as u8).expect("allowed");
            assert_eq!(stage.read(0, 5, 4), Ok(seen), "{level:?} x{members} without {out}");
        }
    }
}

/// A member is out while the block is read from another copy, and comes back. Nothing was written, so no rebuild fills
/// its copy.
#[test]
fn a_listed_copy_that_was_out_when_another_was_read_is_not_returned() {
    for out in 0..2 {
        let Differing { mut stage, .. } = resynced_around_a_block(Level::Raid1, 2);
        stage.pass(10);
        stage.fail(out).expect("allowed");
        let seen = stage.read(0, 7, 1).expect("the other copy can be read");
        stage.readd(out).expect("it is the member");
        stage.healthy();
        for read in 0..4 {
            assert_eq!(stage.read(0, 7, 1).as_ref(), Ok(&seen), "read {read}, {out} was out");
        }
        stage.fail(1 - out).expect("allowed");
        assert_eq!(stage.read(0, 7, 1), Ok(seen), "from the one that was out");
    }
}

/// A listed copy cannot be written when another one is read: its member goes out, and comes back.
#[test]
fn a_listed_copy_that_cannot_be_written_is_not_returned() {
    let went_out = (0..2).filter(|refusing| {
        let Differing { mut stage, place, .. } = resynced_around_a_block(Level::Raid1, 2);
        stage.pass(10);
        let refuse = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device)).within(place);
        stage.disks[*refusing].plan.add(refuse);
        let seen = stage.read(0, 7, 1).expect("it can be read");
        stage.rounds(1000);
        stage.disks[*refusing].plan.clear();
        let is_out = stage.state(*refusing) == MemberState::Faulty;
        if is_out {
            stage.readd(*refusing as u8).expect("it is the member");
            stage.healthy();
        }
        stage.fail(1 - *refusing as u8).expect("allowed");
        let after = if is_out { Err(IoErrorKind::Lost) } else { Ok(seen) };
        assert_eq!(stage.read(0, 7, 1), after, "{refusing} refuses");
        is_out
    });
    assert_eq!(went_out.count(), 1, "the one that was not read");
}

/// The list is full, so that the copy of the member that is out cannot be set apart. The other one is not returned.
#[test]
fn a_full_list_that_can_hide_no_copy_keeps_the_block_lost() {
    let Differing { mut stage, newest, .. } = differing(Level::Raid1, 2, 1);
    let mut list = BadList::default();
    for member in [0, 1].map(MemberIndex) {
        list.note(member, LbaRange::new(Lba(6), 3), BadEvent::Unreadable).expect("there is room");
    }
    stage.crowd_bad_blocks_around(list, 0);
    stage.again(STRICTLY);
    stage.fail(newest as u8).expect("allowed");
    assert_eq!(stage.read(0, 7, 1), Err(IoErrorKind::Medium));
}

/// Members 0 to 2 had listed copies of block 7, and the last one was replaced, so that its copy is not listed. Each of
/// the three copies comes first for one `turn`.
fn replaced_beside_listed_copies(turn: usize) -> Stage {
    replaced_on(Set::new(Level::Raid1, 3), turn).stage
}

/// The same of `set`.
pub fn replaced_on(set: Set, turn: usize) -> Differing {
    let Differing { mut stage, newest, place } = resynced_on(set, None);
    assert_eq!(newest, 0, "the one that the last is filled from");
    stage.fail_and_replace(2);
    stage.healthy();
    for _ in 0..turn {
        stage.read(0, 5, 1).expect("it can be read");
    }
    Differing { stage, newest, place }
}

/// Reads block 7 from all copies, then without each of the members `outs`.
pub fn reads_while_members_leave<const N: usize>(stage: &mut Stage, outs: [u8; N]) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(stage.read(0, 7, 1).expect("it can be read"));
    }
    for out in outs {
        stage.fail(out).expect("allowed");
        seen.push(stage.read(0, 7, 1).expect("it can be read"));
    }
    seen
}

/// A member was rebuilt from a listed copy, so that its own is not listed. Reads return that one, and write it to the
/// others first.
#[test]
fn a_copy_of_a_listed_block_is_not_returned_before_the_others_agree() {
    for turn in 0..3 {
        for outs in [[2, 0], [0, 1], [1, 2]] {
            let mut stage = replaced_beside_listed_copies(turn);
            let seen = reads_while_members_leave(&mut stage, outs);
            assert!(seen.iter().all(|read| *read == new()), "turn {turn}, {outs:?} out");
        }
    }
}

/// The copy that is not listed is out while a listed one is read, and comes back. It may differ from what was read.
#[test]
fn a_copy_that_was_out_when_a_listed_one_was_read_is_not_returned() {
    for turn in 0..3 {
        let mut stage = replaced_beside_listed_copies(turn);
        stage.pass(10);
        stage.fail(2).expect("allowed");
        let first = stage.read(0, 7, 1).expect("listed copies can be read");
        stage.readd(2).expect("it is the member");
        stage.healthy();
        let seen = reads_while_members_leave(&mut stage, [0, 1]);
        assert!(seen.iter().all(|read| *read == first), "turn {turn}");
    }
}

/// A second member is rebuilt from the copy that is not listed: from a listed one, it would differ from the first.
#[test]
fn a_rebuild_prefers_a_copy_that_is_not_listed() {
    for turn in 0..3 {
        let mut stage = replaced_beside_listed_copies(turn);
        stage.fail_and_replace(0);
        stage.healthy();
        let seen = reads_while_members_leave(&mut stage, [2, 1]);
        assert!(seen.iter().all(|read| *read == new()), "turn {turn}");
    }
}

/// The only copy that is not listed is out while another member is rebuilt from a listed one, and comes back.
#[test]
fn a_copy_that_was_out_when_a_listed_one_was_rebuilt_from_is_not_returned() {
    for turn in 0..3 {
        let mut stage = replaced_beside_listed_copies(turn);
        stage.pass(10);
        stage.fail(2).expect("allowed");
        stage.fail_and_replace(0);
        stage.until("the rebuild", |stage| stage.state(0) == MemberState::InSync);
        stage.readd(2).expect("it is the member");
        stage.healthy();
        let seen = reads_while_members_leave(&mut stage, [0, 1]);
        assert!(seen.iter().all(|read| *read == seen[0]), "turn {turn}");
    }
}

/// The list is full. Copies that come off it make room for the one that has to be hidden.
#[test]
fn copies_that_agree_make_room_for_one_to_hide() {
    let mut stage = Set::new(Level::Raid1, 3).filled(200, 50, 3);
    let mut list = BadList::default();
    for member in [0, 1].map(MemberIndex) {
        list.note(member, LbaRange::new(Lba(7), 1), BadEvent::Unreadable).expect("there is room");
    }
    stage.crowd_bad_blocks_around(list, 0);
    assert_eq!(stage.restart(), 0, "the region is trusted");
    stage.fail(2).expect("allowed");
    assert_eq!(stage.status().bad_ranges[0], (7 * 512, 512));
    stage.verify(8);
}

/// The unlisted copy cannot be read, and a listed one that differs is written to it. Then the power fails. The list no
/// longer names the blocks, so what was written has to be stable on every copy.
#[test]
fn a_listed_copy_that_is_read_is_stable_on_copies_that_are_not_listed() {
    let older = (0..3).filter(|turn| {
        let set = Set { cached: true, ..Set::new(Level::Raid1, 3) };
        let Differing { mut stage, place, .. } = replaced_on(set, *turn);
        stage.pass(10);
        let fail = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
        stage.disks[2].plan.add(fail.within(LbaRange::new(place.start, 1)));
        let seen = stage.read(0, 7, 1).expect("listed copies can be read");
        stage.down();
        for disk in &stage.disks {
            disk.plan.clear();
            disk.plan.power_cut_with(|_| Fate::Drop);
        }
        assert_eq!(stage.again(STRICTLY), 0, "the region is trusted");
        let after = reads_while_members_leave(&mut stage, [0, 1]);
        assert!(after.iter().all(|read| *read == seen), "turn {turn}");
        seen != new()
    });
    assert_ne!(older.count(), 0, "no turn read the copy that differs from the unlisted one");
}

/// No copy shows a block, and a full list cannot take it. Then one drive shows it: a read returned that copy, its
/// member went out, and the next read returned another one.
#[test]
fn a_block_that_a_full_list_cannot_take_is_not_returned_before_copies_agree() {
    for times in 8..13 {
        let Differing { mut stage, place, .. } = differing(Level::Raid1, 2, 1);
        stage.crowd_bad_blocks(0);
        stage.again(STRICTLY);
        let fail = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
        let fail = fail.within(LbaRange::new(place.start, 1));
        stage.disks[1].plan.add(fail);
        for _ in 0..times {
            stage.disks[0].plan.add(fail.when(When::Nth(1)));
        }
        let mut reads = std::iter::repeat_with(|| stage.read(0, 7, 1)).take(10);
        let seen = reads.find(Result::is_ok).expect("one copy can be read in the end");
        stage.disks.iter().for_each(|disk| disk.plan.clear());
        stage.fail(0).expect("allowed");
        assert_eq!(stage.read(0, 7, 1), seen, "member 0 fails {times} reads");
    }
}

/// A full list of bad blocks keeps a block of the band from being listed. Others agree and can be read nevertheless.
#[test]
fn a_full_list_of_bad_blocks_is_not_in_the_way_of_other_blocks() {
    let Differing { mut stage, newest, place } = differing(Level::Raid1, 2, 1);
    stage.crowd_bad_blocks(0);
    stage.again(STRICTLY);
    let block = LbaRange::new(Lba(place.start.0 + 8), 1);
    for disk in &stage.disks {
        let fail = Effect::Fail(IoErrorKind::Medium);
        disk.plan.add(Rule::new(Ops::READ, fail).within(block));
    }
    assert_eq!(stage.read(0, 7, 1), Ok(new()));
    stage.fail(newest as u8).expect("allowed");
    assert_eq!(stage.read(0, 7, 1), Ok(new()));
}

/// A full list kept one block of a read from coming off it, and the blocks behind it were returned without a
/// comparison.
#[test]
fn a_full_list_of_bad_blocks_is_not_in_the_way_of_the_blocks_behind() {
    let Differing { mut stage, newest, place } = differing(Level::Raid1, 2, 1);
    let mut list = BadList::default();
    let around = LbaRange::new(Lba(6), 3);
    let newest_member = MemberIndex(newest as u8);
    list.note(newest_member, around, BadEvent::Unreadable).expect("there is room");
    stage.crowd_bad_blocks_around(list, 0);
    stage.again(STRICTLY);
    for (member, at) in [(newest, 0), (1 - newest, 1)] {
        let fail = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
        let block = LbaRange::new(place.start.plus(at), 1);
        stage.disks[member].plan.add(fail.within(block));
    }
    let seen = stage.read(0, 7, 4).expect("each block can be read on a copy");
    stage.fail(newest as u8).expect("allowed");
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    assert_eq!(stage.read(0, 9, 2), Ok(seen[2 * 512..].to_vec()));
}
