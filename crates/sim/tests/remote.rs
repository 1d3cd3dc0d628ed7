//! Targets that execute commands of a daemon after it was killed.

use strake_raid::Level;
use strake_sim::drive::{Crash, LATE};
use strake_sim::stage::{Cast, Stage, play};
use strake_sim::{Mutant, Settings};
use strake_units::{MemberSet, Nanos};

/// A target delays writes of a killed daemon; the next daemon starts, reads, repairs and writes; then the target
/// executes the old writes. The last acknowledged data must be present, and parity must match.
fn story(stage: &mut Stage) -> Result<(), String> {
    for _ in 0..3 {
        stage.begin_work(20)?;
        stage.crash(Crash::Kill);
        stage.restart()?;
        stage.work(20)?;
        stage.read_back()?;
        // Longer than any settle time.
        stage.pass(strake_block::SETTLE_TIME_MAX.plus(Nanos::SECOND))?;
    }
    stage.all_is_well()
}

/// Plays the script in `seeds` worlds of each level. Returns the violations, and the number of late writes.
fn check(mutant: Mutant, seeds: u64) -> (Vec<String>, u64) {
    let (mut wrong, mut late) = (Vec::new(), 0);
    for (level, members) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 5)] {
        // Two of three drives are remote.
        let cast = Cast { remote: MemberSet::from_bits(0b11011), ..Cast::new(level, members) };
        for seed in 0..seeds {
            let settings = Settings { mutant, ..Settings::default() };
            let report = play(seed, &cast, settings, story);
            late += report.trace.faults().get(LATE).copied().unwrap_or(0);
            wrong.extend(report.violation.map(|what| format!("{level}, seed {seed}: {what}")));
        }
    }
    (wrong, late)
}

/// The initiator's protection against late writes ended with its process: a write that was acknowledged after a restart
/// was undone by one from before it.
#[test]
fn f30_no_write_of_a_dead_daemon_lands_late() {
    let (wrong, late) = check(Mutant::None, 6);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(late > 100, "only {late} writes were late");
}

/// Without the wait, the oracle detects the result.
#[test]
fn f30_a_start_that_does_not_wait_is_found_out() {
    let (wrong, _) = check(Mutant::Hasty, 6);
    assert!(wrong.len() > 6, "{} of 18 worlds went wrong", wrong.len());
}

/// The start waited for late writes, and the clock of the drives did not advance meanwhile. A drive that was silent
/// when the daemon was killed, and answered again long before the end of the wait, could not be opened: the array
/// waited for a member whose drive was present.
#[test]
fn a_drive_that_answers_again_during_the_wait_is_used() {
    let cast = Cast { remote: MemberSet::first_n(4), ..Cast::new(Level::Raid5, 4) };
    for seed in 0..6 {
        let report = play(seed, &cast, Settings::default(), |stage| {
            stage.work(10)?;
            // Too short to fail the member, and shorter than the wait.
            stage.drive(1).fall_silent(Nanos::SECOND.times(5));
            stage.load(20);
            stage.turns(200)?;
            stage.crash(Crash::Kill);
            if !stage.drive(1).is_owing() {
                return Err("the silent drive has nothing to answer".to_owned());
            }
            stage.restart()?;
            match stage.out()[..] {
                [] => stage.all_is_well(),
                ref out => Err(format!("members {out:?} are out")),
            }
        });
        assert_eq!(report.violation, None, "seed {seed}");
    }
}
