//! Tests of control operations on a serving array, and of its events.

use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::{ArrayEvent, ArrayEventKind, Maintenance};
use strake_raid::{Level, MemberState};
use strake_units::{MemberIndex, Nanos};

use crate::readd::large;
use crate::stage::{DEGRADED, STRICTLY, Set, Stage};

const PAUSED: Maintenance = Maintenance { priority: 7, paused: true };

fn kinds(stage: &Stage) -> Vec<(Option<u8>, ArrayEventKind)> {
    let events = stage.array().drain_events().into_iter();
    events.map(|ArrayEvent { member, kind }| (member.map(|m| m.0), kind)).collect()
}

#[test]
fn a_paused_rebuild_stands_still_and_goes_on() {
    for cores in [1, 3] {
        let mut stage = large(Level::Raid6, 4, cores);
        stage.fail(1).expect("allowed");
        stage.array().set_maintenance(PAUSED);
        stage.replace(1).expect("replaceable");
        stage.rounds(2000);
        let before = stage.status();
        assert_eq!(before.maintenance, PAUSED);
        assert_eq!(before.rebuild.expect("it is being rebuilt").done_bytes, 0);
        // The middle is read as well.
        stage.array().set_maintenance(Maintenance::default());
        stage.until("some progress", |s| s.status().rebuild.is_some_and(|r| r.done_bytes > 0));
        stage.array().set_maintenance(PAUSED);
        stage.rounds(500);
        let standing = stage.status().rebuild;
        stage.fill(1000, 100, 9);
        stage.rounds(2000);
        assert_eq!(stage.status().rebuild, standing);
        stage.array().set_maintenance(Maintenance::default());
        stage.verify_rebuilt(40_000);
    }
}

/// Paused maintenance starts no work after a restart.
#[test]
fn a_rebuild_that_starts_paused_builds_nothing() {
    let mut stage = large(Level::Raid6, 4, 2);
    stage.fail(1).expect("allowed");
    stage.array().set_maintenance(PAUSED);
    stage.replace(1).expect("replaceable");
    stage.stop().expect("clean");
    stage.set.options.maintenance = PAUSED;
    stage.again(STRICTLY);
    stage.rounds(2000);
    let status = stage.status();
    assert_eq!(status.maintenance, PAUSED);
    assert_eq!(status.rebuild.expect("it is being rebuilt").done_bytes, 0);
    stage.array().set_maintenance(Maintenance::default());
    stage.verify_rebuilt(40_000);
}

/// The history of the bug: a paused rebuild prevented the stop of an array, because its task waited for a window that
/// never opened.
#[test]
fn a_paused_array_stops_in_order() {
    let mut stage = large(Level::Raid6, 4, 2);
    stage.fail(1).expect("allowed");
    stage.array().set_maintenance(PAUSED);
    stage.replace(1).expect("replaceable");
    stage.rounds(500);
    stage.restart();
    stage.healthy();
}

#[test]
fn a_life_is_reported_in_order() {
    let mut stage = large(Level::Raid6, 4, 2);
    assert_eq!(kinds(&stage), []);
    stage.fail(1).expect("allowed");
    stage.readd(1).expect("it is the member");
    stage.healthy();
    let reported = kinds(&stage);
    assert_eq!(reported[0], (Some(1), ArrayEventKind::MemberFailedByHand));
    assert!(
        matches!(reported[1], (Some(1), ArrayEventKind::RebuildStarted { .. })),
        "{reported:?}"
    );
    assert_eq!(reported[2..], [(Some(1), ArrayEventKind::RebuildFinished)]);
    let cause = strake_block::IoErrorKind::Device;
    stage.disks[2].plan.add(Rule::new(Ops::WRITE, Effect::Fail(cause)));
    stage.fill(3000, 100, 5);
    assert_eq!(kinds(&stage), [(Some(2), ArrayEventKind::MemberFailed { cause })]);
    stage.disks[3].plan.add(Rule::new(Ops::WRITE, Effect::Vanish));
    stage.fill(3000, 100, 6);
    assert_eq!(kinds(&stage), [(Some(3), ArrayEventKind::MemberVanished)]);
    stage.disks[0].plan.add(Rule::new(Ops::WRITE, Effect::Vanish));
    let id = stage.submit_write(0, 0, 100, 7);
    assert!(stage.result(id).is_err());
    assert_eq!(kinds(&stage), [(None, ArrayEventKind::Lost)]);
}

