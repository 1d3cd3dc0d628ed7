//! Tests of small writes that are recorded in the redo log without a task: in stripes with a missing member, and in
//! mode `strict` with one parity.

use strake_block::{BufMut, Durability, IoErrorKind, Op, Sg};
use strake_dev_mem::{Effect, Ops, Rule, When};
use strake_engine::Consistency;
use strake_raid::{Level, MemberState};
use strake_units::Lba;

use crate::redo::{LOG, bytes, degraded, verify_old_or_new};
use crate::stage::{DATA, STRICTLY, Set, Stage};

/// Blocks of one strip.
const STRIP: u64 = 32;

/// The member without which the arrays of these tests run.
const OUT: usize = 1;

/// Returns an array without member [`OUT`] in which writes of one strip of the first 2000 blocks need no task.
fn ready(set: Set) -> Stage {
    let mut stage = degraded(set, &[OUT as u8]);
    // A task marks the region.
    assert_eq!(stage.write(1999, 1, 97), Ok(()));
    stage
}

/// Returns the first blocks of strips, with the members of the strip and of the first parity of its stripe.
fn strips(stage: &Stage) -> impl Iterator<Item = (u64, usize, usize)> + use<> {
    let geometry = stage.status().geometry;
    let member = move |stripe, strip| {
        geometry.member(stripe, geometry.position_of_strip(stripe, strip)).at()
    };
    (0..2000 / STRIP).map(move |strip| {
        let place = geometry.place(Lba(strip * STRIP));
        let parity = member(place.stripe, geometry.data_strips());
        (strip * STRIP, member(place.stripe, place.strip), parity)
    })
}

/// Returns the first block of a strip on `data` in a stripe whose first parity is on `parity`. In an array of four
/// members, the third strip of the stripe is missing, or is on the fourth member.
fn block_on(stage: &Stage, data: usize, parity: usize) -> u64 {
    let fits = |(_, own, p): &(u64, usize, usize)| (*own, *p) == (data, parity);
    strips(stage).find(fits).expect("every pair of members has such a stripe").0
}

/// Returns the first blocks of present strips in different stripes whose writes also write `member`.
fn blocks_with(stage: &Stage, member: usize) -> Vec<u64> {
    let geometry = stage.status().geometry;
    let fits = |(_, own, parity): &(u64, usize, usize)| {
        *own != OUT && *parity != OUT && [*own, *parity].contains(&member)
    };
    let mut blocks: Vec<u64> = strips(stage).filter(fits).map(|(at, _, _)| at).collect();
    blocks.dedup_by_key(|at| geometry.place(Lba(*at)).stripe);
    blocks
}

/// The history of the bug: a failed array released the record of a write of which one part had failed, and afterwards a
/// small write that was still reading wrote a record with a floor above the released record. At the next start, with
/// all members, the released record did not count, and the missing strip of its stripe was reconstructed from new data
/// and old parity.
#[test]
fn a_failed_array_writes_no_record_above_a_write_that_was_cut_short() {
    let mut stage = ready(Set::new(Level::Raid5, 4));
    let (torn, later) = (block_on(&stage, 0, 2), block_on(&stage, 0, 3));
    let (_, byte) = stage.home(later);
    stage.disks[0].plan.add(Rule::new(Ops::READ, Effect::Hang).within(stage.on_disk(byte, 1)));
    let waits = stage.submit_write(0, later, 1, 98);
    stage.rounds(50);
    let fail = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device)).within(stage.data_area());
    let failing = stage.disks[2].plan.add(fail);
    let fails = stage.submit_write(0, torn, 1, 99);
    assert_eq!(stage.result(fails), Err(IoErrorKind::Lost));
    assert_eq!(stage.disks[2].plan.struck(failing), Some(1), "its record is stable");
    assert!(!stage.answers.contains_key(&waits), "it waits for its read");
    stage.disks[0].answer();
    let answer = stage.result(waits);
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    assert_eq!(stage.recovered(STRICTLY).redone, 1, "the write that was cut short");
    verify_old_or_new(&mut stage, torn, 1, 99);
    verify_old_or_new(&mut stage, later, 1, 98);
    assert_eq!(answer, Err(IoErrorKind::Lost));
    assert_eq!(stage.state(OUT), MemberState::Faulty);
}

/// A member fails the write of its part of a record once: it is put out of use, although it would take the record of
/// the task that continues the write.
#[test]
fn a_member_that_fails_a_record_once_is_put_out_of_use() {
    for victim in [0, 2] {
        let mut stage = ready(Set::new(Level::Raid6, 6));
        let at = block_on(&stage, 0, 2);
        let log = bytes(&stage, LOG);
        let fail = Effect::Fail(IoErrorKind::Device);
        let fail = Rule::new(Ops::WRITE, fail).within(log).when(When::Nth(1));
        stage.disks[victim].plan.add(fail);
        assert_eq!(stage.write(at, 1, 99), Ok(()));
        stage.rounds(2000);
        assert_eq!(stage.state(victim), MemberState::Faulty);
        stage.disks[victim].plan.clear();
        stage.verify(2000);
        stage.stop().expect("a clean stop");
    }
}

