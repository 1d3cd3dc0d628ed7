//! Tests of replacements of serving members.

use strake_block::{IoErrorKind, Op};
use strake_dev_mem::{Effect, Ops, Rule, When};
use strake_engine::{ArrayEventKind, Replacing, prepare_drive};
use strake_ondisk::{AreaLayout, Copy};
use strake_raid::{Level, MemberState};
use strake_units::{MemberIndex, MemberSet, Nanos, Uuid};

use crate::stage::{DEGRADED, Disk, LOSSY, STRICTLY, Set, Stage};

pub fn large(level: Level, members: usize, cores: u16) -> Stage {
    let merge = Set::new(level, members).options.merge;
    large_merging(level, members, cores, merge)
}

fn large_merging(level: Level, members: usize, cores: u16, merge: bool) -> Stage {
    let mut set = Set::new(level, members);
    set.options.merge = merge;
    set.cores = cores;
    set.queues = (0..cores).collect();
    set.strip = 64 << 10;
    set.disk_bytes = 60 << 20;
    let mut stage = set.filled(40_000, 1000, 3);
    stage.healthy();
    stage
}

/// Starts the replacement of `member`, which is in use.
pub fn begin(stage: &mut Stage, member: u8) -> (Replacing, Disk) {
    let disk = stage.spare();
    let uuid = Uuid([200 + member; 16]);
    prepare_drive(&disk.drive, uuid, &mut || Some(Nanos(0))).expect("the drive works");
    let replacing = stage.array().begin_replace(MemberIndex(member), &disk.drive, uuid);
    (replacing.expect("it is in use"), disk)
}

fn replaced(stage: &Stage, member: usize, disk: &Disk) -> bool {
    let status = &stage.status().members[member];
    status.path == disk.drive.path && status.replacement.is_empty()
}

fn kinds(stage: &Stage) -> Vec<ArrayEventKind> {
    stage.array().drain_events().into_iter().map(|e| e.kind).collect()
}

/// Checks that the data is correct without `others`.
fn right_without(stage: &mut Stage, others: &[u8]) {
    for member in others {
        stage.fail(*member).expect("redundancy is left");
    }
    stage.verify(40_000);
}

/// In md (e7c0c3fa2928), a write that was acknowledged during the completion of a replacement was lost, because only
/// the old drive received it.
#[test]
fn b04_a_write_at_every_step_of_a_replacement_is_kept() {
    for (level, members, cores, others) in [
        (Level::Raid5, 3, 1, &[0u8][..]),
        (Level::Raid1, 2, 2, &[0]),
        (Level::Raid6, 4, 3, &[0, 2]),
    ] {
        let mut stage = large(level, members, cores);
        let (mut replacing, disk) = begin(&mut stage, 1);
        let mut step = 0u64;
        let mut ids = Vec::new();
        let mut after = 0;
        while after < 30 {
            let _ = replacing.poll();
            let place = (step * 977) % 39_990;
            let op = stage.write_op(place, 8, step);
            stage.expect(place, 8, step);
            let queue = (step as usize) % stage.queues.len();
            ids.push(stage.submit(queue, op));
            stage.round();
            // Overlapping writes have no order, so that the next write to the same blocks waits.
            if ids.len() == 8 {
                for id in ids.drain(..) {
                    assert_eq!(stage.result(id), Ok(()));
                }
            }
            step += 1;
            after += u64::from(replaced(&stage, 1, &disk));
            assert!(step < 1_000_000, "{:?}", stage.status());
        }
        for id in ids.drain(..) {
            assert_eq!(stage.result(id), Ok(()));
        }
        stage.disks[1] = disk;
        stage.healthy();
        let stripes = stage.status().geometry.stripes();
        if level != Level::Raid1 {
            stage.check_parity(stripes);
        }
        right_without(&mut stage, others);
        assert!(kinds(&stage).contains(&ArrayEventKind::ReplaceFinished));
    }
}

