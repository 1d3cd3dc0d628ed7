//! Tests of members that were out and are re-added.

use strake_dev_mem::{Effect, Ops, Rule, When};
use strake_engine::{ArrayErrorKind, Outcome};
use strake_ondisk::{
    AreaLayout, BadEvent, BadList, Bitmap, Copy, PAGE_BYTES, PageRecord, RecordedState, Sequenced,
    encode_page, newest_page,
};
use strake_raid::{Level, MemberState};
use strake_units::{Lba, LbaRange, MemberIndex, Nanos, Uuid};

use crate::cut_short::{bytes, label_ahead};
use crate::stage::{DATA, DEGRADED, Disk, LOSSY, STRICTLY, Seen, Set, Stage};

/// Returns an array of several regions on `cores` cores.
pub fn large(level: Level, members: usize, cores: u16) -> Stage {
    let set = Set { cores, strip: 64 << 10, disk_bytes: 120 << 20, ..Set::new(level, members) };
    set.filled(40_000, 1000, 3)
}

/// Returns the blocks of the array in one region, which has at least 16 MiB.
fn region_blocks(stage: &Stage) -> u64 {
    let geometry = stage.status().geometry;
    let regions = strake_raid::Regions::new(&geometry);
    regions.stripes_per_region() * geometry.stripe_data_blocks()
}

/// Returns page 0 of the bitmap of written regions, without a written region.
fn empty_page(array: Uuid, sequence: u64) -> [u8; PAGE_BYTES] {
    let record = PageRecord { held: 0, bits: Vec::new() };
    encode_page(array, Bitmap::Written, 0, &Sequenced { sequence, record })
}

fn stale(stage: &Stage, member: usize) -> u64 {
    stage.status().members[member].stale_bytes
}

fn right(stage: &mut Stage) {
    stage.verify_rebuilt(40_000);
    stage.check_all_parity();
    let lacking: Vec<u64> = stage.status().members.iter().map(|m| m.stale_bytes).collect();
    assert!(lacking.iter().all(|bytes| *bytes == 0), "{lacking:?}");
}

/// The history of the bug: after a short absence, a drive was rebuilt completely. This took hours in which another
/// failure was dangerous.
#[test]
fn f15_a_member_that_returns_gets_only_what_it_missed() {
    for cores in [1, 3] {
        let mut stage = large(Level::Raid5, 4, cores);
        let region = region_blocks(&stage);
        // No write is in progress when the member goes out.
        stage.pass(6);
        stage.fail(1).expect("allowed");
        assert_eq!(stale(&stage, 1), 0);
        assert_eq!(stage.write(region + 7, 100, 9), Ok(()));
        let bytes = stale(&stage, 1);
        assert!(bytes > 0 && bytes <= 8 << 20, "{bytes} bytes for one region");
        let label = stage.label(&stage.disks[1]);
        let drive = stage.disks[1].drive.clone();
        let would = stage.array().check_readd(MemberIndex(1), &drive, &label);
        assert_eq!(would.expect("it is the member"), bytes);
        stage.watch();
        stage.readd(1).expect("it is the member");
        stage.healthy();
        let tail = stage.set.disk_bytes - (4 << 20);
        let data = |seen: &&Seen| {
            let inside = (DATA..tail).contains(&seen.byte);
            seen.drive == 1 && seen.op == 'w' && !seen.done && inside
        };
        let written: u64 = stage.seen().iter().filter(data).map(|seen| seen.bytes).sum();
        assert_eq!(written, bytes, "no more than it lacked was copied");
        right(&mut stage);
    }
}

