//! Writes without a task: small writes and writes of whole stripes ([`stripe`]).
//!
//! A small write has data in one strip on a member in sync. All copies are on members in sync too, and so is every
//! parity that is not absent. Most random writes are small writes. They need no task, no request and no I/O of their
//! own: an entry of a table counts the outstanding parts, and continues when none is outstanding.
//!
//! ```text
//!  a user's write, or the head of a band --> old data and parities read --> updated --> all written --> answered
//!                 (copies have nothing to read)         |               (on record, |       |
//!                                                       v a read failed,  `strict`) |       v a write failed
//!                                                       something changed  <--------'       task: out of use, answered
//!                                         to the head of its band, for a task
//! ```
//!
//! In a stripe with a missing member, and in mode `strict` where no partial-write record is sufficient, the parts are
//! recorded in the redo log before they are written ([`Records`]).
//!
//! Cached content of the same blocks is not read again ([`ParityCache`]). If everything is cached, the write needs no
//! reads.
//!
//! [`strake_raid::single()`] decides which writes are small writes, and which strips they read and write.

mod lock;
mod logged;
mod parity_cache;
mod stripe;
mod strips;
mod table;

use arrayvec::ArrayVec;
use strake_block::{BufMut, Durability, IoError, Sg, SgMut, Token};
use strake_parity::ParityMut;
use strake_raid::{Access, Band, PARTS_MAX, Parts, Sets, Single, Spot, single};
use strake_units::{Lba, LbaRange, Nanos, PositionSet, RegionIndex};

use super::bands::Holder;
use super::members::{Failed, Members, PARTS_NAMED_MAX, PartIo, Unplaced, Whole};
use super::mend::LOST;
use super::partial_writes::RecordIndex;
use super::{Shard, scratch};
use crate::limits::TIMEOUT_CHECK;
use crate::message::{Fill, Origin, Peer, Span, Work};
use crate::pacing::Came;

pub(crate) use lock::needs_no_task;
use lock::{Lock, first_small};
pub(crate) use logged::Records;
pub(crate) use parity_cache::ParityCache;
use parity_cache::Worth;
pub(crate) use stripe::write_stripe;
use strips::Cached;
use table::Phase;
pub(crate) use table::{Small, Smalls};

/// The write at the head of a band's queue.
pub(crate) struct Head {
    pub(crate) range: LbaRange,
    pub(crate) data: Sg,
    pub(crate) durability: Durability,
    pub(crate) origin: Origin,
    /// The time at which the write was queued in the band.
    pub(crate) queued: Nanos,
}

/// The origin of a write without a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectWrite {
    pub(crate) port: u16,
    pub(crate) token: Token,
    /// The time at which the write was accepted, and the state of maintenance at this time.
    pub(crate) since: Nanos,
    pub(crate) came: Came,
}

/// The recipient of the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller {
    /// A user on this thread.
    User(DirectWrite),
    /// The sender of the span, and the time at which the span was queued in its band.
    Span(Origin, Nanos),
}

/// A write that may be a small one.
#[derive(Clone, Copy)]
struct Target {
    spot: Spot,
    parts: Parts,
    region: RegionIndex,
    /// True if the parts are recorded in the redo log.
    logged: bool,
}

impl Shard {
    /// Starts a user's write, or returns the data if it is not a small write or cannot start immediately.
    #[inline]
    pub(crate) fn write_directly(
        &self,
        port: u16,
        token: Token,
        at: Lba,
        data: Sg,
        durability: Durability,
    ) -> Result<(), Sg> {
        if self.sets.get().recordable().is_empty() {
            return self.write_at_once(Access::Write, (port, token), at, data, durability);
        }
        self.write_while_logging(port, token, at, data, durability)
    }

    /// Starts a user's write while some members accept recorded writes. A separate function, because other writes are
    /// faster without this case.
    #[inline(never)]
    fn write_while_logging(
        &self,
        port: u16,
        token: Token,
        at: Lba,
        data: Sg,
        durability: Durability,
    ) -> Result<(), Sg> {
        match self.write_at_once(Access::LoggedWrite, (port, token), at, data, durability) {
            Err(data) if !self.sets.get().writable().is_empty() => {
                self.write_at_once(Access::Write, (port, token), at, data, durability)
            }
            result => result,
        }
    }

