//! I/Os on their way back: to whoever waits for them.

use std::collections::VecDeque;

use strake_block::{Completion, IoError, IoErrorKind, Op, SgMut, Token};
use strake_reactor::Scheduler;
use strake_units::Nanos;

use super::direct::{Back, Direct};
use super::{DirectRead, Failed, GroupState, HostRead, Inflight, Members, SmallIo, Waiter};
use crate::histogram::Timed;
use crate::slab::Slab;

impl Members {
    /// Collects completions; direct reads go to `direct`, which may make an ordinary one of them, clean host reads go
    /// to `host_reads`, the rest wakes its tasks. Returns how many.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        scheduler: &Scheduler,
        host_reads: &mut VecDeque<HostRead>,
        mut direct: impl FnMut(&DirectRead, SgMut, Result<(), IoError>) -> Option<HostRead>,
        mut small: impl FnMut(SmallIo, Op, Option<Failed>),
    ) -> usize {
        let mut seen = self.refused.len();
        while let Some(mut done) = self.refused.pop_front() {
            let mut home = Home {
                inflight: &mut self.inflight,
                groups: &mut self.groups,
                scheduler,
                host_reads,
                orphans: &mut self.orphans,
                small: &mut small,
            };
            home.complete(&mut done);
        }
        for at in 0..self.members.len() {
            let member = &mut self.members[at];
            let Some(queue) = member.queue.as_mut() else { continue };
            if member.outstanding == 0 && member.backlog.is_empty() {
                continue;
            }
            queue.poll(now, &mut self.batch);
            seen += self.batch.len();
            member.outstanding -= self.batch.len() as u32;
            // Direct reads that were issued together count together.
            let (mut since, mut count) = (now, 0);
            for done in self.batch.as_mut_slice() {
                if Direct::is_of(done.token) {
                    match self.direct.take(done.token) {
                        Back::Read(read) => {
                            if read.since != since {
                                member.latency.record(now.since(since), count);
                                self.times.member(at, Timed::Read, now.since(since), count);
                                (since, count) = (read.since, 0);
                            }
                            count += 1;
                            if let Some(read) = direct(read, take_data(done), done.result) {
                                host_reads.push_back(read);
                            }
                            continue;
                        }
                        Back::Promoted(slot) => done.token = token_of(&self.inflight, slot),
                    }
                }
                let entry = self.inflight.get(slot_of(done.token));
                if let Some(Inflight { started: Some(started), read, .. }) = entry {
                    let took = now.since(*started);
                    if *read {
                        member.latency.record(took, 1);
                    }
                    self.times.member(at, timed(&done.op), took, 1);
                }
                let mut home = Home {
                    inflight: &mut self.inflight,
                    groups: &mut self.groups,
                    scheduler,
                    host_reads,
                    orphans: &mut self.orphans,
                    small: &mut small,
                };
                home.complete(done);
            }
            if count > 0 {
                member.latency.record(now.since(since), count);
                self.times.member(at, Timed::Read, now.since(since), count);
            }
            self.batch.clear();
            Self::feed(&mut self.members[at], &mut self.inflight, now);
        }
        if !self.graveyard.is_empty() {
            seen += self.poll_graveyard(now, scheduler, host_reads, &mut direct, &mut small);
        }
        seen
    }

    fn poll_graveyard(
        &mut self,
        now: Nanos,
        scheduler: &Scheduler,
        host_reads: &mut VecDeque<HostRead>,
        direct: &mut impl FnMut(&DirectRead, SgMut, Result<(), IoError>) -> Option<HostRead>,
        small: &mut impl FnMut(SmallIo, Op, Option<Failed>),
    ) -> usize {
        let mut seen = 0;
        for former in &mut self.graveyard {
            former.queue.poll(now, &mut self.batch);
            former.outstanding -= self.batch.len() as u32;
            seen += self.batch.len();
            for done in self.batch.as_mut_slice() {
                if Direct::is_of(done.token) {
                    match self.direct.take(done.token) {
                        Back::Read(read) => {
                            if let Some(read) = direct(read, take_data(done), done.result) {
                                host_reads.push_back(read);
                            }
                            continue;
                        }
                        Back::Promoted(slot) => done.token = token_of(&self.inflight, slot),
                    }
                }
                let mut home = Home {
                    inflight: &mut self.inflight,
                    groups: &mut self.groups,
                    scheduler,
                    host_reads,
                    orphans: &mut self.orphans,
                    small,
                };
                home.complete(done);
            }
            self.batch.clear();
        }
        self.graveyard.retain(|former| former.outstanding > 0);
        seen
    }
}

