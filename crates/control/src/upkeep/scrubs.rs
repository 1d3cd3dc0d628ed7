//! Scrubs that are due, interrupted or finished.

use std::io;

use strake_api::v1 as api;
use strake_engine::{ScrubState, ScrubStatus};

use crate::control::Control;
use crate::error::ControlError;
use crate::limits::SCRUB_KEEP_EVERY_US;
use crate::manager::Manager;
use crate::policy::scrub::has_redundancy;
use crate::record::scrub_file::{self, Kept};
use crate::record::store::{ScrubAim, ScrubRecord, UnderWay};
use crate::upkeep::doubt::{left_by_scrubs, settle};

/// Microseconds in a second.
const SECOND_US: u64 = 1_000_000;

/// Records the scrubs that ended, and starts the scrubs that a restart interrupted or that are due.
pub(crate) fn tend_scrubs(control: &Control) -> Result<(), ControlError> {
    control.with(|m| {
        let now_us = m.options.clock.now_us();
        for at in 0..m.running.len() {
            if let Err(error) = tend_scrub(m, at, now_us) {
                let array = m.running[at].array.name();
                // Other code reports that records cannot be written.
                tracing::debug!(%array, reason = %error, "the scrub cannot be checked");
            }
        }
    })
}

/// Records a scrub and starts it.
pub(crate) fn begin_scrub(
    manager: &mut Manager,
    at: usize,
    scrub: UnderWay,
) -> Result<(), ControlError> {
    let uuid = manager.running[at].uuid();
    let before = manager.records.scrub_record(&uuid);
    if before.under_way.is_none() {
        manager.records.put_scrub(&uuid, ScrubRecord { under_way: Some(scrub), ..before })?;
    }
    let running = &mut manager.running[at];
    running.scrub.begun_us = scrub.begun_us;
    let array = &running.array;
    // A paused scrub is not started and then paused, because a core could scrub a region in between.
    let begun = match scrub.paused {
        true => array.begin_paused_scrub(scrub.mode.mode()),
        false => array.begin_scrub(scrub.mode.mode()),
    };
    if let Err(error) = begun {
        if before.under_way.is_none() {
            manager.records.put_scrub(&uuid, before)?;
        }
        return Err(error.into());
    }
    Ok(())
}

/// The scrub of the array at `at`, which `view` describes, without its findings.
pub(crate) fn scrub_view(manager: &Manager, at: usize, view: &api::Array) -> api::Scrub {
    let uuid = manager.running[at].uuid();
    let (record, settings) = (manager.records.scrub_record(&uuid), manager.records.settings(&uuid));
    let some = |us: u64| (us > 0).then_some(us);
    let mut scrub = api::Scrub {
        array: view.name.clone(),
        ended_us: some(record.ended_us),
        next_us: some(settings.scrub_every_s)
            .filter(|_| record.since_us > 0 && record.under_way.is_none())
            .filter(|_| has_redundancy(&manager.running[at].array.status().geometry))
            .map(|every| record.since_us.saturating_add(every.saturating_mul(SECOND_US))),
        ..api::Scrub::default()
    };
    let Some(status) = manager.running[at].array.status().scrub else { return scrub };
    let progress = view.progress.iter().find(|progress| progress.job == "scrub");
    let counts = status.counts;
    scrub.state = progress.map_or(status.state.word(), |p| p.state.as_str()).to_owned();
    scrub.mode = status.mode.word().to_owned();
    scrub.done_bytes = counts.done().min(view.size_bytes);
    scrub.total_bytes = view.size_bytes;
    scrub.rate_bytes_per_s = progress.map_or(0, |p| p.rate_bytes_per_s);
    scrub.eta_s = progress.and_then(|p| p.eta_s);
    (scrub.checked_bytes, scrub.unchecked_bytes) = (counts.checked, counts.unchecked);
    (scrub.wrong_bytes, scrub.unsure_bytes) = (counts.wrong, counts.unsure);
    scrub.unreadable_bytes = counts.unreadable;
    (scrub.repaired_bytes, scrub.left_bytes) = (counts.repaired, counts.left());
    scrub.unlisted_findings = status.unlisted;
    scrub.scheduled = record.under_way.is_some_and(|scrub| scrub.scheduled);
    scrub
}