/// Regions of writes in progress when the member went out are already marked and are not marked again.
#[test]
fn what_was_being_written_when_a_member_left_counts_as_missed() {
    for (effect, state) in [
        (Effect::Vanish, MemberState::Missing),
        (Effect::Fail(strake_block::IoErrorKind::Device), MemberState::Faulty),
    ] {
        let mut stage = large(Level::Raid6, 5, 2);
        stage.pass(6);
        stage.disks[2].plan.add(Rule::new(Ops::WRITE, effect).when(When::Nth(9)));
        stage.fill(3000, 50, 77);
        assert_eq!(stage.state(2), state);
        let missed = stale(&stage, 2);
        assert!(missed > 0);
        let copy = revived(&mut stage, 2);
        stage.readd_with(2, copy).expect("it is the member");
        right(&mut stage);
    }
}

/// Returns a working drive with the same medium.
fn revived(stage: &mut Stage, member: usize) -> Disk {
    let (fresh, old) = (stage.spare(), stage.disks[member].clone());
    let mut piece = vec![0; 1 << 20];
    for mib in 0..stage.set.disk_bytes >> 20 {
        old.ram.read_at(mib << 20, &mut piece).expect("inside");
        fresh.ram.write_at(mib << 20, &piece).expect("inside");
    }
    fresh
}

/// In md (1a855a060665), a partly rebuilt drive was re-added as if it contained all data.
#[test]
fn b06_f16_a_partly_rebuilt_member_lacks_what_was_not_rebuilt() {
    for restart in [false, true] {
        let mut stage = large(Level::Raid6, 4, 2);
        stage.fail_and_replace(1);
        let all = stale(&stage, 1);
        stage.step = Nanos(100_000_000);
        stage.until("some progress", |stage| {
            let left = stale(stage, 1);
            left < all && left > 0
        });
        stage.step = Nanos(1000);
        stage.fail(1).expect("allowed");
        let left = stale(&stage, 1);
        assert!(left > 0 && left < all, "{left} of {all}");
        stage.fill(2000, 100, 5);
        if restart {
            let returned = stage.disks.remove(1);
            stage.stop().expect("clean");
            stage.again(DEGRADED);
            stage.disks.insert(1, returned);
            assert!(stale(&stage, 1) >= left);
        }
        stage.readd(1).expect("it is the member");
        right(&mut stage);
    }
}

/// "Flush writes before starting a recovery" (md, 2014): a write that was planned without the member was still in
/// progress when the member returned, and the recovery did not copy its blocks.
#[test]
fn b05_a_member_comes_back_at_any_point_of_a_write() {
    for (cores, writes_first) in [(1, true), (1, false), (2, true), (2, false)] {
        let mut set = Set::new(Level::Raid5, 3);
        set.cores = cores;
        set.queues = (0..cores).collect();
        set.disk_bytes = 60 << 20;
        let mut stage = set.filled(40_000, 1000, 3);
        for rounds in 0..24 {
            // No region is marked when the member goes out.
            stage.pass(6);
            stage.fail(1).expect("allowed");
            let mut ids = Vec::new();
            if writes_first {
                ids = four_writes(&mut stage, rounds);
                stage.rounds(rounds);
            }
            let label = stage.label(&stage.disks[1]);
            let drive = stage.disks[1].drive.clone();
            let back = stage.array().begin_readd(MemberIndex(1), &drive, &label);
            let mut back = back.expect("it is the member");
            if !writes_first {
                for _ in 0..rounds {
                    let _ = back.poll();
                    stage.round();
                }
                ids = four_writes(&mut stage, rounds);
            }
            for id in ids {
                stage.until("the answer", |stage| {
                    let _ = back.poll();
                    stage.answers.contains_key(&id)
                });
                assert_eq!(stage.result(id), Ok(()));
            }
            stage.until("taking back", |stage| {
                let _ = back.poll();
                stage.state(1) == MemberState::InSync
            });
        }
        right(&mut stage);
    }
}

/// Submits writes to two regions from every queue and does not wait for them.
fn four_writes(stage: &mut Stage, seed: u64) -> Vec<u64> {
    let write = |nth: u64| {
        let place = (11_000 * nth + 37 * seed) % 39_000;
        let op = stage.write_op(place, 40, seed * 10 + nth);
        stage.expect(place, 40, seed * 10 + nth);
        let queue = nth as usize % stage.queues.len();
        stage.submit(queue, op)
    };
    (0..4u64).map(write).collect()
}

