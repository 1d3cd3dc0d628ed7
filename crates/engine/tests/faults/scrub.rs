//! Tests of scrubs: drives contain other bytes than were written to them, without an error.
//!
//! The tests change bytes on the media without the array. A scrub must find all changes, name the member if the
//! redundancy identifies it, and change nothing in doubt. A second scrub finds no error in what the first repaired.

use strake_block::IoErrorKind;
use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::{ScrubFinding, ScrubMode, ScrubState, ScrubStatus, ScrubVerdict};
use strake_raid::{Level, Role};
use strake_units::{Lba, MemberIndex, StripeIndex};

use crate::stage::{DATA, STRICTLY, Set, Stage};

pub const KIB: u64 = 1024;

/// A strip of a stripe: data strips, then parity strips; of copies, the nth copy of a data strip.
#[derive(Clone, Copy, Debug)]
pub enum Strip {
    Data(u8),
    Parity(u8),
    Copy(u8, u8),
}

/// A change of bytes `from..to` of one strip.
#[derive(Clone, Copy, Debug)]
pub struct Harm {
    pub stripe: u64,
    pub strip: Strip,
    pub from: u64,
    pub to: u64,
}

pub fn harm(stripe: u64, strip: Strip, from: u64, to: u64) -> Harm {
    Harm { stripe, strip, from, to }
}

pub fn member_of(stage: &Stage, harm: &Harm) -> usize {
    let geometry = stage.status().geometry;
    let stripe = StripeIndex(harm.stripe);
    let role = match harm.strip {
        Strip::Data(strip) => Role::Data { strip, copy: 0 },
        Strip::Parity(index) => Role::Parity { index },
        Strip::Copy(strip, copy) => Role::Data { strip, copy },
    };
    geometry.member(stripe, geometry.position(stripe, role)).at()
}

/// Changes every byte.
pub fn corrupt(stage: &Stage, harm: &Harm) {
    let geometry = stage.status().geometry;
    let member = member_of(stage, harm);
    let top = geometry.member_lba(StripeIndex(harm.stripe), 0).bytes(stage.size);
    let mut bytes = vec![0; (harm.to - harm.from) as usize];
    let at = DATA + top + harm.from;
    stage.disks[member].ram.read_at(at, &mut bytes).expect("inside");
    // The change depends on the position, so that two changes never look like a third.
    let change = Stage::pattern(bytes.len(), harm.stripe * 64 + member as u64 + 1);
    bytes.iter_mut().zip(change).for_each(|(byte, change)| *byte ^= change | 1);
    stage.disks[member].ram.write_at(at, &bytes).expect("inside");
}

/// Returns the content of all media.
pub fn media(stage: &Stage) -> Vec<Vec<u8>> {
    let geometry = stage.status().geometry;
    let bytes = geometry.member_blocks_used() << stage.size.shift();
    let read = |disk: &crate::stage::Disk| {
        let mut out = vec![0; bytes as usize];
        disk.ram.read_at(DATA, &mut out).expect("inside");
        out
    };
    stage.disks.iter().map(read).collect()
}

pub fn finished(stage: &mut Stage) -> ScrubStatus {
    stage.until("the end of the scrub", |stage| {
        stage.status().scrub.is_some_and(|scrub| scrub.state == ScrubState::Finished)
    });
    stage.status().scrub.expect("there was one")
}

pub fn scrub(stage: &mut Stage, mode: ScrubMode) -> (ScrubStatus, Vec<ScrubFinding>) {
    stage.array().begin_scrub(mode).expect("none is under way");
    (finished(stage), stage.array().scrub_findings())
}

pub fn clean(stage: &mut Stage) {
    let (status, findings) = scrub(stage, ScrubMode::Check);
    assert_eq!((status.counts.found(), &findings[..]), (0, &[][..]), "a second scrub is clean");
    assert_eq!(status.counts.unchecked, 0);
    let size = stage.status().geometry.capacity_blocks() << stage.size.shift();
    assert_eq!(status.counts.checked, size, "all of the array");
}

/// A level, its number of members, and the number of members of a group.
pub type Shape = (Level, usize, Option<u8>);

fn shapes() -> Vec<Shape> {
    vec![
        (Level::Raid5, 4, None),
        (Level::Raid6, 6, None),
        (Level::Raid73, 7, None),
        (Level::Parity(4), 9, None),
        (Level::Raid50, 6, Some(3)),
        (Level::Raid60, 10, Some(5)),
        (Level::Raid1, 2, None),
        (Level::Raid1, 3, None),
        (Level::Raid10, 6, None),
    ]
}

