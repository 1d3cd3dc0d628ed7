//! Possible errors in the contents of arrays. They are recorded when they occur, and kept until a scrub resolves them.
//!
//! | term | meaning |
//! |---|---|
//! | finding | what a scrub found inconsistent or wrong, and did not repair |
//! | suspect | bytes that were or may have been computed from such stripes, because a member was absent |
//! | unverified | parity or copies may not match the data, since a crash in mode `none` |

use std::io;

use strake_engine::{Consistency, ScrubFinding, ScrubStatus};
use strake_units::MemberSet;

use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::limits::FINDINGS_MAX;
use crate::manager::Manager;
use crate::policy::advice::{suspect_next, unverified_next};
use crate::policy::doubt::{is_unsettled, joined, suspect_without, words};
use crate::policy::members::absent_members;
use crate::policy::scrub::has_redundancy;
use crate::record::doubt_file::{self, Doubt};
use crate::record::store::ScrubAim;

/// Records the ranges that are suspect because members are absent, and crashes that could not be recorded before.
pub(crate) fn tend_doubts(control: &Control) -> Result<(), ControlError> {
    control.with(|m| {
        for at in 0..m.running.len() {
            if m.running[at].crash_unrecorded {
                note_crash(m, at);
            }
            if let Err(error) = note_suspect(m, at) {
                let array = m.running[at].array.name();
                // Other code reports errors of the state directory.
                tracing::debug!(%array, reason = %error, "suspect ranges are not recorded");
            }
        }
    })
}

/// Reads the recorded doubts about an array that was just started.
pub(crate) fn take_up_doubt(manager: &mut Manager, at: usize) {
    let running = &manager.running[at];
    if !has_redundancy(&running.array.status().geometry) {
        return;
    }
    let doubt = doubt_file::read(manager.records.store.folder(), &running.uuid());
    manager.running[at].doubt = doubt.unwrap_or_else(|why| {
        let array = running.array.name();
        tracing::warn!(%array, %why, "the record of possibly wrong content cannot be read: the array counts as \
            unverified");
        Doubt { unverified_us: manager.options.clock.now_us(), ..Doubt::default() }
    });
}

fn put_doubt(manager: &mut Manager, at: usize, doubt: Doubt) -> io::Result<()> {
    if manager.running[at].doubt != doubt {
        let uuid = manager.running[at].uuid();
        doubt_file::write(manager.records.store.folder(), &uuid, &doubt)?;
        manager.running[at].doubt = doubt;
    }
    Ok(())
}

/// The known inconsistencies: the findings of the last complete scrub, and the findings of the current scrub.
pub(crate) fn known_findings(manager: &Manager, at: usize) -> Vec<ScrubFinding> {
    let running = &manager.running[at];
    let mut findings = running.doubt.findings.clone();
    let now = running.array.scrub_findings().into_iter().filter(is_unsettled);
    findings.extend(now.filter(|finding| !running.doubt.findings.contains(finding)));
    findings
}

/// The ranges of bytes that would be suspect if the members `out` were absent, in addition to the recorded ranges.
pub(crate) fn suspect_ranges(manager: &Manager, at: usize, out: MemberSet) -> Vec<(u64, u64)> {
    let running = &manager.running[at];
    let status = running.array.status();
    let geometry = &status.geometry;
    if out.is_empty() {
        return Vec::new();
    }
    if running.doubt.unverified_us > 0 {
        return vec![(0, geometry.capacity_blocks() << geometry.block_size().shift())];
    }
    let unlisted = running.doubt.unlisted || status.scrub.is_some_and(|scrub| scrub.unlisted > 0);
    suspect_without(out, &known_findings(manager, at), unlisted, geometry)
}

/// The ranges of bytes that are suspect: the recorded ranges, and the ranges of the absent members.
pub(crate) fn suspect_now(manager: &Manager, at: usize) -> Vec<(u64, u64)> {
    let running = &manager.running[at];
    let out = absent_members(&running.array.status());
    joined([running.doubt.suspect.clone(), suspect_ranges(manager, at, out)].concat())
}

