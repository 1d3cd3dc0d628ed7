//! Tests of metadata updates that are cut short, by a host failure or by a drive failure.

use std::collections::BTreeMap;

use strake_block::{DeallocateReads, IoErrorKind};
use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::{Maintenance, Outcome};
use strake_ondisk::{AreaLayout, Bitmap, Copy, PAGE_BYTES, RecordedState, SLOT_BYTES, newest_page};
use strake_raid::{Level, MemberState};
use strake_units::{Lba, LbaRange, MemberIndex};

use crate::replace::{begin, large, until_copied};
use crate::stage::{DEGRADED, Disk, LOSSY, STRICTLY, Set, Stage};

/// The ranges of labels and of bitmap pages on a member, in bytes.
const HEADS: std::ops::Range<u64> = 64 << 10..320 << 10;
const PAGES: std::ops::Range<u64> = 1 << 20..(1 << 20) + (1056 << 10);

pub fn bytes(range: std::ops::Range<u64>) -> LbaRange {
    LbaRange::new(Lba(range.start >> 9), (range.end - range.start) >> 9)
}

/// Returns the message about an array, or a text that the array can be started.
pub fn what(outcome: Outcome) -> String {
    match outcome {
        Outcome::Ready(_) => "ready".into(),
        Outcome::Waiting { what, .. } | Outcome::Refused { what, .. } => what,
    }
}

/// The history of the bug: two starts were cut short during the write of bitmap pages. The second was cut short in the
/// page that the last member used, and the other member was lost at the same time. The remaining page of the last
/// member was older than an acknowledged write, and a member that had been out was re-added without this write.
#[test]
fn pages_that_a_member_lacks_are_brought_there_before_newer_ones() {
    let mut stage = Set::new(Level::Raid1, 3).filled(2000, 100, 3);
    stage.pass(6);
    stage.fail(2).expect("allowed");
    stage.write(7, 4, 99).expect("works");
    stage.pass(6);
    let array = stage.status().uuid;
    stage.down();
    let layout = AreaLayout::of(stage.set.disk_bytes).expect("large enough");
    let bitmap = Bitmap::Member(MemberIndex(2));
    let page = |disk: &Disk, parity: u64| {
        let mut page = vec![0; PAGE_BYTES];
        disk.ram.read_at(layout.bitmap_page_offset(bitmap, 0, parity), &mut page).expect("inside");
        page
    };
    let sequence = |disk: &Disk| {
        let newest = newest_page(&page(disk, 0), &page(disk, 1), array, bitmap, 0);
        newest.map_or(0, |page| page.sequence)
    };
    let before = sequence(&stage.disks[1]);
    assert_eq!(before, sequence(&stage.disks[0]));
    // The first start is cut short after the write of the pages of member 0.
    let failing = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
    stage.disks[1].plan.add(failing.within(bytes(PAGES)));
    assert_ne!(what(stage.find(STRICTLY)), "ready");
    assert_eq!((sequence(&stage.disks[0]), sequence(&stage.disks[1])), (before + 1, before));
    stage.disks[1].plan.clear();
    // The second start is cut short during the write of the page that member 1 used until then.
    let place = layout.bitmap_page_offset(bitmap, 0, before);
    stage.disks[1].plan.add(failing.within(bytes(place..place + PAGE_BYTES as u64)));
    assert_ne!(what(stage.find(STRICTLY)), "ready");
    stage.disks[1].plan.clear();
    stage.disks[1].ram.write_at(place, &[0x5a; 512]).expect("inside");
    // Member 0 is lost at the same time.
    let lost = stage.disks.remove(0);
    stage.again(DEGRADED);
    stage.disks.insert(0, lost);
    stage.verify(2000);
    stage.readd(2).expect("it is the member");
    stage.until("filling it", |stage| stage.state(2) == MemberState::InSync);
    stage.fail(1).expect("another one is in sync");
    stage.verify(2000);
}

