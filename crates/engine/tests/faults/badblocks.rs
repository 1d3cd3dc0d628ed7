//! Tests with blocks that cannot be reconstructed: the rebuild continues, and only these blocks are lost.

use std::collections::BTreeSet;

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule, RuleId};
use strake_engine::{ArrayEventKind, AssemblePolicy};
use strake_ondisk::{AreaLayout, BAD_SLOT_BYTES, PAGE_BYTES};
use strake_raid::{Level, MemberState};
use strake_units::{Lba, MemberIndex};

use crate::stage::{DEGRADED, LOSSY, STRICTLY, Set, Stage, needs_consent};

const BLOCKS: u64 = 1000;

/// The unreadable block.
const BAD: u64 = 40;

/// Makes the location of array block `at` unreadable until the rule is removed. A real block stays unreadable until it
/// is written.
fn spoil(stage: &Stage, at: u64) -> (usize, RuleId) {
    let (member, byte) = stage.home(at);
    let medium = Effect::Fail(IoErrorKind::Medium);
    let rule = Rule::new(Ops::READ, medium).within(stage.on_disk(byte, 1));
    (member, stage.disks[member].plan.add(rule))
}

/// Returns the array block of `member` in the column of block `at`, unless it is parity.
fn beside(stage: &Stage, at: u64, member: usize) -> Option<u64> {
    let geometry = stage.status().geometry;
    let place = geometry.place(Lba(at));
    let row = geometry.member_lba(place.stripe, place.offset);
    geometry.data_at(MemberIndex(member as u8), row).map(|lba| lba.0)
}

/// Reads every block individually, and returns the blocks with an error. The other blocks are compared.
fn survey(stage: &mut Stage, blocks: u64) -> BTreeSet<u64> {
    let mut lost = BTreeSet::new();
    for at in 0..blocks {
        match stage.read(0, at, 1) {
            Ok(bytes) => {
                let from = (at << 9) as usize;
                assert!(bytes == stage.model[from..from + 512], "block {at} is made up");
            }
            Err(_) => {
                lost.insert(at);
            }
        }
    }
    lost
}

fn listed(stage: &Stage) -> BTreeSet<u64> {
    let ranges = stage.status().bad_ranges;
    ranges.iter().flat_map(|(offset, bytes)| offset >> 9..(offset + bytes) >> 9).collect()
}

fn until_rebuilt(stage: &mut Stage, member: usize) {
    stage.until("the rebuild", |stage| stage.state(member) == MemberState::InSync);
    assert!(!stage.status().rebuild_halted);
}

fn lost_events(stage: &Stage) -> u64 {
    let bytes = |kind| match kind {
        ArrayEventKind::BlocksLost { bytes } => bytes,
        _ => 0,
    };
    stage.array().drain_events().into_iter().map(|event| bytes(event.kind)).sum()
}

/// An array whose member `target` was rebuilt while block [`BAD`], of another member, could not be read and nothing was
/// left to recover it from.
struct Holed {
    stage: Stage,
    /// Returns the member with the unreadable block.
    source: usize,
    rule: RuleId,
    /// The block of the target that could not be filled, unless that is parity.
    hole: Option<u64>,
}

fn holed(level: Level, members: usize, away: u8) -> Holed {
    let mut stage = Set::new(level, members).filled(BLOCKS, 100, 3);
    let (source, rule) = spoil(&stage, BAD);
    let target = match level {
        Level::Raid1 | Level::Raid10 => source as u8 ^ 1,
        _ => (source as u8 + away) % members as u8,
    };
    stage.fail_and_replace(target);
    until_rebuilt(&mut stage, usize::from(target));
    let hole = beside(&stage, BAD, usize::from(target)).filter(|hole| *hole != BAD);
    Holed { stage, source, rule, hole }
}

fn lost_with(hole: Option<u64>) -> BTreeSet<u64> {
    hole.into_iter().chain([BAD]).collect()
}