/// The number of bytes of a running array that are known to be wrong: the bytes that the current scrub did not repair
/// and, until this scrub is complete, also the bytes that the last complete scrub did not repair.
pub(crate) fn corrupt_bytes(manager: &Manager, at: usize) -> u64 {
    let recorded = manager.records.scrub_record(&manager.running[at].uuid()).left_bytes;
    // An array that was imported again has no record of its last scrub.
    let earlier = recorded.max(left_by_scrubs(manager, at));
    match manager.running[at].array.status().scrub {
        Some(scrub) if scrub.state == ScrubState::Finished => left_after(&scrub, earlier),
        Some(scrub) => earlier.max(scrub.counts.left()),
        None => earlier,
    }
}

/// Restores the recorded scrub of an array that was started: the scrub continues, or the array shows the last scrub.
fn take_up_scrub(manager: &mut Manager, at: usize) {
    let uuid = manager.running[at].uuid();
    manager.running[at].scrub.looked = true;
    let kept = match scrub_file::read(manager.records.store.folder(), &uuid) {
        Ok(Some(kept)) => kept,
        Ok(None) => return,
        Err(why) => {
            let array = manager.running[at].array.name();
            tracing::warn!(%array, %why, "the position of its scrub is not understood: it starts from the \
                                          beginning");
            return;
        }
    };
    let Kept { begun_us, mut position } = kept;
    let over = matches!(position.state, ScrubState::Finished | ScrubState::Stopped);
    position.state = match manager.records.scrub_record(&uuid).under_way {
        // Another scrub was started, and its position was not recorded yet.
        Some(scrub) if scrub.begun_us != begun_us => return,
        Some(_) if over => position.state,
        Some(scrub) if scrub.paused => ScrubState::Paused,
        Some(_) => ScrubState::Running,
        None if over => position.state,
        None => ScrubState::Stopped,
    };
    if manager.running[at].array.take_up_scrub(&position) {
        manager.running[at].scrub.begun_us = begun_us;
    } else {
        let array = manager.running[at].array.name();
        tracing::warn!(%array, "the position of its scrub is not in this array: it starts from the beginning");
    }
}

/// Records the positions of the scrubs of all arrays.
pub(crate) fn keep_scrubs(manager: &mut Manager) {
    (0..manager.running.len()).for_each(|at| keep_scrub(manager, at, true));
}

/// Records the position of the scrub of an array, if the record is due or `now` is set. If the state directory cannot
/// be written, the next round tries again; other code reports the error.
pub(crate) fn keep_scrub(manager: &mut Manager, at: usize, now: bool) {
    if let Err(error) = try_keep_scrub(manager, at, now) {
        let array = manager.running[at].array.name();
        tracing::debug!(%array, %error, "the position of its scrub could not be recorded");
    }
}

/// Records the position of the scrub as [`keep_scrub`] does, and returns the error.
///
/// # Errors
/// The state directory cannot be written.
pub(crate) fn try_keep_scrub(manager: &mut Manager, at: usize, now: bool) -> io::Result<()> {
    if manager.records.store.is_given_up() {
        return Ok(());
    }
    let now_us = manager.options.clock.now_us();
    let running = &mut manager.running[at];
    let Some(status) = running.array.status().scrub else { return Ok(()) };
    let due = match &running.scrub.kept {
        None => true,
        Some((kept_us, kept)) => {
            let waited = now_us.abs_diff(*kept_us) >= SCRUB_KEEP_EVERY_US;
            // The reads that were in progress when the scrub was paused finish later, and may complete a region.
            let ended = status.state != ScrubState::Running && running.scrub.seen != status.counts;
            kept.state != status.state || kept.mode != status.mode || ended || waited
        }
    };
    if !(now || due) {
        return Ok(());
    }
    let Some(position) = running.array.scrub_position() else { return Ok(()) };
    running.scrub.seen = status.counts;
    if running.scrub.kept.as_ref().is_some_and(|(_, kept)| *kept == position) {
        return Ok(());
    }
    let (uuid, begun_us) = (running.uuid(), running.scrub.begun_us);
    let kept = Kept { begun_us, position };
    scrub_file::write(manager.records.store.folder(), &uuid, &kept)?;
    running.scrub.kept = Some((now_us, kept.position));
    Ok(())
}

