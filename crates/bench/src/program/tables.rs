//! What benchmarks found.

use super::Listed;
use super::save::Written;
use crate::adhoc::{Kind, Latency, Outcome};
use crate::report::{Meets, number};
use crate::{Report, Row, page};
use std::fmt::Write as _;
use strake_terminal::grid::{Column, Grid};
use strake_terminal::text::sentence;

/// Every goal with what it is compared with.
#[must_use]
pub fn list(goals: &Vec<Listed>, width: usize) -> String {
    let mut grid = Grid::new(&[
        Column::Word("id"),
        Column::Word("runs"),
        Column::Text("work"),
        Column::Text("anchor"),
        Column::Text("goal"),
        Column::Text("moonshot"),
    ]);
    for goal in goals {
        let runs = if goal.runs { "yes" } else { "not yet" };
        grid.row([
            goal.id.clone(),
            runs.to_owned(),
            goal.work.clone(),
            goal.anchor.clone(),
            goal.goal.clone(),
            goal.moonshot.clone(),
        ]);
    }
    grid.render(width)
}

/// What was written again, and how many rows of it reach their goals.
#[must_use]
pub fn written(all: &Vec<Written>, width: usize) -> String {
    let mut grid = Grid::new(&[
        Column::Word("id"),
        Column::Number("reach the goal"),
        Column::Number("the moonshot"),
        Column::Number("fall short"),
        Column::Number("not measured"),
    ]);
    for Written { id, goal, moonshot, short, open } in all {
        let [goal, moonshot, short, open] = [goal, moonshot, short, open].map(usize::to_string);
        grid.row([id.clone(), goal, moonshot, short, open]);
    }
    grid.render(width)
}

/// Every report, one below the other.
#[must_use]
pub fn reports(reports: &[Report], width: usize) -> String {
    reports.iter().map(|r| report(r, width)).collect::<Vec<_>>().join("\n")
}

/// Where it ran, every row, and how many goals are met.
#[must_use]
pub fn report(report: &Report, width: usize) -> String {
    let machine = &report.machine;
    let mut about = format!(
        "{} on {}, {} CPUs, {}. {}",
        report.id,
        machine.cpu,
        machine.cpus,
        machine.others_in_words(),
        report.title
    );
    for note in &report.notes {
        about = format!("{}. {note}", about.trim_end_matches('.'));
    }
    let mut out = sentence(&about, width);
    let mut grid = Grid::new(&[
        Column::Name("case"),
        Column::Number("median"),
        Column::Number("min"),
        Column::Number("max"),
        Column::Number("anchor"),
        Column::Number("goal"),
        Column::Number("moonshot"),
        Column::Word("meets"),
        Column::Text("protection"),
        Column::Text("note"),
    ]);
    report.rows.iter().for_each(|row| grid.row(cells(row)));
    out.push_str(&grid.render(width));
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}", page::sentence(report.tally()));
    out
}

fn cells(row: &Row) -> [String; 10] {
    let text = |value: Option<f64>| value.map(|v| number(v, &row.unit)).unwrap_or_default();
    let meets = match (row.goal, row.meets) {
        (None, _) => "",
        (Some(_), Meets::None) => "no",
        (Some(_), meets) => meets.word(),
    };
    [
        row.case.clone(),
        text(row.median),
        text(row.min),
        text(row.max),
        text(row.anchor),
        text(row.goal),
        text(row.moonshot),
        meets.to_owned(),
        row.protection.clone(),
        row.note.clone(),
    ]
}

/// What a load did, with percentiles.
#[must_use]
pub fn load(outcome: &Outcome, width: usize) -> String {
    let machine = &outcome.machine;
    let mut about = format!(
        "{} for {:.1} s on {}, {} CPUs, {}. Protection: {}.",
        outcome.case,
        outcome.seconds,
        machine.cpu,
        machine.cpus,
        machine.others_in_words(),
        outcome.protection
    );
    outcome.notes.iter().for_each(|note| about += &format!(" {note}"));
    about +=
        &format!(" The load itself takes {:.0} ns per request on a null drive.", outcome.own_ns);
    let mut out = sentence(&about, width);
    let mut grid = Grid::new(&[
        Column::Word("what"),
        Column::Number("requests"),
        Column::Number("bandwidth"),
        Column::Number("mean"),
        Column::Number("p50"),
        Column::Number("p90"),
        Column::Number("p99"),
        Column::Number("p99.9"),
        Column::Number("p99.99"),
        Column::Number("max"),
    ]);
    for (what, kind) in [("reads", &outcome.reads), ("writes", &outcome.writes)] {
        if kind.latency.is_some() {
            grid.row(kind_cells(what, kind));
        }
    }
    out.push_str(&grid.render(width));
    let wrong =
        outcome.wrong.map(|wrong| format!(", {wrong} reads found something else than was written"));
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{} requests failed{}", outcome.failed, wrong.unwrap_or_default());
    out
}

fn kind_cells(what: &str, kind: &Kind) -> [String; 10] {
    let us = |pick: fn(&Latency) -> f64| {
        kind.latency.as_ref().map(|l| number(pick(l), "us")).unwrap_or_default()
    };
    [
        what.to_owned(),
        number(kind.per_second, "1/s"),
        number(kind.gb_per_second, "GB/s"),
        us(|l| l.mean_us),
        us(|l| l.p50_us),
        us(|l| l.p90_us),
        us(|l| l.p99_us),
        us(|l| l.p999_us),
        us(|l| l.p9999_us),
        us(|l| l.max_us),
    ]
}