pub fn set((level, members, group): Shape, cores: u16) -> Set {
    let mut set = Set::new(level, members);
    (set.group, set.cores, set.strip) = (group, cores, 64 << 10);
    set.disk_bytes = 30 << 20;
    set
}

pub fn staged(shape: Shape, cores: u16) -> Stage {
    set(shape, cores).filled(9_000, 300, 5)
}

#[test]
fn a_sound_array_is_clean_on_every_level() {
    for shape in shapes() {
        let mut stage = staged(shape, 3);
        clean(&mut stage);
    }
}

/// Checks the findings of a scrub for each harm: the verdict, and whether the scrub names the member.
fn check(shape: Shape, harms: &[Harm], verdict: ScrubVerdict, named: bool) {
    let mut stage = staged(shape, 2);
    let sound = media(&stage);
    harms.iter().for_each(|harm| corrupt(&stage, harm));
    let harmed = media(&stage);
    let (status, found) = scrub(&mut stage, ScrubMode::Check);
    assert_eq!(media(&stage), harmed, "{shape:?}: a check changes nothing");
    assert_eq!(status.counts.repaired, 0);
    assert_eq!(found.len(), harms.len(), "{shape:?}: {found:?}");
    for harm in harms {
        let member = MemberIndex(member_of(&stage, harm) as u8);
        let geometry = stage.status().geometry;
        let row = geometry.member_lba(StripeIndex(harm.stripe), 0).bytes(stage.size);
        // A verdict applies to a column of 4 KiB.
        let from = row + harm.from / (4 * KIB) * 4 * KIB;
        let to = row + harm.to.next_multiple_of(4 * KIB);
        let fits = |f: &&ScrubFinding| {
            let rows = (f.rows.start.bytes(stage.size), f.rows.end().bytes(stage.size));
            rows == (from, to) && f.member.is_none_or(|found| found == member)
        };
        let one = found.iter().find(fits);
        let one = one.unwrap_or_else(|| panic!("{shape:?}: {harm:?} in {found:?}"));
        assert_eq!((one.verdict, one.member.is_some()), (verdict, named), "{shape:?} {harm:?}");
        assert_eq!((one.stripe.0, one.repaired), (harm.stripe, false));
    }
    let (status, found) = scrub(&mut stage, ScrubMode::Repair);
    if named {
        assert_eq!(status.counts.left(), 0, "{shape:?} {found:?}");
        assert!(found.iter().all(|finding| finding.repaired), "{found:?}");
        assert_eq!(media(&stage), sound, "{shape:?}: as it was written");
        clean(&mut stage);
        stage.verify(9_000);
    } else {
        assert_eq!(media(&stage), harmed, "{shape:?}: what cannot be told is left alone");
        assert_eq!(status.counts.left(), status.counts.found());
    }
}

#[test]
fn one_wrong_data_strip_is_found_and_repaired_where_redundancy_tells() {
    let harms =
        [harm(1, Strip::Data(1), 4 * KIB, 8 * KIB), harm(3, Strip::Data(0), 10_000, 10_001)];
    let check = |shape, named| {
        let verdict = if named { ScrubVerdict::DataWrong } else { ScrubVerdict::ParityDiffers };
        check(shape, &harms, verdict, named);
    };
    check((Level::Raid5, 4, None), false);
    check((Level::Raid6, 6, None), true);
    check((Level::Raid73, 7, None), true);
    check((Level::Parity(4), 9, None), true);
    check((Level::Raid50, 6, Some(3)), false);
    check((Level::Raid60, 10, Some(5)), true);
}

#[test]
fn wrong_parity_is_found_and_repaired_where_redundancy_tells() {
    let harms =
        [harm(2, Strip::Parity(0), 0, 64 * KIB), harm(5, Strip::Parity(1), 60 * KIB, 64 * KIB)];
    for shape in shapes().into_iter().filter(|(level, ..)| {
        [Level::Raid6, Level::Raid73, Level::Parity(4), Level::Raid60].contains(level)
    }) {
        check(shape, &harms, ScrubVerdict::ParityWrong, true);
    }
    check((Level::Raid5, 4, None), &harms[..1], ScrubVerdict::ParityDiffers, false);
}

/// B15: a scrub of ZFS read one of several copies and reported all as correct (`ad8b9f940c`).
#[test]
fn b15_every_copy_is_read() {
    for copy in 0..3 {
        let harms = [harm(4, Strip::Copy(0, copy), 0, 5)];
        check((Level::Raid1, 3, None), &harms, ScrubVerdict::CopyWrong, true);
    }
    for copy in 0..2 {
        let harms = [harm(4, Strip::Copy(0, copy), 0, 5)];
        check((Level::Raid1, 2, None), &harms, ScrubVerdict::CopiesDiffer, false);
        let harms = [harm(7, Strip::Copy(2, copy), 12 * KIB, 20 * KIB)];
        check((Level::Raid10, 6, None), &harms, ScrubVerdict::CopiesDiffer, false);
    }
}

