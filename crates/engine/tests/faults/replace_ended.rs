//! Tests of replacements in progress when their array fails or stops.

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule};
use strake_ondisk::{AreaLayout, Copy};
use strake_raid::Level;

use crate::replace::{begin, large, poll_for};
use crate::stage::{DEGRADED, LOSSY, Stage};

/// Makes every label write of member `member` fail.
fn fail_labels(stage: &Stage, member: usize) {
    let layout = AreaLayout::of(stage.set.disk_bytes).expect("large enough");
    let (ring, bytes) = layout.ring_range(Copy::Head);
    let labels = stage.on_disk(ring, bytes >> stage.size.shift());
    let failing = Effect::Fail(IoErrorKind::Device);
    stage.disks[member].plan.add(Rule::new(Ops::WRITE, failing).within(labels));
}

/// The history of the bug: the member failed, and another member failed during the recording of this failure. The array
/// failed, and the process terminated when the replacement was to become the member nevertheless.
#[test]
fn the_array_fails_while_a_replacement_is_filled() {
    for (level, members) in [(Level::Raid5, 3), (Level::Raid1, 2)] {
        let mut stage = large(level, members, 2);
        let (mut replacing, _disk) = begin(&mut stage, 1);
        poll_for(&mut stage, &mut replacing, 41);
        assert!(stage.status().replace.is_some(), "it is being filled");
        fail_labels(&stage, 0);
        let error = stage.vanish(1).expect_err("member 0 has failed as well");
        assert!(error.what.contains("lost too many members"), "{error}");
        assert!(stage.status().lost);
        stage.rounds(300);
        assert!(stage.read(0, 0, 100).is_err());
        stage.down();
        stage.disks[0].plan.clear();
        // Regions that were written while a member was out are in doubt.
        stage.again(LOSSY);
        stage.verify(40_000);
    }
}

/// The history of the bug: the member failed the write of its last label. The replacement became the member after the
/// stop, which the labels of the other members recorded as clean.
#[test]
fn a_stop_leaves_no_change_of_the_labels_for_later() {
    let mut stage = large(Level::Raid5, 3, 2);
    let (mut replacing, disk) = begin(&mut stage, 1);
    poll_for(&mut stage, &mut replacing, 41);
    let mut quiet = stage.array().begin_quiesce();
    stage.until("falling quiet", |_| {
        quiet.retain(|shard| shard.try_recv().is_err());
        quiet.is_empty()
    });
    assert!(stage.status().replace.is_some(), "it is being filled");
    fail_labels(&stage, 1);
    let stopping = stage.array().begin_stop();
    let mut renaming = stage.array().begin_rename("lake".parse().expect("a name"));
    stage.asked(stopping).expect("redundancy covers it");
    let stopped = stage.label(&stage.disks[0]);
    stage.rounds(300);
    let error = renaming.poll().expect("it is answered").expect_err("it comes too late");
    assert!(error.what.contains("has stopped"), "{error}");
    assert!(stopped.clean);
    assert_eq!(stage.label(&stage.disks[0]).generation, stopped.generation);
    stage.down();
    stage.disks.push(disk);
    stage.again(DEGRADED);
    stage.verify(40_000);
}
