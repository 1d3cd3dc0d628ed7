//! Tests of a promotion of a rebuilt member whose label update is cut short by a member failure and by a host failure.

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule};
use strake_ondisk::RecordedState;
use strake_raid::{Level, MemberState};
use strake_units::{Lba, LbaRange};

use crate::cut_short::what;
use crate::stage::{DATA, DEGRADED, Set, Stage};

/// The ranges of labels, bitmap pages and data on a member, in bytes.
const HEADS: std::ops::Range<u64> = 64 << 10..320 << 10;
const PAGES: std::ops::Range<u64> = 1 << 20..(1 << 20) + (1056 << 10);
const DATA_AREA: std::ops::Range<u64> = DATA..24 << 20;

/// A fault of a drive after the rebuild of member 2 has copied all data.
type Fault = (usize, Effect, std::ops::Range<u64>);

fn rule((_, effect, range): &Fault) -> Rule {
    let blocks = LbaRange::new(Lba(range.start >> 9), (range.end - range.start) >> 9);
    Rule::new(Ops::WRITE, *effect).within(blocks)
}

/// Returns an array that stopped during the promotion of member 2, with these `faults` from the last copy of its
/// rebuild.
fn promoting(level: Level, members: usize, faults: &[Fault]) -> Stage {
    let mut stage = Set::new(level, members).filled(1000, 100, 3);
    stage.pass(6);
    stage.fail(2).expect("allowed");
    stage.write(7, 4, 99).expect("works");
    stage.pass(60);
    let held = stage.disks[2].plan.add(rule(&(2, Effect::Hang, DATA_AREA)));
    stage.readd(2).expect("it is the member");
    stage.rounds(300);
    assert!(matches!(stage.state(2), MemberState::Rebuilding { .. }), "{:?}", stage.state(2));
    for fault in faults {
        stage.disks[fault.0].plan.add(rule(fault));
    }
    stage.disks[2].plan.remove(held);
    stage.disks[2].plan.release();
    stage.rounds(300);
    stage.down();
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    stage
}

/// Returns the state of member 2 in the newest label of a drive.
fn says(stage: &Stage, drive: usize) -> RecordedState {
    stage.label(&stage.disks[drive]).members[2].state
}

/// The history of the bug: member 0 failed during the promotion of member 2, and the host failed when only member 1 had
/// the label. The label recorded member 2 as in sync, but member 2 did not have this label: only one member could be
/// used, although all data was present.
#[test]
fn f25_a_promotion_that_is_cut_short_leaves_enough_members() {
    let failed = (0, Effect::Fail(IoErrorKind::Device), PAGES);
    for (hanging, promoted) in [(1, true), (2, false)] {
        let faults = [failed.clone(), (hanging, Effect::Hang, HEADS)];
        let mut stage = promoting(Level::Raid5, 3, &faults);
        assert_eq!(what(stage.find(DEGRADED)), "ready", "member {hanging} hung");
        assert_eq!(says(&stage, 2) == RecordedState::InSync, promoted, "member {hanging} hung");
        stage.again(DEGRADED);
        stage.verify(1000);
    }
}

/// In addition, member 2 itself failed at the write of its label: the array failed, and a label that records member 2
/// as in sync would have made this failure permanent.
#[test]
fn f25_a_promotion_that_loses_the_array_reaches_no_other_member() {
    let faults = [0, 2].map(|at| {
        let range = if at == 0 { PAGES } else { HEADS };
        (at, Effect::Fail(IoErrorKind::Device), range)
    });
    let mut stage = promoting(Level::Raid5, 3, &faults);
    assert_eq!(what(stage.find(DEGRADED)), "ready");
    stage.again(DEGRADED);
    stage.verify(1000);
}

/// A member failed at the write of the label of its promotion, and the host failed during the write of the next label.
/// If the other members had not received the first label, a member would have been two labels behind.
#[test]
fn f25_a_promotion_that_fails_leaves_no_member_two_behind() {
    for hanging in [0, 1, 3] {
        let failed = (2, Effect::Fail(IoErrorKind::Device), HEADS);
        let mut stage = promoting(Level::Raid5, 4, &[failed, (hanging, Effect::Hang, HEADS)]);
        stage.again(DEGRADED);
        let states: Vec<_> = stage.status().members.iter().map(|m| m.state).collect();
        let others = states.iter().enumerate().filter(|(at, _)| *at != 2);
        assert!(others.clone().all(|(_, s)| *s == MemberState::InSync), "{hanging}: {states:?}");
        stage.verify(1000);
    }
}