#[test]
fn columns_of_one_band_have_verdicts_of_their_own() {
    let harms = [
        harm(1, Strip::Data(0), 0, 4 * KIB),
        harm(1, Strip::Data(2), 4 * KIB, 8 * KIB),
        harm(1, Strip::Data(1), 12 * KIB, 20 * KIB),
    ];
    check((Level::Raid6, 6, None), &harms, ScrubVerdict::DataWrong, true);
}

/// Two parities cannot identify two wrong strips in one column. A rewrite of a third strip could make the parity
/// consistent, but would only spread the damage.
#[test]
fn two_wrong_strips_are_never_put_right_by_a_third() {
    let pairs = [(Strip::Data(0), Strip::Data(3)), (Strip::Data(1), Strip::Parity(1))];
    for (nth, (one, other)) in pairs.into_iter().enumerate() {
        let mut stage = staged((Level::Raid6, 6, None), 1);
        corrupt(&stage, &harm(nth as u64, one, 0, 4 * KIB));
        corrupt(&stage, &harm(nth as u64, other, 0, 4 * KIB));
        let harmed = media(&stage);
        let (status, found) = scrub(&mut stage, ScrubMode::Repair);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].verdict, found[0].member), (ScrubVerdict::ParityDiffers, None));
        assert_eq!(status.counts.left(), 4 * KIB);
        assert_eq!(media(&stage), harmed, "nothing is touched");
    }
}

/// B13: RAIDZ2 and RAIDZ3 did not repair parity if two or more strips were bad (`62d4287f27`), so that a second scrub
/// found errors again.
#[test]
fn b13_two_wrong_strips_are_both_healed_with_three_parities() {
    let pairs = [
        (Strip::Data(0), Strip::Data(3)),
        (Strip::Data(1), Strip::Parity(1)),
        (Strip::Parity(0), Strip::Parity(2)),
    ];
    for shape in [(Level::Raid73, 7, None), (Level::Parity(4), 9, None)] {
        for (one, other) in pairs {
            let mut stage = staged(shape, 1);
            let sound = media(&stage);
            corrupt(&stage, &harm(2, one, 0, 4 * KIB));
            corrupt(&stage, &harm(2, other, 0, 4 * KIB));
            let (status, found) = scrub(&mut stage, ScrubMode::Repair);
            assert_eq!((found.len(), status.counts.left()), (2, 0), "{found:?}");
            assert_eq!(media(&stage), sound);
            clean(&mut stage);
        }
    }
}

/// If redundancy cannot identify the wrong strip, the operator may decide to trust the data as read.
#[test]
fn data_that_are_trusted_make_parity_and_copies_agree() {
    for (shape, strip) in [
        ((Level::Raid5, 4, None), Strip::Data(1)),
        ((Level::Raid5, 4, None), Strip::Parity(0)),
        ((Level::Raid1, 2, None), Strip::Copy(0, 1)),
        ((Level::Raid10, 6, None), Strip::Copy(1, 0)),
    ] {
        let mut stage = staged(shape, 2);
        let geometry = stage.status().geometry;
        corrupt(&stage, &harm(2, strip, 0, 4 * KIB));
        let before = read_all(&mut stage);
        let (status, found) = scrub(&mut stage, ScrubMode::TrustData);
        assert_eq!((found.len(), status.counts.left()), (1, 0), "{shape:?} {found:?}");
        clean(&mut stage);
        if geometry.parity_strips() > 0 {
            assert_eq!(read_all(&mut stage), before, "{shape:?}: data stay as they were read");
        }
    }
}

fn read_all(stage: &mut Stage) -> Vec<u8> {
    (0..9_000).step_by(300).flat_map(|at| stage.read(0, at, 300).expect("readable")).collect()
}