/// The history of the bug: bits were cleared for data that was still in the cache of a drive, and a power cut then
/// discarded this data.
#[test]
fn bits_are_cleared_only_for_what_was_flushed() {
    let mut set = Set::new(Level::Raid5, 4);
    set.cached = true;
    set.strip = 64 << 10;
    set.disk_bytes = 120 << 20;
    let mut stage = set.filled(40_000, 1000, 3);
    stage.pass(6);
    stage.fail(1).expect("allowed");
    stage.fill(40_000, 1000, 5);
    // From here on, only the rebuild writes, and its progress is recorded.
    stage.pass(6);
    stage.watch();
    stage.step = Nanos(50_000_000);
    stage.readd(1).expect("it is the member");
    stage.healthy();
    let bitmap = (1 << 20) + 3 * (16 << 10)..(1 << 20) + 4 * (16 << 10);
    let tail = stage.set.disk_bytes - (4 << 20);
    let (mut unflushed, mut flushing, mut pages) = (0, 0, 0);
    for seen in stage.seen().into_iter().filter(|seen| seen.drive == 1) {
        match (seen.op, seen.done) {
            ('w', true) if (DATA..tail).contains(&seen.byte) => unflushed += 1,
            ('f', false) => flushing = unflushed,
            ('f', true) => unflushed -= flushing,
            ('w', false) if bitmap.contains(&seen.byte) => {
                pages += 1;
                // Writes of the next regions may already be in the cache.
                assert!(flushing > 0 || unflushed == 0, "page {pages}: {unflushed} not flushed");
                flushing = 0;
            }
            _ => {}
        }
    }
    assert!(pages > 2, "{pages} pages of the plane were written");
}

/// After a host failure at any time after a member went out, the missing data of the member is known at the restart.
#[test]
fn what_a_member_missed_survives_a_crash_at_any_round() {
    for rounds in (0..60).step_by(3) {
        let mut stage = Set::new(Level::Raid6, 4).filled(4000, 100, 3);
        stage.pass(6);
        stage.fail(1).expect("allowed");
        for nth in 0..5 {
            let at = nth * 700;
            stage.begin_write(at, 16, 40 + nth);
        }
        stage.rounds(rounds);
        stage.answers.clear();
        let returned = stage.disks.remove(1);
        stage.again(LOSSY);
        stage.disks.insert(1, returned);
        // Writes without a completion may be old or new. They are written again.
        for nth in 0..5 {
            assert_eq!(stage.write(nth * 700, 16, 40 + nth), Ok(()));
        }
        stage.readd(1).expect("it is the member");
        stage.verify_rebuilt(4000);
        stage.check_parity(16);
    }
}

/// Two drives of a ZFS pool failed at the same time, and one rebuild was lost (B19, `2be0a124af`); SPDK crashed when a
/// second base device was removed during a rebuild (B22, #3305). In this test, members go out one after the other and
/// together, and return during rebuilds of other members.
#[test]
fn b19_b22_members_go_and_come_at_any_step() {
    for rounds in [0, 5, 40, 200, 1000] {
        let mut stage = large(Level::Raid6, 5, 2);
        stage.fail(1).expect("allowed");
        stage.fill(3000, 90, 7);
        stage.fail(3).expect("allowed");
        stage.fill(3000, 90, 8);
        stage.readd(1).expect("it is the member");
        stage.rounds(rounds);
        stage.readd(3).expect("it is the member");
        stage.rounds(rounds);
        if stage.state(1) != MemberState::InSync {
            stage.fail(1).expect("allowed");
            stage.fill(3000, 90, 9);
            stage.readd(1).expect("it is the member");
        }
        right(&mut stage);
    }
}

