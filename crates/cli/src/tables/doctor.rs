//! What the doctor found.

use super::{count, sentence, wrapped};
use std::fmt::Write as _;
use strake_api::v1::{DoctorCheck, DoctorReport};
use strake_wording::shown;

/// The verdict, then what failed, then what could be better, then what is fine.
#[must_use]
pub fn show(report: &DoctorReport, width: usize) -> String {
    let of = |state: &str| report.checks.iter().filter(|c| c.state == state).count() as u64;
    let verdict = format!(
        "doctor: {}, {}, {} failed, {}",
        report.health,
        count(report.checks.len() as u64, "check"),
        of("failed"),
        count(of("warning"), "warning")
    );
    let mut out = sentence(&verdict, width);
    let known = ["failed", "warning", "ok"];
    let rank = |check: &DoctorCheck| known.iter().position(|k| *k == check.state);
    let mut checks: Vec<&DoctorCheck> = report.checks.iter().collect();
    // Stable: within a state they stay as the doctor went. What is not known here comes first.
    checks.sort_by_key(|check| rank(check));
    if !checks.is_empty() {
        out.push('\n');
    }
    for check in checks {
        let what = format!("{}: {}", check.name, check.what);
        let _ = writeln!(out, "{:<8} {}", check.state, wrapped(&what, width, 9));
        let next = shown(&check.remedy, &check.next_action);
        if !next.is_empty() {
            let _ = writeln!(out, "         next: {}", wrapped(&next, width, 15));
        }
    }
    out
}
