//! Arrays: one a line, and what a command did to one.

use super::grid::{Column, Grid};
use super::{sentence, size, steps, wrapped};
use crate::exit::Exit;
use std::fmt::Write as _;
use strake_api::v1::{
    Array, ArrayChange, ImportArraysResponse, ListArraysResponse, ListImportableResponse,
};
use strake_wording::shown;

/// Every array, one a line.
#[must_use]
pub fn list(answer: &ListArraysResponse, width: usize) -> String {
    if answer.arrays.is_empty() {
        let none = "No arrays. Create one: strake array create NAME --level 6 --drives ...";
        return sentence(none, width);
    }
    rows(&answer.arrays, width) + &reasons(&answer.arrays, width)
}

/// Why arrays do not run or their jobs make no progress, and what to do.
fn reasons(arrays: &[Array], width: usize) -> String {
    let mut out = String::new();
    for array in arrays {
        let paused = array.progress.iter().find(|job| job.state == "paused");
        let reason = match (array.reason.as_str(), paused) {
            ("", None) => continue,
            ("", Some(job)) => format!("the {} is paused", job.job),
            (reason, _) => reason.to_owned(),
        };
        out.push('\n');
        out.push_str(&sentence(&format!("{}: {reason}", array.name), width));
        let next = shown(&array.remedy, &array.next_action);
        if !next.is_empty() {
            let _ = writeln!(out, "  next: {}", wrapped(&next, width, 8));
        }
    }
    out
}

/// The table of [`list`].
pub(super) fn rows(arrays: &[Array], width: usize) -> String {
    let mut grid = Grid::new(&[
        Column::Word("health"),
        Column::Name("array"),
        Column::Word("level"),
        Column::Number("size"),
        Column::Number("members"),
        Column::Text("state"),
    ]);
    for array in arrays {
        let in_sync = array.members.iter().filter(|m| m.state == "in_sync").count();
        grid.row([
            Exit::of_array(array).health().to_owned(),
            array.name.clone(),
            level(array),
            size(array.size_bytes),
            format!("{in_sync}/{}", array.members.len()),
            activity(array),
        ]);
    }
    grid.render(width)
}

/// Level with its group size where it has one, as `60/6`.
pub(super) fn level(array: &Array) -> String {
    match array.group_size {
        0 => array.level.clone(),
        n => format!("{}/{n}", array.level),
    }
}

/// What an array is doing, in one phrase: its jobs with percentages, then its states.
fn activity(array: &Array) -> String {
    let jobs: Vec<String> = array.progress.iter().map(super::job::brief).collect();
    match jobs.is_empty() {
        true => array.states.join(" "),
        false => format!("{}; {}", jobs.join(", "), array.states.join(" ")),
    }
}

/// What a command did to an array. `gone` says so where the array is no longer there afterwards; otherwise it is
/// shown in a line.
#[must_use]
pub fn change(change: &ArrayChange, gone: Option<&str>, width: usize) -> String {
    let name = change.array.as_ref().map_or("", |a| a.name.as_str());
    let subject = if name.is_empty() { "array".to_owned() } else { format!("array {name}") };
    let mut out = String::new();
    let what = match change.result.as_str() {
        "planned" => "Dry run. Would:",
        "unchanged" => "unchanged",
        result => gone.unwrap_or(result),
    };
    out.push_str(&sentence(&format!("{subject}: {what}"), width));
    steps(&mut out, &change.plan, width);
    let stays = gone.is_none() && change.result != "planned";
    if let Some(array) = change.array.as_ref().filter(|a| stays && !a.states.is_empty()) {
        let _ = writeln!(out, "{}", line(array, width));
    }
    out
}

/// One array in one sentence, and what to do next.
#[must_use]
pub fn line(array: &Array, width: usize) -> String {
    let what = format!(
        "{}: {} ({}), level {}, {}",
        array.name,
        Exit::of_array(array).health(),
        array.states.join(" "),
        level(array),
        size(array.size_bytes)
    );
    let mut out = wrapped(&what, width, 0);
    let next = shown(&array.remedy, &array.next_action);
    if !next.is_empty() {
        let _ = write!(out, "\n  next: {}", wrapped(&next, width, 8));
    }
    out
}

/// Arrays on drives that do not run, one a line, and the commands that start them.
#[must_use]
pub fn importable(answer: &ListImportableResponse, width: usize) -> String {
    if answer.arrays.is_empty() {
        let none = "No arrays to import or restore. Files are scanned only if they are named: strake array importable \
                    --drives ...";
        return sentence(none, width);
    }
    let mut grid = Grid::new(&[
        Column::Name("array"),
        Column::Word("level"),
        Column::Number("size"),
        Column::Number("drives"),
        Column::Text("state"),
    ]);
    for array in &answer.arrays {
        let found = array.members.iter().filter(|member| !member.path.is_empty()).count();
        grid.row([
            array.name.clone(),
            level(array),
            size(array.size_bytes),
            format!("{found}/{}", array.members.len()),
            array.states.join(" "),
        ]);
    }
    let mut out = grid.render(width);
    for array in &answer.arrays {
        let drives: Vec<&str> = array.members.iter().map(|member| member.path.as_str()).collect();
        let drives: Vec<&str> = drives.into_iter().filter(|path| !path.is_empty()).collect();
        let what = format!("{} ({}): {}", array.name, array.uuid, drives.join(", "));
        let _ = write!(out, "\n{}", sentence(&what, width));
        if !array.reason.is_empty() {
            let _ = writeln!(out, "  {}", wrapped(&array.reason, width, 2));
        }
        let next = shown(&array.remedy, &array.next_action);
        let _ = writeln!(out, "  next: {}", wrapped(&next, width, 8));
    }
    out
}

/// What a scan found.
#[must_use]
pub fn import(answer: &ImportArraysResponse, width: usize) -> String {
    if answer.arrays.is_empty() {
        return sentence("No arrays found. Name more drives with --drives.", width);
    }
    if answer.result == "planned" {
        let plan: Vec<String> = answer.arrays.iter().map(start).collect();
        let mut out = sentence("Dry run. Would:", width);
        steps(&mut out, &plan, width);
        return out;
    }
    rows(&answer.arrays, width) + &reasons(&answer.arrays, width)
}

/// How an array that was found would be started.
fn start(array: &Array) -> String {
    let here = array.members.iter().filter(|m| m.state != "missing").count();
    format!(
        "start array {}: level {}, {}, {here} of {} members",
        array.name,
        level(array),
        size(array.size_bytes),
        array.members.len()
    )
}
