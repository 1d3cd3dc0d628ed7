//! One array in full.

use super::array::level;
use super::clock::Clock;
use super::grid::{Column, Grid};
use super::{count, field, job, or_dash, scrub, sentence, size};
use crate::exit::Exit;
use std::fmt::Write as _;
use strake_api::v1::{Array, ArraySettings, ByteRange, DriveErrors, Member, Wait};
use strake_wording::shown;

/// Unreadable ranges that are listed.
const RANGES_MAX: usize = 8;

/// Health first, then what to do, then the array's shape, its jobs, its settings and its members by position.
#[must_use]
pub fn array(array: &Array, clock: &Clock, width: usize) -> String {
    let mut out = headline(array, clock, width);
    field(&mut out, "uuid", or_dash(&array.uuid), width);
    // Of an array that was only heard of, no more is known.
    if !array.level.is_empty() {
        shape(array, width, &mut out);
    }
    field(&mut out, "pool", &pool(array), width);
    field(&mut out, "exports", &array.exports.join(", "), width);
    for progress in &array.progress {
        field(&mut out, &progress.job, &job::progress(progress), width);
    }
    if let Some(scrub) = array.scrub.as_ref().filter(|scrub| !scrub.state.is_empty()) {
        // How far one has come that is under way stands above.
        let over = matches!(scrub.state.as_str(), "finished" | "stopped");
        let state = if over { format!("{}: ", scrub.state) } else { String::new() };
        field(&mut out, "scrubbed", &format!("{state}{}", scrub::verdict(scrub)), width);
    }
    field(&mut out, "recovery", &array.recovery, width);
    if array.resync_bytes_at_start > 0 {
        let bytes = format!("{} to resynchronize", size(array.resync_bytes_at_start));
        field(&mut out, "at start", &bytes, width);
    }
    crashes(array, width, &mut out);
    counters(array, width, &mut out);
    bad(array, width, &mut out);
    in_doubt(array, width, &mut out);
    suspect(array, width, &mut out);
    if let Some(settings) = &array.settings {
        field(&mut out, "settings", &self::settings(settings), width);
    }
    if !array.members.is_empty() {
        out.push('\n');
        out.push_str(&members(array, width));
    }
    out
}

fn headline(array: &Array, clock: &Clock, width: usize) -> String {
    let health = Exit::of_array(array).health();
    let states = if array.states.is_empty() { "unknown".into() } else { array.states.join(" ") };
    let head = format!("{}: {health} ({states})", array.name);
    let mut out = sentence(&head, width);
    field(&mut out, "reason", &array.reason, width);
    field(&mut out, "next", &shown(&array.remedy, &array.next_action), width);
    for wait in &array.waits {
        let Wait { object, what, waited_us } = wait;
        let text = format!("for {object} to {what}, {} s so far", waited_us / 1_000_000);
        field(&mut out, "waits", &text, width);
    }
    if array.states.iter().any(|s| s == "online") {
        let left = match array.redundancy_left {
            0 => "none left: the next member failure may lose data".to_owned(),
            1 => "tolerates 1 drive failure".to_owned(),
            left => format!("tolerates {left} drive failures"),
        };
        let left = match array.unverified_us {
            Some(us) => {
                format!("{left}; not verified since a crash in mode none, {}", clock.show(us))
            }
            None => left,
        };
        field(&mut out, "redundancy", &left, width);
    }
    out
}

fn shape(array: &Array, width: usize, out: &mut String) {
    let shape = format!(
        "level {}, {}, strip {}, block {}",
        level(array),
        count(array.members.len() as u64, "member"),
        size(u64::from(array.strip_bytes)),
        size(u64::from(array.block_bytes)),
    );
    field(out, "shape", &shape, width);
    let bytes = format!(
        "{} ({} bytes), full stripe {}",
        size(array.size_bytes),
        array.size_bytes,
        size(array.stripe_data_bytes)
    );
    field(out, "size", &bytes, width);
    if array.memory_bytes > 0 {
        let memory = format!("{} for stripes, {}", size(array.memory_bytes), pages(array));
        field(out, "memory", &memory, width);
    }
}

/// What pages an array's memory is in.
fn pages(array: &Array) -> String {
    match array.memory_huge_bytes {
        0 => "in ordinary pages".to_owned(),
        huge if huge == array.memory_bytes => "in huge pages".to_owned(),
        huge => format!("{} of it in huge pages", size(huge)),
    }
}

/// What a crash does to it.
fn crashes(array: &Array, width: usize, out: &mut String) {
    if array.consistency.is_empty() {
        return;
    }
    let mode = match array.consistency_wanted.as_str() {
        "" => format!("mode {}", array.consistency),
        wanted => {
            format!("mode {}, {wanted} as soon as older writes are done", array.consistency)
        }
    };
    field(out, "crash safety", &mode, width);
    for line in &array.guarantees {
        field(out, "", line, width);
    }
}

