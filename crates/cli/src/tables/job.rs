//! Long work in the background.

use super::grid::{Column, Grid};
use super::{count, sentence, size, wrapped};
use std::fmt::Write as _;
use strake_api::v1::{Job, JobChange, ListJobsResponse, Progress};
use strake_wording::shown;

/// Width of a progress bar.
const BAR: u64 = 14;

/// Every job, one a line, then why those that are halted are.
#[must_use]
pub fn list(answer: &ListJobsResponse, width: usize) -> String {
    if answer.jobs.is_empty() {
        return sentence("No jobs: nothing is being rebuilt, replaced or resynchronized.", width);
    }
    let mut grid = Grid::new(&[
        Column::Path("job"),
        Column::Word("state"),
        Column::Number("done"),
        Column::Number("of"),
        Column::Number("rate"),
        Column::Number("left"),
        Column::Number("priority"),
        Column::Text("members"),
    ]);
    for job in &answer.jobs {
        let progress = of(job);
        let rate = progress.rate_bytes_per_s;
        grid.row([
            job.id.clone(),
            job.state.clone(),
            format!("{}%", percent(&progress)),
            size(job.total_bytes),
            if rate > 0 { format!("{}/s", size(rate)) } else { String::new() },
            job.eta_s.map_or_else(String::new, time),
            job.priority.to_string(),
            positions(job),
        ]);
    }
    let mut out = grid.render(width);
    for job in answer.jobs.iter().filter(|j| !j.reason.is_empty() || !j.next_action.is_empty()) {
        out.push('\n');
        out.push_str(&trouble(job, width));
    }
    out
}

fn positions(job: &Job) -> String {
    let members: Vec<String> = job.members.iter().map(u32::to_string).collect();
    members.join(", ")
}

/// Why a job is stalled, and what to do.
fn trouble(job: &Job, width: usize) -> String {
    let mut out = String::new();
    if !job.reason.is_empty() {
        let _ = writeln!(out, "{}", wrapped(&format!("{}: {}", job.id, job.reason), width, 2));
    }
    let next = shown(&job.remedy, &job.next_action);
    if !next.is_empty() {
        let _ = writeln!(out, "  next: {}", wrapped(&next, width, 8));
    }
    out
}

/// A job as an array has it.
fn of(job: &Job) -> Progress {
    Progress {
        job: job.kind.clone(),
        done_bytes: job.done_bytes,
        total_bytes: job.total_bytes,
        rate_bytes_per_s: job.rate_bytes_per_s,
        eta_s: job.eta_s,
        state: job.state.clone(),
        priority: job.priority,
    }
}

/// What a command did to a job.
#[must_use]
pub fn change(change: &JobChange, width: usize) -> String {
    let Some(job) = &change.job else {
        return format!("job: {}\n", change.result);
    };
    let mut out = sentence(&format!("job {}: {}", job.id, change.result), width);
    if job.total_bytes > 0 {
        let _ = writeln!(out, "  {}", wrapped(&progress(&of(job)), width, 2));
    }
    let _ = match job.members.len() {
        0 => Ok(()),
        n => {
            let what = if n == 1 { "member" } else { "members" };
            writeln!(out, "  {what} {}", positions(job))
        }
    };
    out + &trouble(job, width)
}

/// Kind and percents, and its state unless it is running.
#[must_use]
pub fn brief(progress: &Progress) -> String {
    let state = match progress.state.as_str() {
        "" | "running" => String::new(),
        state => format!(" {state}"),
    };
    format!("{} {}%{state}", progress.job, percent(progress))
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
        "[{}{}] {percent}%, {} of {}",
        "#".repeat(filled),
        ".".repeat(empty),
        size(progress.done_bytes),
        size(progress.total_bytes)
    );
    match progress.state.as_str() {
        "" | "running" => {}
        state => {
            let _ = write!(out, ", {state}");
        }
    }
    if progress.rate_bytes_per_s > 0 {
        let _ = write!(out, ", {}/s", size(progress.rate_bytes_per_s));
    }
    if let Some(seconds) = progress.eta_s {
        let _ = write!(out, ", {} left", time(seconds));
    }
    out
}

/// Seconds as `59s`, `3m20s`, `2h05m` or `3 days`.
#[must_use]
pub fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..360_000 => format!("{}h{:02}m", seconds / 3600, seconds % 3600 / 60),
        _ => count(seconds / 86_400, "day"),
    }
}
