//! The label that promotes a rebuilt member, cut short by a member that fails and by the end of the machine.

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule};
use strake_ondisk::RecordedState;
use strake_raid::{Level, MemberState};
use strake_units::{Lba, LbaRange};

use crate::cut_short::what;
use crate::stage::{DATA, DEGRADED, Set, Stage};

/// Where labels, bitmap pages and data lie on a member, in bytes.
const HEADS: std::ops::Range<u64> = 64 << 10..320 << 10;
const PAGES: std::ops::Range<u64> = 1 << 20..(1 << 20) + (1056 << 10);
const DATA_AREA: std::ops::Range<u64> = DATA..24 << 20;

/// What a drive does when the rebuild of member 2 has copied everything.
type Fault = (usize, Effect, std::ops::Range<u64>);

fn rule((_, effect, range): &Fault) -> Rule {
    let blocks = LbaRange::new(Lba(range.start >> 9), (range.end - range.start) >> 9);
    Rule::new(Ops::WRITE, *effect).within(blocks)
}

/// An array that stopped while member 2 was promoted, with these `faults` from the last copy of its rebuild on.
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

/// What the newest label of a drive says of member 2.
fn says(stage: &Stage, drive: usize) -> RecordedState {
    stage.label(&stage.disks[drive]).members[2].state
}

/// Member 0 failed while member 2 was promoted, and the machine stopped when member 1 alone had the label. It said that
/// member 2 is in sync, which member 2 did not show: one member was left, although all the data were there.
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

/// The same, and member 2 itself failed at its label: the array was lost, and a label that calls it in sync would have
/// kept it so.
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

/// A member failed at the label that promotes it, and the machine stopped while the next label was written. Had the
/// others not got the first one, a member would have been two labels behind.
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
