//! A scrub that a restart interrupts continues at its position.

use strake_engine::{ScrubFinding, ScrubMode, ScrubPosition, ScrubState};
use strake_raid::Level;
use strake_units::MemberIndex;

use crate::scrub::{KIB, Shape, Strip, clean, corrupt, finished, harm, scrub, set};
use crate::stage::{STRICTLY, Stage};

const SHAPE: Shape = (Level::Raid6, 6, None);

/// Returns an array of several regions, each with a wrong strip.
fn spoiled(cores: u16) -> Stage {
    let mut set = set(SHAPE, cores);
    set.disk_bytes = 60 << 20;
    let mut stage = set.filled(9_000, 300, 5);
    // No region is in doubt after a crash: a resync would treat the wrong strips as intended.
    stage.pass(10);
    for (nth, stripe) in (0..stage.status().geometry.stripes()).step_by(40).enumerate() {
        corrupt(&stage, &harm(stripe, Strip::Data(nth as u8 % 4), 4 * KIB, 8 * KIB));
    }
    stage
}

fn crash(stage: &mut Stage, cores: u16) -> ScrubPosition {
    let position = stage.array().scrub_position().expect("there was one");
    stage.down();
    stage.set.cores = cores;
    stage.again(STRICTLY);
    position
}

/// A scrub is interrupted repeatedly, each time after the given number of rounds. It does not restart from the
/// beginning, and it reports the same result as an uninterrupted scrub.
#[test]
fn a_scrub_goes_on_where_it_was_on_any_number_of_cores() {
    let check = |mode: ScrubMode, rounds: u64, cores: &[u16]| {
        let whole = {
            let mut stage = spoiled(2);
            scrub(&mut stage, mode)
        };
        assert!(whole.1.len() > 10, "{whole:?}");
        let mut stage = spoiled(cores[0]);
        stage.array().begin_scrub(mode).expect("none is under way");
        let (mut before, mut halfway) = (0, 0);
        for next in cores {
            stage.rounds(rounds);
            let position = crash(&mut stage, *next);
            halfway +=
                u32::from(position.state == ScrubState::Running && !position.done.is_empty());
            assert!(position.counts.done() >= before, "{mode:?} {rounds} {cores:?}");
            before = position.counts.done();
            assert!(stage.array().take_up_scrub(&position));
            assert!(!stage.array().take_up_scrub(&position), "it is in progress");
            assert_eq!(stage.status().scrub.map(|scrub| scrub.counts.done()), Some(before));
        }
        assert!(halfway > 1, "{mode:?} {rounds} {cores:?}: it was interrupted {halfway} times");
        let (status, found) = (finished(&mut stage), stage.array().scrub_findings());
        let context = format!("{mode:?} {rounds} {cores:?}");
        assert_eq!(status.counts.done(), whole.0.counts.done(), "{context}");
        if mode == ScrubMode::Repair {
            // The next scrub does not find blocks that were repaired just before the interruption and not yet reported.
            assert!(found.iter().all(|finding| whole.1.contains(finding)), "{context} {found:?}");
            clean(&mut stage);
            stage.verify(9_000);
        } else {
            assert_eq!((status.counts, found), (whole.0.counts, whole.1), "{context}");
        }
    };
    for mode in [ScrubMode::Check, ScrubMode::Repair] {
        check(mode, 14, &[2, 2, 2]);
        check(mode, 12, &[1, 3, 2]);
        check(mode, 9, &[3, 1, 2, 2, 1]);
    }
}

#[test]
fn a_scrub_that_rested_rests_and_one_that_is_over_is_shown() {
    let mut stage = spoiled(2);
    let state = |stage: &Stage| stage.status().scrub.map(|scrub| scrub.state);
    stage.array().begin_scrub(ScrubMode::Check).expect("none is under way");
    stage.rounds(30);
    assert!(stage.array().pause_scrub(true));
    let position = crash(&mut stage, 2);
    assert!(stage.array().take_up_scrub(&position));
    let before = stage.status().scrub;
    stage.rounds(1000);
    assert_eq!((state(&stage), stage.status().scrub), (Some(ScrubState::Paused), before));
    assert!(stage.array().pause_scrub(false));
    let reported = (finished(&mut stage).counts, stage.array().scrub_findings());
    let position = crash(&mut stage, 1);
    assert!(stage.array().take_up_scrub(&position));
    let shown = stage.status().scrub.expect("it was taken up");
    assert_eq!((shown.state, shown.counts), (ScrubState::Finished, reported.0));
    assert_eq!(stage.array().scrub_findings(), reported.1);
    let (again, _) = scrub(&mut stage, ScrubMode::Repair);
    assert_eq!((again.counts.found(), again.counts.left()), (reported.0.found(), 0));
    // Another scrub was started since then.
    assert!(!stage.array().take_up_scrub(&position));
}

/// A position comes from a file, which may be damaged or belong to another array.
#[test]
fn a_position_that_is_not_of_this_array_is_not_taken() {
    let mut stage = spoiled(1);
    scrub(&mut stage, ScrubMode::Check);
    let good = crash(&mut stage, 1);
    let refused = |position: ScrubPosition| {
        assert!(!stage.array().take_up_scrub(&position), "{position:?}");
        assert_eq!(stage.status().scrub, None);
    };
    let with = |change: &dyn Fn(&mut ScrubFinding)| {
        let mut position = good.clone();
        change(&mut position.findings[0]);
        position
    };
    refused(ScrubPosition { regions: good.regions + 1, ..good.clone() });
    refused(ScrubPosition { done: [0..1, 1..good.regions + 1].to_vec(), ..good.clone() });
    refused(ScrubPosition { findings: vec![good.findings[0]; 1025], ..good.clone() });
    refused(with(&|finding| finding.member = Some(MemberIndex(6))));
    refused(with(&|finding| finding.stripe.0 = u64::MAX));
    refused(with(&|finding| finding.rows.blocks = u64::MAX));
    refused(with(&|finding| finding.array.start.0 = u64::MAX));
    assert!(stage.array().take_up_scrub(&good));
}