/// F09: one unreadable block on a drive that had to be read whole stopped the rebuild, and with it the way back to
/// redundancy for everything else. Now it costs that block, and the one of the new drive in the same column.
fn check_finishes(level: Level, members: usize, away: u8) {
    let Holed { mut stage, source, rule, hole } = holed(level, members, away);
    let lost = lost_with(hole);
    assert_eq!(lost_events(&stage), 512 * lost.len() as u64);
    for _ in 0..2 {
        assert_eq!(listed(&stage), lost);
        assert_eq!(survey(&mut stage, BLOCKS), lost);
        // The list is available after a restart.
        stage.restart();
    }
    // The drive remembers after all: nothing was given up, so everything is back, and comes off the list when read.
    stage.disks[source].plan.remove(rule);
    assert_eq!(survey(&mut stage, BLOCKS), BTreeSet::new());
    assert_eq!(listed(&stage), BTreeSet::new());
    stage.verify(BLOCKS);
    if stage.status().geometry.parity_strips() > 0 {
        stage.check_parity(10);
    }
}

#[test]
fn f09_a_rebuild_finishes_around_a_block_that_nothing_can_recover() {
    for away in 1..4 {
        check_finishes(Level::Raid5, 4, away);
    }
    check_finishes(Level::Raid1, 2, 0);
    check_finishes(Level::Raid10, 4, 0);
}

/// A write of the whole stripe of a lost block, to which a task pays attention.
#[test]
fn a_whole_stripe_over_lost_blocks_takes_them_off_the_list() {
    for away in 1..4 {
        let Holed { mut stage, source, rule, .. } = holed(Level::Raid5, 4, away);
        assert!(!listed(&stage).is_empty());
        stage.disks[source].plan.remove(rule);
        // The region has its write-intent bit.
        assert_eq!(stage.write(600, 1, 76), Ok(()));
        let stripe = stage.status().geometry.stripe_data_blocks();
        assert_eq!(stage.write(BAD / stripe * stripe, stripe, 77), Ok(()));
        assert_eq!(listed(&stage), BTreeSet::new());
        stage.verify(BLOCKS);
        stage.check_parity(10);
    }
}

/// mdadm's test: a member is added while another one has bad blocks. It takes over what can be read, the list goes with
/// it, and when the first member was removed, only the listed block is an error, until it is written.
#[test]
fn md_05r1_add_badblocks() {
    let Holed { mut stage, source, .. } = holed(Level::Raid1, 2, 0);
    let lost = lost_with(None);
    stage.fail(source as u8).expect("the one that was added is in sync");
    stage.stop().expect("clean");
    stage.again(DEGRADED);
    assert_eq!((listed(&stage), survey(&mut stage, BLOCKS)), (lost.clone(), lost));
    assert_eq!(stage.write(BAD, 1, 77), Ok(()));
    assert_eq!(survey(&mut stage, BLOCKS), BTreeSet::new());
    assert_eq!(listed(&stage), BTreeSet::new(), "whoever is out loses nothing");
    stage.replace(source as u8).expect("replaceable");
    until_rebuilt(&mut stage, source);
    assert_eq!(listed(&stage), BTreeSet::new());
    stage.verify(BLOCKS);
}

#[test]
fn f09_with_two_members_missing_and_one_of_them_back() {
    let mut stage = Set::new(Level::Raid6, 6).filled(BLOCKS, 100, 3);
    stage.pass(6);
    let (source, _rule) = spoil(&stage, BAD);
    let (away, target) = ((source + 1) % 6, (source + 2) % 6);
    stage.fail(away as u8).expect("allowed");
    stage.fail(target as u8).expect("allowed");
    stage.replace(target as u8).expect("replaceable");
    until_rebuilt(&mut stage, target);
    let lost: BTreeSet<u64> = [away, target, source]
        .into_iter()
        .filter_map(|member| beside(&stage, BAD, member))
        .collect();
    assert_eq!(survey(&mut stage, BLOCKS), lost);
    // The absent member has the missing data.
    stage.readd(away as u8).expect("it is ours");
    stage.healthy();
    assert_eq!(survey(&mut stage, BLOCKS), BTreeSet::new());
    assert_eq!(listed(&stage), BTreeSet::new(), "all was recovered and put back");
}