/// The history of the bug: a member went out between the write of the label of a replacement and those of the other
/// members. Two labels had the same generation, and the array was refused as a fork.
#[test]
fn a_member_goes_out_while_a_replacement_is_named() {
    let mut stage = large(Level::Raid1, 3, 1);
    stage.pass(6);
    let (mut replacing, disk) = begin(&mut stage, 1);
    disk.plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(bytes(HEADS)));
    until_copied(&mut stage, &mut replacing);
    stage.rounds(300);
    let failing = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
    stage.disks[2].plan.add(failing.within(bytes(PAGES)));
    let op = stage.write_op(5, 4, 9);
    stage.expect(5, 4, 9);
    let id = stage.submit(0, op);
    stage.rounds(300);
    disk.answer();
    assert_eq!(stage.result(id), Ok(()));
    stage.until("the swap", |stage| {
        let _ = replacing.poll();
        stage.status().members[1].replacement.is_empty()
    });
    assert_eq!(stage.status().members[1].path, disk.drive.path);
    assert_eq!(stage.state(2), MemberState::Faulty);
    stage.disks[2].plan.clear();
    drop(replacing);
    stage.down();
    stage.disks.push(disk);
    assert_eq!(what(stage.find(DEGRADED)), "ready");
}

/// The host failed when the replacement had its label and one member did not have it. If the other members had received
/// a label of the next generation, that member would have been two generations behind.
#[test]
fn a_label_that_names_a_replacement_has_one_number_for_all() {
    let mut stage = large(Level::Raid1, 3, 1);
    stage.pass(6);
    let (mut replacing, disk) = begin(&mut stage, 1);
    stage.disks[2].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(bytes(HEADS)));
    until_copied(&mut stage, &mut replacing);
    stage.rounds(300);
    drop(replacing);
    stage.down();
    stage.disks[2].plan.clear();
    let named = stage.label(&disk);
    assert!(named.members.iter().any(|row| row.uuid == named.member), "it takes the place");
    stage.disks.push(disk);
    assert_eq!(what(stage.find(STRICTLY)), "ready");
}

/// The history of the bug: a replacement failed the write of its label, and the host failed when all members except one
/// had the next label. That member was two generations behind, and was not used.
#[test]
fn a_replacement_that_fails_its_label_leaves_no_member_two_behind() {
    for (level, members) in [(Level::Raid5, 3), (Level::Raid6, 5)] {
        for late in 0..members {
            let mut stage = large(level, members, 1);
            stage.pass(6);
            let before = stage.label(&stage.disks[late]).generation;
            let (mut replacing, disk) = begin(&mut stage, 1);
            let failing = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
            disk.plan.add(failing.within(bytes(HEADS)));
            let hanging = Rule::new(Ops::WRITE, Effect::Hang).within(bytes(HEADS));
            stage.disks[late].plan.add(hanging);
            until_copied(&mut stage, &mut replacing);
            stage.rounds(300);
            drop(replacing);
            let newest = stage.disks.iter().map(|disk| stage.label(disk).generation).max();
            assert_eq!(newest, Some(before + 1), "member {late} is one behind");
            stage.disks.iter().for_each(|disk| disk.plan.clear());
            stage.again(STRICTLY);
            let states: Vec<_> = stage.status().members.iter().map(|m| m.state).collect();
            assert!(states.iter().all(|s| *s == MemberState::InSync), "{states:?}");
            stage.verify(40_000);
        }
    }
}

