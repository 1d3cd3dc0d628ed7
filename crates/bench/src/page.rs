//! A report as a page.

use std::fmt::Write as _;

use crate::report::{Report, Row};

/// The report as Markdown: where it ran, a summary, and every row.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_page(&mut out, report);
    out
}

fn write_page(out: &mut String, report: &Report) -> std::fmt::Result {
    let machine = &report.machine;
    let name = report.benchmark.to_lowercase();
    let [met, missed, open] = report.tally();
    writeln!(out, "# {}: measured\n", report.benchmark)?;
    writeln!(out, "Written by `strake bench run {} --save`; do not edit.\n", report.benchmark)?;
    writeln!(out, "- CPU: {}, {} CPUs{}", machine.cpu, machine.cpus, virtual_note(report))?;
    writeln!(out, "- Last cache as reported: {} MiB", machine.last_cache >> 20)?;
    writeln!(out, "- Kernel of the system: Linux {}", machine.kernel)?;
    writeln!(out, "- Load average when it began: {}", machine.load)?;
    writeln!(out, "- Ours: kernel `{}`; theirs: `{}`", report.kernel, report.compared_with)?;
    writeln!(out, "- One core reads memory at {:.1} GB/s in this run", report.read_gbps)?;
    writeln!(out, "- Medians of {} samples, taken in turns; one core", report.repeats)?;
    writeln!(out, "\n{met} goals met, {missed} missed, {open} without an anchor.\n")?;
    writeln!(out, "![ratios]({name}.svg)\n")?;
    write_summary(out, report)?;
    writeln!(out, "\n| case | GB/s | min | max | anchor | ratio | goal | meets | anchor is |")?;
    writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---|---|")?;
    for row in &report.rows {
        write_row(out, row)?;
    }
    Ok(())
}

fn virtual_note(report: &Report) -> &'static str {
    if report.machine.is_virtual { ", a virtual machine" } else { "" }
}

/// One line per kind of row: how many meet their goal, and the ratios' middle and least.
fn write_summary(out: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(out, "| rows | met | median ratio | least ratio | at least the moonshot |")?;
    writeln!(out, "|---|---:|---:|---:|---:|")?;
    for (name, rows) in groups(report) {
        let mut ratios: Vec<f64> = rows.iter().filter_map(|row| row.ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let (Some(least), Some(middle)) = (ratios.first(), ratios.get(ratios.len() / 2)) else {
            continue;
        };
        let met = rows.iter().filter(|row| row.meets == Some(true)).count();
        let moon = rows.iter().filter(|r| r.ratio.is_some_and(|ratio| ratio >= r.moonshot)).count();
        let all = rows.len();
        writeln!(out, "| {name} | {met} of {all} | {middle:.2} | {least:.2} | {moon} of {all} |")?;
    }
    Ok(())
}

/// Rows of one operation, number of parities and kind of memory, in the order in which they first come.
#[must_use]
pub fn groups(report: &Report) -> Vec<(String, Vec<&Row>)> {
    let mut groups: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in &report.rows {
        let beside = if row.case.ends_with("alone") { " beside reading alone" } else { "" };
        let memory = row.memory.word();
        let name = format!("{} {} {memory}{beside}", row.operation, row.parity);
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((name, vec![row])),
        }
    }
    groups
}

fn write_row(out: &mut String, row: &Row) -> std::fmt::Result {
    let anchor = row.anchor.map_or("-".to_owned(), |anchor| format!("{anchor:.1}"));
    let ratio = row.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let meets = row.meets.map_or("-", |meets| if meets { "yes" } else { "**no**" });
    writeln!(
        out,
        "| {} | {:.1} | {:.1} | {:.1} | {anchor} | {ratio} | {:.2} | {meets} | {} |",
        row.case, row.median, row.min, row.max, row.goal, row.anchor_name
    )
}
