//! Tests with unresponsive drives during an assembly, with a simulated clock. The array starts without these drives if
//! redundancy allows, and no other member is failed.

use std::ops::Range;

use strake_block::Op;
use strake_dev_mem::{Effect, Ops, Rule, When};
use strake_engine::{
    ArrayError, Assembled, Consistency, Drive, Outcome, assemble, create, plan_create,
};
use strake_raid::{Level, MemberState};
use strake_units::{Nanos, Uuid};

use crate::redo::degraded;
use crate::stage::{DATA, DEGRADED, Set, Stage};

/// Maximum time until a start serves, for any behaviour of a drive.
const SERVED: Nanos = Nanos(20 * Nanos::SECOND.0);

const HEAD_RING: Range<u64> = 64 << 10..320 << 10;
const BITMAP: Range<u64> = 1 << 20..4 << 20;
const BAD_BLOCKS: Range<u64> = 5 << 20..6 << 20;
const LOG: Range<u64> = 6 << 20..DATA;

/// The outcome of a start, the reasons for unused drives, and the duration.
struct Start {
    outcome: Option<Outcome>,
    errors: Vec<ArrayError>,
    took: Nanos,
}

fn start(stage: &mut Stage) -> Start {
    stage.down();
    let drives: Vec<Drive> = stage.disks.iter().map(|disk| disk.drive.clone()).collect();
    let began = stage.now;
    let now = &mut stage.now;
    let mut wait = || {
        *now = now.plus(Nanos::MILLI);
        assert!(now.since(began) < Nanos::SECOND.times(1000), "it has no end");
        Some(*now)
    };
    let mut fresh = 50;
    let mut epoch = || {
        fresh += 1;
        Uuid([fresh; 16])
    };
    let (mut outcomes, errors) = assemble(&drives, DEGRADED, &|_, _| true, &mut epoch, &mut wait);
    let took = stage.now.since(began);
    Start { outcome: outcomes.pop(), errors, took }
}

impl Start {
    /// Checks that the array runs without `victims` and with all other members.
    fn without(self, victims: &[usize]) -> Assembled {
        let Self { outcome, errors, took } = self;
        let what: Vec<&str> = errors.iter().map(|error| error.what.as_str()).collect();
        let named = |victim: &usize| what.iter().any(|w| w.starts_with(&format!("ram{victim}: ")));
        assert!(victims.iter().all(named) && what.len() == victims.len(), "{what:?}");
        assert!(took < SERVED, "{took:?}");
        match outcome {
            Some(Outcome::Ready(assembled)) => *assembled,
            Some(Outcome::Waiting { what, .. } | Outcome::Refused { what, .. }) => panic!("{what}"),
            None => panic!("there is no array: {what:?}"),
        }
    }
}

/// Returns an array with two parities that crashed during a write whose record in the log is complete.
fn crashed(set: Set, out: &[u8]) -> Stage {
    let mut stage = degraded(set, out);
    let area = stage.data_area();
    for disk in &stage.disks {
        disk.plan.add(Rule::new(Ops::WRITE.and(Ops::ZEROES), Effect::Hang).within(area));
    }
    for nth in 0..8 {
        stage.submit_write(0, nth * 200, 60, 99);
    }
    stage.rounds(400);
    stage.disks.iter().for_each(|disk| disk.plan.clear());
    for nth in 0..8 {
        stage.expect(nth * 200, 60, 99);
    }
    stage
}

fn within(stage: &Stage, range: Range<u64>) -> strake_units::LbaRange {
    let shift = stage.set.disk_block.shift();
    stage.on_disk(range.start, (range.end - range.start) >> shift)
}

/// Returns a logged array of six members. Member 4 is out, and the write in progress is in the log.
fn logged() -> Stage {
    crashed(Set::new(Level::Raid6, 6), &[4])
}

fn check(stage: &mut Stage, victim: usize, phase: &str) {
    let assembled = start(stage).without(&[victim]);
    assert!(assembled.recovery().crashed, "{phase}");
    for (member, state) in assembled.states().iter().enumerate() {
        let out = member == victim || member == 4;
        assert_eq!(*state == MemberState::InSync, !out, "{phase}: member {member} is {state:?}");
    }
    assert!(assembled.recovery().redone >= 8, "{phase}: all of it is in the log of the others");
    stage.start(assembled);
    stage.verify(2000);
    stage.fill(500, 70, 9);
    stage.verify(2000);
}

