//! Writes of whole stripes: they read nothing and need no task, and wait for other work of their band like every write.

use strake_block::{BufMut, Durability, IoErrorKind, Op, Sg};
use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::Consistency;
use strake_raid::{Level, MemberState};
use strake_units::{Lba, Nanos};

use crate::stage::{DATA, STRICTLY, Seen, Set, Stage};

/// Blocks of a strip. A stripe has one band.
const STRIP: u64 = 32;

/// Blocks of a stripe of RAID 6 with 8 members.
const STRIPE: u64 = 6 * STRIP;

fn filled(level: Level, members: usize) -> Stage {
    let mut set = Set::new(level, members);
    set.options.cache = true;
    set.filled(2000, 170, 3)
}

fn check(stage: &mut Stage) {
    stage.verify(2000);
    stage.check_parity(20);
}

/// Returns the I/Os of data areas that were submitted during `work`.
fn submitted(stage: &mut Stage, work: impl FnOnce(&mut Stage)) -> Vec<Seen> {
    stage.watch();
    work(stage);
    stage.seen().into_iter().filter(|seen| !seen.done && seen.byte >= DATA).collect()
}

#[test]
fn a_whole_stripe_is_written_once_to_each_member_and_read_from_none() {
    for (level, members, parities) in [
        (Level::Raid5, 4, 1),
        (Level::Raid6, 8, 2),
        (Level::Raid73, 8, 3),
        (Level::Parity(4), 9, 4),
    ] {
        let mut stage = filled(level, members);
        let blocks = (members as u64 - parities) * STRIP;
        for (nth, stripe) in [0, 1, 3].into_iter().enumerate() {
            let seen = submitted(&mut stage, |stage| {
                assert_eq!(stage.write(stripe * blocks, blocks, 90 + nth as u64), Ok(()));
            });
            let drives: Vec<usize> = seen.iter().map(|seen| seen.drive).collect();
            let mut each = drives.clone();
            each.sort_unstable();
            assert_eq!(each, (0..members).collect::<Vec<_>>(), "{level:?}");
            assert!(seen.iter().all(|seen| seen.op == 'w' && seen.bytes == STRIP << 9));
        }
        stage.verify(2000);
        // Any member less, and the data follow from the parities.
        stage.fail(0).expect("allowed");
        stage.verify(2000);
    }
}

#[test]
fn stripes_return_their_memory() {
    let mut stage = filled(Level::Raid6, 8);
    for nth in 0..400 {
        let seen = submitted(&mut stage, |stage| {
            assert_eq!(stage.write(nth % 8 * STRIPE, STRIPE, nth), Ok(()));
        });
        assert_eq!(seen.len(), 8, "stripe {nth} is written once, and not read");
    }
    assert_eq!(stage.write(5, 1, 1), Ok(()));
    check(&mut stage);
}

/// The pieces of a request in memory need not be strips.
#[test]
fn data_in_several_pieces_are_written_too() {
    let mut stage = filled(Level::Raid6, 8);
    for (nth, parts) in [[1, 2, 3], [2, 2, 2], [4, 1, 1]].into_iter().enumerate() {
        for odd in [0, 1] {
            let seed = 70 + (2 * nth + odd) as u64;
            let bytes = Stage::pattern((STRIPE << 9) as usize, seed);
            let mut list = Sg::default();
            let mut rest = &bytes[..];
            for (at, strips) in parts.into_iter().enumerate() {
                // With odd pieces, the first strip and the last one have two.
                let blocks = strips * STRIP as usize + odd * [1, 0, 0][at];
                let (piece, after) = rest.split_at((blocks << 9).min(rest.len()));
                let mut buf = BufMut::alone(piece.len());
                buf.as_mut_slice().copy_from_slice(piece);
                list.push(buf.freeze()).expect("four fit");
                rest = after;
            }
            assert!(rest.is_empty());
            let at = STRIPE * (nth as u64 % 3);
            let op = Op::Write { at: Lba(at), data: list, durability: Default::default() };
            assert_eq!(stage.run(0, op), Ok(()));
            stage.expect(at, STRIPE, seed);
        }
    }
    check(&mut stage);
}

