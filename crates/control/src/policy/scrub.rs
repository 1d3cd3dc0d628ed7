//! The mode of a scrub, and events about scrubs.

use strake_engine::{ScrubCounts, ScrubMode};
use strake_raid::Geometry;
use strake_units::{ByteSize, MemberSet};
use strake_wording::show_scrub;

use crate::error::ControlError;
use crate::events::{EventKind, Note, Severity};
use crate::limits::SCRUB_EVERY_MIN_S;
use crate::record::store::ScrubAim;

impl ScrubAim {
    pub(crate) const fn mode(self) -> ScrubMode {
        match self {
            Self::Check => ScrubMode::Check,
            Self::Repair => ScrubMode::Repair,
            Self::TrustData => ScrubMode::TrustData,
        }
    }

    /// Parses the word of the interface.
    pub(crate) fn parse(word: &str) -> Result<Self, ControlError> {
        match word {
            "" | "check" => Ok(Self::Check),
            "repair" => Ok(Self::Repair),
            "trust_data" => Ok(Self::TrustData),
            other => Err(ControlError::usage(format!(
                "unknown scrub mode {other:?}; use check, repair or trust_data"
            ))),
        }
    }
}

/// Parses a time between scrubs.
pub(crate) fn parse_every(seconds: u64) -> Result<u64, ControlError> {
    if seconds != 0 && seconds < SCRUB_EVERY_MIN_S {
        let least = strake_wording::every(SCRUB_EVERY_MIN_S);
        return Err(ControlError::usage(format!(
            "{seconds} s between scrubs is too short; the minimum is {least}, and 0 means never"
        )));
    }
    Ok(seconds)
}

/// True if the array has redundancy to compare.
pub(crate) fn has_redundancy(geometry: &Geometry) -> bool {
    geometry.redundancy(MemberSet::EMPTY).is_some_and(|left| left > 0)
}

/// Returns the event about a started scrub, or about a scrub that continues after `done_bytes`.
pub(crate) fn started(name: &str, mode: ScrubMode, done_bytes: u64) -> Note {
    let how = match done_bytes {
        0 => "is being scrubbed".to_owned(),
        done => {
            format!("is being scrubbed from the interrupted position, after {}", ByteSize(done))
        }
    };
    let what = format!("array {name} {how}: {}", purpose(mode));
    Note::of_array(EventKind::ScrubStarted, &name, what)
}

/// Returns the event about the findings so far.
pub(crate) fn has_found(name: &str, counts: &ScrubCounts) -> Note {
    let what = format!("the scrub of array {name} has found so far: {}", found(counts));
    Note::of_array(EventKind::ScrubFound, &name, what).next(show_scrub(name))
}

/// Returns the event about the end of a scrub. `whole` is true if it checked the whole array.
pub(crate) fn ended(name: &str, whole: bool, counts: &ScrubCounts) -> Note {
    let (kind, how) = match whole {
        true => (EventKind::ScrubFinished, "finished"),
        false => (EventKind::ScrubStopped, "was stopped before it finished"),
    };
    let what = format!("the scrub of array {name} {how}: {}", found(counts));
    let note = Note::of_array(kind, &name, what);
    match counts.left() {
        0 => note,
        _ => note.severity(Severity::Warning).next(show_scrub(name)),
    }
}

/// Describes the reaction of a scrub to findings.
const fn purpose(mode: ScrubMode) -> &'static str {
    match mode {
        ScrubMode::Check => "check only, no repair",
        ScrubMode::Repair => {
            "strips that are known to be wrong are rewritten from the other strips"
        }
        ScrubMode::TrustData => {
            "wrong strips are rewritten from the other strips; where the wrong strip is unknown, parity or copies are \
                written to match the data as read"
        }
    }
}

/// Describes the findings.
fn found(counts: &ScrubCounts) -> String {
    let kinds = [
        (counts.wrong, "corrupt"),
        (counts.unsure, "inconsistent, wrong strip unknown"),
        (counts.unreadable, "unreadable"),
    ];
    let mut parts: Vec<String> = kinds
        .into_iter()
        .filter(|(bytes, _)| *bytes > 0)
        .map(|(bytes, what)| format!("{} {what}", ByteSize(bytes)))
        .collect();
    if parts.is_empty() {
        parts.push("no corruption".to_owned());
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