/// With one member out, two parities detect an error but not its place; three parities identify the place.
#[test]
fn a_degraded_array_is_checked_as_far_as_redundancy_is_left() {
    let harmed = harm(1, Strip::Data(1), 0, 4 * KIB);
    for (shape, verdict) in [
        ((Level::Raid5, 4, None), None),
        ((Level::Raid6, 6, None), Some(ScrubVerdict::ParityDiffers)),
        ((Level::Raid73, 7, None), Some(ScrubVerdict::DataWrong)),
        ((Level::Parity(4), 9, None), Some(ScrubVerdict::DataWrong)),
        ((Level::Raid1, 2, None), None),
    ] {
        let mut stage = staged(shape, 2);
        let mut harmed = harmed;
        if shape.0 == Level::Raid1 {
            harmed.strip = Strip::Copy(0, 1);
        }
        let out = (member_of(&stage, &harmed) as u8 + 1) % shape.1 as u8;
        stage.fail(out).expect("allowed");
        corrupt(&stage, &harmed);
        let before = media(&stage);
        let (status, found) = scrub(&mut stage, ScrubMode::Repair);
        let size = stage.status().geometry.capacity_blocks() << stage.size.shift();
        match verdict {
            None => {
                assert_eq!((found.len(), status.counts.unchecked), (0, size), "{shape:?}");
                assert_eq!(media(&stage), before);
            }
            Some(verdict) => {
                assert_eq!((found.len(), status.counts.checked), (1, size), "{shape:?} {found:?}");
                assert_eq!(found[0].verdict, verdict, "{shape:?}");
                let named = verdict == ScrubVerdict::DataWrong;
                assert_eq!(found[0].repaired, named);
                assert_eq!(media(&stage) == before, !named);
            }
        }
    }
}

#[test]
fn the_address_of_wrong_data_is_that_in_the_array() {
    let mut stage = staged((Level::Raid6, 6, None), 2);
    for at in [0u64, 130, 8_704] {
        let (member, byte) = stage.home(at);
        let mut bytes = [0; 512];
        stage.disks[member].ram.read_at(byte, &mut bytes).expect("inside");
        stage.disks[member].ram.write_at(byte, &bytes.map(|b| !b)).expect("inside");
        let (_, found) = scrub(&mut stage, ScrubMode::Repair);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].array.start, Lba(at / 8 * 8), "{:?}", found[0]);
        assert_eq!(found[0].member, Some(MemberIndex(member as u8)));
    }
}

/// A scrub that only checks also reconstructs and rewrites unreadable blocks, as reads do.
#[test]
fn unreadable_blocks_are_counted_and_mended() {
    for shape in shapes() {
        let mut stage = staged(shape, 2);
        let (member, byte) = stage.home(40);
        let range = stage.on_disk(byte, 1);
        let fails = Effect::Fail(IoErrorKind::Medium);
        // The read fails once for each height of rows that is tried, down to one block.
        stage.disks[member].plan.add(Rule::new(Ops::READ, fails).within(range).limit(8));
        let (status, found) = scrub(&mut stage, ScrubMode::Check);
        assert_eq!((found.len(), status.counts.left()), (1, 0), "{shape:?} {found:?}");
        let finding = &found[0];
        assert_eq!(finding.verdict, ScrubVerdict::Unreadable, "{shape:?}");
        assert_eq!(finding.member, Some(MemberIndex(member as u8)));
        assert_eq!(finding.rows.blocks, 1, "the block alone");
        assert_eq!(stage.status().members[member].health.repaired, 1);
        stage.verify(9_000);
    }
}

#[test]
fn a_scrub_of_an_array_that_is_written_finds_nothing() {
    for shape in shapes() {
        let mut stage = staged(shape, 3);
        stage.array().begin_scrub(ScrubMode::Repair).expect("none is under way");
        for nth in 0..200u64 {
            let (at, blocks) = (nth * 977 % 8_000, nth * 31 % 200 + 1);
            assert_eq!(stage.write(at, blocks, nth), Ok(()));
        }
        assert_eq!(finished(&mut stage).counts.found(), 0, "{shape:?}");
        clean(&mut stage);
        stage.verify(9_000);
    }
}

#[test]
fn a_scrub_is_paused_resumed_and_stopped_on_request() {
    let mut stage = staged((Level::Raid6, 6, None), 2);
    let state = |stage: &Stage| stage.status().scrub.map(|scrub| scrub.state);
    assert!(!stage.array().pause_scrub(true), "there is none");
    stage.array().begin_scrub(ScrubMode::Check).expect("none is under way");
    assert!(stage.array().begin_scrub(ScrubMode::Check).is_err());
    stage.rounds(10);
    assert!(stage.array().pause_scrub(true));
    stage.rounds(200);
    let done = stage.status().scrub.map(|scrub| scrub.counts.checked);
    stage.rounds(1000);
    assert_eq!(state(&stage), Some(ScrubState::Paused));
    assert_eq!(stage.status().scrub.map(|scrub| scrub.counts.checked), done, "it rests");
    assert!(stage.array().pause_scrub(false));
    let size = stage.status().geometry.capacity_blocks() << stage.size.shift();
    assert_eq!(finished(&mut stage).counts.checked, size, "nothing twice, nothing left out");
    stage.array().begin_scrub(ScrubMode::Check).expect("the other is over");
    assert!(stage.array().stop_scrub());
    assert!(!stage.array().stop_scrub());
    stage.rounds(1000);
    assert_eq!(state(&stage), Some(ScrubState::Stopped));
    clean(&mut stage);
    assert_eq!(stage.stop().map_err(|e| e.to_string()), Ok(()));
}