    #[inline(always)]
    fn write_at_once(
        &self,
        access: Access,
        (port, token): (u16, Token),
        at: Lba,
        data: Sg,
        durability: Durability,
    ) -> Result<(), Sg> {
        let bytes = data.len();
        let Some(range) = self.geometry.range(at, bytes) else { return Err(data) };
        let mut requests = self.requests.borrow_mut();
        if requests.room_for_direct() == 0 || self.merge && requests.continues(port, range) {
            return Err(data);
        }
        let mut smalls = self.smalls.borrow_mut();
        if smalls.room() == 0 {
            return Err(data);
        }
        let Some(target) = self.target(access, range, self.sets.get()) else { return Err(data) };
        // Every small write may be put back into the queue of its band, so this room must remain free.
        let band = target.spot.band();
        if !self.has_room_for(band) {
            return Err(data);
        }
        if self.cores > 1 && self.owner(band) != self.core {
            drop((requests, smalls));
            return self.write_at_owner(port, token, (range, band), data, durability);
        }
        let mut bands = self.bands.borrow_mut();
        let entry = match bands.hold(band, Holder::Small(smalls.next_number())) {
            Some(entry) => entry,
            // A request that has not yet reached the bands is not overtaken.
            None if requests.has_unaccepted(port) => return Err(data),
            None => match Lock::of(&target).hold_beside(self, &mut bands, &mut smalls, band) {
                Some(entry) => entry,
                None => return Err(data),
            },
        };
        let Some(cached) = self.small_bufs(&target, smalls.next_bufs()) else {
            Lock::of(&target).let_go(self, &mut bands, entry);
            return Err(data);
        };
        let (since, came) = (self.now.get(), requests.came());
        requests.wrote_directly(port, range, bytes);
        let caller = Caller::User(DirectWrite { port, token, since, came });
        let small = smalls.begin(caller, range, data, durability);
        self.start_small(small, entry, &target, &cached);
        Ok(())
    }

    /// Sends a user's write to the owner of its band.
    fn write_at_owner(
        &self,
        port: u16,
        token: Token,
        (range, band): (LbaRange, Band),
        data: Sg,
        durability: Durability,
    ) -> Result<(), Sg> {
        let owner = self.owner(band);
        let mut requests = self.requests.borrow_mut();
        let write = DirectWrite { port, token, since: self.now.get(), came: requests.came() };
        requests.wrote_directly(port, range, data.len());
        let fill = Fill::Data(data.clone());
        let request = requests.make_ordinary_write(&write, range, Fill::Data(data), durability);
        self.remote_spans.borrow_mut()[usize::from(owner)] += 1;
        let origin = Origin::Host { shard: self.core, request };
        let work = Work::Write { range, fill, durability };
        self.post(owner, Peer::Small(Span { band, work, origin }));
        Ok(())
    }

    /// Starts a write from a user of another core, or queues it in its band.
    pub(crate) fn receive_small(&self, span: Span) {
        if let Some(span) = self.begin_span(span) {
            self.bands.borrow_mut().enqueue(span, self.now.get());
        }
    }

    /// Starts a small write immediately, or returns it.
    fn begin_span(&self, span: Span) -> Option<Span> {
        let Span { work: Work::Write { range, fill: Fill::Data(_), .. }, .. } = &span else {
            return Some(span);
        };
        let range = *range;
        let mut smalls = self.smalls.borrow_mut();
        if smalls.room() == 0 {
            return Some(span);
        }
        let Some(target) = small_write_target(self, range) else { return Some(span) };
        let mut bands = self.bands.borrow_mut();
        let (band, lock) = (target.spot.band(), Lock::of(&target));
        let held = bands.hold(band, Holder::Small(smalls.next_number()));
        let held = held.or_else(|| lock.hold_beside(self, &mut bands, &mut smalls, band));
        let Some(entry) = held else { return Some(span) };
        let Some(cached) = self.small_bufs(&target, smalls.next_bufs()) else {
            lock.let_go(self, &mut bands, entry);
            return Some(span);
        };
        let Work::Write { fill: Fill::Data(data), durability, .. } = span.work else {
            unreachable!("it is a write of data")
        };
        let caller = Caller::Span(span.origin, self.now.get());
        let small = smalls.begin(caller, range, data, durability);
        self.start_small(small, entry, &target, &cached);
        None
    }

