//! Errors that no drive reports: lost and misdirected writes, flipped bits, drives that lie. There are no checksums of
//! data; the tests show which guarantees still hold, and their limits.

use strake_block::{BufMut, DeallocateReads, Durability, Op, Sg};
use strake_dev_mem::{Effect, Fate, Flush, Ops, Rule, When};
use strake_engine::{Consistency, Outcome, ScrubFinding, ScrubMode, ScrubVerdict};
use strake_raid::{Level, MemberState};
use strake_units::{Lba, LbaRange, MemberIndex};

use crate::scrub::{clean, media, scrub};
use crate::stage::{DATA, DEGRADED, STRICTLY, Set, Stage};

/// The first block that the tests write, and the number of blocks.
const AT: u64 = 40;
const BLOCKS: u64 = 8;

/// Returns an array with data, on which every small write reads its inputs from the drives.
fn built(level: Level, members: usize) -> Stage {
    let mut set = Set::new(level, members);
    set.options.cache = false;
    set.filled(4000, 170, 3)
}

/// Checks that the only finding of a scrub names the strip of `member`.
fn one(found: &[ScrubFinding], verdict: ScrubVerdict, member: Option<usize>) {
    assert_eq!(found.len(), 1, "{found:?}");
    let member = member.map(|member| MemberIndex(member as u8));
    assert_eq!((found[0].verdict, found[0].member), (verdict, member), "{found:?}");
}

/// Applies `effect` to one write of a strip; the drive reports success.
fn written_wrong(stage: &mut Stage, effect: Effect) -> usize {
    let (member, byte) = stage.home(AT);
    let range = stage.on_disk(byte, BLOCKS);
    let rule = Rule::new(Ops::WRITE, effect).within(range).limit(1);
    stage.disks[member].plan.add(rule);
    assert_eq!(stage.write(AT, BLOCKS, 7), Ok(()));
    stage.disks[member].plan.clear();
    member
}

/// A drive acknowledged a write and kept the old data. Reads return the old data without an error until a scrub
/// compares: with two parities it names the member and repairs the lost write, with one it only names the range.
#[test]
fn f06_a_lost_write_is_found_by_a_scrub_and_healed_where_two_parities_are_left() {
    for (level, members) in [(Level::Raid6, 6), (Level::Raid73, 7)] {
        let mut stage = built(level, members);
        let member = written_wrong(&mut stage, Effect::Lose);
        let from = (AT as usize) << stage.size.shift();
        let read = stage.read(0, AT, BLOCKS).expect("readable");
        assert_ne!(read, stage.model[from..from + read.len()], "nothing notices a read of it");
        let (status, found) = scrub(&mut stage, ScrubMode::Repair);
        one(&found, ScrubVerdict::DataWrong, Some(member));
        assert_eq!(status.counts.left(), 0);
        clean(&mut stage);
        stage.verify(4000);
    }
    let mut stage = built(Level::Raid5, 4);
    written_wrong(&mut stage, Effect::Lose);
    let before = media(&stage);
    let (_, found) = scrub(&mut stage, ScrubMode::Repair);
    one(&found, ScrubVerdict::ParityDiffers, None);
    assert_eq!(media(&stage), before, "nothing says what is wrong, so nothing is changed");
}

/// A drive wrote data at a wrong address: the intended blocks are old, and the blocks at the other address contain data
/// that was not written there. A scrub finds both.
#[test]
fn f05_both_victims_of_a_misdirected_write_are_healed_where_two_parities_are_left() {
    for (level, members) in [(Level::Raid6, 6), (Level::Raid73, 7)] {
        let mut stage = built(level, members);
        let (member, byte) = stage.home(AT);
        // The address is on the same member, two stripes later.
        let to = stage.on_disk(byte + 2 * (16 << 10), 1).start;
        assert_eq!(written_wrong(&mut stage, Effect::Misdirect { to }), member);
        let (status, found) = scrub(&mut stage, ScrubMode::Repair);
        assert_eq!((found.len(), status.counts.left()), (2, 0), "{found:?}");
        assert!(found.iter().all(|finding| finding.member == Some(MemberIndex(member as u8))));
        clean(&mut stage);
        stage.verify(4000);
    }
}

/// In all schemes of published analyses, the next write spreads one wrong strip into parity. In Strake, a write of a
/// neighbour that needs the old parity changes it only by the difference: the wrong strip remains the only inconsistent
/// one, and is repaired.
#[test]
fn f07_a_small_write_beside_a_wrong_strip_does_not_hide_it() {
    let mut stage = built(Level::Raid6, 8);
    let (member, byte) = stage.home(AT);
    stage.disks[member].ram.write_at(byte, &[0x5a; 4096]).expect("inside");
    // A strip has 32 blocks: this writes the same rows of the next strip.
    assert_eq!(stage.write(AT + 32, BLOCKS, 8), Ok(()));
    let (status, found) = scrub(&mut stage, ScrubMode::Repair);
    one(&found, ScrubVerdict::DataWrong, Some(member));
    assert_eq!(status.counts.left(), 0);
    clean(&mut stage);
    stage.verify(4000);
}