/// The member fails after a part of it was copied: only the rest is reconstructed from the other members.
#[test]
fn md_01_the_member_fails_while_it_is_copied() {
    for rounds in (0..600).step_by(41) {
        let mut stage = large(Level::Raid5, 3, 2);
        let (mut replacing, disk) = begin(&mut stage, 1);
        poll_for(&mut stage, &mut replacing, rounds);
        stage.until("the answer", |_| replacing.poll().is_some());
        let op = stage.write_op(7, 900, rounds);
        stage.expect(7, 900, rounds);
        let id = stage.submit(0, op);
        stage.fail(1).expect("redundancy is left");
        assert_eq!(stage.result(id), Ok(()));
        stage.until("the replacement in its place", |stage| replaced(stage, 1, &disk));
        stage.fill(3000, 100, rounds + 5);
        stage.healthy();
        stage.disks[1] = disk;
        stage.verify(40_000);
        stage.check_all_parity();
        right_without(&mut stage, &[0]);
    }
}

/// Returns true if the status contains the new drive as the member. The identity, state and history must then be those
/// of the new drive.
fn shown(stage: &Stage, disk: &Disk) -> bool {
    let status = &stage.status().members[1];
    let new = status.path == disk.drive.path;
    assert_eq!(new, status.uuid == Uuid([201; 16]), "{status:?}");
    if new {
        assert!(
            matches!(status.state, MemberState::Rebuilding { .. } | MemberState::InSync)
                && status.cause.is_none()
                && status.replacement.is_empty(),
            "{status:?}"
        );
    }
    new
}

/// The history of the bug: until the labels were written, the status reported the new drive as faulty, because the
/// previous drive was faulty.
#[test]
fn a_new_drive_is_never_shown_with_the_state_of_the_one_before() {
    let mut stage = large(Level::Raid5, 3, 2);
    stage.fail(1).expect("redundancy is left");
    let (mut replacing, disk) = begin(&mut stage, 1);
    stage.until("the new drive", |stage| {
        let _ = replacing.poll();
        shown(stage, &disk)
    });
    // The member is copied and fails during the copy.
    let mut stage = large(Level::Raid5, 3, 2);
    let (mut replacing, disk) = begin(&mut stage, 1);
    stage.until("the copy", |stage| {
        let begun = replacing.poll().is_some();
        assert!(!shown(stage, &disk));
        begun
    });
    let _failing = stage.array().begin_fail(MemberIndex(1)).expect("there is a member 1");
    stage.until("the new drive", |stage| shown(stage, &disk));
}

/// The new drive fails at any point: the array is unchanged.
#[test]
fn the_replacement_fails_and_the_member_keeps_its_slot() {
    for nth in [1, 2, 40, 300, 650, 700, 720, 740] {
        let mut stage = large(Level::Raid5, 3, 2);
        let (mut replacing, disk) = begin(&mut stage, 1);
        disk.plan.add(Rule::new(Ops::WRITE, Effect::Vanish).when(When::Nth(nth)));
        stage.until("the answer", |_| replacing.poll().is_some());
        stage.fill(3000, 100, 5);
        stage.until("an end", |stage| stage.status().members[1].replacement.is_empty());
        stage.rounds(300);
        if replaced(&stage, 1, &disk) {
            // The new drive was the member before it failed.
            continue;
        }
        assert_eq!(stage.state(1), MemberState::InSync, "write {nth}");
        right_without(&mut stage, &[0]);
    }
}

/// The host fails at any point: one of the two drives is the member and contains all data.
#[test]
fn a_crash_at_any_point_of_a_replacement_leaves_one_whole_member() {
    for rounds in (0..1400).step_by(67) {
        let mut stage = large(Level::Raid5, 3, 2);
        let (mut replacing, disk) = begin(&mut stage, 1);
        poll_for(&mut stage, &mut replacing, rounds);
        stage.fill(2000, 100, rounds);
        poll_for(&mut stage, &mut replacing, rounds);
        drop(replacing);
        stage.down();
        stage.disks.push(disk);
        stage.again(DEGRADED);
        stage.verify_rebuilt(40_000);
        right_without(&mut stage, &[0]);
    }
}