    /// Starts the first waiting write of the band of `entry`, if it is a small write and can start immediately.
    pub(crate) fn begin_small(&self, entry: u32) -> bool {
        let mut smalls = self.smalls.borrow_mut();
        if smalls.room() == 0 {
            return false;
        }
        let mut bands = self.bands.borrow_mut();
        let Some((target, columns)) = first_small(self, &bands, entry) else { return false };
        let own = (smalls.next_number(), columns);
        let of = |number| lock::held(&self.geometry, smalls.get(number));
        let Some(holder) = bands.next_holder(entry, own, of) else { return false };
        let Some(cached) = self.small_bufs(&target, smalls.next_bufs()) else { return false };
        let Head { range, data, durability, origin, queued } = bands.take_write(entry, holder);
        let small = smalls.begin(Caller::Span(origin, queued), range, data, durability);
        self.start_small(small, entry, &target, &cached);
        true
    }

    /// Returns the target of a write of `range`, if it may be a small write with the usable members in `sets`. A region
    /// of another shard counts as trusted, because its owner checks again.
    #[inline(always)]
    fn target(&self, access: Access, range: LbaRange, sets: Sets) -> Option<Target> {
        let spot = self.geometry.spot(range)?;
        let region = self.regions.region_of(spot.place.stripe);
        let trusted = self.region_table.borrow().trusted(region);
        let sets = if trusted { sets } else { sets.untrusted() };
        let sets = self.without_bad(sets, &spot);
        match single(&self.geometry, &spot, access, &sets)? {
            Single::Update(parts) | Single::Mirror(parts) => {
                Some(Target { spot, parts, region, logged: false })
            }
            Single::Record(parts) => Some(Target { spot, parts, region, logged: true }),
            Single::Read { .. } | Single::Recover { .. } => None,
        }
    }

    /// Starts the small write whose data and buffers are in `small`.
    #[inline(always)]
    fn start_small(&self, small: &mut Small, entry: u32, target: &Target, cached: &Cached) {
        let mut members = self.members.borrow_mut();
        (small.entry, small.place, small.region) = (entry, target.spot.place, target.region);
        small.membership_epoch = members.membership_epoch();
        (small.parts, small.logged) = (target.parts, target.logged);
        (small.updates, small.worth) = (small.bufs[0].is_some(), cached.worth);
        if !small.updates {
            self.write_parts(&mut members, small);
            return;
        }
        let all_known = cached.known.len() == small.parts.count().into();
        self.read_parts(&mut members, small, cached);
        if all_known {
            let written = self.write_updated(&mut members, small);
            debug_assert!(written, "a logged write has no cached content");
        }
    }

    /// Updates the parities, and writes them and the data. If the write needs a record, the record is written first.
    /// Returns false if the write needs a task instead.
    #[inline]
    fn write_updated(&self, members: &mut Members, small: &mut Small) -> bool {
        let old = self.update_small(small);
        if small.logged {
            scratch::give_back(&self.scratch, [old]);
            return logged::log(self, members, small);
        }
        if self.redo.borrow().intends() {
            // The partial-write record is computed from the old data.
            small.bufs[0] = Some(old);
            small.begin_record(self.now.get());
            self.intend(small.number());
        } else {
            scratch::give_back(&self.scratch, [old]);
            self.write_parts(members, small);
        }
        true
    }

    #[inline]
    fn read_parts(&self, members: &mut Members, small: &mut Small, cached: &Cached) {
        let at = self.geometry.member_lba(small.place.stripe, small.place.offset);
        let now = self.now.get();
        small.begin_phase(Phase::Read, now);
        for part in 0..small.parts.count() {
            if cached.known.contains(part) {
                continue;
            }
            let buf = small.bufs[usize::from(part)].take().expect("one for each part");
            let sent = members.read_part(now, small.part(part, at), SgMut::from(buf));
            small.out.sent(part, sent);
        }
    }

    #[inline]
    fn write_parts(&self, members: &mut Members, small: &mut Small) {
        let at = self.geometry.member_lba(small.place.stripe, small.place.offset);
        let now = self.now.get();
        small.begin_phase(Phase::Write, now);
        // The data and parities must be stable before the record is released.
        let recorded = small.record.is_some() || small.logged;
        let cached = recorded && !members.to_flush().is_empty();
        let durability = if cached { Durability::Fua } else { small.durability };
        for part in 0..small.parts.count() {
            let data = match small.bufs[usize::from(part)].take() {
                Some(parity) => Sg::from(parity.freeze()),
                // One of the copies returns the data. If no copy returns the data, the array has failed anyway.
                None if !small.updates && part + 1 == small.parts.count() => {
                    std::mem::take(&mut small.data)
                }
                None => {
                    debug_assert!(part == 0 || !small.updates, "a parity has its own buffer");
                    small.data.clone()
                }
            };
            let sent = members.write_part(now, small.part(part, at), data, durability);
            small.out.sent(part, sent);
        }
    }

