//! The scrub in the shared status.

use std::sync::MutexGuard;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use strake_units::{Nanos, RegionIndex};

use super::SharedStatus;
use crate::events::ArrayEventKind;
use crate::scrub::{
    ScrubFinding, ScrubMode, ScrubOrder, ScrubPosition, ScrubReport, ScrubState, ScrubStatus,
    SharedScrub,
};

impl SharedStatus {
    fn scrub(&self) -> MutexGuard<'_, SharedScrub> {
        self.scrub.lock().expect("a status writer panicked")
    }

    /// Starts a scrub in `state`. Returns false if a scrub is in progress.
    pub(crate) fn begin_scrub(&self, mode: ScrubMode, state: ScrubState) -> bool {
        let mut scrub = self.scrub();
        if !scrub.begin(mode, state, self.cores.len() as u16) {
            return false;
        }
        self.show_scrub(&scrub);
        drop(scrub);
        self.tell(None, ArrayEventKind::ScrubStarted { mode, done_bytes: 0 });
        true
    }

    /// Continues an interrupted scrub, or shows a finished scrub. Returns false if a scrub was started since the start
    /// of the array, or if the position does not fit this array.
    pub(crate) fn take_up_scrub(&self, position: &ScrubPosition) -> bool {
        let mut scrub = self.scrub();
        if !scrub.take_up(position, self.cores.len() as u16) {
            return false;
        }
        self.show_scrub(&scrub);
        drop(scrub);
        if !position.state.is_over() {
            let (mode, done_bytes) = (position.mode, position.counts.done());
            self.tell(None, ArrayEventKind::ScrubStarted { mode, done_bytes });
        }
        true
    }

    /// Resets the counters of every core for a new scrub.
    fn show_scrub(&self, scrub: &SharedScrub) {
        let order = scrub.order();
        self.scrub_number.store(order.map_or(0, |order| order.number), Relaxed);
        self.scrub_runs.store(order.is_some_and(|order| order.runs), Relaxed);
        for core in &self.cores {
            core.scrub_checked.store(0, Relaxed);
            core.scrub_unchecked.store(0, Relaxed);
        }
    }

    /// Returns the position from which the scrub could continue after an interruption now.
    pub(crate) fn scrub_position(&self) -> Option<ScrubPosition> {
        self.scrub().position()
    }

    /// Pauses, resumes or stops the scrub in progress. Returns false without a scrub in progress, or if the scrub
    /// already has this state.
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

    /// Returns the status of the last scrub, with the counters of all cores.
    pub(crate) fn scrub_status(&self) -> Option<ScrubStatus> {
        let scrub = self.scrub();
        let mut status = scrub.status()?;
        // The lock is held, because the counters of a core move when its region is complete.
        for core in &self.cores {
            status.counts.checked += core.scrub_checked.load(Relaxed);
            status.counts.unchecked += core.scrub_unchecked.load(Relaxed);
        }
        Some(status)
    }

    pub(crate) fn scrub_findings(&self) -> Vec<ScrubFinding> {
        self.scrub().findings()
    }

    /// Records that a core has processed `checked` and `unchecked` bytes of the array for scrub `number`.
    pub(crate) fn count_scrubbed(&self, core: u16, number: u64, checked: u64, unchecked: u64) {
        if self.scrub_number.load(Relaxed) == number {
            let core = &self.cores[usize::from(core)];
            core.scrub_checked.fetch_add(checked, Relaxed);
            core.scrub_unchecked.fetch_add(unchecked, Relaxed);
        }
    }

    /// Records the findings of `core` in a band for scrub `number`.
    pub(crate) fn report_scrub(&self, core: u16, number: u64, report: &ScrubReport, now: Nanos) {
        let reported = self.scrub().report((core, number), report, now);
        if let Some(counts) = reported {
            self.tell(None, ArrayEventKind::ScrubFound { counts });
        }
    }

    /// Returns the first region for `core` to scrub.
    pub(crate) fn first_to_scrub(&self, core: u16) -> Option<RegionIndex> {
        self.scrub().next(RegionIndex(0), (core, self.cores.len() as u16))
    }

    /// Records that `core` has scrubbed all of `region` for scrub `number`. Returns its next region, if any, unless the
    /// scrub has ended.
    pub(crate) fn scrubbed(
        &self,
        core: u16,
        number: u64,
        region: RegionIndex,
    ) -> Option<RegionIndex> {
        let mut scrub = self.scrub();
        let counted = &self.cores[usize::from(core)];
        let take = |count: &AtomicU64| count.load(Relaxed);
        let bytes = (take(&counted.scrub_checked), take(&counted.scrub_unchecked));
        if !scrub.region_done((core, number), region, bytes) {
            return None;
        }
        counted.scrub_checked.store(0, Relaxed);
        counted.scrub_unchecked.store(0, Relaxed);
        scrub.next(region, (core, self.cores.len() as u16))
    }

    /// Records that a core has scrubbed all its regions.
    pub(crate) fn scrub_shard_done(&self, number: u64) {
        let last = self.scrub().shard_done(number);
        if last {
            self.scrub_runs.store(false, Relaxed);
            self.tell_scrub_over();
        }
    }
}
