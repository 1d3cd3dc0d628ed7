//! Delivery of completed I/Os to their waiters.

use std::slice::IterMut;

use strake_block::{Completion, IoError, IoErrorKind, Op, SgMut, Token};
use strake_reactor::Scheduler;
use strake_units::{Lba, MemberIndex, Nanos};

use super::direct::{Back, Direct};
use super::groups::Groups;
use super::latency::Latency;
use super::token::{self, Named};
use super::{DirectRead, Failed, HostRead, Inflight, Members, PartIo, Waiter};
use crate::histogram::{CoreTimes, Timed};
use crate::slab::Slab;

/// Recipients of completions for which no task waits.
pub(crate) trait Takers {
    /// Takes successful direct reads that are like `first` from `next`. Returns their number, or `None` without taking
    /// any if each read must be checked.
    fn alike(
        &mut self,
        first: &DirectRead,
        next: impl FnMut() -> Option<(Token, Lba, SgMut)>,
    ) -> Option<u32>;

    /// Takes a direct read.
    fn direct(&mut self, read: &DirectRead, data: SgMut, result: Result<(), IoError>);

    /// Takes an unpromoted part of a small write or degraded read.
    fn part(&mut self, part: PartBack<'_>) -> PartTaken;

    /// Takes a part that is an ordinary I/O.
    fn ordinary_part(&mut self, io: PartIo, op: Op, failed: Option<Failed>);

    /// Takes a normal read of a host request.
    fn host_read(&mut self, read: HostRead);
}

/// A completed part of a small write or degraded read.
pub(crate) struct PartBack<'a> {
    pub(crate) io: PartIo,
    pub(crate) generation: u32,
    /// The completion, from which the operation can be taken.
    pub(crate) done: &'a mut Completion,
    pub(crate) from: Source,
}

impl PartBack<'_> {
    /// Returns the failure, if any, of the part that was sent to `member` at `issued`, a value of
    /// [`Members::membership_epoch`].
    #[inline]
    pub(crate) fn failed(
        &self,
        member: impl FnOnce() -> MemberIndex,
        issued: u64,
    ) -> Option<Failed> {
        let error = self.done.result.err()?;
        let (place, former) = match self.from {
            Source::Place(place) => (place, false),
            Source::Graveyard => (member(), true),
        };
        Some(Failed { kind: error.kind, place, issued, former })
    }
}

/// The device of a completion.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// The device with this index.
    Place(MemberIndex),
    /// A former device.
    Graveyard,
}

/// The owner of a part.
pub(crate) enum PartTaken {
    /// The write or read, with the time of submission.
    Here(Nanos),
    /// The ordinary I/O to which the part was promoted.
    Promoted(u32),
}

impl Members {
    /// Collects completions. Wakes the waiting tasks, and passes other completions to `takers`. Returns their number.
    pub(crate) fn poll(
        &mut self,
        now: Nanos,
        scheduler: &Scheduler,
        takers: &mut impl Takers,
    ) -> usize {
        let Self { inflight, direct, parts, groups, orphans, batch, times, .. } = self;
        let mut home = Home { now, inflight, direct, parts, groups, scheduler, orphans, takers };
        let mut seen = self.refused.len();
        while let Some(mut done) = self.refused.pop_front() {
            home.complete(&mut done);
        }
        for (at, member) in self.members.iter_mut().enumerate() {
            let Some(queue) = member.queue.as_mut() else { continue };
            if member.outstanding == 0 && member.backlog.is_empty() {
                continue;
            }
            queue.poll(now, batch);
            seen += batch.len();
            member.outstanding -= batch.len() as u32;
            if member.deallocating > 0 {
                let over = batch.as_mut_slice().iter();
                let over = over.filter(|done| matches!(done.op, Op::Deallocate { .. }));
                member.deallocating -= over.count() as u32;
            }
            let clock = Clock { latency: &mut member.latency, times, at };
            home.take(batch.as_mut_slice(), Source::Place(MemberIndex(at as u8)), Some(clock));
            batch.clear();
            if !(member.backlog.is_empty() && member.deallocations.is_empty()) {
                Self::feed(member, home.inflight, now);
            }
        }
        for former in &mut self.graveyard {
            former.queue.poll(now, batch);
            seen += batch.len();
            former.outstanding -= batch.len() as u32;
            home.take(batch.as_mut_slice(), Source::Graveyard, None);
            batch.clear();
        }
        self.graveyard.retain(|former| former.outstanding > 0);
        seen
    }
}

/// The latency statistics of a member.
struct Clock<'a> {
    /// Recent reads.
    latency: &'a mut Latency,
    /// All I/Os since the start.
    times: &'a CoreTimes,
    at: usize,
}

impl Clock<'_> {
    #[inline]
    fn note(&mut self, now: Nanos, (since, what): (Nanos, Timed), count: u32) {
        if count == 0 {
            return;
        }
        let took = now.since(since);
        if what == Timed::Read {
            self.latency.record(took, count);
        }
        self.times.member(self.at, what, took, count);
    }
}

/// The destination of completions.
struct Home<'a, T> {
    now: Nanos,
    inflight: &'a mut Slab<Inflight>,
    direct: &'a mut Direct,
    parts: &'a mut usize,
    groups: &'a mut Groups,
    scheduler: &'a Scheduler,
    orphans: &'a mut Vec<Op>,
    takers: &'a mut T,
}