/// Both halves of a mirror ran alone. A re-add of one half would lose its writes from that time.
#[test]
fn f18_a_member_that_went_on_alone_is_refused() {
    let mut stage = Set::new(Level::Raid1, 2).filled(1000, 100, 3);
    stage.stop().expect("clean");
    let disks = stage.disks.clone();
    for alone in [0, 1] {
        stage.disks = vec![disks[alone].clone()];
        stage.again(DEGRADED);
        assert_eq!(stage.write(10, 5, alone as u64), Ok(()));
        if alone == 0 {
            stage.stop().expect("clean");
        }
    }
    // The array runs on member 1, and member 0 returns.
    stage.disks = disks;
    let error = stage.readd(0).expect_err("it has a history of its own");
    assert_eq!(error.kind, ArrayErrorKind::Refused);
    assert!(error.what.contains("was used without the array"), "{error}");
    assert!(error.what.contains("generation"), "{error}");
}

/// The history of the bug: members 2 and 3 failed at the same time, a write was acknowledged without them, and the host
/// failed. Then the array was started from these two members. Before that start replayed the log, it recorded members 0
/// and 1 as missing in a label of the last epoch. This label had the generation and the epoch of their labels, so that
/// they were re-added without their write.
#[test]
fn f18_members_with_a_label_of_the_same_number_and_epoch_are_refused() {
    let mut stage = Set::new(Level::Raid73, 5).filled(1000, 100, 3);
    stage.pass(6);
    stage.fail(4).expect("allowed");
    stage.write(7, 4, 98).expect("works");
    stage.pass(60);
    // The label after the next one records the members whose writes are in the log.
    let place = bytes(label_ahead(&stage, Copy::Head, 2));
    for disk in &stage.disks[..2] {
        disk.plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(place));
    }
    stage.disks[2..4].iter().for_each(|disk| disk.plan.vanish());
    assert_eq!(stage.write(7, 4, 99), Ok(()), "acknowledged without members 2 and 3");
    stage.down();
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    stage.disks[2..4].iter().for_each(|disk| disk.plan.return_device());
    let disks = stage.disks.clone();
    stage.disks = disks[2..4].to_vec();
    stage.again(DEGRADED);
    let (array, own) = (stage.label(&disks[2]), stage.label(&disks[0]));
    let by = |all: bool| -> Vec<Uuid> {
        let rows = own.members.iter();
        rows.filter(|row| all || row.state == RecordedState::InSync).map(|row| row.uuid).collect()
    };
    assert!(array.continues(own.generation, own.epoch, &by(true)), "by its number and epoch");
    assert!(!array.continues(own.generation, own.epoch, &by(false)), "by who was in sync");
    stage.disks = disks;
    let error = stage.readd(0).expect_err("it has a history of its own");
    assert!(error.what.contains("was used without the array"), "{error}");
}

/// An earlier copy of a member replaces the member: the copy lacks more than the array recorded.
#[test]
fn an_old_picture_of_a_member_is_refused() {
    let mut stage = Set::new(Level::Raid6, 4).filled(1000, 100, 3);
    let picture = revived(&mut stage, 1);
    stage.fail(2).expect("allowed");
    stage.readd(2).expect("it is the member");
    stage.healthy();
    stage.fill(1000, 100, 4);
    stage.fail(1).expect("allowed");
    let error = stage.readd_with(1, picture).expect_err("it is older than when it went out");
    assert!(error.what.contains("old copy"), "{error}");
    let foreign = stage.disks[3].clone();
    let error = stage.readd_with(1, foreign).expect_err("it is another member");
    assert!(error.what.contains("is not member 1"), "{error}");
}

