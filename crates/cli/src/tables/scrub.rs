//! Scrubs: how far, and what was found.

use super::clock::Clock;
use super::grid::{Column, Grid};
use super::{count, field, job, sentence, size};
use strake_api::v1::{Progress, Scrub, ScrubChange, ScrubFinding};

/// Findings that are listed for people.
const FINDINGS_MAX: usize = 64;

/// What a command did to a scrub.
#[must_use]
pub fn change(change: &ScrubChange, width: usize) -> String {
    let scrub = change.scrub.clone().unwrap_or_default();
    let done = match change.result.as_str() {
        "created" => "started",
        other => other,
    };
    let mut out = sentence(&format!("scrub of {}: {done}", scrub.array), width);
    if scrub.total_bytes > 0 {
        field(&mut out, "scrub", &line(&scrub), width);
    }
    if change.result == "created" {
        field(&mut out, "next", &format!("strake array scrub show {}", scrub.array), width);
    }
    out
}

/// A scrub in full.
#[must_use]
pub fn scrub(scrub: &Scrub, clock: &Clock, width: usize) -> String {
    let mut out = String::new();
    let name = &scrub.array;
    if has_old_findings(scrub) {
        let what = "an earlier scrub found wrong data that are not repaired";
        out += &sentence(&format!("{name}: {what}"), width);
        field(&mut out, "next", &format!("strake array scrub start {name} --repair"), width);
    } else if scrub.state.is_empty() {
        out += &sentence(&format!("{name}: no scrub is recorded"), width);
    } else {
        out += &sentence(&format!("{}: {}", scrub.array, verdict(scrub)), width);
        field(&mut out, "scrub", &line(scrub), width);
        if scrub.unchecked_bytes > 0 {
            let what = format!("{}, because redundancy is missing", size(scrub.unchecked_bytes));
            field(&mut out, "unchecked", &what, width);
        }
        if scrub.left_bytes > 0 && !matches!(scrub.state.as_str(), "running" | "waiting" | "paused")
        {
            field(&mut out, "next", &advice(scrub), width);
        }
    }
    if let Some(ended) = scrub.ended_us {
        field(&mut out, "last ended", &clock.show(ended), width);
    }
    if let Some(next) = scrub.next_us {
        field(&mut out, "next due", &clock.show(next), width);
    }
    if !scrub.findings.is_empty() {
        out.push('\n');
        out.push_str(&findings(scrub, width));
    }
    out
}

/// Whether an earlier scrub, before the last start of the array, left findings that are not repaired.
#[must_use]
pub fn has_old_findings(scrub: &Scrub) -> bool {
    scrub.state.is_empty() && scrub.findings.iter().any(|finding| !finding.repaired)
}

/// Kind, state and progress, in a line.
#[must_use]
pub fn line(scrub: &Scrub) -> String {
    let mode = match scrub.mode.as_str() {
        "trust_data" => "repair and trust the data",
        mode => mode,
    };
    let how = format!("{mode}, {}", scrub.state);
    match scrub.state.as_str() {
        "finished" => format!("{how}, {} checked", size(scrub.checked_bytes)),
        _ => format!("{how}, {}", job::progress(&progress(scrub))),
    }
}

fn progress(scrub: &Scrub) -> Progress {
    Progress {
        done_bytes: scrub.done_bytes,
        total_bytes: scrub.total_bytes,
        rate_bytes_per_s: scrub.rate_bytes_per_s,
        eta_s: scrub.eta_s,
        ..Progress::default()
    }
}

/// What was found, in words.
#[must_use]
pub fn verdict(scrub: &Scrub) -> String {
    let kinds = [
        (scrub.wrong_bytes, "corrupt"),
        (scrub.unsure_bytes, "inconsistent, wrong strip unknown"),
        (scrub.unreadable_bytes, "unreadable"),
    ];
    let found = kinds.into_iter().filter(|(bytes, _)| *bytes > 0);
    let mut parts: Vec<String> =
        found.map(|(bytes, what)| format!("{} {what}", size(bytes))).collect();
    match (parts.is_empty(), scrub.repaired_bytes) {
        (true, _) if scrub.unchecked_bytes > 0 && scrub.checked_bytes == 0 => {
            parts.push("nothing was checked".to_owned());
        }
        (true, _) if is_partial(scrub) => parts.push("nothing wrong found so far".to_owned()),
        (true, _) => parts.push("nothing wrong found".to_owned()),
        (false, 0) => {}
        (false, _) if scrub.left_bytes == 0 => parts.push("all of it repaired".to_owned()),
        (false, bytes) => parts.push(format!("{} repaired", size(bytes))),
    }
    parts.join(", ")
}

/// Whether a part of the array was not checked: the scrub is not over, or there was no redundancy to compare with.
#[must_use]
pub fn is_partial(scrub: &Scrub) -> bool {
    scrub.state != "finished" || scrub.unchecked_bytes > 0
}

/// What to do about what is left.
fn advice(scrub: &Scrub) -> String {
    let name = &scrub.array;
    if scrub.wrong_bytes > 0 && scrub.mode == "check" {
        return format!("strake array scrub start {name} --repair");
    }
    if scrub.unsure_bytes > 0 {
        return format!(
            "compare the bytes below with a backup, and rewrite the wrong bytes; then, to make parity or copies match \
                the data: strake array scrub start {name} --trust-data"
        );
    }
    format!("strake array show {name}")
}

fn findings(scrub: &Scrub, width: usize) -> String {
    let mut grid = Grid::new(&[
        Column::Number("array offset"),
        Column::Number("bytes"),
        Column::Number("member"),
        Column::Number("drive offset"),
        Column::Text("verdict"),
    ]);
    for finding in scrub.findings.iter().take(FINDINGS_MAX) {
        grid.row([
            finding.array_offset_bytes.to_string(),
            finding.array_length_bytes.to_string(),
            finding.member.map_or_else(|| "-".to_owned(), |member| member.to_string()),
            finding.drive_offset_bytes.to_string(),
            words(finding),
        ]);
    }
    let mut out = grid.render(width);
    let hidden = scrub.findings.len().saturating_sub(FINDINGS_MAX) as u64;
    if hidden + scrub.unlisted_findings > 0 {
        let more = count(hidden + scrub.unlisted_findings, "more finding");
        let where_ = if hidden > 0 { "; --output json lists up to 1024" } else { "" };
        out.push_str(&sentence(&format!("{more}{where_}"), width));
    }
    out
}

fn words(finding: &ScrubFinding) -> String {
    let verdict = match finding.verdict.as_str() {
        "data_wrong" => "the data is wrong",
        "parity_wrong" => "the parity is wrong",
        "copy_wrong" => "this copy is wrong",
        "parity_differs" => "parity does not match the data",
        "copies_differ" => "copies differ, wrong copy unknown",
        other => other,
    };
    if finding.repaired { format!("{verdict}; repaired") } else { verdict.to_owned() }
}