/// Blocks of one column in different drives, each with all it needs: none of them is lost, although no drive of the
/// stripe can be read as a whole.
#[test]
fn f08_f10_unreadable_blocks_in_different_columns_cost_nothing() {
    for (level, members) in [(Level::Raid5, 5), (Level::Raid6, 6)] {
        let mut stage = Set::new(level, members).filled(BLOCKS, 100, 3);
        let geometry = stage.status().geometry;
        let strip = u64::from(geometry.strip_blocks());
        let spots: Vec<u64> =
            (0..u64::from(geometry.data_strips())).map(|n| n * strip + 3 * n + 1).collect();
        let rules: Vec<_> = spots.iter().map(|at| spoil(&stage, *at)).collect();
        let whole = strip * u64::from(geometry.data_strips());
        let bytes = stage.read(0, 0, whole).expect("every column has what it needs");
        assert!(bytes == stage.model[..(whole << 9) as usize]);
        assert_eq!(stage.write(1, whole - 2, 5), Ok(()));
        if level == Level::Raid6 {
            let target = (rules[0].0 as u8 + members as u8 - 1) % members as u8;
            stage.fail_and_replace(target);
            until_rebuilt(&mut stage, usize::from(target));
        }
        assert_eq!(survey(&mut stage, BLOCKS), BTreeSet::new());
        assert_eq!(listed(&stage), BTreeSet::new());
        for (member, rule) in rules {
            stage.disks[member].plan.remove(rule);
        }
        stage.verify(BLOCKS);
        stage.check_parity(10);
    }
}

/// A block is written that could not be read. The other one of its column is given up with that: it is answered with an
/// error, never with what stands in its place, and what was written has its redundancy back.
#[test]
fn f09_a_write_over_a_lost_block_heals_it() {
    for away in 1..4 {
        for other_first in [false, true] {
            let Holed { mut stage, source, rule, hole } = holed(Level::Raid5, 4, away);
            let (first, second) = match hole {
                Some(hole) if other_first => (hole, Some(BAD)),
                Some(_) | None => (BAD, hole),
            };
            assert_eq!(stage.write(first, 1, 77), Ok(()));
            // Written zeroes or data have made the drive forget that it could not read the block.
            stage.disks[source].plan.remove(rule);
            let left: BTreeSet<u64> = second.into_iter().collect();
            for _ in 0..2 {
                assert_eq!(listed(&stage), left, "away {away}, other first {other_first}");
                assert_eq!(survey(&mut stage, BLOCKS), left);
                stage.again(AssemblePolicy { accept_loss: true, ..STRICTLY });
                stage.until("resync", |stage| stage.status().resync.is_none());
            }
            for member in 0..4 {
                stage.fail(member).expect("allowed");
                assert_eq!(survey(&mut stage, BLOCKS), left, "without member {member}");
                stage.replace(member).expect("replaceable");
                stage.healthy();
                assert_eq!(listed(&stage), left, "without member {member}");
            }
            if let Some(second) = second {
                assert_eq!(stage.write(second - 2, 5, 78), Ok(()));
            }
            assert_eq!(listed(&stage), BTreeSet::new());
            stage.verify(BLOCKS);
            stage.check_parity(10);
        }
    }
}

/// Zeroes are written over lost blocks: what reads as zeroes elsewhere because it was never written must read so here.
#[test]
fn f09_zeroes_and_deallocation_heal_lost_blocks() {
    use strake_block::{Durability, Op};
    use strake_units::LbaRange;
    for whole_bands in [false, true] {
        let Holed { mut stage, source, rule, hole: _ } = holed(Level::Raid5, 4, 1);
        let stripe = stage.status().geometry.stripe_data_blocks();
        let range = LbaRange::new(Lba(0), if whole_bands { 2 * stripe } else { stripe - 1 });
        let op = if whole_bands {
            Op::Deallocate { range }
        } else {
            Op::WriteZeroes { range, durability: Durability::Normal }
        };
        assert_eq!(stage.run(0, op), Ok(()));
        stage.model[..(range.blocks << 9) as usize].fill(0);
        stage.disks[source].plan.remove(rule);
        assert_eq!(listed(&stage), BTreeSet::new());
        stage.verify(BLOCKS);
        stage.check_parity(10);
    }
}