/// A member does not answer the write of its part of a record. The pages and buffers that it keeps are replaced, and
/// come back when it answers.
#[test]
fn a_member_that_hangs_at_its_part_of_a_record_is_put_out_of_use() {
    for victim in [0, 2] {
        let mut set = Set::new(Level::Raid6, 6);
        set.options.tasks = 1;
        let mut stage = ready(set);
        let log = bytes(&stage, LOG);
        stage.disks[victim].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(log));
        let at = blocks_with(&stage, victim);
        let ids: Vec<u64> = at.iter().map(|at| stage.begin_write(*at, 1, *at)).collect();
        stage.pass(12);
        stage.done(ids);
        assert_eq!(stage.state(victim), MemberState::Faulty);
        // More writes than there are pages.
        stage.fill(2000, 20, 77);
        stage.disks[victim].answer();
        stage.rounds(1000);
        stage.fill(2000, 20, 78);
        stage.verify(2000);
        stage.stop().expect("a clean stop");
    }
}

/// While there is no space for its record, a small write reads nothing: a task reads its strips, once.
#[test]
fn a_small_write_without_space_for_its_record_waits_in_a_task() {
    let mut set = Set { cores: 64, ..Set::new(Level::Raid5, 4) };
    (set.options.tasks, set.options.scratch_bytes) = (1, 1 << 20);
    let mut stage = ready(set);
    let hang = Rule::new(Ops::WRITE, Effect::Hang).within(stage.data_area());
    stage.disks[0].plan.add(hang);
    let mut ids = Vec::new();
    let mut blocks = blocks_with(&stage, 0).into_iter();
    loop {
        let at = blocks.next().expect("the ring has less space");
        stage.watch();
        ids.push(stage.begin_write(at, STRIP, 100 + at));
        stage.rounds(100);
        let seen = stage.seen();
        let count = |op, area: std::ops::Range<u64>| {
            let of = |seen: &&crate::stage::Seen| seen.op == op && area.contains(&seen.byte);
            seen.iter().filter(|seen| seen.done).filter(of).count()
        };
        assert_eq!(count('r', DATA..u64::MAX), 2, "its own strip and parity");
        match count('w', LOG) {
            0 => break,
            records => assert_eq!(records, 2, "on both members"),
        }
    }
    assert!(ids.len() > 4, "the ring had space at first");
    stage.disks[0].answer();
    stage.done(ids);
    stage.verify(2000);
    stage.stop().expect("a clean stop");
}

/// Returns a write at `at` in pieces of these lengths. If the data are 8 KiB, the second block looks like a header of a
/// record.
fn like_a_header(stage: &mut Stage, at: u64, lengths: &[usize]) -> Op {
    let mut content = Stage::pattern(lengths.iter().sum(), at);
    if content.len() == 8192 {
        content[4096..4104].copy_from_slice(b"STRAKERL");
    }
    let from = (at as usize) << stage.size.shift();
    stage.model[from..from + content.len()].copy_from_slice(&content);
    let mut rest = &content[..];
    let mut list = Sg::default();
    for length in lengths {
        let (piece, others) = rest.split_at(*length);
        let mut buf = BufMut::alone(piece.len());
        buf.as_mut_slice().copy_from_slice(piece);
        list.push(buf.freeze()).expect("a list has room for four pieces");
        rest = others;
    }
    Op::Write { at: Lba(at), data: list, durability: Durability::Normal }
}

/// A small write whose data look like a header, or have no free piece for a header, is recorded by a task.
#[test]
fn a_small_write_that_looks_like_a_record_is_not_taken_for_one() {
    let pieces: [&[usize]; 5] = [&[8192], &[4096, 4096], &[512, 7680], &[6144, 2048], &[4096; 4]];
    for lengths in pieces {
        let mut stage = ready(Set::new(Level::Raid5, 4));
        let at = block_on(&stage, 0, 2);
        let write = like_a_header(&mut stage, at, lengths);
        assert_eq!(stage.run(0, write), Ok(()));
        let (mut log, mut records) = (vec![0; 1 << 20], 0);
        for disk in &stage.disks {
            disk.ram.read_at(LOG.start, &mut log).expect("inside");
            for (nth, block) in log.chunks(4096).enumerate() {
                let offset = LOG.start + nth as u64 * 4096;
                let header = strake_ondisk::decode_redo(block, offset).is_some();
                assert_eq!(header, block.starts_with(b"STRAKERL"), "{lengths:?}");
                records += usize::from(header);
            }
        }
        assert!(records >= 2, "the write is recorded");
        assert_eq!(stage.again(STRICTLY), 0);
        stage.verify(2000);
    }
}

/// A small write with a record changes the parities of a column, so that cached parities of this column are stale.
#[test]
fn a_recorded_write_drops_cached_parities() {
    let mut set = Set::new(Level::Raid5, 5);
    set.options.cache = true;
    let mut stage = set.filled(2000, 170, 7);
    let mut seed = 50;
    // The recorded writes are in another strip of the column.
    let turns = [(Consistency::Safe, 3), (Consistency::Strict, 3 + STRIP), (Consistency::Safe, 3)];
    for (mode, at) in turns {
        let pending = stage.array().begin_set_consistency(mode);
        stage.asked(pending).expect("allowed");
        stage.until("the mode", |stage| stage.status().consistency == mode);
        // If the region is not marked, a task marks it. A task would also drop cached parities of its band.
        assert_eq!(stage.write(1999, 1, 49), Ok(()));
        for _ in 0..3 {
            seed += 1;
            assert_eq!(stage.write(at, 1, seed), Ok(()));
        }
        stage.check_parity(20);
    }
    stage.verify(2000);
}
