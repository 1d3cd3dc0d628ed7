//! Tests of the latencies that the array reports.

use strake_block::{IoErrorKind, Op};
use strake_dev_mem::{Effect, Ops, Rule};
use strake_engine::LatencyCounts;
use strake_raid::Level;
use strake_units::Nanos;

use crate::stage::{Set, Stage};

const MILLI: u64 = Nanos::MILLI.0;

fn staged(cores: u16) -> Stage {
    let mut set = Set::new(Level::Raid6, 6);
    set.cores = cores;
    set.queues = (0..cores).collect();
    set.cached = true;
    set.build().expect("sound")
}

/// Checks that the median of the counted latencies is `want` milliseconds, plus or minus the time of a turn.
fn took(counts: &LatencyCounts, want: u64) {
    let median = counts.percentile(500).expect("there were some").0;
    assert!((want * MILLI..want * MILLI + MILLI / 2).contains(&median), "{median}, not {want}");
}

/// The drives take 2 ms for a read and 5 ms for a write: a read takes 2 ms, a read-modify-write 7 ms.
#[test]
fn requests_and_members_take_what_the_drives_take() {
    for cores in [1, 2] {
        let mut stage = staged(cores);
        stage.fill(1000, 100, 3);
        let before = stage.array().latencies();
        for disk in &stage.disks {
            disk.plan.add(Rule::new(Ops::READ, Effect::Delay(Nanos(2 * MILLI))));
            disk.plan.add(Rule::new(Ops::WRITE, Effect::Delay(Nanos(5 * MILLI))));
            disk.plan.add(Rule::new(Ops::FLUSH, Effect::Delay(Nanos(11 * MILLI))));
        }
        stage.step = Nanos(20_000);
        for at in 0..40 {
            let queue = at as usize % usize::from(cores);
            stage.read(queue, at * 20, 4).expect("readable");
            let op = stage.write_op(at * 24, 4, at);
            assert_eq!(stage.run(queue, op), Ok(()));
        }
        for _ in 0..3 {
            assert_eq!(stage.run(0, Op::Flush), Ok(()));
        }
        let after = stage.array().latencies();
        took(&after.requests.read, 2);
        took(&after.requests.write, 7);
        took(&after.requests.flush, 11);
        assert_eq!(after.requests.read.count() - before.requests.read.count(), 40);
        assert_eq!(after.requests.write.count() - before.requests.write.count(), 40);
        assert_eq!(after.requests.flush.count() - before.requests.flush.count(), 3);
        let reads = |all: &strake_engine::ArrayLatencies| -> u64 {
            all.members.iter().map(|member| member.read.count()).sum()
        };
        // The count is 40 reads, and three reads of each write.
        assert_eq!(reads(&after) - reads(&before), 40 + 3 * 40);
        after.members.iter().for_each(|member| took(&member.read, 2));
    }
}

/// A failed request is also counted, because a client waited for it.
#[test]
fn a_slow_failure_is_a_long_time() {
    let mut stage = staged(1);
    stage.fill(500, 100, 3);
    let (member, _) = stage.home(0);
    let fail = Effect::Fail(IoErrorKind::Medium);
    stage.disks[member].plan.add(Rule::new(Ops::READ, fail));
    for disk in &stage.disks {
        disk.plan.add(Rule::new(Ops::READ, Effect::Delay(Nanos(3 * MILLI))));
    }
    stage.step = Nanos(20_000);
    let before = stage.array().latencies().requests.read.count();
    stage.read(0, 0, 4).expect("made up");
    let times = stage.array().latencies();
    assert_eq!(times.requests.read.count() - before, 1);
    assert!(times.requests.read.max() >= Nanos(3 * MILLI), "{:?}", times.requests.read.max());
}

/// The counters of a replacement start at zero.
#[test]
fn a_new_drive_is_not_blamed_for_the_old_one() {
    let mut stage = staged(2);
    stage.fill(1000, 100, 3);
    stage.disks[2].plan.add(Rule::new(Ops::READ, Effect::Delay(Nanos(50 * MILLI))));
    stage.step = Nanos(20_000);
    for at in 0..40 {
        stage.read(0, at * 20, 4).expect("readable");
    }
    assert!(stage.array().latencies().members[2].read.max() >= Nanos(50 * MILLI));
    stage.fail_and_replace(2);
    stage.verify_rebuilt(1000);
    assert!(stage.array().latencies().members[2].read.max() < Nanos(5 * MILLI));
    assert_eq!(stage.array().latencies().members.len(), 6);
}