/// The answer waits until the labels record the member, like every answer.
#[test]
fn a_member_that_fails_its_strip_goes_out_before_the_answer() {
    for victim in 0..8 {
        let mut stage = filled(Level::Raid6, 8);
        let rule = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
        stage.disks[victim].plan.add(rule.within(stage.on_disk(DATA, 8000)));
        stage.watch();
        assert_eq!(stage.write(STRIPE, STRIPE, 99), Ok(()));
        let labels = |seen: &&Seen| seen.op == 'w' && seen.byte < 1 << 20 && seen.done;
        assert!(stage.seen().iter().filter(labels).count() >= 7);
        assert_eq!(stage.state(victim), MemberState::Faulty);
        stage.verify(2000);
        stage.again(STRICTLY);
        stage.verify(2000);
        stage.disks[victim].plan.clear();
        stage.replace(victim as u8).expect("replaceable");
        stage.verify_rebuilt(2000);
        stage.check_parity(20);
    }
}

#[test]
fn too_many_members_that_fail_their_strips_fail_the_write() {
    let mut stage = filled(Level::Raid6, 8);
    for victim in [1, 4, 6] {
        let rule = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
        stage.disks[victim].plan.add(rule.within(stage.on_disk(DATA, 8000)));
    }
    let id = stage.submit_write(0, STRIPE, STRIPE, 99);
    assert!(stage.result(id).is_err());
}

/// Slow strips become ordinary I/Os, which the time limit of the drive ends.
#[test]
fn a_member_that_never_answers_goes_out() {
    for victim in [0, 7] {
        let mut stage = filled(Level::Raid6, 8);
        let area = stage.on_disk(DATA, 8000);
        stage.disks[victim].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(area));
        let id = stage.submit_write(0, STRIPE, STRIPE, 99);
        stage.pass(40);
        assert_eq!(stage.result(id), Ok(()));
        stage.expect(STRIPE, STRIPE, 99);
        assert_ne!(stage.state(victim), MemberState::InSync);
        stage.verify(2000);
    }
}

/// Writes of one band keep their order, whatever their length.
#[test]
fn stripes_and_blocks_of_stripes_keep_their_order() {
    for delayed in 0..8 {
        let mut stage = filled(Level::Raid6, 8);
        stage.disks[delayed].plan.add(Rule::new(Ops::WRITE, Effect::Delay(Nanos(9000))));
        let mut ids = Vec::new();
        for round in 0..4 {
            ids.push(stage.begin_write(STRIPE + 5, 1, 300 + round));
            ids.push(stage.begin_write(STRIPE, STRIPE, 400 + round));
            ids.push(stage.begin_write(STRIPE, STRIPE, 500 + round));
            ids.push(stage.begin_write(STRIPE + 2 * STRIP + 9, 3, 600 + round));
            stage.rounds(round);
        }
        stage.done(ids);
        check(&mut stage);
    }
}

/// The first write reaches the bands in the next turn.
#[test]
fn a_stripe_does_not_overtake_an_earlier_request() {
    let mut stage = filled(Level::Raid6, 8);
    let first = stage.begin_write(STRIPE + STRIP - 3, 6, 200);
    let second = stage.begin_write(STRIPE, STRIPE, 250);
    stage.done([first, second]);
    check(&mut stage);
}

/// A whole stripe changes the parities of all columns, so the cache must not keep older ones.
#[test]
fn parities_in_the_cache_are_dropped() {
    let mut stage = filled(Level::Raid6, 8);
    for round in 0..3 {
        // The second write of a column causes its parities to be cached.
        for turn in 0..3 {
            assert_eq!(stage.write(STRIPE + 7, 1, 700 + 10 * round + turn), Ok(()));
        }
        assert_eq!(stage.write(STRIPE, STRIPE, 800 + round), Ok(()));
    }
    assert_eq!(stage.write(STRIPE + STRIP + 7, 1, 900), Ok(()));
    check(&mut stage);
}

/// Without a bit in the bitmap, a crash would leave a stripe without a resync.
#[test]
fn the_bit_of_the_region_comes_first() {
    let mut stage = Set::new(Level::Raid6, 8).build().expect("sound");
    stage.until("resynchronizing", |stage| stage.status().resync.is_none());
    stage.pass(60);
    let at = |seen: &Seen| seen.byte >= DATA;
    stage.watch();
    assert_eq!(stage.write(STRIPE, STRIPE, 99), Ok(()));
    let seen = stage.seen();
    let first = seen.iter().position(at).expect("it is written");
    let bitmap = |seen: &&Seen| seen.op == 'w' && seen.done;
    assert!(seen[..first].iter().filter(bitmap).count() >= 8, "{:?}", &seen[..first]);
}

