//! A report as a page.

use std::fmt::Write as _;

use crate::latency;
use crate::report::{Meets, Report, Row, Tally, number};

/// The head of the table that [`write_row`] writes a line of.
pub(crate) const HEAD: &str = "\
| case | what | median | min | max | anchor | goal | moonshot | meets | drives | protection | note |
|---|---|---:|---:|---:|---:|---:|---:|---|---|---|---|
";

/// The report as Markdown: where it ran, a summary where rows are many, and every row.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_page(&mut out, report);
    out
}

fn write_page(out: &mut String, report: &Report) -> std::fmt::Result {
    let (machine, id) = (&report.machine, &report.id);
    let note = if machine.is_virtual { ", a virtual machine" } else { "" };
    writeln!(out, "# {id}: measured\n\nWritten by `strake bench run {id} --save`; do not edit.\n")?;
    writeln!(out, "{}\n", report.title)?;
    writeln!(out, "- CPU: {}, {} CPUs{note}", machine.cpu, machine.cpus)?;
    writeln!(out, "- Last cache as reported: {} MiB", machine.last_cache >> 20)?;
    writeln!(out, "- Kernel of the system: Linux {}", machine.kernel)?;
    writeln!(out, "- Meanwhile: {}", machine.others_in_words())?;
    report.notes.iter().try_for_each(|note| writeln!(out, "- {note}"))?;
    writeln!(
        out,
        "\n{}\n\n![the plot of it]({}.svg)\n",
        sentence(report.tally()),
        id.to_lowercase()
    )?;
    write_summary(out, report)?;
    match report.id.as_str() {
        "latency" => writeln!(out, "{}", latency::table(report))?,
        "vendors" => write_beside(out, report)?,
        _ => {}
    }
    out.push_str(HEAD);
    report.rows.iter().try_for_each(|row| write_row(out, row))
}

/// How many rows reach their goals, in words.
#[must_use]
pub fn sentence(tally: Tally) -> String {
    let Tally { goal, moonshot, short, open } = tally;
    let all = goal + short + open;
    let mut text = format!("Rows with a goal: {all}; goal reached: {goal}");
    for (what, count) in [("moonshot too", moonshot), ("missed", short), ("not measured", open)] {
        if count > 0 {
            text += &format!(", {what}: {count}");
        }
    }
    text + "."
}

/// One line per group of rows: how many meet their goal, and how far the others are.
fn write_summary(out: &mut String, report: &Report) -> std::fmt::Result {
    let groups = groups(report);
    if groups.iter().all(|(_, rows)| rows.len() < 2) {
        return Ok(());
    }
    writeln!(out, "| rows | met | result / goal, middle | least | moonshots |")?;
    writeln!(out, "|---|---:|---:|---:|---:|")?;
    for (name, rows) in groups {
        let mut ratios: Vec<f64> = rows.iter().filter_map(|row| row.progress()).collect();
        ratios.sort_by(f64::total_cmp);
        let (Some(least), Some(middle)) = (ratios.first(), ratios.get(ratios.len() / 2)) else {
            continue;
        };
        let met = rows.iter().filter(|row| row.meets != Meets::None).count();
        let moon = rows.iter().filter(|row| row.meets == Meets::Moonshot).count();
        let all = rows.len();
        writeln!(out, "| {name} | {met} of {all} | {middle:.2} | {least:.2} | {moon} |")?;
    }
    writeln!(out)
}

/// Theirs and ours in one line each.
fn write_beside(out: &mut String, report: &Report) -> std::fmt::Result {
    writeln!(out, "| case | theirs | ours | ours / theirs |\n|---|---:|---:|---:|")?;
    for row in &report.rows {
        let (Some(theirs), Some(ours)) = (row.anchor, row.median) else { continue };
        let [theirs, ours] = [theirs, ours].map(|value| number(value, &row.unit));
        let ratio = row.median.zip(row.anchor).map_or(f64::NAN, |(ours, theirs)| ours / theirs);
        writeln!(out, "| {} | {theirs} | {ours} | {ratio:.2} |", row.case)?;
    }
    writeln!(out)
}

/// Rows that differ in their sizes only, in the order in which they first come: of G9, the operation, the number of
/// parities and the kind of memory; of other goals every row is a group of its own.
#[must_use]
pub fn groups(report: &Report) -> Vec<(String, Vec<&Row>)> {
    let mut groups: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in &report.rows {
        let name = group(&row.case).unwrap_or_else(|| row.case.clone());
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((name, vec![row])),
        }
    }
    groups
}

/// The group of a case of G9: "encode 8+2 4 KiB hot" is of "encode 2 hot".
fn group(case: &str) -> Option<String> {
    let words: Vec<&str> = case.split(' ').collect();
    let (operation, parity) = match *words.first()? {
        word @ ("encode" | "update") => (word, words.get(1)?.split_once('+')?.1),
        "recover" => ("recover", *words.get(1)?),
        _ => return None,
    };
    let memory = words.iter().find(|word| ["hot", "cold"].contains(word))?;
    let beside = if case.ends_with("alone") { " beside reading alone" } else { "" };
    Some(format!("{operation} {parity} {memory}{beside}"))
}

pub(crate) fn write_row(out: &mut String, row: &Row) -> std::fmt::Result {
    let text = |value: Option<f64>| value.map_or("-".to_owned(), |value| number(value, &row.unit));
    let meets = match (row.goal, row.meets) {
        (None, _) => "-",
        (Some(_), Meets::None) => "**no**",
        (Some(_), meets) => meets.word(),
    };
    let [median, min, max] = [row.median, row.min, row.max].map(text);
    let [anchor, goal, moonshot] = [row.anchor, row.goal, row.moonshot].map(text);
    let what = format!("{:?}", row.metric).to_lowercase();
    let Row { case, protection, note, .. } = row;
    let drives = row.drives.word();
    write!(out, "| {case} | {what} | {median} | {min} | {max} | {anchor} | {goal} | {moonshot} ")?;
    writeln!(out, "| {meets} | {drives} | {protection} | {note} |")
}

#[cfg(test)]
mod tests {
    use super::{group, sentence};
    use crate::report::Tally;

    #[test]
    fn cases_of_g9_are_grouped_by_what_they_do() {
        for (case, expected) in [
            ("encode 8+2 4 KiB hot", Some("encode 2 hot")),
            ("recover 3 of 16 1 MiB cold", Some("recover 3 cold")),
            (
                "encode 4+1 64 KiB cold beside reading alone",
                Some("encode 1 cold beside reading alone"),
            ),
            ("raid6 6+2 randread 4KiB qd128 null cores=1", None),
        ] {
            assert_eq!(group(case).as_deref(), expected, "{case}");
        }
    }

    #[test]
    fn what_was_reached_is_said_in_words() {
        let tally = Tally { goal: 3, moonshot: 1, short: 2, open: 1 };
        let text =
            "Rows with a goal: 6; goal reached: 3, moonshot too: 1, missed: 2, not measured: 1.";
        assert_eq!(sentence(tally), text);
        assert_eq!(
            sentence(Tally { goal: 1, ..Tally::default() }),
            "Rows with a goal: 1; goal reached: 1."
        );
    }
}
