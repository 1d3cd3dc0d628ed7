//! Tests of rebuilds that are interrupted, concurrent with writes, and started again.

use strake_dev_mem::{Effect, Ops, Rule, When};
use strake_engine::AssemblePolicy;
use strake_raid::{Level, MemberState};

use crate::readd::large;
use crate::replace::poll_for;
use crate::stage::{DEGRADED, STRICTLY, Set, Stage};

fn cursor(stage: &Stage, member: usize) -> u64 {
    match stage.state(member) {
        MemberState::Rebuilding { recovered_stripes } => recovered_stripes,
        other => panic!("member {member} is {other}"),
    }
}

/// Runs turns until the cursor in the label has moved; ten turns take one second.
fn until_checkpoint(stage: &mut Stage, member: usize) {
    stage.step = strake_units::Nanos(100_000_000);
    stage.until("a checkpoint", |stage| cursor(stage, member) > 0);
    stage.step = strake_units::Nanos(1000);
}

#[test]
fn a_rebuild_goes_on_where_it_was_on_any_number_of_cores() {
    let policy = AssemblePolicy { accept_loss: true, ..STRICTLY };
    let mut stage = large(Level::Raid6, 4, 1);
    stage.fail(1).expect("allowed");
    stage.fill(3000, 100, 9);
    stage.replace(1).expect("replaceable");
    for (cores, clean) in [(3, true), (2, false), (1, true), (2, true)] {
        until_checkpoint(&mut stage, 1);
        let before = cursor(&stage, 1);
        stage.fill(2000, 77, u64::from(cores));
        if clean {
            stage.stop().expect("clean");
        }
        stage.set.cores = cores;
        stage.again(policy);
        let after = match stage.state(1) {
            MemberState::Rebuilding { recovered_stripes } => recovered_stripes,
            MemberState::InSync => break,
            other => panic!("member 1 is {other}"),
        };
        assert!(after >= before, "from {before} back to {after}");
        stage.fill(3000, 60, 50 + u64::from(cores));
    }
    stage.verify_rebuilt(40_000);
    stage.check_all_parity();
}

#[test]
fn a_second_replacement_in_the_middle_of_the_first() {
    let mut stage = large(Level::Raid6, 4, 3);
    stage.fail_and_replace(1);
    until_checkpoint(&mut stage, 1);
    stage.fail_and_replace(2);
    stage.rounds(500);
    // The first target fails and is also replaced.
    stage.fail_and_replace(1);
    stage.fill(40_000, 900, 21);
    stage.verify_rebuilt(40_000);
    stage.check_all_parity();
}

/// The target is replaced again at every progress in a region; no progress of the first target counts for the second.
#[test]
fn a_target_replaced_again_starts_from_nothing() {
    for rounds in [1, 10, 30, 300] {
        let set = Set { disk_bytes: 60 << 20, ..Set::new(Level::Raid5, 4) };
        let mut stage = set.filled(30_000, 1000, 3);
        stage.fail_and_replace(1);
        stage.rounds(rounds);
        if stage.state(1) == MemberState::InSync {
            continue;
        }
        stage.fail_and_replace(1);
        stage.healthy();
        stage.check_all_parity();
    }
}

#[test]
fn targets_and_sources_vanish_during_a_rebuild() {
    for source in [false, true] {
        for nth in [1, 40] {
            let mut stage = large(Level::Raid6, 4, 2);
            stage.fail(1).expect("allowed");
            let disk = stage.spare();
            let victim = if source { stage.disks[3].clone() } else { disk.clone() };
            if source {
                victim.plan.add(Rule::new(Ops::READ, Effect::Vanish).when(When::Nth(nth)));
            }
            stage.replace_with(1, disk).expect("replaceable");
            if !source {
                victim.plan.add(Rule::new(Ops::WRITE, Effect::Vanish).when(When::Nth(nth)));
            }
            let gone = if source { 3 } else { 1 };
            stage.until("the loss", |stage| stage.state(gone) == MemberState::Missing);
            stage.fill(1000, 100, 5);
            stage.replace(gone as u8).expect("replaceable");
            stage.verify_rebuilt(40_000);
            stage.check_all_parity();
        }
    }
}

#[test]
fn a_crash_right_after_a_replacement_leaves_a_rebuild() {
    for rounds in (0..40).step_by(4) {
        let mut stage = Set::new(Level::Raid6, 4).filled(1000, 100, 3);
        stage.fail(1).expect("allowed");
        stage.pass(6);
        let disk = stage.spare();
        let uuid = strake_units::Uuid([222; 16]);
        strake_engine::prepare_drive(&disk.drive, uuid, &mut || Some(strake_units::Nanos(0)))
            .expect("works");
        let mut replacing = stage
            .array()
            .begin_replace(strake_units::MemberIndex(1), &disk.drive, uuid)
            .expect("fits");
        stage.disks.push(disk.clone());
        poll_for(&mut stage, &mut replacing, rounds);
        stage.again(DEGRADED);
        stage.verify(1000);
        if matches!(stage.state(1), MemberState::Missing | MemberState::Faulty) {
            let member = stage.disks.remove(1);
            stage.disks.truncate(4);
            stage.disks.insert(1, member);
            stage.replace(1).expect("replaceable");
        } else {
            stage.disks[1] = disk;
        }
        stage.verify_rebuilt(1000);
        stage.disks.truncate(4);
        stage.check_parity(16);
    }
}