/// The history of the bug: only one member had received a label when the host failed, and this member was absent at the
/// next start. It then counted as a member that had continued without the array.
#[test]
fn a_label_that_only_one_has_who_is_away_for_a_start_is_no_history() {
    let mut stage = Set::new(Level::Raid6, 5).filled(2000, 170, 3);
    stage.pass(6);
    for member in [0, 2, 4] {
        let hanging = Rule::new(Ops::WRITE, Effect::Hang).within(bytes(HEADS));
        stage.disks[member].plan.add(hanging);
    }
    let _failing = stage.array().begin_fail(MemberIndex(3)).expect("there is a member 3");
    stage.rounds(300);
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    stage.down();
    let away = stage.disks.remove(1);
    stage.again(DEGRADED);
    stage.disks.insert(1, away);
    stage.write(5, 3, 8).expect("works");
    stage.readd(1).expect("it is the member");
    stage.verify_rebuilt(2000);
}

/// The history of the bug: only member 0 had received the first label of an activation when the host failed, and member
/// 0 was absent at the next start. It was then refused as a member that had continued without the array.
#[test]
fn f25_a_member_that_alone_got_the_label_of_a_start_is_taken_back() {
    let mut stage = Set::new(Level::Raid1, 2).filled(1000, 100, 3);
    stage.stop().expect("a clean stop");
    let failing = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
    let place = bytes(next_label(&stage, Copy::Head));
    stage.disks[1].plan.add(failing.within(place));
    assert_ne!(what(stage.find(STRICTLY)), "ready");
    stage.disks[1].plan.clear();
    let [own, other] = [0, 1].map(|at| stage.label(&stage.disks[at]));
    assert_eq!((own.generation, own.parent_epoch), (other.generation + 1, other.epoch));
    let away = stage.disks.remove(0);
    stage.again(DEGRADED);
    stage.disks.insert(0, away);
    stage.write(5, 3, 8).expect("works");
    stage.readd(0).expect("it is the member");
    stage.healthy();
    stage.fail(1).expect("the other one is in sync");
    stage.verify(1000);
}

/// The history of the bug: a member of a mirror was out during writes to the other member, and the host failed when
/// only the other member had the label that re-adds it. Then the first member was started alone, twice, with another
/// state directory, and was written. With both drives present, the array started from the first member, without the
/// writes to the other member.
#[test]
fn f18_two_histories_are_refused_although_one_calls_the_other_side_live() {
    for starts in 1..4 {
        let mut stage = Set::new(Level::Raid1, 2).filled(1000, 100, 3);
        stage.fail(0).expect("allowed");
        assert_eq!(stage.write(10, 5, 77), Ok(()), "acknowledged without member 0");
        let hanging = Rule::new(Ops::WRITE, Effect::Hang).within(bytes(HEADS));
        stage.disks[0].plan.add(hanging);
        let (label, drive) = (stage.label(&stage.disks[0]), stage.disks[0].drive.clone());
        let back = stage.array().begin_readd(MemberIndex(0), &drive, &label);
        let mut back = back.expect("it is the member");
        for _ in 0..300 {
            let _ = back.poll();
            stage.round();
        }
        drop(back);
        stage.down();
        stage.disks[0].plan.clear();
        let (own, taken) = (stage.label(&stage.disks[0]), stage.label(&stage.disks[1]));
        assert_eq!(own.generation + 2, taken.generation, "the label has reached drive 1 alone");
        assert_eq!(taken.members[0].state, RecordedState::Rebuilding);
        let other = stage.disks.remove(1);
        for start in 0..starts {
            stage.again(DEGRADED);
            assert_eq!(stage.write(20, 5, start), Ok(()), "acknowledged without member 1");
        }
        stage.down();
        stage.disks.push(other);
        for policy in [STRICTLY, DEGRADED] {
            let said = what(stage.find(policy));
            assert!(said.contains("started apart from each other"), "{starts} starts: {said}");
        }
    }
}