/// An unreadable block is reconstructed from the rest of its stripe.
#[test]
fn an_unreadable_block_of_the_member_does_not_stop_the_copy() {
    let mut stage = large(Level::Raid5, 3, 1);
    let (member, byte) = stage.home(500);
    let range = stage.on_disk(byte, 8);
    let medium = Effect::Fail(IoErrorKind::Medium);
    stage.disks[member].plan.add(Rule::new(Ops::READ, medium).within(range));
    let (mut replacing, disk) = begin(&mut stage, member as u8);
    until_replaced(&mut stage, &mut replacing, member, &disk);
    stage.disks[member] = disk;
    let other = if member == 0 { 1 } else { 0 };
    right_without(&mut stage, &[other]);
}

/// The operator cancels the replacement.
#[test]
fn a_replacement_that_is_cancelled_changes_nothing() {
    let mut stage = large(Level::Raid5, 3, 2);
    let (mut replacing, disk) = begin(&mut stage, 1);
    stage.until("the answer", |_| replacing.poll().is_some());
    stage.rounds(50);
    let pending = stage.array().begin_cancel_replace(MemberIndex(1)).expect("a member");
    stage.asked(pending).expect("it is being replaced");
    stage.fill(2000, 100, 8);
    assert!(!replaced(&stage, 1, &disk));
    assert!(kinds(&stage).contains(&ArrayEventKind::ReplaceAbandoned { cause: None }));
    let pending = stage.array().begin_cancel_replace(MemberIndex(1)).expect("a member");
    assert!(stage.asked(pending).is_err());
    right_without(&mut stage, &[0]);
}

/// The history of the bug: a flush of a drive was in progress when the replacement of its member with this drive was
/// cancelled. The time limit of the flush was counted against the next drive, which was the member by then.
#[test]
fn a_cancelled_replacement_does_not_count_against_the_next_drive() {
    let set = Set { cached: true, disk_bytes: 60 << 20, ..Set::new(Level::Raid6, 5) };
    let mut stage = set.filled(40_000, 1000, 3);
    let (mut replacing, first) = begin(&mut stage, 1);
    stage.until("the answer", |_| replacing.poll().is_some());
    drop(replacing);
    first.hang(Ops::FLUSH);
    let id = stage.submit(0, Op::Flush);
    stage.rounds(50);
    let pending = stage.array().begin_cancel_replace(MemberIndex(1)).expect("a member");
    stage.asked(pending).expect("it is being replaced");
    let (mut replacing, second) = begin(&mut stage, 1);
    until_replaced(&mut stage, &mut replacing, 1, &second);
    assert!(!stage.answers.contains_key(&id), "the first drive still has the flush");
    stage.pass(10);
    assert_eq!(stage.result(id), Ok(()));
    assert_eq!(stage.state(1), MemberState::InSync, "the first drive hung, not this one");
    first.answer();
    stage.disks[1] = second;
    right_without(&mut stage, &[0]);
}

/// Continues the copy until all blocks are copied.
pub fn until_copied(stage: &mut Stage, replacing: &mut Replacing) {
    stage.until("all is copied", |stage| {
        let _ = replacing.poll();
        stage.status().replace.is_some_and(|copy| copy.done_bytes == copy.total_bytes)
    });
}

pub fn poll_for(stage: &mut Stage, replacing: &mut Replacing, rounds: u64) {
    for _ in 0..rounds {
        let _ = replacing.poll();
        stage.round();
    }
}

pub fn until_replaced(stage: &mut Stage, replacing: &mut Replacing, member: usize, disk: &Disk) {
    stage.until("the swap", |stage| {
        let _ = replacing.poll();
        replaced(stage, member, disk)
    });
}