/// The limits of the guarantee. If a write must read the wrong strip as an input, it makes parity consistent with the
/// damage, and no scrub finds it. A write over the wrong block itself computes the difference from the read data:
/// parity then contradicts the block although the block is now correct, a scrub names it, and a repair would restore
/// the damage. Only checksums of data could detect this, so that scrubs repair only on request.
#[test]
fn f07_what_was_computed_from_a_wrong_strip_is_not_distinguished_from_what_was_meant() {
    let mut stage = built(Level::Raid6, 8);
    let (member, byte) = stage.home(AT);
    stage.disks[member].ram.write_at(byte, &[0x5a; 4096]).expect("inside");
    // The writes cover all other strips of the stripe, so that reading the old strip is cheaper than reading parity.
    let width = 6 * 32;
    let home = |stage: &Stage, at| stage.home(at).0;
    for strip in (0..width).step_by(32).filter(|at| home(&stage, *at) != member).collect::<Vec<_>>()
    {
        let id = stage.begin_write(strip, 32, strip);
        assert_eq!(stage.result(id), Ok(()));
    }
    let (_, found) = scrub(&mut stage, ScrubMode::Check);
    assert!(found.len() <= 1, "{found:?}");
    let mut stage = built(Level::Raid6, 8);
    stage.disks[member].ram.write_at(byte, &[0x5a; 4096]).expect("inside");
    assert_eq!(stage.write(AT, BLOCKS, 9), Ok(()));
    stage.verify(4000);
    let (_, found) = scrub(&mut stage, ScrubMode::Check);
    one(&found, ScrubVerdict::DataWrong, Some(member));
    // The scrub only reported the block.
    stage.verify(4000);
}

/// Memory or the path to the drive flips a bit of metadata: a label, a page of the bitmap, or a record of the log. All
/// of them carry a checksum that was computed when they were built, so that the damaged copy is not used; the copies on
/// other members, or the previous ones, are used.
#[test]
fn f40_a_bit_that_flips_on_the_way_to_a_drive_is_never_followed() {
    let mut struck = 0;
    for consistency in [Consistency::Safe, Consistency::Strict] {
        for nth in (2..40).step_by(3) {
            let set = Set { consistency, ..Set::new(Level::Raid6, 6) };
            let mut stage = set.build().expect("sound");
            let shift = stage.set.disk_block.shift();
            let metadata = LbaRange::new(Lba(0), DATA >> shift);
            let flip = Rule::new(Ops::WRITE, Effect::Corrupt).within(metadata);
            let victim = nth as usize % 6;
            let id = stage.disks[victim].plan.add(flip.when(When::Nth(nth / 2)));
            stage.fill(700, 50, 3);
            assert_eq!(stage.run(0, Op::Flush), Ok(()));
            let out = (victim + 2) % 6;
            stage.fail(out as u8).expect("allowed");
            stage.fill(300, 30, 5);
            let what = format!("{consistency:?}, write {nth} of member {victim}");
            struck += stage.disks[victim].plan.remove(id).unwrap_or_default();
            assert_eq!(stage.again(DEGRADED), 0, "{what}");
            assert_ne!(stage.state(out), MemberState::InSync, "{what}: what was recorded holds");
            stage.verify(700);
            stage.stop().expect("it stops in order");
            stage.again(DEGRADED);
            stage.verify(700);
        }
    }
    assert!(struck > 12, "only {struck} bits were flipped");
}

/// The part of a record on one member has a flipped bit, and the host fails before the write reaches the data area: the
/// record is not replayed, and every block contains its old or its new data.
#[test]
fn f40_a_record_that_was_flipped_on_the_way_is_not_carried_out() {
    let log = 6 << 20..16 << 20;
    let mut flipped = 0;
    for victim in 0..4 {
        let mut stage = Set::strict(Level::Raid5, 4).filled(2000, 170, 3);
        let shift = stage.set.disk_block.shift();
        let blocks = |range: std::ops::Range<u64>| {
            LbaRange::new(Lba(range.start >> shift), (range.end - range.start) >> shift)
        };
        let flip = Rule::new(Ops::WRITE, Effect::Corrupt).within(blocks(log.clone()));
        let id = stage.disks[victim].plan.add(flip);
        let area = blocks(DATA..stage.set.disk_bytes - (4 << 20));
        for disk in &stage.disks {
            disk.plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(area));
        }
        stage.submit_write(0, 35, 50, 99);
        stage.rounds(400);
        let struck = stage.disks[victim].plan.remove(id).unwrap_or_default();
        flipped += struck;
        stage.disks.iter().for_each(|disk| disk.plan.clear());
        assert_eq!(stage.again(STRICTLY), 0);
        if struck == 0 {
            // The member has no part in this write.
            stage.expect(35, 50, 99);
        }
        // No part of the write reached the data area; an incomplete record adds nothing.
        stage.verify(2000);
        stage.check_parity(8);
    }
    assert!(flipped > 1, "records were written");
}