/// A page has two slots, and a start writes every page twice if it replays a log without a member. If these writes were
/// torn on all drives with the page, the newest copy would be lost.
#[test]
fn a_start_leaves_the_newest_copy_of_a_page_whole() {
    let mut stage = Set::strict(Level::Raid6, 6).filled(2000, 100, 3);
    let (stuck, byte) = stage.home(64);
    let place = stage.on_disk(byte, 1);
    stage.disks[stuck].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(place));
    stage.submit_write(0, 60, 50, 99);
    stage.rounds(300);
    stage.disks[stuck].plan.clear();
    let lost = (stuck + 1) % 6;
    stage.disks[lost].vanish();
    stage.watch();
    let recovery = stage.recovered(DEGRADED);
    assert!(recovery.redone > 0, "{recovery:?}");
    let pages = stage.seen().into_iter().filter(|seen| seen.op == 'w' && seen.done);
    let mut newest = BTreeMap::new();
    for seen in pages.filter(|seen| PAGES.contains(&seen.byte)) {
        let slot = (seen.byte - PAGES.start) / PAGE_BYTES as u64;
        let before = newest.insert((seen.drive, slot / 2), slot);
        assert_ne!(before, Some(slot), "drive {}", seen.drive);
    }
    assert!(!newest.is_empty());
}

/// Returns the range of the label of the next start, in the ring `copy` of every drive.
fn next_label(stage: &Stage, copy: Copy) -> std::ops::Range<u64> {
    label_ahead(stage, copy, 1)
}

/// Returns the range of the label that is `ahead` generations after that of drive 0, in the ring `copy` of every drive.
pub fn label_ahead(stage: &Stage, copy: Copy, ahead: u64) -> std::ops::Range<u64> {
    let layout = AreaLayout::of(stage.set.disk_bytes).expect("large enough");
    let place = layout.slot_offset(copy, stage.label(&stage.disks[0]).generation + ahead);
    place..place + SLOT_BYTES as u64
}

/// Returns a new array without member 1 that was cleanly shut down before the initialization of its parity.
fn shut_down_early() -> Stage {
    let set = Set { deallocate: DeallocateReads::Unspecified, ..Set::new(Level::Raid6, 5) };
    let mut stage = set.build().expect("sound");
    stage.array().set_maintenance(Maintenance { priority: 50, paused: true });
    stage.fill(200, 100, 3);
    stage.fail(1).expect("allowed");
    stage.stop().expect("a clean stop");
    stage
}

/// The history of the bug: a drive failed during the write of the label of a start. The next start treated this as a
/// crash of a serving array, and was refused without `--accept-loss`, although nothing had been written. (Seeds 1237
/// and 6980 of the simulator.)
#[test]
fn f25_a_start_that_is_cut_short_costs_nothing() {
    for copy in [Copy::Head, Copy::Tail] {
        let mut stage = shut_down_early();
        let failing = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
        let place = next_label(&stage, copy);
        stage.disks[2].plan.add(failing.within(bytes(place)));
        assert!(what(stage.find(STRICTLY)).contains("waits for member 2"), "{copy:?}");
        stage.disks[2].plan.clear();
        stage.again(STRICTLY);
        stage.verify(200);
        // The array served, so that a crash may have damaged writes in progress.
        stage.down();
        assert!(what(stage.find(STRICTLY)).contains("stopped without warning"), "{copy:?}");
    }
}