    /// Continues small writes without outstanding parts. Returns their number.
    pub(crate) fn go_on_with_small(&self) -> usize {
        let mut smalls = self.smalls.borrow_mut();
        if !smalls.has_due() {
            return 0;
        }
        // Nothing below changes these sets.
        let sets = self.sets();
        let mut count = 0;
        while let Some(write) = smalls.next_due() {
            count += 1;
            let small = smalls.get(write);
            match (small.phase, small.failed) {
                (Phase::Write, false) => self.end_small(&mut smalls, write, Ok(())),
                (Phase::Write, true) => self.expel_from_small(&mut smalls, write),
                (Phase::Read, failed) => {
                    let mut members = self.members.borrow_mut();
                    let as_planned = !failed && unchanged(&members, small, &sets);
                    debug_assert!(
                        !as_planned || lock::may_record(self, small),
                        "one record per band"
                    );
                    if !(as_planned && self.write_updated(&mut members, small)) {
                        drop(members);
                        self.hand_over(&mut smalls, write);
                    }
                }
                (Phase::Log, _) => logged::end(self, &mut smalls, write, &sets),
            }
        }
        count
    }

    /// Continues a write whose record is now stable, unless the members changed meanwhile.
    pub(super) fn write_recorded(&self, write: u32) {
        let mut smalls = self.smalls.borrow_mut();
        let sets = self.sets();
        let small = smalls.get(write);
        let mut members = self.members.borrow_mut();
        if unchanged(&members, small, &sets) {
            self.write_parts(&mut members, small);
        } else {
            drop(members);
            self.hand_over(&mut smalls, write);
        }
    }

    /// Puts a write that could not be recorded to the head of its band.
    pub(super) fn hand_back(&self, write: u32) {
        self.hand_over(&mut self.smalls.borrow_mut(), write);
    }

    /// Fails a write before any part is written, because the array has stopped.
    pub(super) fn lose_small(&self, write: u32) {
        let mut smalls = self.smalls.borrow_mut();
        let small = smalls.get(write);
        scratch::give_back(&self.scratch, small.take_bufs());
        self.end_small(&mut smalls, write, Err(LOST));
    }

    /// Updates the parities by the difference of old and new data. Returns the old data.
    fn update_small(&self, small: &mut Small) -> BufMut {
        let code = self.code.as_ref().expect("only parity schemes read before they write");
        let [own, parities @ ..] = &mut small.bufs;
        let old = own.take().expect("all was read");
        let mut offset = 0;
        for new in small.data.parts() {
            let part = offset..offset + new.len();
            let mut targets: ArrayVec<ParityMut<'_>, PARTS_MAX> = ArrayVec::new();
            for (index, buf) in small.parts.parities().zip(parities.iter_mut().flatten()) {
                let bytes = &mut buf.as_mut_slice()[part.clone()];
                targets.push(ParityMut { index, bytes });
            }
            let strip = usize::from(small.place.strip);
            let old = &old.as_slice()[part.clone()];
            strake_parity::update(code, strip, old, new.as_slice(), &mut targets)
                .expect("all buffers are equally long");
            offset = part.end;
        }
        old
    }

    /// Puts a write that needs a task to the head of its band. No part of the write was written.
    fn hand_over(&self, smalls: &mut Smalls, write: u32) {
        // The task that repeats the write detects the failures again.
        smalls.take_failed(write).for_each(drop);
        let small = smalls.get(write);
        let arrival = small.arrival(self.now.get());
        if let Some(record) = small.record.take() {
            self.leave_record(record);
        }
        logged::leave(self, small);
        self.region_table.borrow_mut().leave(small.region);
        scratch::give_back(&self.scratch, small.take_bufs());
        let (range, durability) = (small.range, small.durability);
        let data = std::mem::take(&mut small.data);
        let origin = match small.caller {
            Caller::Span(origin, _) => origin,
            Caller::User(user) => {
                let fill = Fill::Data(data.clone());
                let mut requests = self.requests.borrow_mut();
                let request = requests.make_ordinary_write(&user, range, fill, durability);
                Origin::Host { shard: self.core, request }
            }
        };
        let work = Work::Write { range, fill: Fill::Data(data), durability };
        let columns = || lock::changed(&self.geometry, small);
        self.bands.borrow_mut().put_back(small.entry, (work, origin, arrival), columns);
        smalls.end(write);
    }