/// A drive reports data as stable, and loses all of it at a power loss. It then also lacks the later writes of labels
/// and of the bitmap. The start detects this: the member counts as absent, the array waits for it, and without it all
/// data are reconstructed from the others. A drive that loses other data but keeps these pages is trusted; the loss is
/// undetectable.
#[test]
fn f41_a_drive_that_lies_about_flush_and_loses_everything_is_not_believed() {
    for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 6), (Level::Raid1, 2)] {
        for liar in 0..members {
            let set = Set { cached: true, ..Set::new(level, members) };
            let mut stage = set.filled(2000, 170, 3);
            assert_eq!(stage.run(0, Op::Flush), Ok(()));
            stage.disks[liar].plan.lie_about_flush(Flush::Lying);
            for round in 0..2 {
                // The writes set marks, and the pause clears them.
                stage.fill(2000, 170, 4 + round);
                assert_eq!(stage.run(0, Op::Flush), Ok(()));
                stage.pass(10);
            }
            stage.down();
            stage.disks.iter().for_each(|disk| disk.plan.power_cut_with(|_| Fate::Drop));
            stage.disks[liar].plan.lie_about_flush(Flush::Honest);
            let waits = matches!(stage.find(STRICTLY), Outcome::Waiting { .. });
            assert!(waits, "{level:?}: member {liar} has forgotten something, and is believed");
            stage.again(DEGRADED);
            assert_ne!(stage.state(liar), MemberState::InSync);
            stage.verify(2000);
            stage.replace(liar as u8).expect("replaceable");
            stage.verify_rebuilt(2000);
        }
    }
}

/// Drives return different data for a deallocated block, and some return different data at each read. In all cases,
/// parity matches the data that the array returns, with all members and without one.
#[test]
fn f42_deallocated_blocks_read_the_same_with_and_without_a_member() {
    let kinds =
        [DeallocateReads::Zeroes, DeallocateReads::Unspecified, DeallocateReads::Unsupported];
    for reads in kinds {
        for (level, members) in [(Level::Raid5, 4), (Level::Raid6, 6), (Level::Raid1, 2)] {
            let mut set = Set::new(level, members);
            set.deallocate = reads;
            set.garbage = (reads != DeallocateReads::Zeroes).then_some(0xa5);
            let mut stage = set.build().expect("sound");
            stage.until("initializing", |stage| stage.status().resync.is_none());
            stage.fill(4000, 170, 3);
            for (at, blocks) in [(5, 3), (64, 640), (1000, 333), (2048, 1024)] {
                let range = LbaRange::new(Lba(at), blocks);
                assert_eq!(stage.run(0, Op::Deallocate { range }), Ok(()));
            }
            let all = |stage: &mut Stage| -> Vec<u8> {
                (0..4000)
                    .step_by(200)
                    .flat_map(|at| stage.read(0, at, 200).expect("readable"))
                    .collect()
            };
            let before = all(&mut stage);
            assert_eq!(all(&mut stage), before, "{level:?} {reads:?}: the same twice");
            if level != Level::Raid1 {
                stage.check_parity(40);
            }
            clean(&mut stage);
            stage.fail(1).expect("allowed");
            assert_eq!(all(&mut stage), before, "{level:?} {reads:?}: the same without member 1");
            stage.fill(500, 7, 9);
            stage.replace(1).expect("replaceable");
            stage.verify_rebuilt(500);
        }
    }
}

/// md writes a page that a client may change during the write, so that copies, or parity and data, may differ. In
/// Strake, written data are read once, into memory that is read-only once it is passed on, and that all copies share:
/// the client receives its own memory back at the completion of the write, and changes it at once.
#[test]
fn f43_copies_and_parity_agree_though_the_client_uses_its_buffer_again_at_once() {
    for (level, members) in
        [(Level::Raid1, 3), (Level::Raid10, 4), (Level::Raid5, 4), (Level::Raid6, 6)]
    {
        let mut stage = Set::new(level, members).build().expect("sound");
        // The client has only this buffer.
        let mut own = Some(BufMut::alone(BLOCKS as usize * 512));
        for round in 0..50u64 {
            let at = round * 37 % 900;
            let mut buf = own.take().expect("the array gave it back");
            buf.as_mut_slice().copy_from_slice(&Stage::pattern(BLOCKS as usize * 512, round));
            let from = at as usize * 512;
            stage.model[from..from + buf.len()].copy_from_slice(buf.as_slice());
            let shared = buf.freeze();
            let data = Sg::from(shared.clone());
            let id =
                stage.submit(0, Op::Write { at: Lba(at), data, durability: Durability::Normal });
            drop(stage.answer(id));
            let mut buf = shared.reclaim().expect("nobody reads from it after the answer");
            buf.as_mut_slice().fill(0xff);
            own = Some(buf);
        }
        stage.verify(900);
        clean(&mut stage);
    }
}