/// A member in use is not re-added a second time, and a replaced member is never re-added.
#[test]
fn only_the_member_itself_comes_back() {
    let mut stage = Set::new(Level::Raid6, 4).filled(1000, 100, 3);
    assert_eq!(stage.readd(1).expect_err("in use").kind, ArrayErrorKind::State);
    let old = stage.disks[1].clone();
    stage.fail_and_replace(1);
    stage.healthy();
    stage.fail(1).expect("allowed");
    let error = stage.readd_with(1, old).expect_err("another drive has its place");
    assert!(error.what.contains("is not member 1"), "{error}");
}

/// The re-added drive fails immediately: it is out again, lacks the same data as before, and is re-added later.
#[test]
fn a_member_that_fails_while_it_is_taken_back_comes_back_later() {
    for nth in 1..8 {
        let mut stage = Set::new(Level::Raid6, 4).filled(4000, 100, 3);
        stage.pass(6);
        stage.fail(1).expect("allowed");
        stage.fill(500, 100, 4);
        let missed = stale(&stage, 1);
        stage.disks[1].plan.add(Rule::new(Ops::WRITE, Effect::Vanish).when(When::Nth(nth)));
        // The drive may also fail after the re-add has completed.
        let _ = stage.readd(1);
        stage.until("the loss", |stage| stage.state(1) == MemberState::Missing);
        assert!(stale(&stage, 1) >= missed);
        stage.fill(500, 100, 5);
        let copy = revived(&mut stage, 1);
        stage.readd_with(1, copy).expect("it is the member");
        stage.verify_rebuilt(4000);
        stage.check_parity(16);
    }
}

/// The history of the bug: a member that had continued alone was added again, as its refusal recommends. The records of
/// its own history had higher sequences than those of the array, and were used after the next start: valid blocks
/// counted as bad, and written regions as unwritten.
#[test]
fn a_drive_that_is_added_again_keeps_no_notes_of_its_former_life() {
    let mut stage = Set::new(Level::Raid1, 2).filled(1000, 100, 3);
    let array = stage.status().uuid;
    let mut list = BadList::default();
    let run = LbaRange::new(Lba(0), 64);
    for member in [0, 1] {
        list.note(MemberIndex(member), run, BadEvent::Unreadable).expect("there is room");
        list.note(MemberIndex(member), run, BadEvent::Hollow).expect("there is room");
    }
    stage.fail(1).expect("allowed");
    let ram = stage.disks[1].ram.clone();
    let written = AreaLayout::of(stage.set.disk_bytes).expect("large enough");
    for sequence in [1000, 1001] {
        let at = written.bad_blocks_offset(sequence);
        ram.write_at(at, &list.encode(array, sequence).concat()).expect("inside");
        let page = empty_page(array, sequence);
        let at = written.bitmap_page_offset(Bitmap::Written, 0, sequence);
        ram.write_at(at, &page).expect("inside");
    }
    let drive = stage.disks[1].clone();
    stage.replace_with(1, drive).expect("replaceable");
    stage.healthy();
    stage.stop().expect("clean");
    let slots = [0, 1].map(|sequence| {
        let mut page = vec![0; PAGE_BYTES];
        let at = written.bitmap_page_offset(Bitmap::Written, 0, sequence);
        ram.read_at(at, &mut page).expect("inside");
        page
    });
    let newest = newest_page(&slots[0], &slots[1], array, Bitmap::Written, 0);
    let sequence = newest.expect("the array wrote one").sequence;
    assert!(sequence < 1000, "{sequence}");
    stage.again(STRICTLY);
    assert_eq!(stage.status().bad_ranges, []);
    stage.verify(1000);
}

/// The history of the bug: a copy of a drive replaced the drive after further writes. The copy had the same label as
/// the drive, because the label does not change with every write. It was re-added without a rebuild, and reads returned
/// old data.
#[test]
fn f16_an_older_picture_of_a_member_is_not_taken_back() {
    for cores in [1, 2] {
        let mut stage = large(Level::Raid5, 4, cores);
        stage.pass(6);
        let picture = revived(&mut stage, 1);
        stage.fill(3000, 50, 91);
        // All bits are cleared again.
        stage.pass(12);
        stage.vanish(1).expect("allowed");
        let drive = revived(&mut stage, 1);
        let refused = stage.readd_with(1, picture).expect_err("it is older");
        assert!(refused.what.contains("older copy"), "{}", refused.what);
        assert_eq!(stage.state(1), MemberState::Missing);
        stage.readd_with(1, drive).expect("it is the member");
        right(&mut stage);
    }
}