/// A start after a crash leaves out only the unresponsive member, in any phase.
#[test]
fn who_hangs_in_a_phase_of_a_start_is_left_out_alone() {
    let tail = (28 << 20) - (512 << 10)..28 << 20;
    let phases: [(&str, Ops, Range<u64>); 9] = [
        ("head labels are read", Ops::READ, HEAD_RING),
        ("tail labels are read", Ops::READ, tail.clone()),
        ("the list of bad blocks is read", Ops::READ, BAD_BLOCKS),
        ("the bitmap is read", Ops::READ, BITMAP),
        ("headers of the log are read", Ops::READ, LOG),
        ("the log is carried out", Ops::WRITE, DATA..24 << 20),
        ("the bitmap is written", Ops::WRITE, BITMAP),
        ("head labels are written", Ops::WRITE, HEAD_RING),
        ("tail labels are written", Ops::WRITE, tail),
    ];
    for (nth, (phase, ops, range)) in phases.into_iter().enumerate() {
        let mut stage = logged();
        let victim = [0, 1, 2, 3, 5][nth % 5];
        let range = within(&stage, range);
        stage.disks[victim].plan.add(Rule::new(ops, Effect::Hang).within(range));
        check(&mut stage, victim, phase);
    }
}

/// The payload of a record is unresponsive, but its header is readable.
#[test]
fn who_hangs_over_contents_of_the_log_is_left_out_alone() {
    let mut stage = logged();
    let log = within(&stage, LOG);
    let reads = Rule::new(Ops::READ, Effect::Hang).within(log);
    // Headers are 40 requests of 256 KiB; the following requests are payloads.
    stage.disks[2].plan.add(reads.when(When::Nth(41)));
    check(&mut stage, 2, "contents of the log are read");
}

/// Any single request is never answered.
#[test]
fn who_leaves_any_request_of_a_start_without_answer_is_left_out_alone() {
    for ops in [Ops::READ, Ops::WRITE] {
        for nth in (1..).map_while(|nth| Some(nth * nth)) {
            let mut stage = logged();
            let rule = Rule::new(ops, Effect::Hang).when(When::Nth(nth));
            let rule = stage.disks[3].plan.add(rule);
            let found = start(&mut stage);
            if stage.disks[3].plan.struck(rule) == Some(0) {
                assert!(nth > 20, "a start has more requests than {nth}");
                found.without(&[]);
                break;
            }
            let assembled = found.without(&[3]);
            stage.disks[3].plan.clear();
            stage.start(assembled);
            stage.verify(2000);
        }
    }
}

/// Small writes with partial-write records: reads of strips are unresponsive.
#[test]
fn a_member_that_hangs_on_strips_of_partial_writes_is_left_out_alone() {
    let mut stage = Set::strict(Level::Raid6, 6).filled(2000, 170, 3);
    let area = stage.data_area();
    stage.disks[1].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(area));
    for nth in 0..6 {
        stage.submit_write(0, nth * 300, 2, 99);
    }
    stage.rounds(400);
    stage.disks[1].plan.clear();
    stage.disks[1].plan.add(Rule::new(Ops::READ, Effect::Hang).within(area));
    let assembled = start(&mut stage).without(&[1]);
    let partial_writes = assembled.recovery().partial_writes;
    assert!(
        partial_writes.new + partial_writes.old + partial_writes.lost > 0,
        "{partial_writes:?}"
    );
    stage.start(assembled);
    assert!(stage.status().members.iter().filter(|m| m.state == MemberState::InSync).count() == 5);
}

/// Two unresponsive members in different phases cost only their own time.
#[test]
fn two_that_hang_are_left_out_and_no_third() {
    let mut stage = Set::new(Level::Raid73, 7).filled(2000, 170, 3);
    stage.stop().expect("clean");
    let labels = within(&stage, HEAD_RING);
    let bitmap = within(&stage, BITMAP);
    stage.disks[0].plan.add(Rule::new(Ops::READ, Effect::Hang).within(labels));
    stage.disks[3].plan.add(Rule::new(Ops::READ, Effect::Hang).within(labels));
    stage.disks[5].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(bitmap));
    let found = start(&mut stage);
    assert!(found.took < Nanos::SECOND.times(21), "{:?}", found.took);
    let hung: Vec<&str> = found.errors.iter().map(|error| &error.what[..4]).collect();
    assert_eq!(hung, ["ram0", "ram3", "ram5"]);
}

/// The history of the bug: a member that was unresponsive at its first stable write kept an array with two parities
/// offline at every attempt.
#[test]
fn d1_a_drive_that_reads_and_never_writes_keeps_no_array_down() {
    let mut stage = Set::new(Level::Raid6, 6).filled(2000, 170, 3);
    stage.stop().expect("clean");
    stage.disks[3].hang(Ops::WRITE);
    // From the second start on it is not a member that anything is written to.
    for victims in [&[3][..], &[], &[]] {
        let assembled = start(&mut stage).without(victims);
        assert_eq!(assembled.states()[3], MemberState::Missing);
        stage.start(assembled);
        stage.verify(2000);
    }
}

