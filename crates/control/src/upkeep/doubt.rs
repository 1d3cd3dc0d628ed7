//! What may be wrong with the contents of arrays: noted when it arises, and kept until it is settled.

use strake_engine::{Consistency, ScrubState};
use strake_units::MemberSet;

use crate::control::Control;
use crate::error::ControlError;
use crate::events::{EventKind, Note};
use crate::manager::Manager;
use crate::policy::advice::{suspect_next, unverified_next};
use crate::policy::doubt::{joined, suspect_without, words};
use crate::policy::members::absent_members;
use crate::policy::scrub::has_redundancy;
use crate::record::store::{DoubtRecord, ScrubAim};

/// Notes what members that are out make suspect.
pub(crate) fn tend_doubts(control: &Control) -> Result<(), ControlError> {
    control.with(|m| {
        for at in 0..m.running.len() {
            if let Err(error) = note_suspect(m, at) {
                let array = m.running[at].array.name();
                // That nothing can be recorded is reported elsewhere.
                tracing::debug!(%array, reason = %error, "what is suspect is not recorded");
            }
        }
    })
}

/// The ranges of bytes that are suspect: those that are recorded, and those of members that are out.
pub(crate) fn suspect_now(manager: &Manager, at: usize) -> Vec<(u64, u64)> {
    let running = &manager.running[at];
    let out = absent_members(&running.array.status());
    let recorded = manager.records.doubt(&running.uuid()).suspect;
    joined([recorded, suspect_ranges(manager, at, out)].concat())
}

/// The ranges of bytes that would be suspect with these members out, beside those that are recorded.
pub(crate) fn suspect_ranges(manager: &Manager, at: usize, out: MemberSet) -> Vec<(u64, u64)> {
    let running = &manager.running[at];
    let status = running.array.status();
    let geometry = &status.geometry;
    if out.is_empty() {
        return Vec::new();
    }
    if manager.records.doubt(&running.uuid()).unverified_us > 0 {
        return vec![(0, geometry.capacity_blocks() << geometry.block_size().shift())];
    }
    let unlisted = status.scrub.map_or(0, |scrub| scrub.unlisted);
    suspect_without(out, &running.array.scrub_findings(), unlisted, geometry)
}

/// Records and reports what the members that are out make suspect. Before a rebuild, which ends the absence, and before
/// a scrub, which forgets what the one before found.
///
/// # Errors
/// When the state directory refuses.
pub(crate) fn note_suspect(manager: &mut Manager, at: usize) -> Result<(), ControlError> {
    let status = manager.running[at].array.status();
    if status.lost || manager.stopping {
        return Ok(());
    }
    let ranges = suspect_ranges(manager, at, absent_members(&status));
    let uuid = manager.running[at].uuid();
    let before = manager.records.doubt(&uuid);
    let suspect = joined([before.suspect.clone(), ranges.clone()].concat());
    if suspect == before.suspect {
        return Ok(());
    }
    let name = status.name.to_string();
    let cause = if before.unverified_us > 0 {
        "a member is out of use, and parity or copies were not verified since a crash in mode none"
    } else {
        "a scrub found these stripes inconsistent, and blocks of a member that is out of use are computed from them"
    };
    manager.records.put_doubt(&uuid, DoubtRecord { suspect, ..before })?;
    let what = format!("{} of array {name} may be wrong", words(&ranges));
    let note = Note::of_array(EventKind::Suspect, &name, what);
    manager.record(note.cause(cause).next(suspect_next(&name)));
    Ok(())
}

/// Records and reports that an array of mode `none` was started after a crash.
pub(crate) fn note_crash(manager: &mut Manager, at: usize) {
    let status = manager.running[at].array.status();
    if status.consistency != Consistency::None || !has_redundancy(&status.geometry) {
        return;
    }
    let (uuid, name) = (manager.running[at].uuid(), status.name.to_string());
    let unverified_us = manager.options.clock.now_us();
    let doubt = DoubtRecord { unverified_us, ..manager.records.doubt(&uuid) };
    if let Err(error) = manager.records.put_doubt(&uuid, doubt) {
        tracing::warn!(array = %name, reason = %error, "a crash in mode none is not recorded");
    }
    let what = format!("the redundancy of array {name} is not verified");
    let note = Note::of_array(EventKind::Unverified, &name, what);
    let cause =
        "a crash in mode none: parity or copies may not match the data that was being written";
    manager.record(note.cause(cause).next(unverified_next(&name)));
}

/// What is still in doubt after a whole scrub, which is recorded as under way yet.
pub(crate) fn left_by_scrub(manager: &Manager, at: usize) -> DoubtRecord {
    let uuid = manager.running[at].uuid();
    let doubt = manager.records.doubt(&uuid);
    let scrub = manager.running[at].array.status().scrub;
    let Some(scrub) = scrub.filter(|scrub| scrub.state == ScrubState::Finished) else {
        return doubt;
    };
    let under_way = manager.records.scrub_record(&uuid).under_way;
    let is_trusted = under_way.is_some_and(|scrub| scrub.mode == ScrubAim::TrustData);
    let is_consistent = scrub.counts.left() == 0 && scrub.counts.unchecked == 0;
    DoubtRecord {
        suspect: if is_trusted && scrub.counts.left() == 0 { Vec::new() } else { doubt.suspect },
        unverified_us: if is_consistent { 0 } else { doubt.unverified_us },
    }
}