/// Another block of the column is written while two are lost: it is accepted, it has redundancy, and the two are still
/// answered with an error.
#[test]
fn f09_the_neighbours_of_lost_blocks_are_written_as_ever() {
    for away in 1..4 {
        let Holed { mut stage, source, rule, hole } = holed(Level::Raid5, 4, away);
        let lost = lost_with(hole);
        for member in 0..4 {
            let Some(other) = beside(&stage, BAD, member).filter(|b| !lost.contains(b)) else {
                continue;
            };
            assert_eq!(stage.write(other, 1, 91), Ok(()), "away {away}, block {other}");
            assert_eq!(stage.write(other - 3, 7, 92), Ok(()), "around block {other}");
        }
        assert_eq!(survey(&mut stage, BLOCKS), lost);
        for at in lost {
            assert_eq!(stage.write(at, 1, 93), Ok(()));
        }
        stage.disks[source].plan.remove(rule);
        assert_eq!(survey(&mut stage, BLOCKS), BTreeSet::new());
        stage.verify(BLOCKS);
        stage.check_parity(10);
    }
}

/// The host crashes at any moment of a rebuild that meets a lost block, and of the write over it.
#[test]
fn f09_a_crash_at_any_round_makes_nothing_up() {
    let policy = LOSSY;
    for rounds in (0..260).step_by(13) {
        let mut stage = Set::new(Level::Raid5, 4).filled(BLOCKS, 100, 3);
        stage.pass(6);
        let (source, _) = spoil(&stage, BAD);
        let target = (source as u8 + 1) % 4;
        stage.fail_and_replace(target);
        stage.rounds(rounds);
        stage.again(policy);
        until_rebuilt(&mut stage, usize::from(target));
        let lost = lost_with(beside(&stage, BAD, usize::from(target)));
        assert_eq!(survey(&mut stage, BLOCKS), lost, "after {rounds} rounds");
        assert_eq!(listed(&stage), lost);
    }
}

#[test]
fn f09_a_crash_at_any_round_of_giving_up_makes_nothing_up() {
    let policy = LOSSY;
    for rounds in 0..70 {
        let Holed { mut stage, source, rule, hole } = holed(Level::Raid5, 4, 1);
        let hole = hole.expect("data");
        stage.submit_write(0, BAD, 1, 55);
        stage.rounds(rounds);
        stage.again(policy);
        stage.disks[source].plan.remove(rule);
        stage.until("resync", |stage| stage.status().resync.is_none());
        let new = Stage::pattern(512, 55);
        let old = stage.model[(BAD << 9) as usize..(BAD << 9) as usize + 512].to_vec();
        for _ in 0..2 {
            // Not acknowledged: old, new or an error, but nothing else. Of the block beside it, its data or an error.
            match stage.read(0, BAD, 1) {
                Ok(bytes) if bytes == new => stage.expect(BAD, 1, 55),
                Ok(bytes) => assert!(bytes == old, "after {rounds} rounds"),
                Err(_) => {}
            }
            let lost = survey(&mut stage, BLOCKS);
            assert!(lost.is_subset(&lost_with(Some(hole))), "after {rounds} rounds: {lost:?}");
            stage.fail(3).expect("allowed");
        }
    }
}

/// A long list has many pages, and a crash may occur between their writes. The valid copy is not overwritten.
#[test]
fn f09_a_list_cut_short_leaves_the_one_before() {
    let mut stage = Set::new(Level::Raid5, 4).filled(BLOCKS, 100, 3);
    stage.crowd_bad_blocks(50);
    stage.again(STRICTLY);
    // A member that goes out before the resync leaves regions in doubt.
    stage.until("the resync", |stage| stage.status().resync.is_none());
    let (source, _) = spoil(&stage, BAD);
    let target = (source + 1) % 4;
    stage.fail(target as u8).expect("allowed");
    stage.replace(target as u8).expect("replaceable");
    until_rebuilt(&mut stage, target);
    let lost = lost_with(beside(&stage, BAD, target));
    assert!(listed(&stage).is_superset(&lost));
    let layout = AreaLayout::of(stage.set.disk_bytes).expect("large enough");
    for slot in [0, 1].map(|sequence| layout.bad_blocks_offset(sequence)) {
        let page = PAGE_BYTES as u64;
        let rest = stage.on_disk(slot + page, (BAD_SLOT_BYTES - page) >> 9);
        for disk in &stage.disks {
            disk.plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(rest));
        }
    }
    stage.submit_write(0, BAD, 1, 55);
    stage.rounds(500);
    stage.down();
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    stage.again(STRICTLY);
    assert!(listed(&stage).is_superset(&lost), "neither is known to hold anything");
}