/// Members of every level are copied, and the remaining drives contain all data.
#[test]
fn a_member_of_every_level_is_replaced_while_it_serves() {
    for (level, members, others) in
        [(Level::Raid0, 3, &[][..]), (Level::Raid1, 2, &[1u8]), (Level::Raid10, 4, &[1, 2])]
    {
        let mut stage = large(level, members, 2);
        let (mut replacing, disk) = begin(&mut stage, 0);
        stage.until("the answer", |_| replacing.poll().is_some());
        let status = stage.status();
        assert!(status.replace.is_some(), "{level:?}");
        assert_eq!(status.members[0].replacement, disk.drive.path);
        stage.fill(5000, 100, 77);
        until_replaced(&mut stage, &mut replacing, 0, &disk);
        assert!(stage.status().replace.is_none());
        stage.disks[0] = disk;
        stage.healthy();
        right_without(&mut stage, others);
        stage.stop().expect("clean");
        stage.again(DEGRADED);
        stage.verify(40_000);
    }
}

/// B04 from the view of the old drive: RAID 10 of md continued to write to the old drive after the replacement had
/// become the member (`e7c0c3fa2928`), so that the old drive was newer. In this test, the old drive is present again,
/// alone or with the others: it is not a member.
#[test]
fn b04_the_old_drive_comes_back_and_is_not_the_member() {
    for level in [Level::Raid1, Level::Raid5] {
        let mut stage = large(level, if level == Level::Raid1 { 2 } else { 3 }, 1);
        let (mut replacing, disk) = begin(&mut stage, 1);
        until_replaced(&mut stage, &mut replacing, 1, &disk);
        let old = std::mem::replace(&mut stage.disks[1], disk);
        stage.fill(2000, 100, 9);
        // The slot is free, but the old drive is still not its member.
        stage.fail(1).expect("redundancy is left");
        let label = stage.label(&old);
        assert!(stage.array().check_readd(MemberIndex(1), &old.drive, &label).is_err());
        stage.stop().expect("clean");
        let all = std::mem::replace(&mut stage.disks, vec![old]);
        assert!(stage.find_any(DEGRADED).is_none(), "an array on a drive that belongs to none");
        stage.disks.extend(all);
        stage.again(DEGRADED);
        assert_ne!(stage.state(1), MemberState::InSync);
        stage.verify(40_000);
    }
}

/// When the replacement of md became the member, a write reached only the old drive (B04, `e7c0c3fa2928`). In this
/// test, the host fails at this time, during the label updates, and some of the drives do not return.
#[test]
fn b04_a_crash_between_labels_leaves_one_member() {
    for extra in (0..60).step_by(3) {
        for lost in [None, Some(1), Some(3)] {
            let mut stage = large(Level::Raid5, 3, 1);
            let (mut replacing, disk) = begin(&mut stage, 1);
            until_copied(&mut stage, &mut replacing);
            stage.rounds(extra);
            drop(replacing);
            stage.down();
            stage.disks.push(disk);
            if let Some(lost) = lost {
                stage.disks.remove(lost);
            }
            stage.again(LOSSY);
            stage.verify(40_000);
            if lost.is_none() {
                stage.healthy();
                right_without(&mut stage, &[0]);
            }
        }
    }
}

/// Of the two drives of a replacement, md used the wrong one (B04, `e7c0c3fa2928`). In this test, one of them is
/// removed during the label updates, and the other one is the member. Without merges, writes wait for each other: one
/// write failed to read the old drive, avoided it, and was acknowledged when the new drive was the member, although
/// neither drive had received it.
#[test]
fn b04_either_drive_goes_while_the_labels_change_hands() {
    for extra in (0..60).step_by(4) {
        for (old_goes, merge) in [(true, true), (true, false), (false, true)] {
            let mut stage = large_merging(Level::Raid5, 3, 2, merge);
            let (mut replacing, disk) = begin(&mut stage, 1);
            until_copied(&mut stage, &mut replacing);
            stage.rounds(extra);
            let plan = if old_goes { &stage.disks[1].plan } else { &disk.plan };
            plan.add(Rule::new(Ops::WRITE, Effect::Vanish));
            stage.fill(3000, 100, extra + 9);
            stage.until("an end", |stage| {
                let member = &stage.status().members[1];
                member.replacement.is_empty()
                    && !matches!(member.state, MemberState::Rebuilding { .. })
            });
            stage.rounds(300);
            if replaced(&stage, 1, &disk) {
                stage.disks[1] = disk;
            }
            stage.verify(40_000);
            if stage.state(1) == MemberState::InSync {
                right_without(&mut stage, &[0]);
            } else {
                assert!(
                    !old_goes,
                    "the new drive is whole {extra} {:?} {:?}",
                    stage.status().members[1],
                    kinds(&stage)
                );
            }
        }
    }
}

