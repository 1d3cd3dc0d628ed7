//! The scrub on the board.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering::Relaxed;

use strake_units::Nanos;

use super::Board;
use crate::events::ArrayEventKind;
use crate::scrub::{
    ScrubBoard, ScrubFinding, ScrubMode, ScrubOrder, ScrubReport, ScrubState, ScrubStatus,
};

impl Board {
    fn scrub(&self) -> MutexGuard<'_, ScrubBoard> {
        self.scrub.lock().expect("a status writer panicked")
    }

    /// Begins a scrub. False when one is under way.
    pub(crate) fn begin_scrub(&self, mode: ScrubMode) -> bool {
        let mut scrub = self.scrub();
        if !scrub.begin(mode, self.cores.len() as u16) {
            return false;
        }
        self.scrub_number.store(scrub.status().map_or(0, |status| status.number), Relaxed);
        self.scrub_runs.store(true, Relaxed);
        for core in &self.cores {
            core.scrub_checked.store(0, Relaxed);
            core.scrub_unchecked.store(0, Relaxed);
        }
        drop(scrub);
        self.tell(None, ArrayEventKind::ScrubStarted { mode });
        true
    }

    /// Pauses, resumes or stops the scrub that is under way. False when there is none, or it is so already.
    pub(crate) fn change_scrub(&self, state: ScrubState) -> bool {
        let mut scrub = self.scrub();
        let changed = scrub.change(state);
        if changed {
            self.scrub_runs.store(state == ScrubState::Running, Relaxed);
        }
        drop(scrub);
        if changed && state == ScrubState::Stopped {
            self.tell_scrub_over();
        }
        changed
    }

    fn tell_scrub_over(&self) {
        if let Some(ScrubStatus { state, counts, .. }) = self.scrub_status() {
            let whole = state == ScrubState::Finished;
            self.tell(None, ArrayEventKind::ScrubEnded { whole, counts });
        }
    }

    pub(crate) fn scrub_order(&self) -> Option<ScrubOrder> {
        self.scrub().order()
    }

    /// The scrub that was begun last, with what all cores have counted.
    pub(crate) fn scrub_status(&self) -> Option<ScrubStatus> {
        let mut status = self.scrub().status()?;
        for core in &self.cores {
            status.counts.checked += core.scrub_checked.load(Relaxed);
            status.counts.unchecked += core.scrub_unchecked.load(Relaxed);
        }
        Some(status)
    }

    pub(crate) fn scrub_findings(&self) -> Vec<ScrubFinding> {
        self.scrub().findings()
    }

    /// A core has been over `checked` and `unchecked` bytes of the array for scrub `number`.
    pub(crate) fn count_scrubbed(&self, core: u16, number: u64, checked: u64, unchecked: u64) {
        if self.scrub_number.load(Relaxed) == number {
            let core = &self.cores[usize::from(core)];
            core.scrub_checked.fetch_add(checked, Relaxed);
            core.scrub_unchecked.fetch_add(unchecked, Relaxed);
        }
    }

    /// Takes note of what scrub `number` found in a band.
    pub(crate) fn report_scrub(&self, number: u64, report: &ScrubReport, now: Nanos) {
        let told = self.scrub().report(number, report, now);
        if let Some(counts) = told {
            self.tell(None, ArrayEventKind::ScrubFound { counts });
        }
    }

    /// A core has scrubbed all that it owns.
    pub(crate) fn scrub_shard_done(&self, number: u64) {
        if self.scrub().shard_done(number) {
            self.scrub_runs.store(false, Relaxed);
            self.tell_scrub_over();
        }
    }
}
