//! Arrays.

use super::{columns, head, or_dash, render, right, size, tail, widest, wrapped};
use crate::exit::Exit;
use std::fmt::Write as _;
use strake_api::v1::{Array, ArrayChange, ImportArraysResponse, ListArraysResponse, Progress};

/// Width of a progress bar.
const BAR: u64 = 14;

/// Every array, one a line.
#[must_use]
pub fn list(answer: &ListArraysResponse, width: usize) -> String {
    if answer.arrays.is_empty() {
        return "No arrays. Create one: strake array create NAME --level 6 --drives ...\n"
            .to_owned();
    }
    rows(&answer.arrays, width)
}

/// The table of [`list`].
pub(super) fn rows(arrays: &[Array], width: usize) -> String {
    let mut table = columns(&["health", "array", "level", "size", "members", "state"]);
    let name_width = widest(arrays.iter().map(|a| a.name.as_str()), 5, 20);
    // Health, level, size and members at their widest, with the space after each.
    let state_width = width.saturating_sub(name_width + 2 + 10 + 7 + 10 + 9).max(12);
    for array in arrays {
        let in_sync = array.members.iter().filter(|m| m.state == "in_sync").count();
        table.add_row([
            Exit::of_array(array).health().to_owned(),
            head(&array.name, name_width),
            level(array),
            size(array.size_bytes),
            format!("{in_sync}/{}", array.members.len()),
            head(&activity(array), state_width),
        ]);
    }
    right(&mut table, 3);
    right(&mut table, 4);
    render(table)
}

/// One array in full: health first, then what to do, then its shape, its jobs and its members.
#[must_use]
pub fn show(array: &Array, width: usize) -> String {
    let mut out = headline(array, width);
    let _ = writeln!(out, "uuid       {}", or_dash(&array.uuid));
    let _ = writeln!(
        out,
        "shape      level {}, {} members, strip {}, block {}",
        level(array),
        array.members.len(),
        size(u64::from(array.strip_bytes)),
        size(u64::from(array.block_bytes)),
    );
    let _ = writeln!(
        out,
        "size       {} ({} bytes), full stripe {}",
        size(array.size_bytes),
        array.size_bytes,
        size(array.stripe_data_bytes)
    );
    if !array.exports.is_empty() {
        let _ = writeln!(out, "exports    {}", wrapped(&array.exports.join(", "), width, 11));
    }
    if array.resync_bytes_at_start > 0 {
        let _ = writeln!(out, "at start   {} to resynchronize", size(array.resync_bytes_at_start));
    }
    for progress in &array.progress {
        let _ = writeln!(out, "{:<10} {}", progress.job, self::progress(progress));
    }
    counters(array, &mut out);
    out.push('\n');
    members(array, width, &mut out);
    out
}

fn headline(array: &Array, width: usize) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}: {} ({})",
        array.name,
        Exit::of_array(array).health(),
        array.states.join(" ")
    );
    if !array.reason.is_empty() {
        let _ = writeln!(out, "reason     {}", wrapped(&array.reason, width, 11));
    }
    if !array.next_action.is_empty() {
        let _ = writeln!(out, "next       {}", wrapped(&array.next_action, width, 11));
    }
    if array.states.iter().any(|s| s == "online") {
        let _ = match array.redundancy_left {
            0 => writeln!(out, "redundancy none: the next loss may cost data"),
            1 => writeln!(out, "redundancy 1 more member may be lost"),
            left => writeln!(out, "redundancy {left} more members may be lost"),
        };
    }
    out
}

fn counters(array: &Array, out: &mut String) {
    let Some(c) = &array.counters else { return };
    let _ = writeln!(
        out,
        "served     {} read, {} written, {} reads degraded",
        size(c.read_bytes),
        size(c.write_bytes),
        c.degraded_reads
    );
    if c.medium_errors > 0 || c.repairs > 0 {
        let _ = writeln!(
            out,
            "errors     {} medium errors, {} blocks repaired",
            c.medium_errors, c.repairs
        );
    }
}

