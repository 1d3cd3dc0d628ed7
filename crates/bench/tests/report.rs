//! A report says what was measured, with and without anything to compare with.

use std::path::PathBuf;
use std::time::Duration;

use strake_bench::report::{Drives, Meets, Tally};
use strake_bench::run::{Choice, Compare, RUNS, run};
use strake_bench::scenario::Options;
use strake_bench::{Report, page, plot};
use strake_dev_mem::Profile;
use strake_parity::Kernel;

fn measured(id: &str, filter: &str) -> Report {
    let options = Options {
        filter: Some(filter.to_owned()),
        repeats: Some(3),
        span: Duration::from_millis(5),
        profile: Profile::SN861,
        cold_bytes: 64 << 20,
    };
    // No library: what is tested here must not depend on the machine.
    let isal = Some(PathBuf::from("/dev/null"));
    let choice =
        Choice { options, isal, kernel: Kernel::portable(), compare: Compare::Fio, peer: None };
    let mut reported = 0;
    let report = run(id, &choice, |_| reported += 1).expect("a goal");
    assert!(reported > 0 || report.rows.is_empty(), "nobody was told what is going on");
    report
}

#[test]
fn rows_without_an_anchor_have_no_verdict() {
    let report = measured("G9", "encode 4+2 4 KiB hot");
    assert!(report.notes[0].contains("scripts/isal.sh"), "{:?}", report.notes);
    let [row] = report.rows.as_slice() else { panic!("one row: {:?}", report.rows) };
    let (min, median, max) = (row.min.unwrap(), row.median.unwrap(), row.max.unwrap());
    assert!(0.0 < min && min <= median && median <= max);
    assert_eq!((row.anchor, row.goal, row.meets, row.repeats), (None, None, Meets::None, 3));
    assert_eq!(report.tally(), Tally::default());
}

#[test]
fn cold_encoding_stands_beside_reading_alone() {
    let report = measured("G9", "encode 4+1 64 KiB cold");
    let [encode, wall] = report.rows.as_slice() else { panic!("two rows: {:?}", report.rows) };
    let (goal, anchor) = (wall.goal.unwrap(), wall.anchor.unwrap());
    assert!((goal - 0.9 * anchor).abs() < 1e-9);
    assert_eq!(wall.median, encode.median);
    assert_eq!(wall.meets != Meets::None, wall.median.unwrap() >= goal);
}

#[test]
fn cases_of_g9_have_names_of_their_own() {
    let report = measured("G9", " 4 KiB hot");
    let names: std::collections::BTreeSet<_> = report.rows.iter().map(|row| &row.case).collect();
    assert_eq!(names.len(), report.rows.len());
    assert_eq!(report.rows.len(), 5 * 7 + 4);
}

#[test]
fn the_data_path_is_measured_beside_a_raw_drive() {
    let report = measured("G1", "raid6");
    let [rate, share] = report.rows.as_slice() else { panic!("two rows: {:?}", report.rows) };
    for row in [rate, share] {
        assert!(row.median.is_some_and(|median| median > 0.0), "{row:?}");
        assert_eq!((row.repeats, row.drives), (3, Drives::Null));
    }
    assert_eq!((share.goal, share.unit.as_str()), (Some(70.0), "%"));
}

#[test]
fn what_cannot_be_measured_says_why_and_has_no_number() {
    let report = measured("vendors", "Intel VROC");
    assert!(!report.rows.is_empty(), "{:?}", report.rows);
    for row in &report.rows {
        assert_eq!((row.median, row.meets, row.goal), (None, Meets::None, None));
        assert!(row.note.contains("no profile"), "{}", row.note);
    }
    assert_eq!(report.tally(), Tally::default());
}

#[test]
fn pages_and_plots_have_every_row() {
    for report in
        [measured("G9", "4+2 4 KiB"), measured("G2", ""), measured("vendors", "Intel VROC")]
    {
        let (text, picture) = (page::markdown(&report), plot::svg(&report));
        for row in &report.rows {
            assert!(text.contains(&row.case), "{}", row.case);
            assert_eq!(picture.contains(&format!("{}: ", row.case)), row.progress().is_some());
        }
    }
}

#[test]
fn every_goal_on_the_list_runs_or_is_unknown() {
    for id in RUNS {
        let report = measured(id, "no case has this in its name");
        assert_eq!((report.id.as_str(), report.rows.len()), (id, 0));
    }
    let choice = |options| Choice {
        options,
        isal: None,
        kernel: Kernel::portable(),
        compare: Compare::Fio,
        peer: None,
    };
    let options = Options {
        filter: None,
        repeats: Some(1),
        span: Duration::from_millis(1),
        profile: Profile::SN861,
        cold_bytes: 1 << 20,
    };
    for id in ["G0", "G15", "x"] {
        let refused = run(id, &choice(options.clone()), |_| ()).expect_err("no such goal");
        assert!(refused.to_string().contains(id));
    }
}
