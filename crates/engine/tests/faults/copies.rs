//! Copies that differ after a crash, until the resync has made them agree.

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule, When};
use strake_engine::AssemblePolicy;
use strake_raid::{Level, MemberState};
use strake_units::{Lba, LbaRange, Nanos};

use crate::stage::{DATA, Set, Stage, bytes_of};

/// A mirror, or mirrors, of which one copy has the write of block 7 to 9 that a crash cut short.
struct Differing {
    stage: Stage,
    /// The member that has it.
    newest: usize,
    /// Where it lies on the drives.
    place: LbaRange,
}

/// Makes one on `cores` cores, whose maintenance is paused.
fn differing(level: Level, members: usize, cores: u16) -> Differing {
    let mut set = Set::new(level, members);
    (set.cores, set.options.maintenance.paused) = (cores, true);
    let mut stage = set.build().expect("sound");
    stage.fill(200, 50, 3);
    let (newest, byte) = stage.home(7);
    let place = stage.on_disk(byte, 8);
    for (_, disk) in stage.disks.iter().enumerate().filter(|(at, _)| *at != newest) {
        disk.plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(place));
    }
    let op = stage.write_op(7, 3, 9);
    stage.submit(0, op);
    stage.rounds(20);
    stage.down();
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    assert_eq!(stage.again(AssemblePolicy::default()), 1, "the crash left it untrusted");
    Differing { stage, newest, place }
}

fn new() -> Vec<u8> {
    Stage::pattern(3 * 512, 9)[..512].to_vec()
}

/// A read returned what one copy holds. Then that member went out before the resync of the band, and a later read
/// returned the block as it was before the write. A file system that replayed its journal by the first read was damaged
/// by the second. Found by the simulator.
#[test]
fn a_read_of_copies_that_differ_is_repeatable() {
    for (level, members, cores) in
        [(Level::Raid1, 2, 1), (Level::Raid1, 3, 2), (Level::Raid10, 4, 2)]
    {
        let Differing { mut stage, newest, .. } = differing(level, members, cores);
        // Two at once, and one that has a part of the write only.
        let ops = [stage.read_op(7, 1), stage.read_op(8, 2), stage.read_op(6, 8)];
        let ids = ops.map(|op| stage.submit(0, op));
        let seen = ids.map(|id| bytes_of(stage.answer(id)).expect("it can be read"));
        assert_eq!(seen[0], new(), "{level:?}");
        stage.fail(newest as u8).expect("allowed");
        for ((at, blocks), seen) in [(7, 1), (8, 2), (6, 8)].into_iter().zip(seen) {
            assert_eq!(stage.read(0, at, blocks), Ok(seen), "{level:?} x{members}: block {at}");
        }
    }
}

/// The member that holds the new data fails one read, and goes out for that. What it held was not compared, so no read
/// may return it after that: the second try of the same read did.
#[test]
fn a_member_that_fails_the_comparison_is_read_no_more() {
    for (level, members) in [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid10, 4)] {
        let Differing { mut stage, newest, place } = differing(level, members, 1);
        let fail = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Device)).within(place);
        stage.disks[newest].plan.add(fail.when(When::Nth(1)));
        let first = stage.read(0, 7, 1);
        stage.until("the member is out", |stage| stage.state(newest) == MemberState::Faulty);
        assert_eq!(stage.read(0, 7, 1), first, "{level:?} x{members}");
    }
}

/// The same in the resync, while labels take two seconds: the region was trusted before the member was out, and reads
/// returned either copy.
#[test]
fn a_resync_trusts_no_copy_that_it_could_not_read() {
    let Differing { mut stage, newest, place } = differing(Level::Raid1, 2, 1);
    stage.down();
    let fail = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Device)).within(place);
    stage.disks[newest].plan.add(fail.when(When::Nth(1)));
    stage.set.options.maintenance.paused = false;
    stage.again(AssemblePolicy::default());
    let metadata = LbaRange::new(Lba(0), DATA >> 9);
    for disk in &stage.disks {
        let delay = Effect::Delay(Nanos(2_000_000_000));
        disk.plan.add(Rule::new(Ops::WRITE, delay).within(metadata));
    }
    stage.step = Nanos(10_000_000);
    stage.until("the end of the resync", |stage| stage.status().resync.is_none());
    assert_eq!(stage.state(newest), MemberState::Faulty);
    assert_ne!(stage.read(0, 7, 1), Ok(new()), "its data went with it");
}