/// The history of the bug: a resync halted at a block that could not be reconstructed, and this was not reported.
#[test]
fn a_halted_resync_is_reported_and_tried_again() {
    let mut stage = Set { disk_bytes: 60 << 20, ..Set::new(Level::Raid5, 3) }.filled(2000, 100, 3);
    let two = [stage.home(0).0, (stage.home(0).0 + 1) % 3];
    let byte = stage.home(0).1;
    let rules: Vec<_> = two
        .into_iter()
        .map(|disk| {
            let range = stage.on_disk(byte, 8);
            let rule = Rule::new(Ops::READ, Effect::Fail(strake_block::IoErrorKind::Medium));
            (disk, stage.disks[disk].plan.add(rule.within(range)))
        })
        .collect();
    // A block that cannot be reconstructed is listed as bad, unless the list is full.
    stage.crowd_bad_blocks(1);
    stage.again(STRICTLY);
    stage.until("the halt", |stage| stage.status().resync_halted);
    assert!(stage.status().resync.is_some());
    stage.rounds(10);
    let reported = kinds(&stage);
    assert_eq!(
        reported,
        [(None, ArrayEventKind::ResyncStarted), (None, ArrayEventKind::ResyncHalted)]
    );
    // A new attempt fails while the blocks are unchanged, and is reported again.
    let pending = stage.array().begin_resume();
    stage.asked(pending).expect("allowed");
    stage.until("the halt", |stage| !kinds(stage).is_empty());
    for (disk, rule) in rules {
        stage.disks[disk].plan.remove(rule);
    }
    let pending = stage.array().begin_resume();
    stage.asked(pending).expect("allowed");
    stage.until("the resync", |stage| stage.status().resync.is_none());
    assert!(!stage.status().resync_halted);
    stage.rounds(10);
    assert_eq!(kinds(&stage), [(None, ArrayEventKind::ResyncFinished)]);
}

#[test]
fn a_new_name_survives_restarts() {
    let mut stage = Set::new(Level::Raid1, 2).filled(1000, 100, 3);
    let pending = stage.array().begin_rename("lake".parse().expect("a name"));
    stage.asked(pending).expect("allowed");
    assert_eq!(stage.array().name().as_str(), "lake");
    stage.again(STRICTLY);
    assert_eq!(stage.status().name.as_str(), "lake");
}

/// A machine that was killed a moment after a member was failed by hand refused to start: what had been written long
/// before still counted as being written.
#[test]
fn failing_by_hand_leaves_nothing_in_doubt_that_was_not_being_written() {
    let mut stage = Set::new(Level::Raid5, 4).filled(4000, 100, 3);
    stage.fail(1).expect("allowed");
    stage.step = Nanos(1);
    stage.rounds(50);
    let returned = stage.disks.remove(1);
    stage.again(DEGRADED);
    stage.disks.insert(1, returned);
    stage.verify(4000);
    stage.readd(1).expect("it is the member");
    stage.healthy();
    assert_eq!(stage.state(1), MemberState::InSync);
    stage.check_parity(16);
    let status = &stage.status().members[1];
    assert_eq!((status.stale_bytes, MemberIndex(1)), (0, MemberIndex(1)));
}

/// A member was failed by hand, the flush before that cost another one, and the array stopped for want of both: what
/// was asked had been checked before the flush only.
#[test]
fn failing_by_hand_is_refused_when_its_flush_costs_another_member() {
    for cores in [1, 3] {
        let mut set = Set::new(Level::Raid5, 4);
        (set.cores, set.cached) = (cores, true);
        let mut stage = set.filled(4000, 100, 3);
        let cause = strake_block::IoErrorKind::Device;
        stage.disks[2].plan.add(Rule::new(Ops::FLUSH, Effect::Fail(cause)));
        let error = stage.fail(1).expect_err("member 2 is out by then");
        assert!(error.what.contains("would lose data without it"), "{error}");
        assert_eq!(stage.state(1), MemberState::InSync);
        assert_eq!(kinds(&stage), [(Some(2), ArrayEventKind::MemberFailed { cause })]);
        stage.verify(4000);
    }
}
