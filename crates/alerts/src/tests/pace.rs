//! Tests of the times and the order of deliveries of a hook.

use std::time::Duration;

use super::{event, limits};
use crate::limits::QUEUE_EVENTS;
use crate::pace::{Next, Pace};

const START: Duration = Duration::from_secs(5000);

fn pace() -> Pace {
    Pace::new(&limits(), START)
}

/// Returns all deliveries at `now`: numbers of events, or the text of a summary.
fn reported(pace: &mut Pace, now: Duration) -> Vec<String> {
    let mut reported = Vec::new();
    while let Next::Deliver(event) = pace.take(now) {
        reported.push(match event.kind.as_str() {
            "events_held_back" => format!("{}: {}", event.severity, event.what),
            _ => event.number.to_string(),
        });
    }
    reported
}

#[test]
fn a_burst_goes_out_one_by_one_and_the_rest_in_one() {
    let mut pace = pace();
    for number in 1..=5 {
        pace.offer(event(number, "info"));
    }
    assert_eq!(reported(&mut pace, START), ["1", "2", "3"]);
    assert_eq!(pace.take(START), Next::Wait(limits().interval));
    let later = START + limits().interval;
    let sum = "info: 2 more events; worst: array/tank: member 2 failed (5); last: array/tank: member 2 failed (5)";
    assert_eq!(
        reported(&mut pace, later),
        [sum.replace("worst: array/tank: member 2 failed (5); ", "")]
    );
    assert_eq!((pace.take(later), pace.held_back()), (Next::Idle, 2));
}

#[test]
fn a_sum_names_the_worst_and_counts() {
    let mut pace = pace();
    for number in 1..=3 {
        pace.offer(event(number, "info"));
    }
    assert_eq!(reported(&mut pace, START).len(), 3);
    for (number, severity) in
        [(4, "info"), (5, "critical"), (6, "critical"), (7, "warning"), (8, "info")]
    {
        pace.offer(event(number, severity));
    }
    assert_eq!(reported(&mut pace, START), [""; 0]);
    let sum = "critical: 5 more events, 2 critical, 1 warning; worst: array/tank: member 2 failed (6); \
               last: array/tank: member 2 failed (8)";
    assert_eq!(reported(&mut pace, START + limits().interval), [sum]);
}

#[test]
fn one_that_was_held_back_goes_out_as_it_is() {
    let mut pace = pace();
    for number in 1..=4 {
        pace.offer(event(number, "info"));
    }
    assert_eq!(reported(&mut pace, START), ["1", "2", "3"]);
    assert_eq!(reported(&mut pace, START + limits().interval), ["4"]);
    assert_eq!(pace.held_back(), 0);
}

#[test]
fn a_quiet_time_fills_the_bucket_and_no_more() {
    let mut pace = pace();
    let late = START + limits().interval * 1_000_000;
    for now in [START, late] {
        for number in 1..=4 {
            pace.offer(event(number, "info"));
        }
        assert_eq!(reported(&mut pace, now), ["1", "2", "3"]);
        assert_eq!(reported(&mut pace, now + limits().interval), ["4"]);
    }
}

#[test]
fn waiting_is_never_longer_than_until_the_next_token() {
    let mut pace = pace();
    for number in 1..=4 {
        pace.offer(event(number, "info"));
    }
    reported(&mut pace, START);
    let third = limits().interval / 4;
    assert_eq!(pace.take(START + third), Next::Wait(limits().interval - third));
    assert_eq!(pace.take(START + third), Next::Wait(limits().interval - third));
}

#[test]
fn what_does_not_fit_the_queue_is_counted() {
    let mut pace = pace();
    let events = 100_000;
    for number in 1..=events {
        pace.offer(event(number, if number == 90_000 { "critical" } else { "info" }));
    }
    assert_eq!(reported(&mut pace, START), ["1", "2", "3"]);
    let sum = "critical: 99997 more events, 1 critical; worst: array/tank: member 2 failed (90000); \
               last: array/tank: member 2 failed (100000)";
    assert_eq!(reported(&mut pace, START + limits().interval), [sum]);
    assert_eq!(pace.held_back(), events - 3);
}

#[test]
fn after_an_overflow_order_is_kept() {
    let mut pace = pace();
    let events = u64::try_from(QUEUE_EVENTS).unwrap() + 2;
    for number in 1..=events {
        pace.offer(event(number, "info"));
    }
    // The receiver is slow: it takes one event after the other, each with a new token.
    let mut now = START;
    let mut all = Vec::new();
    while let Next::Deliver(event) = pace.take(now) {
        all.push(event.number);
        now += limits().interval;
    }
    let mut expected: Vec<u64> = (1..=events - 2).collect();
    expected.push(events);
    assert_eq!(all, expected);
    assert_eq!(pace.held_back(), 2);
}

/// The history: the queue overflowed, the receiver took several events, and the next event fitted into the queue. A
/// delivery from the queue would have preceded the summary of older events.
#[test]
fn what_comes_after_an_overflow_is_not_reported_before_it() {
    let mut pace = pace();
    let events = u64::try_from(QUEUE_EVENTS).unwrap() + 1;
    for number in 1..=events {
        pace.offer(event(number, "info"));
    }
    assert_eq!(reported(&mut pace, START), ["1", "2", "3"]);
    pace.offer(event(events + 1, "info"));
    let mut last = 3;
    for n in 1.. {
        let Next::Deliver(next) = pace.take(START + limits().interval * 2 * n) else { break };
        assert!(next.number > last, "{} after {last}", next.number);
        last = next.number;
    }
    assert_eq!(last, events + 1);
}

#[test]
fn at_the_end_everything_goes_out_in_one() {
    let mut pace = pace();
    assert_eq!(pace.take_all(), Next::Idle);
    pace.offer(event(1, "info"));
    assert_eq!(pace.take_all(), Next::Deliver(Box::new(event(1, "info"))));
    for number in 2..=9 {
        pace.offer(event(number, "warning"));
    }
    let Next::Deliver(sum) = pace.take_all() else { panic!("nothing to deliver") };
    assert!(sum.what.starts_with("8 more events, 8 warnings; last:"), "{sum:?}");
    assert_eq!((sum.number, pace.take_all()), (9, Next::Idle));
}

#[test]
fn a_clock_that_stands_or_steps_back_only_delays() {
    let mut pace = pace();
    for number in 1..=5 {
        pace.offer(event(number, "info"));
    }
    assert_eq!(reported(&mut pace, Duration::ZERO), ["1", "2", "3"]);
    assert!(matches!(pace.take(Duration::ZERO), Next::Wait(_)));
    assert_eq!(reported(&mut pace, START + limits().interval).len(), 1);
}
