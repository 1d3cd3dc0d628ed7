//! Tests of arrays that were destroyed by mistake.

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::{ArrayError, ArrayErrorKind, Drive, Outcome, mark_destroyed, unmark_destroyed};
use strake_raid::{Level, MemberState};
use strake_units::Nanos;

use crate::stage::{DEGRADED, STRICTLY, Set, Stage};

fn drives(stage: &Stage) -> Vec<Drive> {
    stage.disks.iter().map(|disk| disk.drive.clone()).collect()
}

fn ticking() -> impl FnMut() -> Option<Nanos> {
    let mut now = 0;
    move || {
        now += 1_000_000;
        Some(Nanos(now))
    }
}

fn destroy(stage: &mut Stage) {
    stage.stop().expect("clean");
    mark_destroyed(&drives(stage), &mut ticking()).expect("works");
}

fn undelete(stage: &Stage) -> Result<(), ArrayError> {
    let name = unmark_destroyed(&drives(stage), &mut ticking())?;
    assert_eq!(name.as_str(), "tank");
    Ok(())
}

#[test]
fn a_destroyed_array_is_brought_back_as_it_was() {
    let mut stage = Set::new(Level::Raid6, 4).filled(1000, 100, 3);
    stage.pass(6);
    stage.fail(1).expect("allowed");
    stage.fill(500, 100, 4);
    destroy(&mut stage);
    assert!(stage.find_any(STRICTLY).is_none(), "a destroyed array is no array");
    undelete(&stage).expect("everything is here");
    let error = undelete(&stage).expect_err("once is enough");
    assert_eq!(error.kind, ArrayErrorKind::State, "{error}");
    stage.again(STRICTLY);
    stage.verify(1000);
    // The member that was out is still out.
    assert_eq!(stage.state(1), MemberState::Faulty);
    stage.readd(1).expect("it is the member");
    stage.healthy();
    stage.check_parity(16);
}

/// The array is destroyed and undeleted without one drive, which appears later with its destroyed label.
#[test]
fn a_destroyed_label_that_turns_up_later_destroys_nothing() {
    let mut stage = Set::new(Level::Raid5, 3).filled(1000, 100, 3);
    destroy(&mut stage);
    let late = stage.disks.pop().expect("three");
    undelete(&stage).expect("enough are here");
    stage.disks.push(late);
    let degraded = DEGRADED;
    stage.again(degraded);
    assert_eq!(stage.state(2), MemberState::Missing);
    stage.verify(1000);
}

#[test]
fn too_few_members_or_reused_drives_are_refused() {
    let mut stage = Set::new(Level::Raid5, 3).filled(1000, 100, 3);
    destroy(&mut stage);
    let all = stage.disks.clone();
    stage.disks.truncate(1);
    let error = undelete(&stage).expect_err("one of three is not enough");
    assert_eq!(error.kind, ArrayErrorKind::Refused);
    assert!(error.what.contains("more of its members"), "{error}");
    // Another drive contains an ext4 file system.
    stage.disks = all;
    let mut superblock = vec![0; 4096];
    superblock[1024 + 56] = 0x53;
    superblock[1024 + 57] = 0xef;
    superblock[1024 + 0x60] = 0x40;
    stage.disks[1].ram.write_at(0, &superblock).expect("inside");
    let error = undelete(&stage).expect_err("it holds something else");
    assert!(error.what.contains("used for something else"), "{error}");
    // The failed attempt changed nothing: without that drive the command succeeds.
    stage.disks.remove(1);
    undelete(&stage).expect("enough are here");
    match stage.find_any(STRICTLY) {
        Some(Outcome::Waiting { what, .. }) => assert!(what.contains("member 1"), "{what}"),
        _ => panic!("it waits for the member"),
    }
}

/// The history of the bug: a drive failed during an undelete. The drives that were already written were ahead of the
/// others, and every later undelete failed.
#[test]
fn bringing_back_that_was_cut_short_can_be_asked_again() {
    for (level, members) in [(Level::Raid0, 2), (Level::Raid5, 3), (Level::Raid6, 6)] {
        for nth in 0..members {
            let mut stage = Set::new(level, members).filled(1000, 100, 3);
            destroy(&mut stage);
            for _ in 0..3 {
                let failing = Rule::new(Ops::WRITE, Effect::Fail(IoErrorKind::Device));
                stage.disks[nth].plan.add(failing);
                undelete(&stage).expect_err("a drive cannot be written");
                stage.disks[nth].plan.clear();
            }
            undelete(&stage).expect("it can be asked again");
            stage.again(STRICTLY);
            stage.verify(1000);
            let in_sync = |member: usize| stage.state(member) == MemberState::InSync;
            assert!((0..members).all(in_sync), "{level:?}, drive {nth}");
        }
    }
}
