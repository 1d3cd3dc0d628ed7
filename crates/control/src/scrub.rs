//! Scrubs: started, changed and shown.

use strake_engine::{ScrubCounts, ScrubMode};
use strake_units::ByteSize;

use crate::events::{EventKind, Note, Severity};

fn note(name: &str, kind: EventKind, what: String) -> Note {
    Note::new(kind, format!("array/{name}"), what)
}

fn show(name: &str) -> String {
    format!("strake array scrub show {name}")
}

/// A scrub of array `name` began.
pub(crate) fn started(name: &str, mode: ScrubMode) -> Note {
    let what = format!("array {name} is being scrubbed: {}", purpose(mode));
    note(name, EventKind::ScrubStarted, what)
}

/// It has found something, so far this.
pub(crate) fn has_found(name: &str, counts: &ScrubCounts) -> Note {
    let what = format!("the scrub of array {name} has found so far: {}", found(counts));
    note(name, EventKind::ScrubFound, what).next(show(name))
}

/// It is over, `whole` when it has been over all of the array.
pub(crate) fn ended(name: &str, whole: bool, counts: &ScrubCounts) -> Note {
    let (kind, how) = match whole {
        true => (EventKind::ScrubFinished, "has been over all of it"),
        false => (EventKind::ScrubStopped, "was ended before it was through"),
    };
    let what = format!("the scrub of array {name} {how}: {}", found(counts));
    let note = note(name, kind, what);
    match counts.left() {
        0 => note,
        _ => note.severity(Severity::Warning).next(show(name)),
    }
}

/// What a scrub does about what it finds.
const fn purpose(mode: ScrubMode) -> &'static str {
    match mode {
        ScrubMode::Check => "what is wrong is told, and changed by nobody",
        ScrubMode::Repair => "strips that are known to be wrong are rewritten from the others",
        ScrubMode::TrustData => {
            "strips that are known to be wrong are rewritten from the others, and where that is not known parity and \
             copies are made to agree with the data as read"
        }
    }
}

/// What was found, in words.
fn found(counts: &ScrubCounts) -> String {
    let kinds = [
        (counts.wrong, "known to be wrong"),
        (counts.unsure, "inconsistent, and not known what is wrong"),
        (counts.unreadable, "unreadable"),
    ];
    let mut parts: Vec<String> = kinds
        .into_iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, what)| format!("{} {what}", ByteSize(bytes)))
        .collect();
    if parts.is_empty() {
        parts.push("nothing is wrong".to_owned());
    }
    if counts.repaired > 0 {
        parts.push(format!("{} of that repaired", ByteSize(counts.repaired)));
    }
    if counts.unchecked > 0 {
        let what = "could not be checked, for lack of redundancy";
        parts.push(format!("{} {what}", ByteSize(counts.unchecked)));
    }
    parts.join(", ")
}
