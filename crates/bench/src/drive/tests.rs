use std::collections::BTreeSet;
use std::time::Duration;

use super::{answer, lines};
use crate::goals;
use crate::report::{Metric, Report};
use crate::scenario::Options;

const IDS: [&str; 3] = ["D1", "D2", "D3"];

/// The report of a run with the shortest samples.
fn run(id: &str) -> Report {
    let options =
        Options { repeats: Some(1), span: Duration::from_micros(200), ..Options::default() };
    let mut report = Report::new(id, "");
    answer(&mut report, &options, &mut |_| {});
    report
}

/// What is measured has a number, and what has none says why.
fn check(id: &str) {
    let report = run(id);
    assert_eq!(report.rows.len(), lines(id).len());
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    for row in &report.rows {
        let is_open = cpus < 2 || row.case.contains("interrupt");
        assert_eq!(row.median.is_none(), is_open, "{}: {}", row.case, row.note);
        assert!(!row.note.is_empty(), "{}", row.case);
    }
    assert!(report.notes.iter().any(|note| note.contains("No DMA, no PCIe")));
}

#[test]
fn every_row_of_d1_has_a_number() {
    check("D1");
}

#[test]
fn every_row_of_d2_has_a_number_or_a_reason() {
    check("D2");
}

#[test]
fn every_row_of_d3_has_a_number() {
    check("D3");
}

#[test]
fn rows_have_names_of_their_own() {
    for id in IDS {
        let lines = lines(id);
        let names: BTreeSet<&str> = lines.iter().map(|line| line.case.as_str()).collect();
        assert_eq!(names.len(), lines.len(), "{id}");
    }
}

/// The numbers of targets are on the page, in the unit in which people write them.
#[test]
fn targets_of_drives_are_those_of_the_page() {
    for id in IDS {
        let goal = goals::find(id).expect("it is on the page");
        let mut count = 0;
        for line in lines(id) {
            let (target, factor) =
                (line.target, if line.metric == Metric::Memory { 1024.0 } else { 1.0 });
            for (value, cell) in [(target.goal, goal.goal), (target.moonshot, goal.moonshot)] {
                let Some(value) = value else { continue };
                let texts = [value * factor, value * 1e3].map(|value| format!("{value:.0}"));
                let words: Vec<&str> = cell.split(' ').collect();
                let plain = format!("{value}");
                let is_there = words.contains(&plain.as_str())
                    || texts.iter().any(|text| words.contains(&text.as_str()));
                assert!(is_there, "{id}: {value} is not in {cell:?}");
                count += 1;
            }
        }
        assert!(count > 0, "{id}");
    }
}