fn counters(array: &Array, width: usize, out: &mut String) {
    let Some(c) = &array.counters else { return };
    let served = format!(
        "{} read, {} written, {} reads degraded",
        size(c.read_bytes),
        size(c.write_bytes),
        c.degraded_reads
    );
    field(out, "served", &served, width);
    if c.medium_errors > 0 || c.repairs > 0 {
        let errors = format!(
            "{}, {} repaired",
            count(c.medium_errors, "unreadable block"),
            count(c.repairs, "block")
        );
        field(out, "errors", &errors, width);
    }
}

/// Blocks that are gone, and where.
fn bad(array: &Array, width: usize, out: &mut String) {
    if array.bad_blocks == 0 && array.bad_ranges.is_empty() {
        return;
    }
    let text = format!(
        "{} unreadable, at byte offset+length {}; rewriting repairs them",
        count(array.bad_blocks, "block"),
        ranges(&array.bad_ranges)
    );
    field(out, "bad blocks", &text, width);
}

/// The first ranges of a list.
fn ranges(all: &[ByteRange]) -> String {
    let shown = all.iter().take(RANGES_MAX);
    let mut words: Vec<String> =
        shown.map(|r| format!("{}+{}", r.offset_bytes, r.length_bytes)).collect();
    if all.len() > RANGES_MAX {
        words.push(format!("{} more ranges", all.len() - RANGES_MAX));
    }
    words.join(", ")
}

/// Where blocks may be wrong after a crash.
fn in_doubt(array: &Array, width: usize, out: &mut String) {
    if array.in_doubt_bytes == 0 {
        return;
    }
    let text = format!(
        "after a crash, a member went out of use before parity was consistent, so blocks may be wrong at byte \
         offset+length {}",
        ranges(&array.in_doubt_ranges)
    );
    field(out, "in doubt", &text, width);
}

/// Where blocks may have been computed wrongly.
fn suspect(array: &Array, width: usize, out: &mut String) {
    if array.suspect_bytes == 0 {
        return;
    }
    let text = format!(
        "{}: they were or may have been reconstructed from inconsistent stripes, and may be wrong; byte offset+length \
            {}",
        size(array.suspect_bytes),
        ranges(&array.suspect_ranges)
    );
    field(out, "suspect", &text, width);
}

fn settings(settings: &ArraySettings) -> String {
    let on = |set| if set { "on" } else { "off" };
    let after = match settings.replace_after_errors {
        0 => "never replace on errors".to_owned(),
        n => format!("replace after {}", count(u64::from(n), "error")),
    };
    let wear = match settings.report_at_wear_percent {
        0 => "no report at a wear".to_owned(),
        percent => format!("report at {percent} % wear"),
    };
    let scrub = match settings.scrub_every_s {
        0 => "no scheduled scrub".to_owned(),
        s if settings.scrub_repair => format!("scrub every {} and repair", job::time(s)),
        s => format!("scrub every {}", job::time(s)),
    };
    format!(
        "priority {}, auto-replace {}, auto-readd {}, {after}, {wear}, {scrub}",
        settings.rebuild_priority,
        on(settings.auto_replace),
        on(settings.auto_readd)
    )
}

fn members(array: &Array, width: usize) -> String {
    let mut grid = Grid::new(&[
        Column::Number("member"),
        Column::Word("state"),
        Column::Path("drive"),
        Column::Number("errors"),
        Column::Text("note"),
    ]);
    for member in &array.members {
        grid.row([
            member.position.to_string(),
            member.state.clone(),
            member.path.clone(),
            member.errors.as_ref().map_or_else(String::new, total),
            notes(array, member),
        ]);
    }
    grid.without_empty(3).render(width)
}

/// All errors of a drive, or nothing when there are none. Reads that were only slow are none.
pub(super) fn total(errors: &DriveErrors) -> String {
    let parts = [errors.medium, errors.timeouts, errors.device];
    match parts.into_iter().fold(0, u64::saturating_add) {
        0 => String::new(),
        total => total.to_string(),
    }
}

/// Everything about a member that its state does not say, a line each.
fn notes(array: &Array, member: &Member) -> String {
    let mut notes = Vec::new();
    if !member.cause.is_empty() {
        notes.push(member.cause.clone());
    }
    if member.stale_bytes > 0 {
        notes.push(format!("lacks {}", size(member.stale_bytes)));
    }
    if !member.replacement.is_empty() {
        notes.push(format!("being copied to {}", member.replacement));
    }
    if member.sitting_out {
        notes.push("avoided by reads: much slower than its peers".to_owned());
    }
    if member.returned {
        let mut note = "its drive returned: ".to_owned();
        let _ = write!(note, "strake array readd {} --member {}", array.name, member.position);
        notes.push(note);
    }
    notes.join("\n")
}

/// The pool on an array; empty without one.
fn pool(array: &Array) -> String {
    match (array.pool.as_str(), array.pool_state.as_str()) {
        (_, "") => String::new(),
        ("", state) => format!("{state}; its header cannot be read"),
        (name, "online") => name.to_owned(),
        (name, state) => format!("{name} ({state})"),
    }
}
