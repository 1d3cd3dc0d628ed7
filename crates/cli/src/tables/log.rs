//! The audit log.

use super::clock::Clock;
use super::grid::{Column, Grid};
use super::wrapped;
use crate::fold::kept;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use strake_api::v1::{AuditEntry, AuditReport, ListAuditResponse};

/// Commands of the past, oldest first: a row each, with the result if the command has ended.
#[must_use]
pub fn list(answer: &ListAuditResponse, clock: &Clock, width: usize) -> String {
    let ended: BTreeSet<u64> = answer.entries.iter().map(|entry| entry.started).collect();
    let shown = answer.entries.iter().filter(|entry| !ended.contains(&entry.number));
    let mut grid = Grid::new(&[
        Column::Number("entry"),
        Column::Word("time"),
        Column::Word("caller"),
        Column::Text("command"),
    ]);
    let mut is_empty = true;
    for entry in shown {
        is_empty = false;
        let time = clock.show(entry.time_us);
        grid.row([entry.number.to_string(), time, caller(entry), kept(&story(entry))]);
    }
    if is_empty { "No commands.\n".to_owned() } else { grid.render(width) }
}

fn caller(entry: &AuditEntry) -> String {
    match entry.uid {
        Some(uid) if entry.role.is_empty() => format!("uid {uid}"),
        Some(uid) => format!("uid {uid}, {}", entry.role),
        None => "straked".to_owned(),
    }
}

/// The command, its result, and the reason of a refusal on a line of its own.
fn story(entry: &AuditEntry) -> String {
    let AuditEntry { phase, command, result, cause, .. } = entry;
    let mut out = match (phase.as_str(), result.as_str()) {
        ("denied", _) => format!("{command}: denied"),
        ("log", _) => return cause.clone(),
        (_, "") => format!("{command}: no result in this list"),
        (_, result) => format!("{command}: {result}"),
    };
    if !cause.is_empty() {
        let _ = write!(out, "\ncause: {cause}");
    }
    out
}

/// The result of a check.
#[must_use]
pub fn report(report: &AuditReport, width: usize) -> String {
    let AuditReport { entries, first, last, hash, faults, faults_omitted } = report;
    let mut out = String::new();
    for fault in faults {
        let place = if fault.file.is_empty() {
            String::new()
        } else {
            format!("{}, line {}: ", fault.file, fault.line)
        };
        let number = if fault.number == 0 || fault.file.is_empty() {
            String::new()
        } else {
            format!("entry {}: ", fault.number)
        };
        let _ = writeln!(out, "{}", wrapped(&format!("{place}{number}{}", fault.what), width, 2));
    }
    if *faults_omitted > 0 {
        let _ = writeln!(out, "and {faults_omitted} further faults");
    }
    let state = if faults.is_empty() { "unchanged" } else { "CHANGED" };
    let range = if *entries == 0 { String::new() } else { format!(" ({first} to {last})") };
    let _ = writeln!(out, "{state}: {entries} entries{range}");
    if *first > 1 && faults.is_empty() {
        let _ = writeln!(
            out,
            "entries before {first} were removed, because the log exceeded its limit"
        );
    }
    if *last > 0 {
        let _ = writeln!(out, "newest entry: {last}:{hash}");
    }
    out
}