/// Records that other members received before a member became unresponsive are not written twice.
#[test]
fn what_was_carried_out_before_a_member_hung_is_not_carried_out_again() {
    let mut stage = logged();
    let area = stage.data_area();
    stage.disks[1].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(area));
    stage.watch();
    start(&mut stage).without(&[1]);
    let mut written: Vec<(usize, u64)> = stage
        .seen()
        .iter()
        .filter(|seen| seen.op == 'w' && seen.byte >= DATA && seen.byte < 24 << 20 && !seen.done)
        .map(|seen| (seen.drive, seen.byte))
        .collect();
    let all = written.len();
    assert!(all > 20, "{all} writes: something is carried out");
    written.sort_unstable();
    written.dedup();
    assert_eq!(written.len(), all, "some of them twice");
}

/// Only the newest record of a band is read from the log.
#[test]
fn contents_that_are_out_of_date_are_not_read() {
    let mut stage = degraded(Set::new(Level::Raid6, 6), &[4]);
    // All writes go to the same band, so that only the last record counts.
    for nth in 0..40 {
        stage.write(0, 30, nth).expect("works");
    }
    stage.watch();
    start(&mut stage).without(&[]);
    let in_log =
        |seen: &&crate::stage::Seen| seen.op == 'r' && !seen.done && LOG.contains(&seen.byte);
    let reads = stage.seen().iter().filter(in_log).count();
    // Forty requests for the headers of each of five members, and one record.
    assert!((201..=210).contains(&reads), "{reads} reads of the log");
}

/// A drive is unresponsive during the creation of an array: the error names the drive, and arrives in time.
#[test]
fn a_drive_that_hangs_while_an_array_is_made_is_named() {
    let hangs: [(&str, Ops); 4] = [
        ("its content", Ops::READ),
        ("claims and labels", Ops::WRITE),
        ("flush", Ops::FLUSH),
        ("zeroes", Ops::DEALLOCATE),
    ];
    for (phase, ops) in hangs {
        for victim in [0, 2] {
            for nth in [1, 2, 3, 9] {
                if nth > 1 && ops != Ops::WRITE {
                    continue;
                }
                let set = Set::new(Level::Raid5, 4);
                let mut stage = set.build().expect("sound");
                stage.down();
                let (name, level) = ("again".parse().expect("a name"), Level::Raid5);
                let spec = strake_engine::CreateSpec {
                    name,
                    level,
                    group_size: None,
                    strip_bytes: 16 << 10,
                    block_size: None,
                    consistency: Consistency::Safe,
                };
                let drives: Vec<Drive> = stage.disks.iter().map(|d| d.drive.clone()).collect();
                let rule = Rule::new(ops, Effect::Hang).when(When::Nth(nth));
                stage.disks[victim].plan.add(rule);
                let plan = plan_create(&spec, &drives).expect("sound");
                let ids = strake_engine::Ids {
                    array: Uuid([7; 16]),
                    epoch: Uuid([8; 16]),
                    members: (0..4).map(|i| Uuid([200 + i; 16])).collect(),
                };
                let mut now = Nanos(0);
                let mut wait = || {
                    now = now.plus(Nanos::MILLI);
                    assert!(now < Nanos::SECOND.times(1000), "it has no end");
                    Some(now)
                };
                let made = create(&plan, drives, &ids, true, &mut wait);
                let error = made.err().unwrap_or_else(|| panic!("{phase} {nth}: it was made"));
                let expected = format!("ram{victim}: ");
                assert!(error.what.starts_with(&expected), "{phase}: {}", error.what);
                assert!(now < Nanos::SECOND.times(32), "{phase}: {now:?}");
            }
        }
    }
}

/// A later start re-adds a drive that answers again, or leaves it out. Its outstanding requests are harmless.
#[test]
fn what_a_hung_drive_does_late_harms_no_other() {
    let mut stage = logged();
    let area = stage.data_area();
    stage.disks[1].plan.add(Rule::new(Ops::WRITE, Effect::Hang).within(area));
    let assembled = start(&mut stage).without(&[1]);
    stage.start(assembled);
    stage.fill(2000, 170, 77);
    stage.disks[1].answer();
    assert_eq!(stage.run(0, Op::Flush), Ok(()));
    stage.verify(2000);
    stage.stop().expect("clean");
    let assembled = start(&mut stage).without(&[]);
    assert_ne!(assembled.states()[1], MemberState::InSync, "it missed what was written");
    stage.start(assembled);
    stage.verify(2000);
}