/// B10: md dropped what its list of bad blocks had no room for and served those blocks as if they were good. A rebuild
/// that has no room stops instead, and continues when there is.
#[test]
fn b10_a_full_list_halts_the_rebuild() {
    let mut stage = Set::new(Level::Raid5, 4).filled(BLOCKS, 100, 3);
    stage.pass(6);
    stage.crowd_bad_blocks(40);
    stage.again(STRICTLY);
    let far = listed(&stage);
    let rules: Vec<RuleId> = (0..60)
        .map(|nth| {
            let byte = crate::stage::DATA + ((2 * nth) << 9);
            let medium = Effect::Fail(IoErrorKind::Medium);
            let rule = Rule::new(Ops::READ, medium).within(stage.on_disk(byte, 1));
            stage.disks[1].plan.add(rule)
        })
        .collect();
    stage.fail_and_replace(2);
    stage.until("halting", |stage| stage.status().rebuild_halted);
    assert_ne!(stage.state(2), MemberState::InSync);
    assert!(!stage.status().lost);
    for at in 0..BLOCKS {
        if let Ok(bytes) = stage.read(0, at, 1) {
            assert!(bytes == stage.model[(at as usize) << 9..(at as usize + 1) << 9], "block {at}");
        }
    }
    rules.into_iter().for_each(|rule| assert!(stage.disks[1].plan.remove(rule).is_some()));
    let resume = stage.array().begin_resume();
    stage.asked(resume).expect("possible");
    stage.verify_rebuilt(BLOCKS);
    assert!(listed(&stage).is_subset(&far), "only what was there before");
    stage.check_all_parity();
}

/// The same for a resync: parity of a column that cannot be made to agree is not used, everything else is.
#[test]
fn f09_a_resync_finishes_around_blocks_that_nothing_can_recover() {
    let mut stage = Set::new(Level::Raid5, 5).filled(BLOCKS, 100, 3);
    let strip = u64::from(stage.status().geometry.strip_blocks());
    let lost: BTreeSet<u64> = [8, strip + 8].into();
    let rules: Vec<_> = lost.iter().map(|at| spoil(&stage, *at)).collect();
    assert!(stage.again(STRICTLY) > 0, "it was being written");
    stage.until("resync", |stage| stage.status().resync.is_none());
    assert!(!stage.status().resync_halted);
    assert_eq!(listed(&stage), lost);
    assert_eq!(survey(&mut stage, BLOCKS), lost);
    // The other blocks of the column have no valid parity until it is written again.
    assert_eq!(stage.write(2 * strip + 8, 1, 41), Ok(()));
    for (member, rule) in rules {
        stage.disks[member].plan.remove(rule);
    }
    stage.fail(stage.home(2 * strip + 8).0 as u8).expect("allowed");
    assert_eq!(survey(&mut stage, BLOCKS), lost, "they are given up");
}

#[test]
fn f09_a_resync_of_copies_finishes_around_a_block_that_none_can_show() {
    let mut stage = Set::new(Level::Raid1, 2).filled(BLOCKS, 100, 3);
    let byte = crate::stage::DATA + (BAD << 9);
    for disk in &stage.disks {
        let medium = Effect::Fail(IoErrorKind::Medium);
        disk.plan.add(Rule::new(Ops::READ, medium).within(stage.on_disk(byte, 1)));
    }
    assert!(stage.again(STRICTLY) > 0, "it was being written");
    stage.until("resync", |stage| stage.status().resync.is_none());
    assert!(!stage.status().resync_halted);
    assert_eq!(listed(&stage), [BAD].into());
    assert_eq!(survey(&mut stage, BLOCKS), [BAD].into());
    assert_eq!(stage.write(BAD - 1, 3, 6), Ok(()));
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    assert_eq!(listed(&stage), BTreeSet::new());
    stage.verify(BLOCKS);
}

