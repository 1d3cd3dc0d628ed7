//! Drives that do not answer for a time, and targets that execute received commands after their host has disconnected.
//!
//! An outstanding request of a killed daemon keeps the drive claimed: the drive cannot be read before the request has
//! ended. So the request counts as done, in part or not, when the daemon is killed, and the drive cannot be opened
//! until it answers again. The target of a remote drive has no claims: it may execute received commands at any time
//! within its settle time, concurrently with a restarted daemon.

use strake_block::{Durability, Io, Op};
use strake_units::Nanos;

use super::state::{DriveState, Lane};
use super::{Crash, SimDrive, describe};

/// A silence that does not end.
pub const FOREVER: Nanos = Nanos(u64::MAX);

/// A write that a target executes although its host has disconnected.
struct Late {
    op: Op,
    due: Nanos,
}

/// The state of a drive that is silent or executes late writes.
#[derive(Default)]
pub(super) struct Away {
    /// In the order of arrival.
    late: Vec<Late>,
    /// The number of requests until it stops answering, and the duration.
    plan: Option<(u64, Nanos)>,
    /// The drive does not answer before this time.
    pub(super) silent_until: Nanos,
    /// Whether requests of a closed queue are outstanding.
    owing: bool,
    /// The latest time that the drive has observed.
    seen: Nanos,
}

impl SimDrive {
    /// Stops all answers for a time.
    pub fn fall_silent(&self, lasts: Nanos) {
        let mut state = self.state();
        let now = state.clock();
        state.silence(now, lasts);
    }

    /// As [`fall_silent`](Self::fall_silent), after a number of further requests.
    pub fn fall_silent_after(&self, requests: u64, lasts: Nanos) {
        self.state().away.plan = Some((requests, lasts));
    }

    /// Ends the silence; pending requests are answered first.
    pub fn speak(&self) {
        let mut state = self.state();
        let now = state.clock();
        state.away.plan = None;
        state.away.owing = false;
        if std::mem::take(&mut state.away.silent_until) > now {
            let pending = state.lanes.values_mut().flat_map(|lane| &mut lane.pending);
            pending.for_each(|pending| pending.due = now);
        }
    }

    /// The end of the silence; `None` if the drive is not silent.
    #[must_use]
    pub fn silent_until(&self) -> Option<Nanos> {
        let state = self.state();
        Some(state.away.silent_until).filter(|until| *until > state.clock())
    }

    /// True if the drive was silent at any time after `began`.
    #[must_use]
    pub fn was_silent_after(&self, began: Nanos) -> bool {
        self.state().away.silent_until > began
    }

    /// True while it cannot be opened because of outstanding requests.
    #[must_use]
    pub fn is_owing(&self) -> bool {
        self.state().is_owing()
    }

    /// True if it is reached over a network.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.state().spec.settle_time > Nanos(0)
    }
}

impl DriveState {
    fn clock(&self) -> Nanos {
        self.away.seen.max(self.trace.now())
    }

    fn silence(&mut self, now: Nanos, lasts: Nanos) {
        let until = if lasts == FOREVER { FOREVER } else { now.plus(lasts) };
        self.trace.event(&[u64::from(self.slot), 93, until.0], || {
            format!("{} (member {}) is silent until {:?}", self.name, self.slot, until)
        });
        self.away.silent_until = until;
        self.doomed = true;
        for pending in self.lanes.values_mut().flat_map(|lane| &mut lane.pending) {
            pending.due = pending.due.max(until);
        }
    }

    /// Counts a request, with which the drive may stop answering.
    pub(super) fn count_down(&mut self, now: Nanos) {
        match &mut self.away.plan {
            None => {}
            Some((0, lasts)) => {
                let lasts = *lasts;
                self.away.plan = None;
                self.silence(now, lasts);
            }
            Some((requests, _)) => *requests -= 1,
        }
    }

    pub(super) fn is_owing(&self) -> bool {
        self.away.owing && self.away.silent_until > self.clock()
    }

    /// Closes a queue. A silent drive executes its outstanding requests completely, in part or not.
    pub(super) fn close(&mut self, lane: Lane) {
        if self.away.silent_until <= self.clock() || lane.pending.is_empty() {
            return;
        }
        self.away.owing = true;
        lane.pending.iter().for_each(|pending| self.perhaps(&pending.io.op));
    }

    /// Returns the I/O in flight that ends with the crash. The rest may be executed later.
    pub(super) fn outlive(&mut self, crash: Crash, flying: Vec<Io>) -> Vec<Op> {
        let mut over = Vec::new();
        match crash {
            Crash::Power => {
                over.extend(std::mem::take(&mut self.away.late).into_iter().map(|late| late.op));
                self.away = Away { seen: self.away.seen, ..Away::default() };
            }
            Crash::Kill => {
                self.away.plan = None;
                let silent = self.away.silent_until > self.clock();
                self.away.owing = silent && (self.away.owing || !flying.is_empty());
            }
        }
        let goes_on = crash == Crash::Kill && self.spec.settle_time > Nanos(0) && !self.gone;
        for Io { op, .. } in flying {
            if goes_on && self.rng.one_in(2) && self.changed_by(&op).is_some() {
                let within = self.rng.below(self.spec.settle_time.0);
                self.away.late.push(Late { op, due: self.clock().plus(Nanos(within)) });
            } else {
                over.push(op);
            }
        }
        over
    }

    /// Executes writes that were received before the end of the daemon and are due by `now`.
    pub(super) fn land(&mut self, now: Nanos) {
        self.away.seen = self.away.seen.max(now);
        if self.away.late.is_empty() {
            return;
        }
        let (mut due, later): (Vec<Late>, _) =
            std::mem::take(&mut self.away.late).into_iter().partition(|late| late.due <= now);
        self.away.late = later;
        due.sort_by_key(|late| late.due);
        for Late { op, .. } in due {
            let Some((offset, change)) = self.changed_by(&op) else { continue };
            self.trace.event(&[u64::from(self.slot), 92, offset], || {
                format!("{} member {}: late {}", self.name, self.slot, describe(&op))
            });
            self.trace.fault(super::LATE);
            self.change(offset, change, Durability::Normal);
        }
    }

    /// As [`land`](Self::land), at the current time of the run.
    pub(super) fn catch_up(&mut self) {
        if self.away.late.is_empty() {
            return;
        }
        let now = self.clock();
        self.land(now);
    }
}
