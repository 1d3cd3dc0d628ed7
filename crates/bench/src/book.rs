//! All reports on one page: goal, moonshot and result side by side, where each was measured, and what stops those that
//! fall short.
//!
//! Written from the saved JSON alone, so it can be written again without measuring anything.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::goals::{self, Goal};
use crate::latency;
use crate::page::{HEAD, sentence, write_row};
use crate::report::{Meets, Report, Row, Tally, number};
use crate::run::RUNS;

#[cfg(test)]
mod tests;

/// Goals with more rows than this are shown by their numbers only; their own pages have the rows.
const ROWS_MAX: usize = 24;

/// Texts by hand that belong to the page, by name: those of a goal say which measured floor stops it, and "not-shown"
/// says what none of this shows.
pub type Texts = BTreeMap<String, String>;

/// What "not-shown" is called among the texts.
pub const NOT_SHOWN: &str = "not-shown";

/// The page. `reports` may lack some; of two about the same goal the last counts.
#[must_use]
pub fn markdown(reports: &[Report], texts: &Texts) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_book(&mut out, &in_order(reports), texts);
    out
}

/// The reports in the order of the list of goals, each once.
#[must_use]
pub fn in_order(reports: &[Report]) -> Vec<&Report> {
    let of = |id: &&str| reports.iter().rfind(|report| report.id == **id);
    RUNS.iter().filter_map(of).collect()
}

fn write_book(out: &mut String, reports: &[&Report], texts: &Texts) -> std::fmt::Result {
    writeln!(
        out,
        "# Goals and results\n\nWritten by `strake bench report`; do not edit. `make bench` measures everything again \
         and writes this page; `strake bench run all --save docs/benchmarks` does so without ISA-L, \
         `strake bench report docs/benchmarks` writes it from the saved numbers. [README.md](README.md) says how each \
         is measured.\n"
    )?;
    write_machines(out, reports)?;
    writeln!(out, "\n![result divided by goal, every row](report.svg)\n")?;
    write_overview(out, reports)?;
    for report in reports {
        write_goal(out, report, texts)?;
    }
    writeln!(out, "\n## What this does not show\n")?;
    writeln!(out, "{}", texts.get(NOT_SHOWN).map_or("Not written down.", |t| t.trim()))
}

/// The machines, with what was measured on each.
fn write_machines(out: &mut String, reports: &[&Report]) -> std::fmt::Result {
    let mut machines: Vec<(String, Vec<String>)> = Vec::new();
    for report in reports {
        let machine = &report.machine;
        let kind = if machine.is_virtual { ", a virtual machine" } else { "" };
        let text =
            format!("{}, {} CPUs{kind}, Linux {}", machine.cpu, machine.cpus, machine.kernel);
        let others = machine.others.map_or_else(|| "?".to_owned(), |cpus| format!("{cpus:.2}"));
        let line = format!("{} ({others})", report.id);
        match machines.iter_mut().find(|(known, _)| *known == text) {
            Some((_, ids)) => ids.push(line),
            None => machines.push((text, vec![line])),
        }
    }
    for (machine, ids) in machines {
        writeln!(out, "- {machine}: {}", ids.join(", "))?;
    }
    let busy: Vec<&str> = reports.iter().filter(|r| is_busy(r)).map(|r| r.id.as_str()).collect();
    if !busy.is_empty() {
        writeln!(
            out,
            "\n**Others used the machine** while {} ran: a tenth of a CPU or more was theirs. Ratios of \
             samples taken in turns hold as far as the least and the greatest are near each other; absolute numbers \
             are too low and tails are not the array's.",
            busy.join(", ")
        )?;
    }
    Ok(())
}

/// Whether others did enough to disturb.
fn is_busy(report: &Report) -> bool {
    report.machine.others.is_some_and(|cpus| cpus >= 0.1)
}