/// No list can be read although the label says that there is one: what is bad would be served as if it were good.
#[test]
fn an_array_whose_list_of_bad_blocks_is_gone_is_refused() {
    let Holed { mut stage, .. } = holed(Level::Raid5, 4, 1);
    stage.stop().expect("clean");
    for disk in &stage.disks {
        disk.ram.write_at(5 << 20, &vec![0x55; 128 << 10]).expect("inside");
    }
    let strake_engine::Outcome::Refused { what, remedy, .. } = stage.find(STRICTLY) else {
        panic!("it must be refused")
    };
    assert!(what.contains("bad blocks") && needs_consent(remedy), "{what}");
    stage.again(AssemblePolicy { accept_loss: true, ..STRICTLY });
}

/// The list was lost, its loss accepted, and a new one began at sequence 0. A member that was away still had the old
/// one with a higher sequence, which won at the start after it had been taken back: good blocks were called lost.
#[test]
fn a_list_given_up_is_not_brought_back_by_a_member_that_was_away() {
    let Holed { mut stage, source, rule, hole } = holed(Level::Raid5, 4, 1);
    let target = (source + 1) % 4;
    let away = (0..4).find(|member| ![source, target].contains(member)).expect("two are left");
    stage.fail(away as u8).expect("allowed");
    stage.stop().expect("clean");
    for (member, disk) in stage.disks.iter().enumerate() {
        if member != away {
            disk.ram.write_at(5 << 20, &vec![0x55; 128 << 10]).expect("inside");
        }
        disk.plan.remove(rule);
    }
    stage.again(LOSSY);
    for at in lost_with(hole) {
        assert_eq!(stage.write(at, 1, 5), Ok(()));
    }
    stage.readd(away as u8).expect("it is the member");
    stage.healthy();
    stage.restart();
    assert_eq!(listed(&stage), BTreeSet::new());
    for at in lost_with(hole) {
        let from = (at << 9) as usize;
        assert_eq!(stage.read(0, at, 1).as_deref(), Ok(&stage.model[from..from + 512]));
    }
}

/// How many I/Os the drives get within the call that submits a request, before the array has a turn: none when a task
/// has to look at it.
fn at_once(stage: &mut Stage, op: strake_block::Op) -> usize {
    stage.rounds(20);
    stage.watch();
    let id = stage.submit(0, op);
    let sent = stage.seen().iter().filter(|seen| !seen.done).count();
    stage.result(id).expect("nothing is lost here");
    sent
}

/// One listed block turned direct reads, small writes and degraded reads off for the whole array; now it does so for
/// its band.
#[test]
fn a_bad_block_slows_down_its_own_band_alone() {
    let Holed { mut stage, source, rule, .. } = holed(Level::Raid5, 4, 1);
    stage.disks[source].plan.remove(rule);
    let geometry = stage.status().geometry;
    let row_of = |at: u64| {
        let place = geometry.place(Lba(at));
        geometry.member_lba(place.stripe, place.offset).0 / u64::from(geometry.band_blocks())
    };
    let lost = listed(&stage);
    let beside = (0..BLOCKS).find(|at| row_of(*at) == row_of(BAD) && !lost.contains(at));
    let far = (0..BLOCKS).find(|at| row_of(*at) != row_of(BAD)).expect("there are more bands");
    let beside = beside.expect("a band has more blocks");
    let read = stage.read_op(beside, 1);
    assert_eq!(at_once(&mut stage, read), 0, "its own band is for a task");
    let read = stage.read_op(far, 1);
    assert_eq!(at_once(&mut stage, read), 1, "another one is read directly");
    // From then on, its region is marked.
    stage.write(far, 1, 6).expect("all is well");
    let write = stage.write_op(far, 1, 7);
    stage.expect(far, 1, 7);
    assert!(at_once(&mut stage, write) > 0, "and written directly");
    let (home, _) = stage.home(far);
    stage.fail(home as u8).expect("allowed");
    let read = stage.read_op(far, 1);
    assert_eq!(at_once(&mut stage, read), 3, "and recovered directly");
}
