//! Tests with slow, unresponsive and refusing members, and with a simulated clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use strake_block::{
    BlockDevice, CompletionBatch, DeviceError, DeviceInfo, Io, IoErrorKind, IoQueue, Readiness,
};
use strake_dev_mem::{Effect, Fate, FaultPlan, Faulty, Intercept, Ops, RamDevice, Rule, When};
use strake_units::{BlockSize, CoreIndex, Lba, LbaRange, MemberIndex, Nanos};

use super::{Failed, Fleet, Reading, Writing};
use crate::drive::Drive;
use crate::error::ArrayError;

const MIB: u64 = 1 << 20;
const SECOND: Nanos = Nanos::SECOND;

/// Time between two checks.
const STEP: Nanos = Nanos(10 * Nanos::MILLI.0);

/// Returns drives of 32 MiB that contain their own number everywhere, and their fault plans.
fn drives(count: u8) -> (Vec<Option<Drive>>, Vec<FaultPlan>) {
    let one = |number: u8| {
        let ram = RamDevice::new((32 * MIB) >> 12, BlockSize::B4096);
        (0..32).for_each(|mib| {
            ram.write_at(mib * MIB, &vec![number; MIB as usize]).expect("inside");
        });
        let plan = FaultPlan::new(1);
        let device = Arc::new(Faulty::new(ram, plan.clone()));
        (Some(Drive { device, path: format!("drive{number}") }), plan)
    };
    (0..count).map(one).unzip()
}

/// Reads from the start of every member, and returns the result and the duration.
fn read(drives: &[Option<Drive>], bytes: u64) -> (Result<Vec<super::Read>, Failed>, Nanos) {
    let members = (0..drives.len() as u8).map(MemberIndex);
    let readings: Vec<Reading> =
        members.map(|member| Reading { member, offset: 0, bytes }).collect();
    let mut now = Nanos(0);
    let mut wait = || {
        now = now.plus(STEP);
        assert!(now < SECOND.times(10_000), "it has no end");
        Some(now)
    };
    let found = Fleet::new(drives, &mut wait).read(&readings, "reading");
    (found, now)
}

fn blamed<T>(found: Result<T, Failed>) -> Vec<u8> {
    match found {
        Ok(_) => Vec::new(),
        Err(Failed::Members(members)) => members.iter().map(|(member, _)| member.0).collect(),
        Err(Failed::Otherwise(error)) => panic!("{error}"),
    }
}

fn read_rule(effect: Effect) -> Rule {
    Rule::new(Ops::READ, effect)
}

#[test]
fn every_member_is_read_and_written_where_it_was_asked_for() {
    let (drives, _) = drives(5);
    let mut wait = || Some(Nanos(1));
    let mut fleet = Fleet::new(&drives, &mut wait);
    let writings: Vec<Writing> = (0..5_u8)
        .map(|number| Writing {
            member: MemberIndex(number),
            offset: MIB,
            bytes: vec![100 + number; 3 * MIB as usize],
        })
        .collect();
    fleet.write(&writings, "writing").expect("nothing fails");
    drop(fleet);
    let (found, _) = read(&drives, 5 * MIB);
    for (number, read) in (0..).zip(found.expect("nothing fails")) {
        let middle = MIB as usize..4 * MIB as usize;
        assert!(read.bytes[middle.clone()].iter().all(|byte| *byte == 100 + number));
        assert!(read.bytes[..middle.start].iter().all(|byte| *byte == number));
        assert!(read.bytes[middle.end..].iter().all(|byte| *byte == number));
        assert!(read.why.is_none() && read.readable.iter().all(|readable| *readable));
    }
}

#[test]
fn only_who_is_silent_is_given_up_and_all_of_them_at_once() {
    let (drives, plans) = drives(6);
    for silent in [1, 4] {
        plans[silent].add(read_rule(Effect::Hang).when(When::Nth(5)));
    }
    // This drive is slow, but never unresponsive.
    plans[2].add(read_rule(Effect::Delay(Nanos::MILLI.times(1500))));
    let (found, took) = read(&drives, 16 * MIB);
    let mut blamed = blamed(found);
    blamed.sort_unstable();
    assert_eq!(blamed, [1, 4]);
    assert!(took < SECOND.times(26), "{took:?}: sixteen windows of the slow one, 1.5 s each");
}

#[test]
fn silence_is_ten_seconds() {
    let (drives, plans) = drives(3);
    plans[0].add(read_rule(Effect::Hang));
    plans[1].add(read_rule(Effect::Hang));
    let (found, took) = read(&drives, MIB);
    assert_eq!(blamed(found).len(), 2);
    assert!(took > SECOND.times(9) && took < SECOND.times(11), "{took:?}");
}

/// A drive that refuses queues for some time, like a drive with outstanding requests of an earlier use.
struct Owing {
    device: Arc<dyn BlockDevice>,
    refusals: AtomicU32,
    kind: IoErrorKind,
}

