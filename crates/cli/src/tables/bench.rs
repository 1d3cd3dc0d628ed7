//! What benchmarks found.

use super::grid::{Column, Grid};
use super::sentence;
use std::fmt::Write as _;
use strake_bench::Report;

/// Every benchmark with what it measures.
#[must_use]
pub fn list(benchmarks: &Vec<(String, String)>, width: usize) -> String {
    let mut grid = Grid::new(&[Column::Word("name"), Column::Text("what")]);
    for (name, what) in benchmarks {
        grid.row([name.clone(), what.clone()]);
    }
    grid.render(width)
}

/// Where it ran, every row, and how many goals are met.
#[must_use]
pub fn report(report: &Report, width: usize) -> String {
    let machine = &report.machine;
    let mut out = sentence(
        &format!(
            "{} on {}, {} CPUs, load {}: kernel {}, compared with {}. One core reads memory at {:.1} GB/s.",
            report.benchmark,
            machine.cpu,
            machine.cpus,
            machine.load,
            report.kernel,
            report.compared_with,
            report.read_gbps
        ),
        width,
    );
    let mut grid = Grid::new(&[
        Column::Name("case"),
        Column::Number("GB/s"),
        Column::Number("min"),
        Column::Number("max"),
        Column::Number("anchor"),
        Column::Number("ratio"),
        Column::Number("goal"),
        Column::Word("meets"),
        Column::Text("anchor is"),
    ]);
    let number = |value: f64| format!("{value:.1}");
    for row in &report.rows {
        grid.row([
            row.case.clone(),
            number(row.median),
            number(row.min),
            number(row.max),
            row.anchor.map(number).unwrap_or_default(),
            row.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default(),
            format!("{:.2}", row.goal),
            row.meets.map_or("", |meets| if meets { "yes" } else { "no" }).to_owned(),
            row.anchor_name.clone(),
        ]);
    }
    out.push_str(&grid.render(width));
    let [met, missed, open] = report.tally();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{met} goals met, {missed} missed, {open} without an anchor");
    out
}
