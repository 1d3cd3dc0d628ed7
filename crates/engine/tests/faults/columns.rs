//! Small writes of one band: writes to other columns run side by side, and everything else waits.

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::Consistency;
use strake_raid::{Level, MemberState};
use strake_units::Nanos;

use crate::stage::{DATA, Seen, Set, Stage};

/// Blocks of a strip. A stripe has one band.
const STRIP: u64 = 32;

fn filled(consistency: Consistency) -> Stage {
    Set { consistency, ..Set::new(Level::Raid6, 8) }.filled(2000, 170, 3)
}

/// Submits writes of one block, and returns the number of data blocks that are read before the first of them is
/// written.
fn reads_before_a_write(stage: &mut Stage, blocks: &[u64]) -> usize {
    stage.watch();
    let ids = submit(stage, blocks);
    stage.done(ids);
    let seen = stage.seen();
    let of_data = seen.iter().filter(|seen| !seen.done && seen.byte >= DATA);
    of_data.take_while(|seen| seen.op == 'r').count()
}

fn submit(stage: &mut Stage, blocks: &[u64]) -> Vec<u64> {
    blocks.iter().map(|block| stage.begin_write(*block, 1, 1000 + block)).collect()
}

fn check(stage: &mut Stage) {
    stage.verify(2000);
    stage.check_parity(20);
}

/// An update of a block reads the block and both parities.
#[test]
fn writes_to_other_columns_of_a_band_run_side_by_side() {
    let mut stage = filled(Consistency::Safe);
    let blocks = [5, 9, STRIP + 7, 2 * STRIP + 20];
    assert_eq!(reads_before_a_write(&mut stage, &blocks), 3 * blocks.len());
    check(&mut stage);
}

#[test]
fn copies_of_other_columns_are_written_side_by_side() {
    let mut stage = Set::new(Level::Raid1, 2).filled(2000, 170, 3);
    stage.disks.iter().for_each(|disk| {
        disk.plan.add(Rule::new(Ops::WRITE, Effect::Delay(Nanos(50_000))));
    });
    stage.watch();
    let ids = submit(&mut stage, &[5, 9]);
    stage.done(ids);
    let seen: Vec<Seen> = stage.seen().into_iter().filter(|seen| seen.byte >= DATA).collect();
    assert_eq!(seen.iter().take_while(|seen| !seen.done).count(), 4, "{seen:?}");
    stage.verify(2000);
}

#[test]
fn writes_of_one_column_are_one_after_the_other() {
    let mut stage = filled(Consistency::Safe);
    assert_eq!(reads_before_a_write(&mut stage, &[5, STRIP + 5]), 3, "they share their parities");
    check(&mut stage);
}

/// After a crash, only the newest record of a band counts.
#[test]
fn writes_with_records_are_one_after_the_other_in_a_band() {
    let mut stage = filled(Consistency::Strict);
    assert_eq!(reads_before_a_write(&mut stage, &[5, 9]), 3);
    check(&mut stage);
}

/// A write that waits for a column is not overtaken by a write of a free column of the band.
#[test]
fn nothing_overtakes_a_write_that_waits_for_its_column() {
    let mut stage = filled(Consistency::Safe);
    assert_eq!(reads_before_a_write(&mut stage, &[5, STRIP + 5, 9]), 3);
    check(&mut stage);
}

/// Writes that waited run side by side too.
#[test]
fn waiting_writes_start_side_by_side_when_their_columns_are_free() {
    let mut stage = filled(Consistency::Safe);
    stage.watch();
    let ids = submit(&mut stage, &[5, STRIP + 5, 9, 2 * STRIP + 15]);
    stage.done(ids);
    let submitted = stage.seen().into_iter().filter(|seen| !seen.done && seen.byte >= DATA);
    let ops: String = submitted.map(|seen| seen.op).collect();
    // The first write runs alone. The other three then read before any of them writes.
    assert_eq!(ops, "rrrwwwrrrrrrrrrwwwwwwwww");
    check(&mut stage);
}

/// A read of a missing strip needs a stripe that does not change meanwhile.
#[test]
fn a_degraded_read_waits_for_all_writes_of_its_band() {
    let mut stage = filled(Consistency::Resync);
    let (victim, _) = stage.home(0);
    stage.fail(victim as u8).expect("allowed");
    for at in [5, STRIP + 9, 3 * STRIP + 5] {
        let ids = submit(&mut stage, &[STRIP + 2, 2 * STRIP + 6]);
        let read = stage.submit_read(0, at, 1);
        stage.done(ids);
        assert_eq!(stage.result(read), Ok(()));
    }
    check(&mut stage);
}

/// The write that lost a member is answered after the member is out of use. Its neighbours in the band go on without
/// the member.
#[test]
fn a_failed_write_beside_others_costs_only_its_member() {
    for victim in 0..8 {
        let mut stage = filled(Consistency::Safe);
        let rule = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
        stage.disks[victim].plan.add(rule.within(stage.on_disk(DATA, 8000)));
        let ids = submit(&mut stage, &[5, 9, STRIP + 7, 2 * STRIP + 20, 3 * STRIP + 5, 5 * STRIP]);
        stage.done(ids);
        let is_faulty = stage.state(victim) == MemberState::Faulty;
        let holds_data = (0..6).any(|strip| stage.home(strip * STRIP).0 == victim);
        assert!(is_faulty || holds_data, "every write changes the parities");
        stage.verify(2000);
        if is_faulty {
            stage.disks[victim].plan.clear();
            stage.replace(victim as u8).expect("replaceable");
            stage.healthy();
        }
        check(&mut stage);
    }
}