/// The copy replaced the drive while the array was stopped. After a clean shutdown, the last label identifies the copy;
/// after a crash, the bitmap pages do, for any order of reading the members.
#[test]
fn f16_an_older_picture_of_a_member_is_not_in_sync_at_the_start() {
    for (orderly, member) in [(true, 1), (false, 1), (false, 0)] {
        let mut stage = large(Level::Raid5, 4, 2);
        stage.pass(6);
        let picture = revived(&mut stage, member);
        stage.fill(3000, 50, 91);
        stage.pass(12);
        if orderly {
            stage.stop().expect("clean");
        } else {
            stage.down();
        }
        let drive = std::mem::replace(&mut stage.disks[member], picture);
        assert!(!matches!(stage.find(STRICTLY), Outcome::Ready(_)));
        stage.again(DEGRADED);
        assert_eq!(stage.state(member), MemberState::Missing);
        let picture = stage.disks[member].clone();
        let refused = stage.readd_with(member as u8, picture).expect_err("it is older");
        assert!(refused.what.contains("old"), "{}", refused.what);
        stage.verify(3000);
        // The drive itself may be re-added.
        stage.readd_with(member as u8, drive).expect("it is the member");
        right(&mut stage);
    }
}

/// The copy is from before a clean shutdown that wrote only the last label.
#[test]
fn f16_a_picture_from_before_the_last_label_is_not_in_sync() {
    let mut stage = large(Level::Raid6, 5, 1);
    stage.pass(12);
    let picture = revived(&mut stage, 2);
    stage.stop().expect("clean");
    let drive = std::mem::replace(&mut stage.disks[2], picture);
    stage.again(DEGRADED);
    assert_eq!(stage.state(2), MemberState::Missing);
    stage.readd_with(2, drive).expect("it is the member");
    right(&mut stage);
}

/// The history of the bug: a page of the bitmap that no member had started again at sequence 0. An absent member still
/// had the page with a higher sequence, which was used at the start after its re-add: written regions counted as
/// unwritten.
#[test]
fn a_page_lost_on_all_members_is_not_brought_back_by_one_that_was_away() {
    let mut stage = Set::new(Level::Raid6, 4).build().expect("sound");
    let array = stage.status().uuid;
    stage.fail(1).expect("allowed");
    stage.fill(1000, 100, 3);
    stage.stop().expect("clean");
    let layout = AreaLayout::of(stage.set.disk_bytes).expect("large enough");
    let at = |sequence| layout.bitmap_page_offset(Bitmap::Written, 0, sequence);
    for sequence in [1000, 1001] {
        let page = empty_page(array, sequence);
        stage.disks[1].ram.write_at(at(sequence), &page).expect("inside");
        for member in [0, 2, 3] {
            let ram = &stage.disks[member].ram;
            ram.write_at(at(sequence), &[0x55; PAGE_BYTES]).expect("inside");
        }
    }
    stage.again(DEGRADED);
    stage.readd(1).expect("it is the member");
    stage.healthy();
    stage.stop().expect("clean");
    let newest = [0, 1].map(|member: usize| {
        let slots = [0, 1].map(|sequence| {
            let mut page = vec![0; PAGE_BYTES];
            stage.disks[member].ram.read_at(at(sequence), &mut page).expect("inside");
            page
        });
        newest_page(&slots[0], &slots[1], array, Bitmap::Written, 0)
    });
    assert!(newest[0] == newest[1], "the member that was away brought its own page back");
}