fn members(array: &Array, width: usize, out: &mut String) {
    let mut table = columns(&["member", "state", "drive"]);
    for member in &array.members {
        table.add_row([
            member.position.to_string(),
            member.state.clone(),
            tail(or_dash(&member.path), width.saturating_sub(8 + 12).max(16)),
        ]);
    }
    right(&mut table, 0);
    out.push_str(&render(table));
    for member in array.members.iter().filter(|m| !m.cause.is_empty()) {
        let why = format!("member {}: {}", member.position, member.cause);
        let _ = writeln!(out, "{}", wrapped(&why, width, 0));
    }
}

/// Level with its group size where it has one, as `60 (groups of 6)`.
fn level(array: &Array) -> String {
    match array.group_size {
        0 => array.level.clone(),
        n => format!("{}/{n}", array.level),
    }
}

/// What an array is doing, in one phrase: its states, with percentages of jobs that run.
fn activity(array: &Array) -> String {
    let jobs: Vec<String> =
        array.progress.iter().map(|p| format!("{} {}%", p.job, percent(p))).collect();
    // Jobs come first: what has to be cut off is at the end.
    match jobs.is_empty() {
        true => array.states.join(" "),
        false => format!("{}; {}", jobs.join(", "), array.states.join(" ")),
    }
}

/// Whole percents done; 100 only when everything is.
#[must_use]
pub fn percent(progress: &Progress) -> u64 {
    if progress.total_bytes == 0 {
        return 100;
    }
    let percent = u128::from(progress.done_bytes) * 100 / u128::from(progress.total_bytes);
    u64::try_from(percent).unwrap_or(100).min(100)
}

/// A bar, percents, rate and time left, in one line that can be rewritten.
#[must_use]
pub fn progress(progress: &Progress) -> String {
    let percent = percent(progress);
    let filled = usize::try_from(percent * BAR / 100).unwrap_or(0);
    let empty = usize::try_from(BAR).unwrap_or(0) - filled;
    let mut out = format!(
        "[{}{}] {percent:>3}%  {} of {}",
        "#".repeat(filled),
        ".".repeat(empty),
        size(progress.done_bytes),
        size(progress.total_bytes)
    );
    if progress.rate_bytes_per_s > 0 {
        let _ = write!(out, ", {}/s", size(progress.rate_bytes_per_s));
    }
    if let Some(seconds) = progress.eta_s {
        let _ = write!(out, ", {} left", time(seconds));
    }
    out
}

/// Seconds as `59s`, `3m20s` or `2h05m`.
#[must_use]
pub fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
    }
}

/// What a command did to an array. `gone` says so where the array is no longer there afterwards; otherwise it is
/// shown in a line.
#[must_use]
pub fn change(change: &ArrayChange, gone: Option<&str>, width: usize) -> String {
    let name = change.array.as_ref().map_or("", |a| a.name.as_str());
    let mut out = String::new();
    let _ = match change.result.as_str() {
        "planned" => writeln!(out, "array {name}: nothing was done; this would be:"),
        result => writeln!(out, "array {name}: {}", gone.unwrap_or(result)),
    };
    for step in &change.plan {
        let _ = writeln!(out, "  - {}", wrapped(step, width, 4));
    }
    let stays = gone.is_none() && change.result != "planned";
    if let Some(array) = change.array.as_ref().filter(|a| stays && !a.states.is_empty()) {
        let _ = writeln!(out, "{}", line(array));
    }
    out
}

/// One array in one line.
#[must_use]
pub fn line(array: &Array) -> String {
    let mut out = format!(
        "{}: {} ({}), level {}, {}",
        array.name,
        Exit::of_array(array).health(),
        array.states.join(" "),
        level(array),
        size(array.size_bytes)
    );
    if !array.next_action.is_empty() {
        let _ = write!(out, "\n  next: {}", array.next_action);
    }
    out
}

/// What a scan found.
#[must_use]
pub fn import(answer: &ImportArraysResponse, width: usize) -> String {
    if answer.arrays.is_empty() {
        return "No arrays found. Name more drives with --drives.\n".to_owned();
    }
    rows(&answer.arrays, width)
}