/// Records and reports the ranges that are suspect because members are absent. Upkeep calls this function. A rebuild
/// also calls it before it starts, because the member is no longer absent afterwards. A failed array computes no
/// blocks. A daemon that stops records the ranges after its next start.
///
/// # Errors
/// The state directory cannot be written.
pub(crate) fn note_suspect(manager: &mut Manager, at: usize) -> Result<(), ControlError> {
    let status = manager.running[at].array.status();
    if status.lost || manager.stopping {
        return Ok(());
    }
    let ranges = suspect_ranges(manager, at, absent_members(&status));
    let before = manager.running[at].doubt.clone();
    let suspect = joined([before.suspect.clone(), ranges.clone()].concat());
    if suspect == before.suspect {
        return Ok(());
    }
    let name = status.name.to_string();
    let cause = if before.unverified_us > 0 {
        "a member is absent, and parity or copies were not verified since a crash in mode none"
    } else {
        "a scrub found these stripes inconsistent, and blocks of an absent member are reconstructed from these stripes"
    };
    let unwritable = |error: io::Error| ControlError::state(format!("suspect ranges: {error}"));
    put_doubt(manager, at, Doubt { suspect, ..before }).map_err(unwritable)?;
    let what = format!("{} of array {name} may be wrong", words(&ranges));
    let note = Note::of_array(EventKind::Suspect, &name, what);
    manager.record(note.cause(cause).next(suspect_next(&name, true)));
    Ok(())
}

/// Records and reports that an array of mode `none` was started after a crash. If the state directory cannot be
/// written, upkeep tries again.
pub(crate) fn note_crash(manager: &mut Manager, at: usize) {
    let running = &manager.running[at];
    let status = running.array.status();
    if status.consistency != Consistency::None || !has_redundancy(&status.geometry) {
        return;
    }
    let doubt = running.doubt.clone();
    let is_again = running.crash_unrecorded;
    let first_us = match doubt.unverified_us {
        0 => manager.options.clock.now_us(),
        earlier => earlier,
    };
    let written = put_doubt(manager, at, Doubt { unverified_us: first_us, ..doubt });
    manager.running[at].crash_unrecorded = written.is_err();
    if is_again {
        return;
    }
    if let Err(error) = written {
        tracing::warn!(array = %status.name, %error, "a crash in mode none is not recorded");
    }
    let name = status.name.to_string();
    let what = format!("the redundancy of array {name} is not verified");
    let note = Note::of_array(EventKind::Unverified, &name, what);
    let cause =
        "a crash in mode none: parity or copies may not match the data that was being written";
    let is_degraded = !absent_members(&status).is_empty();
    manager.record(note.cause(cause).next(unverified_next(&name, is_degraded)));
}

/// Records the doubts that remain after the complete scrub `scrub` with `aim`.
///
/// # Errors
/// The state directory cannot be written.
pub(crate) fn settle(
    manager: &mut Manager,
    at: usize,
    scrub: &ScrubStatus,
    aim: ScrubAim,
) -> io::Result<()> {
    let running = &manager.running[at];
    let found = running.array.scrub_findings().into_iter().filter(is_unsettled);
    let (before, is_all) = (running.doubt.clone(), scrub.counts.unchecked == 0);
    // The findings of a stripe that could not be checked remain valid.
    let mut findings = if is_all { Vec::new() } else { before.findings };
    let new: Vec<_> = found.filter(|finding| !findings.contains(finding)).collect();
    findings.extend(new);
    let unlisted =
        scrub.unlisted > 0 || (!is_all && before.unlisted) || findings.len() > FINDINGS_MAX;
    findings.truncate(FINDINGS_MAX);
    let is_consistent = is_all && scrub.counts.left() == 0;
    let is_accepted = is_consistent && aim == ScrubAim::TrustData;
    let doubt = Doubt {
        suspect: if is_accepted { Vec::new() } else { before.suspect },
        unverified_us: if is_consistent { 0 } else { before.unverified_us },
        findings,
        unlisted,
    };
    put_doubt(manager, at, doubt)
}

/// The number of bytes that the last complete scrubs found wrong or inconsistent and did not repair.
pub(crate) fn left_by_scrubs(manager: &Manager, at: usize) -> u64 {
    let running = &manager.running[at];
    let shift = running.array.status().geometry.block_size().shift();
    running.doubt.findings.iter().map(|finding| finding.rows.blocks << shift).sum()
}
