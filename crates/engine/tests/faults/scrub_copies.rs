//! Scrubs of mirrors whose copies of a block are on the bad block list and differ. All copies are readable.

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::{ScrubFinding, ScrubMode, ScrubVerdict};
use strake_ondisk::{BadEvent, BadList};
use strake_raid::Level;
use strake_units::{Lba, LbaRange, MemberIndex};

use crate::copies::{Differing, new, reads_while_members_leave, replaced_on, resynced_on};
use crate::scrub::{media, scrub};
use crate::stage::{Set, Stage};

/// Returns the verdict of a scrub on the block, the named member, and whether the block was repaired.
fn verdict(stage: &mut Stage, mode: ScrubMode) -> (ScrubVerdict, Option<u8>, bool) {
    let before = media(stage);
    let (_, found) = scrub(stage, mode);
    let [ScrubFinding { verdict, member, repaired, .. }] = found[..] else {
        panic!("{mode:?}: one finding: {found:?}")
    };
    assert_eq!(media(stage) == before, !repaired, "{mode:?}");
    (verdict, member.map(|member| member.0), repaired)
}

/// Two copies differ: a scrub writes one over the other only if it trusts data. Reads return the same copy in all
/// cases.
#[test]
fn two_listed_copies_that_differ_are_read_the_same_after_a_scrub() {
    for mode in [ScrubMode::Check, ScrubMode::Repair, ScrubMode::TrustData] {
        for out in 0..2 {
            let Differing { mut stage, .. } = resynced_on(Set::new(Level::Raid1, 2), None);
            let found = verdict(&mut stage, mode);
            let repaired = mode == ScrubMode::TrustData;
            assert_eq!(found, (ScrubVerdict::CopiesDiffer, None, repaired), "{mode:?}");
            let seen = reads_while_members_leave(&mut stage, [out]);
            assert!(seen.iter().all(|read| *read == seen[0]), "{mode:?} without {out}");
        }
    }
}

/// Of three listed copies, two are equal: a repair treats these two as correct.
#[test]
fn of_three_listed_copies_a_repair_takes_the_majority() {
    for (mode, repaired) in [(ScrubMode::Check, false), (ScrubMode::Repair, true)] {
        for outs in [[0, 1], [1, 2], [2, 0]] {
            let Differing { mut stage, .. } = resynced_on(Set::new(Level::Raid1, 3), None);
            let found = verdict(&mut stage, mode);
            assert_eq!(found, (ScrubVerdict::CopyWrong, Some(0), repaired), "{mode:?}");
            let seen = reads_while_members_leave(&mut stage, outs);
            assert!(seen.iter().all(|read| *read == seen[0]), "{mode:?} without {outs:?}");
            assert!(!repaired || seen[0] != new(), "two copies did not have the write");
        }
    }
}

/// One copy is not listed and two are; each copy in turn is unreadable.
#[test]
fn a_scrub_beside_a_copy_that_is_not_listed_leaves_reads_the_same() {
    for unreadable in [None, Some(0), Some(1), Some(2)] {
        for outs in [[0, 1], [1, 2], [2, 0]] {
            let Differing { mut stage, place, .. } = replaced_on(Set::new(Level::Raid1, 3), 0);
            if let Some(member) = unreadable {
                let fail = Rule::new(Ops::READ, Effect::Fail(IoErrorKind::Medium));
                let disk = &stage.disks[member as usize];
                disk.plan.add(fail.within(LbaRange::new(place.start, 1)));
            }
            scrub(&mut stage, ScrubMode::Repair);
            stage.disks.iter().for_each(|disk| disk.plan.clear());
            let seen = reads_while_members_leave(&mut stage, outs);
            let context = format!("{unreadable:?} unreadable, without {outs:?}");
            assert!(seen.iter().all(|read| *read == seen[0]), "{context}");
        }
    }
}

/// The history of the bug: a scrub that trusts data removed the copy that it wrote from the list. Another copy that was
/// not listed was re-added, and reads returned both.
#[test]
fn a_copy_that_was_out_when_a_scrub_wrote_a_listed_one_is_not_returned() {
    let Differing { mut stage, .. } = resynced_on(Set::new(Level::Raid1, 4), Some(1));
    // Member 3 is rebuilt from member 0, which does not have the write.
    stage.fail_and_replace(3);
    stage.healthy();
    stage.pass(10);
    for out in [3, 0] {
        stage.fail(out).expect("allowed");
    }
    let found = verdict(&mut stage, ScrubMode::TrustData);
    assert_eq!(found, (ScrubVerdict::CopiesDiffer, None, true));
    for out in [3, 0] {
        stage.readd(out).expect("it is the member");
    }
    stage.healthy();
    let seen = reads_while_members_leave(&mut stage, [1, 2, 0]);
    assert!(seen.iter().all(|read| *read == new()), "as the scrub left it");
}

/// The list is full, so that the copy that is out cannot be listed. The scrub writes the other copies nevertheless.
#[test]
fn copies_written_beside_a_full_list_are_reported_as_repaired() {
    let mut stage = Set::new(Level::Raid1, 3).filled(200, 50, 3);
    let mut list = BadList::default();
    for member in [1, 2].map(MemberIndex) {
        list.note(member, LbaRange::new(Lba(7), 1), BadEvent::Unreadable).expect("there is room");
    }
    stage.crowd_bad_blocks_around(list, 0);
    assert_eq!(stage.restart(), 0, "the region is trusted");
    let (_, byte) = stage.home(7);
    stage.disks[2].ram.write_at(byte, &new()).expect("inside");
    stage.fail(0).expect("allowed");
    let found = verdict(&mut stage, ScrubMode::TrustData);
    assert_eq!(found, (ScrubVerdict::CopiesDiffer, None, true));
}
