//! Scrubs that are due, interrupted or finished.

use strake_api::v1 as api;
use strake_engine::ScrubState;

use crate::control::Control;
use crate::error::ControlError;
use crate::limits::SCRUB_KEEP_EVERY_US;
use crate::manager::Manager;
use crate::policy::scrub::has_redundancy;
use crate::record::scrub_file::{self, Kept};
use crate::record::store::{ScrubAim, ScrubRecord, UnderWay};

/// Microseconds in a second.
const SECOND_US: u64 = 1_000_000;

/// Takes note of scrubs that ended, begins those again that a restart interrupted, and those that are due.
pub(crate) fn tend_scrubs(control: &Control) -> Result<(), ControlError> {
    control.run(|m| {
        let now_us = m.options.clock.now_us();
        for at in 0..m.running.len() {
            if let Err(error) = m.tend_scrub(at, now_us) {
                let array = m.running[at].array.name();
                // That nothing can be recorded is told by others.
                tracing::debug!(%array, reason = %error, "the scrub is not looked after");
            }
        }
        Ok(())
    })
}

impl Manager {
    /// Records a scrub and begins it.
    pub(crate) fn begin_scrub(&mut self, at: usize, scrub: UnderWay) -> Result<(), ControlError> {
        let uuid = self.running[at].uuid();
        let before = self.records.config.scrub_record(&uuid);
        if before.under_way.is_none() {
            self.records.put_scrub(&uuid, ScrubRecord { under_way: Some(scrub), ..before })?;
        }
        let running = &mut self.running[at];
        running.scrub.begun_us = scrub.begun_us;
        let array = &running.array;
        // Never begun first and paused then: a core could scrub a region in between.
        let begun = match scrub.paused {
            true => array.begin_paused_scrub(scrub.mode.mode()),
            false => array.begin_scrub(scrub.mode.mode()),
        };
        if let Err(error) = begun {
            if before.under_way.is_none() {
                self.records.put_scrub(&uuid, before)?;
            }
            return Err(error.into());
        }
        Ok(())
    }

