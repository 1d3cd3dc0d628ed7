//! Slow I/Os. First, waiters continue without them if possible, then they are awaited, and finally they are abandoned.

use std::collections::VecDeque;

use strake_block::{IoError, IoErrorKind};
use strake_reactor::Scheduler;
use strake_units::{MemberIndex, MemberSet, Nanos};

use super::groups::Groups;
use super::{Failed, HostRead, Inflight, Member, Members, PartIo, Percentiles, Waiter};
use crate::limits::{IO_TIMEOUT_COMMON, READ_PATIENCE, STANDSTILL};

/// The result of a check of the outstanding I/Os.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overdue {
    /// Members with an I/O outstanding for longer than [`STANDSTILL`].
    pub(crate) standing: MemberSet,
    /// Members whose I/Os were abandoned.
    pub(crate) failed: MemberSet,
    /// True if the array cannot do without all of these members, and the common time limit has expired.
    pub(crate) hopeless: bool,
    /// Number of abandoned I/Os that devices still have, with their buffers.
    pub(crate) kept: usize,
}

impl Members {
    /// Checks for slow I/Os. Waiters continue without slow reads if they can. Overdue I/Os are abandoned, unless
    /// `covered` returns false because the array cannot do without all members concerned.
    pub(crate) fn look_for_overdue(
        &mut self,
        now: Nanos,
        scheduler: &Scheduler,
        host_reads: &mut VecDeque<HostRead>,
        covered: impl Fn(MemberSet) -> bool,
    ) -> Overdue {
        let mut overdue = Overdue::default();
        let mut late = MemberSet::EMPTY;
        self.lagging = MemberSet::EMPTY;
        for (_, entry) in self.inflight.iter_mut() {
            let Some(started) = entry.started.filter(|_| entry.done.is_none()) else { continue };
            let age = now.since(started);
            let former = self.members[entry.member.at()].changed_since(entry.issued);
            let given_up =
                matches!(entry.waiter, Waiter::Abandoned | Waiter::Late) && !entry.passed;
            if former || given_up {
                continue;
            }
            if entry.passed {
                self.lagging.insert(entry.member);
            }
            if age >= STANDSTILL {
                overdue.standing.insert(entry.member);
            }
            if age >= self.members[entry.member.at()].limit {
                late.insert(entry.member);
                overdue.hopeless |= age >= IO_TIMEOUT_COMMON;
            }
        }
        let spared = !late.is_empty() && !covered(late | overdue.standing);
        overdue.hopeless &= spared;
        if !spared || overdue.hopeless {
            overdue.failed = late;
        }
        for (at, place) in self.members.iter_mut().enumerate() {
            if overdue.failed.contains(at) || place.hung_for_some.is_set() {
                // I/Os that wait behind an overdue I/O would be overdue as well.
                place.hung = true;
                Self::refuse_backlog(place, &mut self.refused, IoErrorKind::Timeout);
            }
        }
        for (_, entry) in self.inflight.iter_mut() {
            let Some(started) = entry.started.filter(|_| entry.done.is_none()) else { continue };
            let age = now.since(started);
            let place = &self.members[entry.member.at()];
            let former = place.changed_since(entry.issued);
            let Member { hung, former_hung, limit, .. } = *place;
            // The other I/Os of an unresponsive member are not awaited either, on any core. Otherwise a task that waits
            // for one I/O after another, or for a task of another core, would wait for the sum of their limits.
            let give_up = hung || former && (former_hung || age >= limit);
            let waited_for = !matches!(entry.waiter, Waiter::Late | Waiter::Abandoned);
            let pass = age >= READ_PATIENCE && entry.hasty && waited_for;
            if give_up || pass {
                let place = &mut self.members[entry.member.at()];
                if pass && !give_up && !former {
                    self.lagging.insert(entry.member);
                }
                let given_up = &mut self.given_up;
                let waited =
                    release(entry, !give_up, &mut self.groups, scheduler, host_reads, given_up);
                // Missing answers of a former device do not count against the present device.
                if waited && !former {
                    *(if give_up { &mut place.timeouts } else { &mut place.slow }) += 1;
                }
            }
            let given_up =
                matches!(entry.waiter, Waiter::Late | Waiter::Abandoned) && !entry.passed;
            overdue.kept += usize::from(given_up);
        }
        overdue
    }

    /// Publishes that `member`, which was reported, is unresponsive. Every core notices at its next check.
    pub(crate) fn show_hung(&self, member: MemberIndex) {
        self.members[member.at()].hung_for_some.set();
    }

    /// Returns the members that failed an I/O in a way that fails the member, while the task of the I/O waits for other
    /// I/Os of the same group. `parts` are the failures of small writes and degraded reads.
    pub(crate) fn failed_unseen(&self, parts: impl Iterator<Item = Failed>) -> MemberSet {
        let tasks = self.inflight.iter().filter_map(|(_, entry)| {
            let (kind, place) = (entry.done.as_ref()?.1.err()?.kind, entry.member);
            Some(Failed { kind, place, issued: entry.issued, former: false })
        });
        let failures = tasks.chain(parts).map(|failed| self.failure(failed));
        let fatal = |kind| matches!(kind, IoErrorKind::Gone | IoErrorKind::Device);
        let failures = failures.filter(|failure| !failure.former && fatal(failure.kind));
        failures.map(|failure| failure.place).collect()
    }

    /// Returns percentiles of recent reads of the members, for [`SitOuts::judge`](super::super::peers::SitOuts) and the
    /// status. Called about once a second.
    pub(crate) fn look_at_latencies(&mut self, seen: &mut [Option<Percentiles>; 64]) {
        for (member, seen) in self.members.iter_mut().zip(seen) {
            *seen = member.latency.look();
        }
    }

    /// Clears a member's percentiles.
    pub(crate) fn forget_latency(&mut self, at: usize) {
        self.members[at].latency.clear();
    }

    /// Returns the number of slow I/Os of a member without which waiters continued, and the number of abandoned I/Os.
    pub(crate) fn slow_and_timeouts(&self, at: usize) -> (u64, u64) {
        (self.members[at].slow, self.members[at].timeouts)
    }
}

/// Lets the waiter continue without the I/O. The device still owns the buffers. Returns false if nothing waited.
fn release(
    entry: &mut Inflight,
    slow: bool,
    groups: &mut Groups,
    scheduler: &Scheduler,
    host_reads: &mut VecDeque<HostRead>,
    given_up: &mut Vec<(PartIo, Failed)>,
) -> bool {
    entry.passed = slow;
    match std::mem::replace(&mut entry.waiter, Waiter::Abandoned) {
        Waiter::Abandoned => return false,
        Waiter::Late => {
            entry.waiter = Waiter::Late;
            return false;
        }
        Waiter::Part(io) => {
            let Inflight { member: place, issued, .. } = *entry;
            let kind = IoErrorKind::Timeout;
            given_up.push((io, Failed { kind, place, issued, former: false }));
        }
        Waiter::Group(group) => {
            entry.waiter = Waiter::Late;
            groups.settle_one(group, entry.asked, scheduler);
        }
        Waiter::Host { request, range } => host_reads.push_back(HostRead {
            request,
            member: entry.asked,
            range,
            data: None,
            result: Err(IoError::new(IoErrorKind::Timeout)),
            slow,
            issued: entry.issued,
            started: entry.started,
        }),
    }
    true
}