/// Two starts that are cut short are not a crash either, and the next start writes its label exactly as it was
/// recorded. The history of the bug: with a different flag, a torn write destroyed the only copy of the label on a
/// drive, which then counted as an older copy of its member. (State 20261127907:139:40.p.23.w:0:129.k.1.w:6.k.28.t3584
/// of the simulator.)
#[test]
fn f25_a_start_that_is_cut_short_again_costs_nothing() {
    let early = [shut_down_early as fn() -> Stage, || {
        let mut stage = Set::new(Level::Raid6, 5).filled(200, 100, 3);
        stage.stop().expect("a clean stop");
        stage
    }];
    let cut = |stage: &mut Stage, place: std::ops::Range<u64>| {
        let failing = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
        stage.disks[2].plan.add(failing.within(bytes(place)));
        assert_ne!(what(stage.find(STRICTLY)), "ready");
        stage.disks[2].plan.clear();
    };
    // The second start is cut short before or during the write of its label.
    let again = [None, Some(Copy::Head), Some(Copy::Tail)];
    for (shut_down, again) in early.iter().flat_map(|early| again.map(|again| (early, again))) {
        let mut stage = shut_down();
        let first = [Copy::Head, Copy::Tail].map(|copy| next_label(&stage, copy));
        cut(&mut stage, first[1].clone());
        let read = |stage: &Stage, place: &std::ops::Range<u64>| {
            let mut slot = [0; SLOT_BYTES];
            let disks = stage.disks.iter();
            let slots = disks.map(|disk| {
                disk.ram.read_at(place.start, &mut slot).expect("inside");
                slot
            });
            slots.collect::<Vec<_>>()
        };
        let recorded = read(&stage, &first[0]);
        let next = again.map_or(PAGES, |copy| next_label(&stage, copy));
        assert!(!first.contains(&next), "{again:?}");
        cut(&mut stage, next);
        assert_eq!(read(&stage, &first[0]), recorded, "{again:?}");
        let recovery = stage.recovered(STRICTLY);
        assert!(!recovery.crashed, "{again:?}: {recovery:?}");
        stage.verify(200);
    }
}

/// A start without a member that was in sync at the shutdown requires that the operator accepts the loss, also after a
/// start that was cut short.
#[test]
fn f25_a_start_with_one_more_missing_that_is_cut_short_is_a_crash() {
    let mut stage = shut_down_early();
    stage.disks.truncate(4);
    assert!(what(stage.find(DEGRADED)).contains("missing"));
    let place = label_ahead(&stage, Copy::Tail, 1);
    let failing = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
    stage.disks[2].plan.add(failing.within(bytes(place)));
    assert_ne!(what(stage.find(LOSSY)), "ready");
    stage.disks[2].plan.clear();
    assert!(what(stage.find(DEGRADED)).contains("missing"));
}

/// The history of the bug: a drive lost the label of the last start in its tail ring, and the blocks there seemed never
/// written. The next start treated this as a start that had been cut short, and replayed no record of the log: a block
/// of a missing member was a mixture of old and new data. (Wound 149074274895263:10:15 of the simulator.)
#[test]
fn f25_a_log_of_the_last_start_shows_that_the_array_served() {
    let mut stage = crate::redo::degraded(Set::strict(Level::Raid6, 6), &[0, 1]);
    stage.stop().expect("a clean stop");
    stage.again(DEGRADED);
    stage.fill(2000, 3, 8);
    let layout = AreaLayout::of(stage.set.disk_bytes).expect("large enough");
    let newest = layout.slot_offset(Copy::Tail, stage.label(&stage.disks[4]).generation);
    stage.down();
    stage.disks[4].ram.write_at(newest, &[0; SLOT_BYTES]).expect("inside");
    let recovery = stage.recovered(DEGRADED);
    assert!(recovery.crashed, "{recovery:?}");
    stage.verify(2000);
}

/// A tail ring with a damaged slot does not prove that a label was never written there.
#[test]
fn f25_a_crash_is_a_crash_though_a_label_is_damaged() {
    for damaged in 0..5 {
        let mut stage = shut_down_early();
        let place = next_label(&stage, Copy::Tail);
        stage.again(STRICTLY);
        stage.write(7, 4, 99).expect("it serves");
        stage.down();
        stage.disks[damaged].ram.write_at(place.start, &[0x5a; 512]).expect("inside");
        assert!(what(stage.find(STRICTLY)).contains("stopped without warning"), "{damaged}");
        // An unreadable slot does not prove it either.
        stage.disks[damaged].ram.write_at(place.start, &[0; SLOT_BYTES]).expect("inside");
        let unreadable = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
        stage.disks[damaged].plan.add(unreadable.within(bytes(place)));
        assert!(what(stage.find(STRICTLY)).contains("stopped without warning"), "{damaged}");
    }
}