    /// The scrub of the array that `view` is of, without its findings.
    pub(crate) fn scrub_view(&self, at: usize, view: &api::Array) -> api::Scrub {
        let uuid = self.running[at].uuid();
        let (record, settings) =
            (self.records.config.scrub_record(&uuid), self.records.config.settings(&uuid));
        let some = |us: u64| (us > 0).then_some(us);
        let mut scrub = api::Scrub {
            array: view.name.clone(),
            ended_us: some(record.ended_us),
            next_us: some(settings.scrub_every_s)
                .filter(|_| record.since_us > 0 && record.under_way.is_none())
                .filter(|_| has_redundancy(&self.running[at].array.status().geometry))
                .map(|every| record.since_us.saturating_add(every.saturating_mul(SECOND_US))),
            ..api::Scrub::default()
        };
        let Some(status) = self.running[at].array.status().scrub else { return scrub };
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

    /// Bytes of a running array that are known to be wrong: what its scrub left, and until that has been over all of
    /// the array also what the last whole one left.
    pub(crate) fn corrupt_bytes(&self, at: usize) -> u64 {
        let earlier = self.records.config.scrub_record(&self.running[at].uuid()).left_bytes;
        match self.running[at].array.status().scrub {
            Some(scrub) if scrub.state == ScrubState::Finished => scrub.counts.left(),
            Some(scrub) => earlier.max(scrub.counts.left()),
            None => earlier,
        }
    }

    /// Takes up the scrub that is recorded of an array that was started, or shows the last one.
    fn take_up_scrub(&mut self, at: usize) {
        let uuid = self.running[at].uuid();
        self.running[at].scrub.looked = true;
        let kept = match scrub_file::read(self.records.store.folder(), &uuid) {
            Ok(Some(kept)) => kept,
            Ok(None) => return,
            Err(why) => {
                let array = self.running[at].array.name();
                tracing::warn!(%array, %why, "the position of its scrub is not understood: it starts from the \
                                              beginning");
                return;
            }
        };
        let Kept { begun_us, mut position } = kept;
        let over = matches!(position.state, ScrubState::Finished | ScrubState::Stopped);
        position.state = match self.records.config.scrub_record(&uuid).under_way {
            // Another one was begun, of which nothing was recorded yet.
            Some(scrub) if scrub.begun_us != begun_us => return,
            Some(_) if over => position.state,
            Some(scrub) if scrub.paused => ScrubState::Paused,
            Some(_) => ScrubState::Running,
            None if over => position.state,
            None => ScrubState::Stopped,
        };
        if self.running[at].array.take_up_scrub(&position) {
            self.running[at].scrub.begun_us = begun_us;
        } else {
            let array = self.running[at].array.name();
            tracing::warn!(%array, "the position of its scrub is not in this array: it starts from the beginning");
        }
    }

    /// Records where the scrubs of all arrays stand.
    pub(crate) fn keep_scrubs(&mut self) {
        (0..self.running.len()).for_each(|at| self.keep_scrub(at, true));
    }

    /// Records where the scrub of an array stands, if that is due or `now`. A directory that refuses is asked again
    /// with the next round; that it refuses is told by others.
    pub(crate) fn keep_scrub(&mut self, at: usize, now: bool) {
        if self.records.store.is_given_up() {
            return;
        }
        let now_us = self.options.clock.now_us();
        let running = &mut self.running[at];
        let Some(status) = running.array.status().scrub else { return };
        let due = match &running.scrub.kept {
            None => true,
            Some((kept_us, kept)) => {
                let waited = now_us.abs_diff(*kept_us) >= SCRUB_KEEP_EVERY_US;
                kept.state != status.state || kept.mode != status.mode || waited
            }
        };
        if !(now || due) {
            return;
        }
        let Some(position) = running.array.scrub_position() else { return };
        if running.scrub.kept.as_ref().is_some_and(|(_, kept)| *kept == position) {
            return;
        }
        let (uuid, begun_us) = (running.uuid(), running.scrub.begun_us);
        let kept = Kept { begun_us, position };
        match scrub_file::write(self.records.store.folder(), &uuid, &kept) {
            Ok(()) => running.scrub.kept = Some((now_us, kept.position)),
            Err(error) => {
                let array = running.array.name();
                tracing::debug!(%array, %error, "where its scrub stands could not be recorded");
            }
        }
    }

    /// Records the end of a scrub that has been over all of the array, and what it left.
    pub(crate) fn note_finished(&mut self, at: usize, now_us: u64) -> Result<(), ControlError> {
        let uuid = self.running[at].uuid();
        let record = self.records.config.scrub_record(&uuid);
        let scrub = self.running[at].array.status().scrub;
        let Some(scrub) = scrub.filter(|scrub| scrub.state == ScrubState::Finished) else {
            return Ok(());
        };
        if record.under_way.is_none() {
            return Ok(());
        }
        let left_bytes = scrub.counts.left();
        let ended = ScrubRecord { since_us: now_us, ended_us: now_us, under_way: None, left_bytes };
        self.records.put_scrub(&uuid, ended)
    }

    fn tend_scrub(&mut self, at: usize, now_us: u64) -> Result<(), ControlError> {
        if self.stopping {
            return Ok(());
        }
        let uuid = self.running[at].uuid();
        if !self.running[at].scrub.looked && !self.running[at].array.status().lost {
            self.take_up_scrub(at);
        }
        // Before the end is recorded: of a scrub that is under way, a start takes up what was recorded last.
        self.keep_scrub(at, false);
        let status = self.running[at].array.status();
        let record = self.records.config.scrub_record(&uuid);
        match (status.scrub.map(|scrub| scrub.state), record.under_way) {
            (Some(ScrubState::Finished), Some(_)) => return self.note_finished(at, now_us),
            (Some(ScrubState::Stopped), Some(_)) => {
                return self.records.put_scrub(&uuid, ScrubRecord { under_way: None, ..record });
            }
            (None, Some(scrub)) if !status.lost => return self.begin_scrub(at, scrub),
            (Some(_) | None, Some(_) | None) => {}
        }
        let settings = self.records.config.settings(&uuid);
        let every_s = settings.scrub_every_s;
        let scheduled = every_s > 0 && has_redundancy(&status.geometry);
        if !scheduled || record.under_way.is_some() || status.lost {
            return Ok(());
        }
        // A clock that was set back must not keep scrubs away for years.
        if record.since_us == 0 || record.since_us > now_us {
            return self.records.put_scrub(&uuid, ScrubRecord { since_us: now_us, ..record });
        }
        if now_us - record.since_us < every_s.saturating_mul(SECOND_US) {
            return Ok(());
        }
        let mode = if settings.scrub_repair { ScrubAim::Repair } else { ScrubAim::Check };
        self.begin_scrub(at, UnderWay { mode, paused: false, scheduled: true, begun_us: now_us })
    }
}