impl BlockDevice for Owing {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let left = self.refusals.load(Ordering::Relaxed);
        if left == 0 {
            return self.device.open_queue(core, depth);
        }
        self.refusals.store(left - 1, Ordering::Relaxed);
        Err(DeviceError::new(self.kind, "drive0", "owes answers"))
    }
}

/// The history of the bug: an array that was just stopped had left reads for which no task waited, and the next start
/// failed the drive immediately.
#[test]
fn a_drive_that_owes_answers_has_the_time_of_any_answer() {
    let check = |count, kind, expected: &[u8], least: u64, most: u64| {
        let (mut drives, _) = drives(2);
        let drive = drives[0].as_mut().expect("it is there");
        let (device, refusals) = (Arc::clone(&drive.device), AtomicU32::new(count));
        drive.device = Arc::new(Owing { device, refusals, kind });
        let (found, took) = read(&drives, MIB);
        assert_eq!(blamed(found), expected, "{count} {kind:?}");
        assert!(took >= SECOND.times(least) && took < SECOND.times(most), "{count}: {took:?}");
    };
    check(3, IoErrorKind::Timeout, &[], 2, 5);
    check(8, IoErrorKind::Timeout, &[], 7, 10);
    check(1000, IoErrorKind::Timeout, &[0], 10, 13);
    check(1, IoErrorKind::Gone, &[0], 0, 1);
}

/// Each answer takes less than a second, but all answers together exceed every limit.
#[test]
fn a_busy_drive_is_alive() {
    let (drives, plans) = drives(1);
    plans[0].add(read_rule(Effect::Delay(Nanos::MILLI.times(900))));
    let readings = [Reading { member: MemberIndex(0), offset: 0, bytes: 16 * MIB }; 4];
    let mut now = Nanos(0);
    let mut wait = || {
        now = now.plus(STEP);
        Some(now)
    };
    Fleet::new(&drives, &mut wait).read(&readings, "reading").expect("it answers");
    assert!(now > SECOND.times(50), "{now:?}");
}

#[test]
fn a_drive_that_is_silent_too_often_is_given_up() {
    let (drives, plans) = drives(1);
    plans[0].add(read_rule(Effect::Delay(SECOND.times(8))));
    let (found, took) = read(&drives, 16 * MIB);
    assert_eq!(blamed(found), [0]);
    assert!(took < SECOND.times(40), "{took:?}");
}

/// The process is suspended for an hour during the work.
#[test]
fn time_in_which_the_process_did_not_run_is_no_silence() {
    let (drives, plans) = drives(2);
    plans[0].add(read_rule(Effect::Delay(SECOND.times(5))));
    let mut now = Nanos(0);
    let mut calls = 0;
    let mut wait = || {
        calls += 1;
        now = now.plus(if calls == 100 { SECOND.times(3600) } else { STEP });
        Some(now)
    };
    let readings =
        [0, 1].map(|member| Reading { member: MemberIndex(member), offset: 0, bytes: MIB });
    Fleet::new(&drives, &mut wait).read(&readings, "reading").expect("it was not the drive");
}

#[test]
fn what_cannot_be_read_is_reported_block_by_block() {
    let (drives, plans) = drives(1);
    let bad = |at: u64, blocks| LbaRange::new(Lba(at), blocks);
    let medium = Effect::Fail(IoErrorKind::Medium);
    plans[0].add(read_rule(medium).within(bad(70, 1)));
    plans[0].add(read_rule(medium).within(bad(100, 2)));
    let (found, _) = read(&drives, MIB);
    let read = found.expect("the rest can be read").swap_remove(0);
    let not: Vec<usize> = (0..read.readable.len()).filter(|block| !read.readable[*block]).collect();
    assert_eq!(not, [70, 100, 101]);
    assert!(read.why.is_some_and(|why| why.what.contains("drive0: reading failed")));
}

/// A failure other than a medium error fails the member, for requests of any size.
#[test]
fn a_failure_of_another_kind_is_that_of_the_member() {
    let (drives, plans) = drives(3);
    let failing = Effect::Fail(IoErrorKind::Device);
    plans[1].add(read_rule(failing).within(LbaRange::new(Lba(200), 1)));
    assert_eq!(blamed(read(&drives, MIB).0), [1]);
}

#[test]
fn what_others_were_to_get_is_written_although_one_is_silent() {
    let (drives, plans) = drives(3);
    plans[1].add(Rule::new(Ops::WRITE, Effect::Hang).when(When::Nth(2)));
    let writings: Vec<Writing> = (0..3_u8)
        .flat_map(|member| (0..40).map(move |nth| (MemberIndex(member), nth * MIB / 2)))
        .map(|(member, offset)| Writing { member, offset, bytes: vec![9; 4096] })
        .collect();
    let mut now = Nanos(0);
    let mut wait = || {
        now = now.plus(STEP);
        Some(now)
    };
    let mut stable = Vec::new();
    let written = Fleet::new(&drives, &mut wait)
        .write_noting(&writings, "writing", &mut |nth| stable.push(nth));
    assert_eq!(blamed(written), [1]);
    let missing: Vec<usize> = (0..120).filter(|nth| !stable.contains(nth)).collect();
    assert_eq!(missing, [41], "all but the one that hangs");
}