/// Another member fails during the copy: the copy continues, because it does not need the other members.
#[test]
fn md_02_another_member_fails_while_one_is_copied() {
    for rounds in [0, 120, 400] {
        let mut stage = large(Level::Raid5, 3, 2);
        let (mut replacing, disk) = begin(&mut stage, 1);
        stage.until("the answer", |_| replacing.poll().is_some());
        stage.rounds(rounds);
        stage.fail(0).expect("redundancy is left");
        stage.fill(3000, 100, rounds + 1);
        until_replaced(&mut stage, &mut replacing, 1, &disk);
        stage.disks[1] = disk;
        stage.verify(40_000);
        stage.replace(0).expect("it is out");
        stage.healthy();
        right_without(&mut stage, &[2]);
    }
}

/// Both drives of the pair fail: the array continues without the member.
#[test]
fn md_03_the_member_and_its_replacement_fail() {
    for (nth, replacement_first) in [(1, true), (40, true), (1, false), (40, false)] {
        let mut stage = large(Level::Raid5, 3, 2);
        let (mut replacing, disk) = begin(&mut stage, 1);
        stage.until("the answer", |_| replacing.poll().is_some());
        let vanish = || Rule::new(Ops::WRITE, Effect::Vanish);
        let (first, second) = if replacement_first {
            (&disk.plan, &stage.disks[1].plan)
        } else {
            (&stage.disks[1].plan, &disk.plan)
        };
        first.add(vanish().when(When::Nth(nth)));
        second.add(vanish().when(When::Nth(nth + 5)));
        for seed in 0..50 {
            stage.fill(3000, 100, seed);
        }
        stage.until("an end", |stage| stage.status().members[1].replacement.is_empty());
        assert!(matches!(stage.state(1), MemberState::Faulty | MemberState::Missing));
        stage.verify(40_000);
        drop(replacing);
        stage.replace(1).expect("it is out");
        stage.healthy();
        right_without(&mut stage, &[0]);
    }
}

/// F08: an unreadable block cannot be reconstructed. It is listed, and all other blocks are copied.
#[test]
fn f08_a_block_that_is_lost_does_not_stop_the_copy() {
    let mut stage = large(Level::Raid0, 3, 1);
    let (member, byte) = stage.home(500);
    let medium = Effect::Fail(IoErrorKind::Medium);
    stage.disks[member].plan.add(Rule::new(Ops::READ, medium).within(stage.on_disk(byte, 1)));
    let (mut replacing, disk) = begin(&mut stage, member as u8);
    until_replaced(&mut stage, &mut replacing, member, &disk);
    stage.disks[member] = disk;
    for _ in 0..2 {
        let bytes = 1 << stage.size.shift();
        assert_eq!(stage.status().bad_ranges, vec![(500 * bytes, bytes)]);
        assert!(stage.read(0, 500, 1).is_err());
        assert!(stage.read(0, 499, 1).is_ok());
        stage.restart();
    }
    stage.write(500, 1, 8).expect("writing heals it");
    assert!(stage.status().bad_ranges.is_empty());
    stage.verify(40_000);
}