impl<T: Takers> Home<'_, T> {
    /// Processes the completions of one device, and records their latencies.
    #[inline]
    fn take(&mut self, batch: &mut [Completion], from: Source, mut clock: Option<Clock<'_>>) {
        // I/Os of the same kind and issue time are counted together.
        let (mut alike, mut count) = ((self.now, Timed::Read), 0);
        let mut rest = batch.iter_mut();
        while let Some(next) = rest.as_slice().first() {
            // Parts are recognized by their token. Any other I/O may be the first of several reads.
            let is_part = token::is_part(next.token);
            let reads = if is_part { None } else { self.take_reads(&mut rest) };
            let (taken, more) = match reads {
                Some((since, reads)) => ((since, Timed::Read), reads),
                None => {
                    let Some(done) = rest.next() else { break };
                    let Some(taken) = self.take_one(done, from) else { continue };
                    (taken, 1)
                }
            };
            if taken == alike {
                count += more;
                continue;
            }
            if let Some(clock) = &mut clock {
                clock.note(self.now, alike, count);
            }
            (alike, count) = (taken, more);
        }
        if let Some(clock) = &mut clock {
            clock.note(self.now, alike, count);
        }
    }

    /// Takes successful direct reads of the same kind from the front of `batch`, if any. Returns their submission time
    /// and their number.
    #[inline]
    fn take_reads(&mut self, batch: &mut IterMut<'_, Completion>) -> Option<(Nanos, u32)> {
        let direct = &mut *self.direct;
        let (at, first) = direct.sound(batch.as_slice().first()?)?;
        let (mut next, first) = (Some(at), *first);
        let reads = self.takers.alike(&first, || {
            let at = next.take().or_else(|| direct.next_like(&first, batch))?;
            direct.take_sound(at, batch)
        })?;
        Some((first.since, reads))
    }

    /// Takes one I/O. Returns its submission time and its kind.
    #[inline]
    fn take_one(&mut self, done: &mut Completion, from: Source) -> Option<(Nanos, Timed)> {
        if token::is_part(done.token) {
            return self.take_part(done, from);
        }
        let promoted = match Named::of(done.token) {
            Named::Inflight { .. } | Named::Part { .. } => None,
            Named::Direct { place, generation } => match self.direct.take(place, generation) {
                Back::Read(read) => {
                    self.takers.direct(read, take_data(done), done.result);
                    return Some((read.since, Timed::Read));
                }
                Back::Promoted(slot) => Some(slot),
            },
        };
        match promoted {
            Some(slot) => self.complete_promoted(slot, done),
            None => self.complete(done),
        }
    }

    /// Takes a part of a small write or degraded read.
    #[inline(always)]
    fn take_part(&mut self, done: &mut Completion, from: Source) -> Option<(Nanos, Timed)> {
        let (io, generation) = token::part_of(done.token);
        match self.takers.part(PartBack { io, generation, done, from }) {
            PartTaken::Here(since) => {
                *self.parts -= 1;
                Some((since, timed(&done.op)))
            }
            PartTaken::Promoted(slot) => self.complete_promoted(slot, done),
        }
    }

    /// Takes an I/O that was promoted to the ordinary I/O `place` while the device had it.
    fn complete_promoted(&mut self, place: u32, done: &mut Completion) -> Option<(Nanos, Timed)> {
        let generation =
            self.inflight.get(place).expect("what was promoted has its I/O").generation;
        done.token = Named::Inflight { place, generation }.token();
        self.complete(done)
    }

    /// Takes an ordinary I/O. Returns its submission time and its kind.
    fn complete(&mut self, done: &mut Completion) -> Option<(Nanos, Timed)> {
        let Named::Inflight { place: slot, generation } = Named::of(done.token) else {
            unreachable!("everything else is handled before")
        };
        let entry = self.inflight.get_mut(slot).expect("a device completed an I/O twice");
        assert_eq!(entry.generation, generation, "a device completed what was not issued");
        let taken = entry.started.map(|started| (started, timed(&done.op)));
        match entry.waiter {
            Waiter::Group(group) => {
                entry.done = Some((take_op(done), done.result));
                self.groups.settle_one(group, entry.asked, self.scheduler);
            }
            Waiter::Late => {
                entry.done = Some((take_op(done), Err(IoError::new(IoErrorKind::Timeout))));
            }
            Waiter::Host { request, range } => {
                let (member, issued, started) = (entry.asked, entry.issued, entry.started);
                self.inflight.release(slot);
                self.takers.host_read(HostRead {
                    request,
                    member,
                    range,
                    data: Some(take_data(done)),
                    result: done.result,
                    slow: false,
                    issued,
                    started,
                });
            }
            Waiter::Part(io) => {
                let (place, issued) = (entry.member, entry.issued);
                self.inflight.release(slot);
                let failed =
                    |error: IoError| Failed { kind: error.kind, place, issued, former: false };
                let failed = done.result.err().map(failed);
                self.takers.ordinary_part(io, take_op(done), failed);
            }
            Waiter::Abandoned => {
                self.inflight.release(slot);
                self.orphans.push(take_op(done));
            }
        }
        taken
    }
}

const fn timed(op: &Op) -> Timed {
    match op {
        Op::Read { .. } => Timed::Read,
        Op::Write { .. } | Op::Deallocate { .. } | Op::WriteZeroes { .. } => Timed::Write,
        Op::Flush => Timed::Flush,
    }
}

/// The value that replaces a taken operation.
const TAKEN: Op = Op::Flush;

fn take_op(done: &mut Completion) -> Op {
    std::mem::replace(&mut done.op, TAKEN)
}

/// Takes the buffer of a read. Nothing else is moved.
#[inline]
pub(super) fn take_data(done: &mut Completion) -> SgMut {
    match std::mem::replace(&mut done.op, TAKEN) {
        Op::Read { data, .. } => data,
        Op::Write { .. } | Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {
            SgMut::default()
        }
    }
}