#[test]
fn what_was_written_survives_a_power_cut() {
    let ram = RamDevice::new((32 * MIB) >> 12, BlockSize::B4096);
    let plan = FaultPlan::new(1).with_cache();
    let device = Arc::new(Faulty::new(ram, plan.clone()));
    let drives = [Some(Drive { device, path: "cached".to_owned() })];
    let mut wait = || Some(Nanos(1));
    let bytes = vec![7; 4096];
    let writing = Writing { member: MemberIndex(0), offset: MIB, bytes };
    Fleet::new(&drives, &mut wait).write(&[writing], "writing").expect("nothing fails");
    plan.power_cut_with(|_| Fate::Drop);
    let reading = Reading { member: MemberIndex(0), offset: MIB, bytes: 4096 };
    let found = Fleet::new(&drives, &mut wait).read(&[reading], "reading").expect("readable");
    assert!(found[0].bytes.iter().all(|byte| *byte == 7));
}

/// A drive whose queue accepts nothing, or cannot be opened.
struct Closed {
    inner: RamDevice,
    opens: bool,
    hold: Nanos,
}

struct Refusing;

impl IoQueue for Refusing {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        Err(io)
    }

    fn ring_doorbell(&mut self, _now: Nanos) {}

    fn poll(&mut self, _now: Nanos, _batch: &mut CompletionBatch) {}

    fn readiness(&self) -> Readiness {
        Readiness::Idle
    }
}

impl BlockDevice for Closed {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn hold(&self) -> Nanos {
        self.hold
    }

    fn open_queue(&self, _: CoreIndex, _: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        if self.opens {
            return Ok(Box::new(Refusing));
        }
        Err(DeviceError::new(IoErrorKind::Gone, "closed".to_owned(), "it is gone"))
    }
}

fn with_closed(opens: bool, hold: Nanos) -> Vec<Option<Drive>> {
    let (mut drives, _) = drives(3);
    let inner = RamDevice::new((32 * MIB) >> 12, BlockSize::B4096);
    let device = Arc::new(Closed { inner, opens, hold });
    drives[2] = Some(Drive { device, path: "closed".to_owned() });
    drives
}

#[test]
fn a_queue_that_takes_nothing_is_given_up() {
    let (found, took) = read(&with_closed(true, Nanos(0)), MIB);
    assert_eq!(blamed(found), [2]);
    assert!(took < SECOND.times(11), "{took:?}");
}

/// A drive whose queue accepts one request, and nothing afterwards.
struct Exhausted(RamDevice);

impl BlockDevice for Exhausted {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let mut taken = false;
        Ok(Box::new(Intercept::new(self.0.open_queue(core, depth)?, move |queue, io| {
            if std::mem::replace(&mut taken, true) { Err(io) } else { queue.submit(io) }
        })))
    }
}

#[test]
fn a_queue_that_takes_nothing_any_more_is_given_up() {
    let device = Arc::new(Exhausted(RamDevice::new(256, BlockSize::B4096)));
    let drives = [Some(Drive { device, path: "exhausted".to_owned() })];
    let mut now = Nanos(0);
    let mut wait = || {
        now = now.plus(STEP);
        assert!(now < SECOND.times(100), "it has no end");
        Some(now)
    };
    let mut fleet = Fleet::new(&drives, &mut wait);
    let reading = || Reading { member: MemberIndex(0), offset: 0, bytes: 4096 };
    fleet.read(&[reading()], "reading").expect("the first one is taken");
    assert_eq!(blamed(fleet.read(&[reading()], "reading")), [0]);
}

#[test]
fn a_drive_that_holds_requests_is_waited_for_longer() {
    let (found, took) = read(&with_closed(true, SECOND.times(24)), MIB);
    assert_eq!(blamed(found), [2]);
    assert!(took > SECOND.times(33) && took < SECOND.times(35), "{took:?}");
}

#[test]
fn a_drive_that_cannot_be_opened_is_blamed_alone() {
    let (found, took) = read(&with_closed(false, Nanos(0)), MIB);
    assert_eq!(blamed(found), [2]);
    assert!(took < SECOND, "{took:?}");
}

#[test]
fn the_first_reason_is_reported_where_no_member_can_be_spared() {
    let error = |what: &str| ArrayError::usage(what);
    let members = vec![(MemberIndex(3), error("first")), (MemberIndex(1), error("second"))];
    assert_eq!(Failed::Members(members).into_error().what, "first");
    assert_eq!(Failed::Otherwise(error("program")).into_error().what, "program");
}
