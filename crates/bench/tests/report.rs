//! A report says what was measured, with and without anything to compare with.

use std::path::PathBuf;

use strake_bench::{Memory, Report, g9, page, plot};
use strake_parity::Kernel;

fn measured(filter: &str) -> Report {
    let options = g9::Options {
        filter: Some(filter.to_owned()),
        repeats: 3,
        // No library: what is tested here must not depend on the machine.
        isal: Some(PathBuf::from("/dev/null")),
        kernel: Kernel::portable(),
    };
    let mut told = Vec::new();
    let report = g9::run(&options, |what| told.push(what.to_owned()));
    assert_eq!(told.len(), 1 + report.rows.iter().filter(|r| !r.case.ends_with("alone")).count());
    report
}

#[test]
fn rows_without_an_anchor_have_no_verdict() {
    let report = measured("encode 4+2 4 KiB hot");
    assert!(report.compared_with.contains("scripts/isal.sh"), "{}", report.compared_with);
    let [row] = report.rows.as_slice() else { panic!("one row: {:?}", report.rows) };
    assert_eq!((row.data, row.parity, row.strip, row.memory), (4, 2, 4096, Memory::Hot));
    assert!(0.0 < row.min && row.min <= row.median && row.median <= row.max);
    assert_eq!((row.anchor, row.ratio, row.meets, row.goal), (None, None, None, 1.0));
    assert_eq!(report.tally(), [0, 0, 1]);
}

#[test]
fn goals_are_those_of_the_operation() {
    let report = measured(" 4 KiB hot");
    for row in &report.rows {
        let doubled = row.operation == "update" || (row.operation == "recover" && row.parity == 2);
        assert_eq!(row.goal, if doubled { 1.3 } else { 1.0 }, "{}", row.case);
    }
    let names: std::collections::BTreeSet<_> = report.rows.iter().map(|row| &row.case).collect();
    assert_eq!(names.len(), report.rows.len());
    assert_eq!(report.rows.len(), 5 * 7 + 4);
}

#[test]
fn cold_encoding_stands_beside_reading_alone() {
    let report = measured("encode 4+1 64 KiB cold");
    let [encode, wall] = report.rows.as_slice() else { panic!("two rows: {:?}", report.rows) };
    assert_eq!(wall.anchor, Some(report.read_gbps));
    assert_eq!((wall.median, wall.goal), (encode.median, 0.9));
    assert_eq!(wall.meets, Some(wall.median >= 0.9 * report.read_gbps));
}

#[test]
fn pages_and_plots_have_every_row() {
    let report = measured("4+2 4 KiB");
    let (text, picture) = (page::markdown(&report), plot::svg(&report));
    for row in &report.rows {
        assert!(text.contains(&row.case), "{}", row.case);
        assert_eq!(picture.contains(&format!("{}: ", row.case)), row.ratio.is_some());
    }
}