    /// Completes a small write, and continues with its band.
    fn end_small(&self, smalls: &mut Smalls, write: u32, result: Result<(), IoError>) {
        let small = smalls.get(write);
        if let Some(record) = small.record.take() {
            self.leave_record(record);
        }
        logged::leave(self, small);
        self.region_table.borrow_mut().leave(small.region);
        if small.updates {
            if small.worth > Worth::Nothing {
                self.keep_small(small);
            }
            scratch::give_back(&self.scratch, small.take_bufs());
        } else if small.stripe.is_some() {
            stripe::release(self, small);
        }
        self.bands.borrow_mut().let_go(small.entry, || lock::changed(&self.geometry, small));
        let data = std::mem::take(&mut small.data);
        match small.caller {
            Caller::Span(origin, queued) => {
                drop(data);
                let stages = small.stages(self.now.get(), Some(queued));
                self.finish(origin, result, None, &stages);
            }
            Caller::User(user) => {
                let mut requests = self.requests.borrow_mut();
                let stages = || small.stages(self.now.get(), None);
                let write = (small.range.start, data, small.durability);
                requests.answer_write(&user, write, result, stages);
            }
        }
        smalls.end(write);
    }

    /// Reports members that failed parts of a small write, and assigns a task that waits until they are out of use. The
    /// buffers are released and the failure is reported immediately, because all tasks may be waiting for memory.
    fn expel_from_small(&self, smalls: &mut Smalls, write: u32) {
        blame_failed(self, smalls, write);
        let small = smalls.get(write);
        scratch::give_back(&self.scratch, small.take_all_bufs());
        if self.shared.is_lost() {
            self.end_small(smalls, write, Err(LOST));
        } else {
            self.concluding.borrow_mut().push_back(write);
        }
    }

    /// Promotes slow parts of small writes to ordinary I/Os, which handle slow members.
    pub(crate) fn promote_parts(&self, now: Nanos) {
        let mut members = self.members.borrow_mut();
        self.smalls.borrow_mut().promote(now, &mut members);
    }

    /// True if no small write is in progress.
    pub(crate) fn no_small_writes(&self) -> bool {
        self.smalls.borrow().live() == 0
    }
}

/// Returns the target of a write of `range` like [`Shard::target`], whether or not the write is recorded with its data.
#[inline(always)]
fn small_write_target(shard: &Shard, range: LbaRange) -> Option<Target> {
    let sets = shard.sets();
    if sets.recordable().is_empty() {
        return shard.target(Access::Write, range, sets);
    }
    target_while_logging(shard, range, sets)
}

/// Does the same while some members accept recorded writes. A separate function, because other writes are faster
/// without this case.
#[inline(never)]
fn target_while_logging(shard: &Shard, range: LbaRange, sets: Sets) -> Option<Target> {
    let plain = || shard.target(Access::Write, range, sets);
    shard.target(Access::LoggedWrite, range, sets).or_else(plain)
}

/// Reports the members that failed parts of a small write, and records their positions in the write.
fn blame_failed(shard: &Shard, smalls: &mut Smalls, write: u32) {
    let failed: ArrayVec<(u8, Failed), PARTS_NAMED_MAX> = smalls.take_failed(write).collect();
    let small = smalls.get(write);
    small.missed = PositionSet::EMPTY;
    for (part, failed) in failed {
        // A failed write fails the member for every kind of error, because its block is stale from now on.
        let member = small.member(part);
        let position = shard.geometry.position_of_member(small.place.stripe, member);
        small.missed.insert(position.expect("written in this stripe"));
        let failure = shard.members.borrow().failure(failed);
        shard.blame(member, failure);
    }
}

/// True if the members have not changed since the write started.
#[inline]
fn unchanged(members: &Members, small: &Small, sets: &Sets) -> bool {
    let may = if small.logged { sets.recordable() } else { sets.writable() };
    members.membership_epoch() == small.membership_epoch && small.needs().is_subset(may)
}

/// Completes a small write with failed parts as soon as the failed members are out of use on every shard.
pub(crate) async fn conclude(shard: &Shard, write: u32) {
    let (stripe, missed, since) = {
        let mut smalls = shard.smalls.borrow_mut();
        let small = smalls.get(write);
        (small.place.stripe, small.missed, small.membership_epoch)
    };
    let out = shard.await_out_of_use(stripe, missed, since).await;
    let mut smalls = shard.smalls.borrow_mut();
    shard.end_small(&mut smalls, write, out);
}
