//! Tests of small writes that are recorded in the redo log without a task: in stripes with a missing member, and in
//! mode `strict` with one parity.

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule};
use strake_raid::{Level, MemberState};
use strake_units::Lba;

use crate::redo::{degraded, verify_old_or_new};
use crate::stage::{STRICTLY, Set, Stage};

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