/// A scrub that was paused before a restart starts paused: no core scrubs in later turns.
#[test]
fn a_scrub_that_begins_paused_reads_nothing_until_it_is_resumed() {
    let mut stage = staged((Level::Raid6, 6, None), 2);
    stage.array().begin_paused_scrub(ScrubMode::Check).expect("none is under way");
    assert!(stage.array().begin_paused_scrub(ScrubMode::Check).is_err(), "one is under way");
    stage.rounds(1000);
    let status = stage.status().scrub.expect("it is shown");
    assert_eq!((status.state, status.counts.done()), (ScrubState::Paused, 0));
    assert!(!stage.array().pause_scrub(true), "it is paused");
    assert!(stage.array().pause_scrub(false));
    let size = stage.status().geometry.capacity_blocks() << stage.size.shift();
    assert_eq!(finished(&mut stage).counts.checked, size);
}

/// The rebuild runs first, and the scrub then also reads the rebuilt data.
#[test]
fn a_member_that_fails_and_is_replaced_meanwhile_stops_no_scrub() {
    for rounds in [3, 20, 60, 150] {
        let mut stage = staged((Level::Raid6, 6, None), 2);
        let harmed = harm(70, Strip::Data(1), 0, 4 * KIB);
        corrupt(&stage, &harmed);
        let out = (member_of(&stage, &harmed) as u8 + 1) % 6;
        stage.array().begin_scrub(ScrubMode::Check).expect("none is under way");
        stage.rounds(rounds);
        stage.fail_and_replace(out);
        stage.healthy();
        let status = finished(&mut stage);
        assert_eq!(status.counts.repaired, 0, "it only checks");
        let size = stage.status().geometry.capacity_blocks() << stage.size.shift();
        assert_eq!(status.counts.done(), size);
    }
}

/// B14: a sequential rebuild of dRAID trusted a column that was silently bad, and a later scrub did not repair both
/// (`8fb577ae6d`). In this test, P matches the strip that was rebuilt from the bad strip. Four parities still identify
/// both; with three, Q and R could be wrong instead, so that the scrub changes nothing.
#[test]
fn b14_what_a_rebuild_made_of_a_silently_bad_strip_is_healed_with_it() {
    for (shape, healed) in [((Level::Parity(4), 9, None), true), ((Level::Raid73, 7, None), false)]
    {
        let mut stage = staged(shape, 2);
        corrupt(&stage, &harm(2, Strip::Data(1), 0, 4 * KIB));
        let target = member_of(&stage, &harm(2, Strip::Data(2), 0, 1)) as u8;
        stage.fail_and_replace(target);
        stage.healthy();
        let before = media(&stage);
        let (status, found) = scrub(&mut stage, ScrubMode::Repair);
        if healed {
            assert_eq!((found.len(), status.counts.left()), (2, 0), "{found:?}");
            clean(&mut stage);
            stage.verify(9_000);
        } else {
            assert_eq!((found.len(), found[0].verdict), (1, ScrubVerdict::ParityDiffers));
            assert_eq!(media(&stage), before, "nothing is touched");
        }
    }
}

/// If a crash interrupts a repair, the next repair finishes the work.
#[test]
fn a_repair_that_a_crash_interrupts_is_finished_by_the_next() {
    for rounds in (0..60).step_by(4) {
        let mut stage = staged((Level::Raid6, 6, None), 1);
        // No region is left for a resync, which would treat the wrong data as intended.
        stage.pass(10);
        for stripe in 0..4 {
            corrupt(&stage, &harm(stripe, Strip::Data(stripe as u8 % 4), 0, 8 * KIB));
        }
        stage.array().begin_scrub(ScrubMode::Repair).expect("none is under way");
        stage.rounds(rounds);
        stage.down();
        stage.again(STRICTLY);
        let (status, found) = scrub(&mut stage, ScrubMode::Repair);
        assert_eq!(status.counts.left(), 0, "{found:?}");
        clean(&mut stage);
        stage.verify(9_000);
    }
}
