//! Health of everything: what is wrong comes first.

use super::{array, export, job::time, sentence, wrapped};
use std::fmt::Write as _;
use strake_api::v1::SystemStatus;
use strake_wording::shown;

/// Problems with their next action, then arrays, then exports.
#[must_use]
pub fn show(status: &SystemStatus, width: usize) -> String {
    let mut out = format!("health: {}\n", status.health);
    for problem in &status.problems {
        let what = format!("{}: {}", problem.object, problem.what);
        let _ = writeln!(out, "  {:<9}{}", problem.severity, wrapped(&what, width, 11));
        let next = shown(&problem.remedy, &problem.next_action);
        if !next.is_empty() {
            let _ = writeln!(out, "  next     {}", wrapped(&next, width, 11));
        }
    }
    if let Some(daemon) = &status.daemon {
        let up = time(daemon.uptime_us / 1_000_000);
        let cores = match daemon.cores.len() {
            1 => "1 core".to_owned(),
            n => format!("{n} cores"),
        };
        let line = format!("straked {} is {} on {cores}, up {up}", daemon.version, daemon.state);
        out.push_str(&sentence(&line, width));
    }
    out.push('\n');
    if status.arrays.is_empty() {
        out.push_str(&sentence("No arrays yet. See the drives: strake drive list", width));
        let create = "Create one: strake array create NAME --level 6 --drives ...";
        out.push_str(&sentence(create, width));
        return out;
    }
    out.push_str(&array::rows(&status.arrays, width));
    if !status.exports.is_empty() {
        out.push('\n');
        out.push_str(&export::rows(&status.exports, width));
    }
    out
}