/// The history of the bug: only the replaced drive and a drive that is out were present. The label of the replaced
/// drive recorded it as in sync, and the array started from its content at the time of the replacement.
#[test]
fn f16_the_drive_that_was_replaced_starts_nothing() {
    let mut stage = large(Level::Raid1, 2, 2);
    stage.fail(0).expect("redundancy is left");
    let (mut replacing, disk) = begin(&mut stage, 1);
    until_replaced(&mut stage, &mut replacing, 1, &disk);
    stage.fill(2000, 100, 4);
    stage.down();
    // Only the old drives are present.
    for policy in [STRICTLY, DEGRADED] {
        assert!(!matches!(stage.find(policy), strake_engine::Outcome::Ready(_)));
    }
    stage.disks[1] = disk;
    stage.again(DEGRADED);
    stage.verify(40_000);
}

/// A removed drive also removes its log, and possibly the only headers that prove that older records are done: records
/// from before the replacement must no longer count.
#[test]
fn records_from_before_a_swap_no_longer_count() {
    let mut stage = Set::strict(Level::Raid6, 4).filled(2000, 170, 3);
    stage.healthy();
    stage.until("the log being relied on", |stage| stage.status().logged == MemberSet::first_n(4));
    let (mut replacing, disk) = begin(&mut stage, 1);
    until_replaced(&mut stage, &mut replacing, 1, &disk);
    stage.until("the log beginning anew", |stage| {
        let label = stage.array().newest_label();
        label.logged == MemberSet::first_n(4)
            && label.logged_since >= label.members[1].in_sync_generation
    });
    stage.verify(2000);
}

/// The history of the bug: all blocks were copied, and while another drive delayed the exchange, a write to the new
/// drive hung. The new drive became the member nevertheless, and because no other copy was left, the array failed
/// (operators' seed 22).
#[test]
fn a_drive_that_hangs_does_not_take_the_place_of_one_that_serves() {
    let mut stage = large(Level::Raid1, 2, 1);
    let (mut replacing, disk) = begin(&mut stage, 1);
    let pages = stage.on_disk(1 << 20, (1056 << 10) >> stage.size.shift());
    stage.disks[0].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(pages));
    until_copied(&mut stage, &mut replacing);
    stage.rounds(300);
    let (_, byte) = stage.home(5);
    disk.plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(stage.on_disk(byte, 1)));
    let op = stage.write_op(5, 1, 9);
    stage.expect(5, 1, 9);
    let id = stage.submit(0, op);
    stage.rounds(300);
    stage.pass(6);
    stage.disks[0].answer();
    stage.until("the copy being given up", |stage| {
        let _ = replacing.poll();
        stage.status().members[1].replacement.is_empty()
    });
    assert_ne!(stage.status().members[1].path, disk.drive.path);
    stage.pass(31);
    assert_eq!(stage.result(id), Ok(()));
    stage.verify(40_000);
}

/// The history of the bug: the new drive had its label as the member when the exchange failed at the next write to it.
/// After all other members were gone, only the old member remained, and it did not have that label: with the new drive
/// attached, the array was refused as a fork (operators' seed 126579157044138).
#[test]
fn a_drive_that_failed_to_take_a_place_is_no_other_history() {
    let mut stage = large(Level::Raid1, 2, 1);
    let (mut replacing, disk) = begin(&mut stage, 1);
    let layout = AreaLayout::of(stage.set.disk_bytes).expect("large enough");
    let (ring, bytes) = layout.ring_range(Copy::Tail);
    let tail = stage.on_disk(ring, bytes >> stage.size.shift());
    disk.plan.add(Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device)).within(tail));
    stage.until("the answer", |_| replacing.poll().is_some());
    stage
        .until("the swap being given up", |stage| stage.status().members[1].replacement.is_empty());
    assert!(!replaced(&stage, 1, &disk));
    stage.fail_and_replace(0);
    stage.healthy();
    stage.down();
    stage.disks.push(disk);
    stage.again(STRICTLY);
    stage.verify_rebuilt(40_000);
}