/// Every part of 40 stripes becomes an ordinary I/O.
#[test]
fn wide_stripes_on_slow_members_are_answered() {
    let mut set = Set::new(Level::Raid6, 64);
    (set.strip, set.depth, set.disk_bytes) = (4 << 10, 64, 24 << 20);
    set.options.tasks = 64;
    let mut stage = set.build().expect("sound");
    let stripe = 62 * 8;
    assert_eq!(stage.write(0, stripe, 1), Ok(()));
    for disk in &stage.disks {
        let slow = Rule::new(Ops::WRITE, Effect::Delay(Nanos(1_000_000_000)));
        disk.plan.add(slow.within(stage.on_disk(DATA, 8000)));
    }
    let ids: Vec<u64> =
        (0..40).map(|nth| stage.begin_write(nth * stripe, stripe, 100 + nth)).collect();
    stage.pass(3);
    stage.done(ids);
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    stage.verify(40 * stripe);
    stage.check_parity(40);
}

/// A request is refused for its length, whether or not it is a whole stripe.
#[test]
fn a_stripe_that_is_longer_than_a_request_is_refused() {
    let mut set = Set::new(Level::Raid6, 18);
    (set.strip, set.disk_bytes) = (128 << 10, 32 << 20);
    let mut stage = set.build().expect("sound");
    assert_eq!(stage.write(0, 256, 1), Ok(()), "the region has its bit");
    let stripe = 16 * 256;
    let error = stage.write(0, stripe, 9).expect_err("it has 2 MiB");
    assert_eq!(error, IoErrorKind::Misaligned);
    stage.verify(256);
}

/// A core that does not own the stripe sends the write to the owner.
#[test]
fn every_core_and_every_group_writes_whole_stripes() {
    for (level, members, group) in [(Level::Raid6, 8, None), (Level::Raid60, 12, Some(6))] {
        let mut set = Set::new(level, members);
        (set.cores, set.queues, set.group) = (2, vec![0, 1], group);
        let mut stage = set.filled(2000, 170, 3);
        let strips = if group.is_some() { 4 } else { 6 };
        let stripe = strips * STRIP;
        for durability in [Durability::Normal, Durability::Fua] {
            for nth in 0..8 {
                let op = stage.write_op(nth * stripe, stripe, 100 + nth);
                let Op::Write { at, data, .. } = op else { unreachable!("it writes") };
                let queue = usize::from(nth % 3 == 0);
                assert_eq!(stage.run(queue, Op::Write { at, data, durability }), Ok(()));
                stage.expect(nth * stripe, stripe, 100 + nth);
            }
        }
        stage.verify(2000);
        stage.check_parity(20);
    }
}

/// A write without a record must be complete before the label promises that every write has one.
#[test]
fn the_mode_changes_after_the_stripes_in_progress() {
    let mut stage = filled(Level::Raid6, 8);
    let area = stage.on_disk(DATA, 8000);
    stage.disks[3].plan.add(Rule::new(Ops::WRITE, Effect::Delay(Nanos(400_000_000))).within(area));
    let id = stage.begin_write(STRIPE, STRIPE, 99);
    let pending = stage.array().begin_set_consistency(Consistency::Strict);
    stage.asked(pending).expect("the array serves");
    stage.until("the mode", |stage| {
        let is_logged = !stage.status().logged.is_empty();
        assert!(!is_logged || stage.answers.contains_key(&id), "the stripe has no record");
        is_logged
    });
    assert_eq!(stage.result(id), Ok(()));
    stage.verify(2000);
}

#[test]
fn a_stripe_that_needs_more_than_its_data_is_written_by_a_task() {
    // In mode `strict`, every task has a record.
    let mut set = Set::strict(Level::Raid6, 8);
    set.options.cache = true;
    let mut stage = set.filled(2000, 170, 3);
    let seen = submitted(&mut stage, |stage| {
        assert_eq!(stage.write(STRIPE, STRIPE, 99), Ok(()));
    });
    assert_eq!(seen.iter().filter(|seen| seen.op == 'w').count(), 8);
    check(&mut stage);
    // Without a member, and with a replacement that is being filled.
    let mut stage = filled(Level::Raid6, 8);
    stage.fail(2).expect("allowed");
    assert_eq!(stage.write(STRIPE, STRIPE, 98), Ok(()));
    stage.verify(2000);
    stage.replace(2).expect("replaceable");
    assert_eq!(stage.write(STRIPE, STRIPE, 97), Ok(()));
    stage.verify_rebuilt(2000);
    check(&mut stage);
    // In a region whose parity is untrusted.
    let mut stage =
        Set { consistency: Consistency::Resync, ..Set::new(Level::Raid6, 8) }.filled(2000, 170, 3);
    stage.again(STRICTLY);
    assert_eq!(stage.write(STRIPE, STRIPE, 96), Ok(()));
    stage.until("resynchronizing", |stage| stage.status().resync.is_none());
    check(&mut stage);
}