/// Records the end of a complete scrub, and the number of bytes that it did not repair.
pub(crate) fn note_finished(
    manager: &mut Manager,
    at: usize,
    now_us: u64,
) -> Result<(), ControlError> {
    let uuid = manager.running[at].uuid();
    let record = manager.records.scrub_record(&uuid);
    let scrub = manager.running[at].array.status().scrub;
    let Some(scrub) = scrub.filter(|scrub| scrub.state == ScrubState::Finished) else {
        return Ok(());
    };
    if record.under_way.is_none() {
        return Ok(());
    }
    let aim = record.under_way.map_or(ScrubAim::Check, |under_way| under_way.mode);
    // This step comes first: a repetition after a crash has the same result.
    settle(manager, at, &scrub, aim)
        .map_err(|e| ControlError::state(format!("the result of a scrub: {e}")))?;
    let left_bytes = left_after(&scrub, record.left_bytes);
    let ended = ScrubRecord { since_us: now_us, ended_us: now_us, under_way: None, left_bytes };
    manager.records.put_scrub(&uuid, ended)
}

/// The number of bytes that are inconsistent or wrong after a complete scrub, if `earlier` bytes were wrong before. If
/// the scrub could not check a part of the array, `earlier` remains the minimum.
fn left_after(scrub: &ScrubStatus, earlier: u64) -> u64 {
    match scrub.counts.unchecked {
        0 => scrub.counts.left(),
        _ => scrub.counts.left().max(earlier),
    }
}

fn tend_scrub(manager: &mut Manager, at: usize, now_us: u64) -> Result<(), ControlError> {
    if manager.stopping {
        return Ok(());
    }
    let uuid = manager.running[at].uuid();
    if !manager.running[at].scrub.looked && !manager.running[at].array.status().lost {
        take_up_scrub(manager, at);
    }
    // The position is recorded before the end: while the scrub counts as running, a start continues at the recorded
    // position.
    keep_scrub(manager, at, false);
    let status = manager.running[at].array.status();
    let record = manager.records.scrub_record(&uuid);
    match (status.scrub.map(|scrub| scrub.state), record.under_way) {
        (Some(ScrubState::Finished), Some(_)) => return note_finished(manager, at, now_us),
        (Some(ScrubState::Stopped), Some(_)) => {
            return manager.records.put_scrub(&uuid, ScrubRecord { under_way: None, ..record });
        }
        (None, Some(scrub)) if !status.lost => return begin_scrub(manager, at, scrub),
        (Some(_) | None, Some(_) | None) => {}
    }
    let settings = manager.records.settings(&uuid);
    let every_s = settings.scrub_every_s;
    let scheduled = every_s > 0 && has_redundancy(&status.geometry);
    if !scheduled || record.under_way.is_some() || status.lost {
        return Ok(());
    }
    // A clock that was set back must not delay scrubs for years.
    if record.since_us == 0 || record.since_us > now_us {
        return manager.records.put_scrub(&uuid, ScrubRecord { since_us: now_us, ..record });
    }
    if now_us - record.since_us < every_s.saturating_mul(SECOND_US) {
        return Ok(());
    }
    let mode = if settings.scrub_repair { ScrubAim::Repair } else { ScrubAim::Check };
    begin_scrub(manager, at, UnderWay { mode, paused: false, scheduled: true, begun_us: now_us })
}
