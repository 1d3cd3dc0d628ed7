use super::{Drives, Meets, Metric, Report, Row, Tally, Target, number, size};
use crate::measure::Samples;

fn row(metric: Metric, samples: &[f64], target: Target) -> Row {
    Row::new("a case", metric, &Samples::new(samples.to_vec()), target)
}

#[test]
fn a_row_meets_what_its_median_reaches() {
    for (metric, samples, meets) in [
        (Metric::Iops, [9.0, 1.0, 50.0], Meets::None),
        (Metric::Iops, [10.0, 1.0, 50.0], Meets::Goal),
        (Metric::Iops, [20.0, 1.0, 50.0], Meets::Moonshot),
    ] {
        assert_eq!(row(metric, &samples, Target::new(5.0, 10.0, 20.0)).meets, meets, "{samples:?}");
    }
    for (median, meets) in [(11.0, Meets::None), (10.0, Meets::Goal), (2.0, Meets::Moonshot)] {
        assert_eq!(
            row(Metric::Latency, &[median], Target::goals(10.0, 2.0)).meets,
            meets,
            "{median}"
        );
    }
    assert_eq!(row(Metric::Iops, &[1.0], Target::NONE).meets, Meets::None);
}

#[test]
fn progress_is_above_one_when_the_goal_is_reached() {
    for (metric, median, goal) in [(Metric::Iops, 20.0, 10.0), (Metric::Latency, 5.0, 10.0)] {
        assert_eq!(row(metric, &[median], Target::goals(goal, goal)).progress(), Some(2.0));
    }
    assert_eq!(Row::open("x", Metric::Iops, Target::goals(1.0, 1.0), "why").progress(), None);
}

#[test]
fn rows_are_counted_by_what_they_reach() {
    let target = Target::goals(10.0, 20.0);
    let mut report = Report::new("G0", "nothing");
    report.rows = vec![
        row(Metric::Iops, &[5.0], target),
        row(Metric::Iops, &[15.0], target),
        row(Metric::Iops, &[25.0], target),
        row(Metric::Iops, &[25.0], Target::NONE),
        Row::open("x", Metric::Iops, target, "why"),
    ];
    assert_eq!(report.tally(), Tally { goal: 2, moonshot: 1, short: 1, open: 1 });
}

#[test]
fn json_is_as_promised() {
    let row = row(
        Metric::Iops,
        &[2.0, 4.0, 3.0],
        Target { moonshot: None, ..Target::new(1.0, 2.5, 0.0) },
    );
    let row = row.on(Drives::Model).protected("intent bitmap").note("one").note("two");
    let json = serde_json::to_string(&row).expect("plain data");
    assert_eq!(
        json,
        r#"{"case":"a case","metric":"iops","unit":"1/s","median":3.0,"min":2.0,"max":4.0,"repeats":3,"#.to_owned()
            + r#""anchor":1.0,"goal":2.5,"moonshot":null,"meets":"goal","drives":"model","#
            + r#""protection":"intent bitmap","note":"one; two"}"#
    );
    let mut report = Report::new("G0", "nothing");
    report.rows.push(row);
    let json = serde_json::to_string(&report).expect("plain data");
    assert!(json.starts_with(r#"{"id":"G0","title":"nothing","machine":{"cpu":"#), "{json}");
    let back: Report = serde_json::from_str(&json).expect("it was just written");
    assert_eq!((back.id, back.rows), (report.id, report.rows));
}

#[test]
fn numbers_are_short() {
    for (value, unit, text) in [
        (36_123_456.0, "1/s", "36.1 M/s"),
        (251_000.0, "1/s", "251 k/s"),
        (12.0, "1/s", "12.0 /s"),
        (99.123, "GB/s", "99.1 GB/s"),
        (0.5, "us", "0.500 us"),
        (1.9, "x", "1.90"),
    ] {
        assert_eq!(number(value, unit), text);
    }
    for (bytes, text) in [(512, "512 B"), (4096, "4 KiB"), (786_432, "768 KiB"), (1 << 20, "1 MiB")]
    {
        assert_eq!(size(bytes), text);
    }
}