pub(super) fn settle_one(groups: &mut Slab<GroupState>, group: u32, scheduler: &Scheduler) {
    let state = groups.get_mut(group).expect("a group outlives its I/Os");
    state.outstanding -= 1;
    if state.outstanding == 0 {
        scheduler.wake(state.task);
    }
}

/// Where completions go.
struct Home<'a, S> {
    inflight: &'a mut Slab<Inflight>,
    groups: &'a mut Slab<GroupState>,
    scheduler: &'a Scheduler,
    host_reads: &'a mut VecDeque<HostRead>,
    orphans: &'a mut Vec<Op>,
    small: &'a mut S,
}

impl<S: FnMut(SmallIo, Op, Option<Failed>)> Home<'_, S> {
    fn complete(&mut self, done: &mut Completion) {
        let slot = slot_of(done.token);
        let entry = self.inflight.get_mut(slot).expect("a device completed an I/O twice");
        assert_eq!(entry.turn, (done.token.0 >> 32) as u32, "a device made up a completion");
        match entry.waiter {
            Waiter::Group(group) => {
                entry.done = Some((take_op(done), done.result));
                settle_one(self.groups, group, self.scheduler);
            }
            Waiter::Late => {
                entry.done = Some((take_op(done), Err(IoError::new(IoErrorKind::Timeout))));
            }
            Waiter::Host { request, range } => {
                let (member, issued) = (entry.asked, entry.issued);
                self.inflight.release(slot);
                let data = match take_op(done) {
                    Op::Read { data, .. } => Some(data),
                    Op::Write { .. }
                    | Op::Flush
                    | Op::Deallocate { .. }
                    | Op::WriteZeroes { .. } => None,
                };
                self.host_reads.push_back(HostRead {
                    request,
                    member,
                    range,
                    data,
                    result: done.result,
                    slow: false,
                    issued,
                });
            }
            Waiter::Small(io) => {
                let (place, issued) = (entry.member, entry.issued);
                self.inflight.release(slot);
                let failed =
                    done.result.err().map(|error| Failed { kind: error.kind, place, issued });
                (self.small)(io, take_op(done), failed);
            }
            Waiter::Nobody => {
                self.inflight.release(slot);
                self.orphans.push(take_op(done));
            }
        }
    }
}

const fn timed(op: &Op) -> Timed {
    match op {
        Op::Read { .. } => Timed::Read,
        Op::Write { .. } | Op::Deallocate { .. } | Op::WriteZeroes { .. } => Timed::Write,
        Op::Flush => Timed::Flush,
    }
}

/// What is left of an operation that was taken.
const TAKEN: Op = Op::Flush;

fn take_op(done: &mut Completion) -> Op {
    std::mem::replace(&mut done.op, TAKEN)
}

/// The buffer of a read. Nothing else is moved.
#[inline]
fn take_data(done: &mut Completion) -> SgMut {
    match &mut done.op {
        Op::Read { data, .. } => std::mem::take(data),
        Op::Write { .. } | Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {
            SgMut::default()
        }
    }
}

fn token_of(inflight: &Slab<Inflight>, slot: u32) -> Token {
    let turn = inflight.get(slot).expect("a promoted read has its I/O").turn;
    Token(u64::from(turn) << 32 | u64::from(slot))
}

pub(super) fn slot_of(token: Token) -> u32 {
    (token.0 & u64::from(u32::MAX)) as u32
}
