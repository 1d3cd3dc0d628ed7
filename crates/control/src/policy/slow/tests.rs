//! Comparisons of drives, hour by hour.

use strake_units::{Nanos, Uuid};

use super::{OPERATIONS_MIN, Observed, Slow, Work};

/// An array whose members get operations of given latencies.
struct Array {
    members: Vec<Observed>,
    slow: Slow,
}

impl Array {
    fn of(models: &[&str]) -> Self {
        let member = |(at, model): (usize, &&str)| Observed {
            uuid: Uuid([at as u8; 16]),
            model: (*model).to_owned(),
            reads: Work::default(),
            writes: Work::default(),
        };
        Self { members: models.iter().enumerate().map(member).collect(), slow: Slow::default() }
    }

    fn add(work: &mut Work, operations: u64, micros: u64) {
        work.operations += operations;
        work.took = work.took.plus(Nanos(operations * micros * 1000));
    }

    /// An hour in which the reads of each member take this long. Returns the positions of slow members.
    fn reads(&mut self, micros: &[u64]) -> Vec<(u8, String)> {
        for (member, micros) in self.members.iter_mut().zip(micros) {
            Self::add(&mut member.reads, 10 * OPERATIONS_MIN, *micros);
        }
        self.hour()
    }

    fn hour(&mut self) -> Vec<(u8, String)> {
        let found = self.slow.compare(std::slice::from_ref(&self.members));
        found.into_iter().map(|(uuid, why)| (uuid.0[0], why)).collect()
    }
}

const SAME: [&str; 4] = ["P5800X"; 4];

#[test]
fn a_drive_that_is_slow_for_three_hours_is_found() {
    let mut array = Array::of(&SAME);
    let hour = [100, 100, 210, 110];
    assert!(array.reads(&hour).is_empty());
    assert!(array.reads(&hour).is_empty());
    let why = "for 3 hours, its reads took 210 us on average, and those of its peers 100 us";
    assert_eq!(array.reads(&hour), [(2, why.to_owned())]);
    assert_eq!(array.reads(&hour)[0].1.split(',').next(), Some("for 4 hours"));
    assert!(array.reads(&[100; 4]).is_empty());
    assert!(array.reads(&hour).is_empty(), "it was as fast as the others for an hour");
}

#[test]
fn an_hour_without_load_changes_nothing() {
    let mut array = Array::of(&SAME);
    let hour = [100, 100, 210, 110];
    array.reads(&hour);
    array.reads(&hour);
    assert!(array.hour().is_empty(), "only new operations count");
    let found = array.reads(&hour);
    assert_eq!(found.len(), 1);
    assert_eq!(array.hour(), found, "it is still slow");
}

#[test]
fn a_day_without_load_ends_a_streak() {
    let hour = [100, 100, 210, 110];
    for (idle, found) in [(24, 1), (25, 0)] {
        let mut array = Array::of(&SAME);
        array.reads(&hour);
        array.reads(&hour);
        (0..idle).for_each(|_| assert!(array.hour().is_empty()));
        assert_eq!(array.reads(&hour).len(), found, "{idle} hours");
    }
}

/// All members were slow for an hour, as after a port has failed.
#[test]
fn an_hour_in_which_many_are_slow_ends_a_streak() {
    let mut array = Array::of(&[SAME[0]; 8]);
    let hour = [100, 100, 210, 110, 100, 100, 100, 100];
    array.reads(&hour);
    array.reads(&hour);
    assert!(array.reads(&[100, 100, 900, 900, 900, 100, 100, 100]).is_empty());
    assert!(array.reads(&hour).is_empty());
    assert!(array.reads(&hour).is_empty());
    assert_eq!(array.reads(&hour).len(), 1);
}

/// A part of the array that is used more than others: its members get more operations, and queue them.
#[test]
fn members_of_a_busy_part_of_the_array_are_not_slow() {
    for (operations, found) in [(20, 1), (21, 0)] {
        let mut array = Array::of(&SAME);
        let hours = (0..5).map(|_| {
            for (at, member) in array.members.iter_mut().enumerate() {
                let (tenths, micros) = if at == 1 { (operations, 400) } else { (10, 100) };
                Array::add(&mut member.reads, tenths * OPERATIONS_MIN / 10, micros);
            }
            array.hour().len()
        });
        assert_eq!(hours.max(), Some(found), "{operations}");
    }
}

#[test]
fn writes_count_like_reads_and_each_kind_by_itself() {
    let mut array = Array::of(&SAME);
    for hour in 1..=3 {
        for (at, member) in array.members.iter_mut().enumerate() {
            // A member with many slow reads and a few fast writes is no exception among members with both.
            Array::add(&mut member.reads, OPERATIONS_MIN, 100);
            Array::add(&mut member.writes, OPERATIONS_MIN, if at == 1 { 400 } else { 50 });
        }
        let found = array.hour();
        assert_eq!(found.len(), usize::from(hour == 3), "{hour}");
        assert!(found.iter().all(|(at, why)| *at == 1 && why.contains("its writes took 400 us")));
    }
}

#[test]
fn what_is_no_exception_is_not_found() {
    let cases: [(&str, &[&str], &[u64]); 7] = [
        ("less than twice as slow", &SAME, &[100, 100, 199, 100]),
        ("too small a difference", &SAME, &[10, 10, 59, 10]),
        ("too few peers", &["P5800X"; 3], &[100, 100, 900]),
        ("two of four", &SAME, &[100, 900, 900, 100]),
        ("other models", &["A", "B", "C", "D"], &[100, 100, 900, 100]),
        ("a model of its own", &["A", "A", "B", "A", "A"], &[100, 100, 900, 100, 100]),
        ("all alike", &SAME, &[900; 4]),
    ];
    for (name, models, micros) in cases {
        let mut array = Array::of(models);
        for _ in 0..5 {
            assert_eq!(array.reads(micros), [], "{name}");
        }
    }
    let mut array = Array::of(&SAME);
    for _ in 0..5 {
        for (at, member) in array.members.iter_mut().enumerate() {
            Array::add(&mut member.reads, OPERATIONS_MIN - 1, if at == 0 { 900 } else { 100 });
        }
        assert_eq!(array.hour(), [], "too few operations");
    }
}

#[test]
fn a_sum_that_fell_begins_again() {
    let before = Work { operations: 10, took: Nanos(1000) };
    let after = Work { operations: 20, took: Nanos(900) };
    assert_eq!(after.since(before), after);
    let more = Work { operations: 20, took: Nanos(1500) };
    assert_eq!(more.since(before), Work { operations: 10, took: Nanos(500) });
}

/// An array that was started again counts from 0, and a member that left is forgotten.
#[test]
fn counters_may_begin_again_and_members_may_go() {
    let mut array = Array::of(&SAME);
    let hour = [100, 100, 210, 110];
    array.reads(&hour);
    array.reads(&hour);
    for member in &mut array.members {
        (member.reads, member.writes) = (Work::default(), Work::default());
    }
    assert_eq!(array.reads(&hour).len(), 1);
    let slow = array.members.remove(2);
    assert!(array.reads(&[100, 100, 110]).is_empty());
    assert_eq!(array.slow.streaks.len(), 3);
    assert!(!array.slow.before.contains_key(&slow.uuid));
}
