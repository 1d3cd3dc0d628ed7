//! I/Os that take long: done without, waited for, or given up, in this order.

use std::collections::VecDeque;

use strake_block::{IoError, IoErrorKind};
use strake_reactor::Scheduler;
use strake_units::{MemberIndex, MemberSet, Nanos};

use super::groups::Groups;
use super::{Failed, HostRead, Inflight, Member, Members, PartIo, Percentiles, Waiter};
use crate::limits::{IO_TIMEOUT_COMMON, READ_PATIENCE, STANDSTILL};

/// What came of a look at the outstanding I/Os.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overdue {
    /// Members with an I/O outstanding for longer than [`STANDSTILL`].
    pub(crate) standing: MemberSet,
    /// Members whose I/Os were given up.
    pub(crate) failed: MemberSet,
    /// The array cannot do without all of these members, and they were waited for long enough.
    pub(crate) hopeless: bool,
    /// I/Os that were abandoned and that devices still have, with their buffers.
    pub(crate) kept: usize,
}

impl Members {
    /// Looks for I/Os that take long. Reads that their waiters can do without are done without; overdue I/Os are given
    /// up, unless `covered` says that the array cannot do without all the members concerned.
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
                // What waits behind an I/O that hangs would hang as well, and so would what it is waited for with.
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
            // The other I/Os of a member that is given up are not waited for either, whichever core gave it up: a task
            // that waits for one after the other, or for a task of another core, would wait for the sum of their times.
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
                // What a former device did not answer does not count against the one that is there now.
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

    /// Lets every core know at its next look that `member`, which was reported, hangs.
    pub(crate) fn show_hung(&self, member: MemberIndex) {
        self.members[member.at()].hung_for_some.set();
    }

    /// Members that have failed an I/O in a way that costs a member, where its task waits for others of
    /// the same group. `parts` are those of small writes and degraded reads.
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

    /// Percentiles of the members' reads in the last seconds, for [`SitOuts::judge`](super::super::peers::SitOuts) and
    /// the status: called about once a second.
    pub(crate) fn look_at_latencies(&mut self, seen: &mut [Option<Percentiles>; 64]) {
        for (member, seen) in self.members.iter_mut().zip(seen) {
            *seen = member.latency.look();
        }
    }

    /// Clears a member's percentiles.
    pub(crate) fn forget_latency(&mut self, at: usize) {
        self.members[at].latency.clear();
    }

    /// I/Os of a member that were done without because they took long, and that were given up.
    pub(crate) fn slow_and_timeouts(&self, at: usize) -> (u64, u64) {
        (self.members[at].slow, self.members[at].timeouts)
    }
}

/// Lets the waiter go on without the I/O. The device still owns its buffers. False when nothing waited.
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
            groups.settle_one(group, scheduler);
        }
        Waiter::Host { request, range } => host_reads.push_back(HostRead {
            request,
            member: entry.asked,
            range,
            data: None,
            result: Err(IoError::new(IoErrorKind::Timeout)),
            slow,
            issued: entry.issued,
        }),
    }
    true
}
