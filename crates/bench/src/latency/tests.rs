use std::time::Duration;

use strake_dev_mem::Profile;

use super::{Point, State, blank, cases, names, rows, table};
use crate::report::{Meets, Report};
use crate::scenario::Options;

fn options() -> Options {
    Options {
        filter: None,
        repeats: Some(1),
        span: Duration::from_millis(1),
        profile: Profile::SN861,
        cold_bytes: 1 << 20,
    }
}

/// The points of the first case, with one sample each whose last percentile is given.
fn points(healthy: f64, rebuilding: f64) -> Vec<Point> {
    let mut points = blank(&cases(&options())[..1]);
    for point in &mut points {
        let last = match point.state {
            State::Healthy => healthy,
            State::Degraded => 2.0 * healthy,
            State::Rebuilding => rebuilding,
        };
        point.found = Ok(vec![[last / 4.0, last / 2.0, last]]);
    }
    points
}

#[test]
fn every_case_is_in_every_state_under_a_name_of_its_own() {
    let points = blank(&cases(&options()));
    assert_eq!(points.len(), 2 * 2 * 4 * 3);
    let rows = rows(&points);
    assert_eq!(rows.len(), 3 * points.len() + points.len() / 3);
    let unique: std::collections::BTreeSet<&str> = rows.iter().map(|r| r.case.as_str()).collect();
    assert_eq!(unique.len(), rows.len());
    assert!(rows.iter().all(|row| row.median.is_none() && row.note.contains("not measured")));
    assert_eq!(rows[0].case, "raid6 6+2 randread 4KiB qd1 model cores=1 healthy: p50");
}

#[test]
fn a_rebuild_may_cost_three_times_the_slowest_thousandth() {
    for (rebuilding, meets) in [(299.0, Meets::Goal), (301.0, Meets::None)] {
        let rows = rows(&points(100.0, rebuilding));
        let last = rows.last().expect("rows");
        assert_eq!((last.goal, last.meets), (Some(3.0), meets), "{last:?}");
        assert_eq!(last.median, Some(rebuilding / 100.0));
    }
}

#[test]
fn a_tail_of_another_program_shows_nothing() {
    let mut points = points(100.0, 150.0);
    for point in &mut points {
        point.found = Ok(vec![[10.0, 20.0, 100.0]]);
    }
    let rows = rows(&points);
    let last = rows.last().expect("rows");
    assert_eq!((last.median, last.meets), (Some(1.0), Meets::None));
    assert!(last.note.contains("10 times the median"), "{}", last.note);
}

#[test]
fn what_could_not_be_measured_says_why() {
    let mut points = points(100.0, 200.0);
    points[2].found = Err("the machine is tired".to_owned());
    let rows = rows(&points);
    let open: Vec<&str> =
        rows.iter().filter(|row| row.median.is_none()).map(|row| row.note.as_str()).collect();
    assert_eq!(open.len(), 4, "three percentiles and a ratio");
    assert!(open.iter().all(|note| note.contains("tired")), "{open:?}");
}

#[test]
fn the_table_has_a_line_for_each_case() {
    let mut report = Report::new("latency", "how long");
    report.rows = rows(&points(100.0, 150.0));
    assert_eq!(names(&report), ["raid6 6+2 randread 4KiB qd1 model cores=1"]);
    let table = table(&report);
    let line = "| raid6 6+2 randread 4KiB qd1 model cores=1 | 25.0 / 50.0 / 100.0 | 50.0 / 100.0 / 200.0 \
                | 37.5 / 75.0 / 150.0 | 1.50 |";
    assert_eq!(table.lines().nth(2), Some(line), "{table}");
    assert_eq!(table.lines().count(), 3);
}