/// A line for everything on the list, measured or not.
fn write_overview(out: &mut String, reports: &[&Report]) -> std::fmt::Result {
    writeln!(out, "| | work | compared with | goal | moonshot | result | rows |")?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for Goal { id, work, anchor, goal, moonshot } in goals::all() {
        let report = reports.iter().find(|report| report.id == id);
        let (result, rows) = report.map_or_else(
            || ("not measured".to_owned(), "-".to_owned()),
            |report| (result(report), verdict(report.tally())),
        );
        let link =
            report.map_or_else(|| id.to_owned(), |_| format!("[{id}](#{})", id.to_lowercase()));
        writeln!(out, "| {link} | {work} | {anchor} | {goal} | {moonshot} | {result} | {rows} |")?;
    }
    Ok(())
}

/// The medians of the rows with a goal, or how far they are where they are many.
fn result(report: &Report) -> String {
    const FEW: usize = 8;
    let rows: Vec<&Row> = report.rows.iter().filter(|row| row.goal.is_some()).collect();
    if rows.is_empty() {
        return "see below".to_owned();
    }
    if rows.len() <= FEW {
        let text = |row: &&Row| row.median.map_or("-".to_owned(), |m| number(m, &row.unit));
        return rows.iter().map(text).collect::<Vec<_>>().join(" / ");
    }
    let mut ratios: Vec<f64> = rows.iter().filter_map(|row| row.progress()).collect();
    ratios.sort_by(f64::total_cmp);
    let [least, middle, most] = [0, ratios.len() / 2, ratios.len().saturating_sub(1)]
        .map(|at| ratios.get(at).copied().unwrap_or(f64::NAN));
    format!("{least:.2} to {most:.2} of the goal, middle {middle:.2}")
}

fn verdict(tally: Tally) -> String {
    let Tally { goal, moonshot, short, open } = tally;
    let all = goal + short + open;
    if all == 0 {
        return "no goal".to_owned();
    }
    let mut text = format!("{goal} of {all}");
    if goal < all {
        text = format!("**{text}**");
    }
    if moonshot > 0 {
        text += &format!(", {moonshot} moonshot");
    }
    text
}

fn write_goal(out: &mut String, report: &Report, texts: &Texts) -> std::fmt::Result {
    let (id, name) = (&report.id, report.id.to_lowercase());
    writeln!(out, "\n## {id}\n\n{}\n", report.title)?;
    let tally = report.tally();
    if tally != Tally::default() {
        writeln!(out, "{} [All of it]({name}.md).\n", sentence(tally))?;
    }
    if report.rows.iter().any(|row| row.progress().is_some()) {
        writeln!(out, "![the plot of it]({name}.svg)\n")?;
    }
    match id.as_str() {
        "latency" => writeln!(out, "{}", latency::table(report))?,
        _ if report.rows.len() <= ROWS_MAX => {
            out.push_str(HEAD);
            report.rows.iter().try_for_each(|row| write_row(out, row))?;
            writeln!(out)?;
        }
        _ => writeln!(out, "{} rows, in [{name}.md]({name}.md).\n", report.rows.len())?,
    }
    report.notes.iter().try_for_each(|note| writeln!(out, "- {note}"))?;
    if tally.short + tally.open > 0 {
        write_floor(out, report, texts)?;
    }
    Ok(())
}

/// What stops the rows that fall short: measured, and written by hand.
fn write_floor(out: &mut String, report: &Report, texts: &Texts) -> std::fmt::Result {
    writeln!(out, "\n### What stops {}\n", report.id)?;
    let missed = report.rows.iter().filter(|row| row.goal.is_some() && row.meets == Meets::None);
    let missed: Vec<&Row> = missed.collect();
    if missed.len() <= ROWS_MAX {
        for row in missed {
            let far =
                row.progress().map_or("not measured".to_owned(), |p| format!("{p:.2} of its goal"));
            writeln!(out, "- {}: {far}", row.case)?;
        }
        writeln!(out)?;
    }
    match texts.get(&report.id) {
        Some(text) => writeln!(out, "{}", text.trim()),
        None => {
            writeln!(out, "Not found out yet: `docs/benchmarks/floors/{}.md`.", report.id)
        }
    }
}
