//! Small writes: one piece of data in one strip, all of whose parts are on members in sync. They are what a random
//! write is, so they take no task, no request and no I/O of their own: a place in a table knows what is outstanding,
//! and continues when nothing is.
//!
//! ```text
//!  a user's write, or the head of a band --> old data and parities read --> updated --> all written --> answered
//!                 (copies have nothing to read)         |               (on record, |       |
//!                                                       v a read failed,  `strict`) |       v a write failed
//!                                                       something changed  <--------'       task: out of use, answered
//!                                         to the head of its band, for a task
//! ```
//!
//! What the last write of the same blocks has left behind is not read ([`ParityCache`]); when that is all, nothing is.
//!
//! Which writes are small ones, and which strips they read and write, is the answer of [`strake_raid::single()`].

mod parity_cache;
mod strips;
mod table;

use arrayvec::ArrayVec;
use strake_block::{BufMut, Durability, IoError, Sg, SgMut, Token};
use strake_parity::ParityMut;
use strake_raid::{Access, Band, PARTS_MAX, Parts, Sets, Single, Spot, single};
use strake_units::{Lba, LbaRange, Nanos, PositionSet, RegionIndex};

use super::members::{Failed, Members, PartIo, Unplaced, Whole};
use super::mend::LOST;
use super::partial_writes::RecordIndex;
use super::{Shard, scratch};
use crate::limits::TIMEOUT_CHECK;
use crate::message::{Fill, Origin, Peer, Span, Work};
use crate::pacing::Came;

pub(crate) use parity_cache::ParityCache;
use parity_cache::Worth;
use strips::Strips;
use table::Phase;
pub(crate) use table::{Small, Smalls};

/// A write at the head of a band's queue.
pub(crate) struct Head {
    pub(crate) range: LbaRange,
    pub(crate) data: Sg,
    pub(crate) durability: Durability,
    pub(crate) origin: Origin,
}

/// Where a write came from that has no request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectWrite {
    pub(crate) port: u16,
    pub(crate) token: Token,
    /// When it was taken in, and what was going on then.
    pub(crate) since: Nanos,
    pub(crate) came: Came,
}

/// Who is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Caller {
    /// A user on this thread.
    User(DirectWrite),
    /// The sender of the span.
    Span(Origin),
}

/// A write that may be a small one.
#[derive(Clone, Copy)]
struct Target {
    spot: Spot,
    parts: Parts,
    region: RegionIndex,
}

impl Shard {
    /// Begins a user's write, or hands the data back when it is not a small one that can begin at once.
    #[inline]
    pub(crate) fn write_directly(
        &self,
        port: u16,
        token: Token,
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
        let Some(target) = self.target(range, self.sets.get()) else { return Err(data) };
        // Every small write may be put back: who is queued already keeps the room for that.
        let band = target.spot.band();
        if !self.has_room_for(band) {
            return Err(data);
        }
        if self.cores > 1 && self.owner(band) != self.core {
            drop((requests, smalls));
            return self.write_at_owner(port, token, (range, band), data, durability);
        }
        let mut bands = self.bands.borrow_mut();
        let Some(entry) = bands.hold(band) else { return Err(data) };
        let Some(strips) = self.small_bufs(&target) else {
            bands.let_go(entry);
            return Err(data);
        };
        let (since, came) = (self.now.get(), requests.came());
        requests.wrote_directly(port, range, bytes);
        let caller = Caller::User(DirectWrite { port, token, since, came });
        let small = smalls.begin(caller, range, data, durability);
        self.start_small(small, entry, &target, strips);
        Ok(())
    }

    /// Has another core do a user's write.
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

    /// Begins a write that another core's user sent, or queues it behind what its band is doing.
    pub(crate) fn receive_small(&self, span: Span) {
        if let Some(span) = self.begin_span(span) {
            self.bands.borrow_mut().enqueue(span);
        }
    }

    /// Begins a small write at once, or hands it back.
    fn begin_span(&self, span: Span) -> Option<Span> {
        let Span { work: Work::Write { range, fill: Fill::Data(_), .. }, .. } = &span else {
            return Some(span);
        };
        let range = *range;
        let mut smalls = self.smalls.borrow_mut();
        if smalls.room() == 0 {
            return Some(span);
        }
        let Some(target) = self.target(range, self.sets()) else { return Some(span) };
        let mut bands = self.bands.borrow_mut();
        let Some(entry) = bands.hold(target.spot.band()) else { return Some(span) };
        let Some(strips) = self.small_bufs(&target) else {
            bands.let_go(entry);
            return Some(span);
        };
        let Work::Write { fill: Fill::Data(data), durability, .. } = span.work else {
            unreachable!("it is a write of data")
        };
        let small = smalls.begin(Caller::Span(span.origin), range, data, durability);
        self.start_small(small, entry, &target, strips);
        None
    }

    /// Begins the write at the head of the band of `entry`, if it is a small one and can begin at once.
    pub(crate) fn begin_small(&self, entry: u32) -> bool {
        let mut smalls = self.smalls.borrow_mut();
        if smalls.room() == 0 {
            return false;
        }
        let mut bands = self.bands.borrow_mut();
        let Some((range, band)) = bands.sole_write(entry) else { return false };
        let target = self.target(range, self.sets());
        let Some(target) = target.filter(|target| target.spot.band() == band) else { return false };
        let Some(strips) = self.small_bufs(&target) else { return false };
        let Head { range, data, durability, origin } = bands.take_write(entry);
        let small = smalls.begin(Caller::Span(origin), range, data, durability);
        self.start_small(small, entry, &target, strips);
        true
    }

    /// Where a write of `range` writes, if it may be a small one and `sets` are what may be sent to members. A region
    /// of another shard counts as trusted: its owner asks again.
    #[inline(always)]
    fn target(&self, range: LbaRange, sets: Sets) -> Option<Target> {
        let spot = self.geometry.spot(range)?;
        let region = self.regions.region_of(spot.place.stripe);
        let trusted = self.region_table.borrow().trusted(region);
        let sets = if trusted { sets } else { sets.untrusted() };
        let sets = self.without_bad(sets, &spot);
        match single(&self.geometry, &spot, Access::Write, &sets)? {
            Single::Update(parts) | Single::Mirror(parts) => Some(Target { spot, parts, region }),
            Single::Read { .. } | Single::Recover { .. } => None,
        }
    }

    /// Begins what `small` has the data of.
    #[inline]
    fn start_small(&self, small: &mut Small, entry: u32, target: &Target, strips: Strips) {
        let mut members = self.members.borrow_mut();
        (small.entry, small.place, small.region) = (entry, target.spot.place, target.region);
        small.membership_epoch = members.membership_epoch();
        small.parts = target.parts;
        (small.updates, small.worth) = (!strips.bufs.is_empty(), strips.worth);
        if !small.updates {
            self.write_parts(&mut members, small);
            return;
        }
        let all_known = strips.known.len() == small.parts.count().into();
        self.read_parts(&mut members, small, strips);
        if all_known {
            self.write_updated(&mut members, small);
        }
    }

    /// Writes the data and what they make of the parities, as soon as the write is on record where it has to be.
    #[inline]
    fn write_updated(&self, members: &mut Members, small: &mut Small) {
        let old = self.update_small(small);
        if self.redo.borrow().intends() {
            // The partial-write record is made from them.
            small.bufs[0] = Some(old);
            self.intend(small.number());
        } else {
            scratch::give_back(&self.scratch, [old]);
            self.write_parts(members, small);
        }
    }

    #[inline]
    fn read_parts(&self, members: &mut Members, small: &mut Small, mut strips: Strips) {
        let at = self.geometry.member_lba(small.place.stripe, small.place.offset);
        let now = self.now.get();
        small.begin_phase(Phase::Read, now);
        for part in 0..small.parts.count() {
            let buf = strips.bufs.pop().expect("one for each part");
            if strips.known.contains(part) {
                small.bufs[usize::from(part)] = Some(buf);
                continue;
            }
            let sent = members.read_part(now, small.part(part, at), SgMut::from(buf));
            small.out.sent(part, sent);
        }
    }

    #[inline]
    fn write_parts(&self, members: &mut Members, small: &mut Small) {
        let at = self.geometry.member_lba(small.place.stripe, small.place.offset);
        let now = self.now.get();
        small.begin_phase(Phase::Write, now);
        // What is on record must be stable in its place before the record is given up.
        let cached = small.record.is_some() && !members.to_flush().is_empty();
        let durability = if cached { Durability::Fua } else { small.durability };
        for part in 0..small.parts.count() {
            let data = match small.bufs[usize::from(part)].take() {
                Some(parity) => Sg::from(parity.freeze()),
                // Of copies one brings the data back: that none does costs the array anyway.
                None if !small.updates && part + 1 == small.parts.count() => {
                    std::mem::take(&mut small.data)
                }
                None => small.data.clone(),
            };
            let sent = members.write_part(now, small.part(part, at), data, durability);
            small.out.sent(part, sent);
        }
    }

    /// Continues with small writes of which nothing is outstanding. Returns how many.
    pub(crate) fn go_on_with_small(&self) -> usize {
        let mut smalls = self.smalls.borrow_mut();
        if !smalls.has_due() {
            return 0;
        }
        // Nothing below changes this set.
        let may = self.sets().writable();
        let mut count = 0;
        while let Some(write) = smalls.next_due() {
            count += 1;
            let small = smalls.get(write);
            match (small.phase, small.failed) {
                (Phase::Write, false) => self.end_small(&mut smalls, write, Ok(())),
                (Phase::Write, true) => self.expel_from_small(&mut smalls, write),
                (Phase::Read, failed) => {
                    let mut members = self.members.borrow_mut();
                    let unchanged = members.membership_epoch() == small.membership_epoch
                        && small.needs().is_subset(may);
                    if !failed && unchanged {
                        self.write_updated(&mut members, small);
                    } else {
                        drop(members);
                        self.hand_over(&mut smalls, write);
                    }
                }
            }
        }
        count
    }

    /// Writes what is on record now, unless something has changed meanwhile.
    pub(super) fn write_recorded(&self, write: u32) {
        let mut smalls = self.smalls.borrow_mut();
        let may = self.sets().writable();
        let small = smalls.get(write);
        let mut members = self.members.borrow_mut();
        if members.membership_epoch() == small.membership_epoch && small.needs().is_subset(may) {
            self.write_parts(&mut members, small);
        } else {
            drop(members);
            self.hand_over(&mut smalls, write);
        }
    }

    /// Puts a write that could not be put on record to the head of its band.
    pub(super) fn hand_back(&self, write: u32) {
        self.hand_over(&mut self.smalls.borrow_mut(), write);
    }

    /// Answers a write of which nothing is written, because the array has stopped.
    pub(super) fn lose_small(&self, write: u32) {
        let mut smalls = self.smalls.borrow_mut();
        let small = smalls.get(write);
        scratch::give_back(&self.scratch, small.bufs.iter_mut().filter_map(Option::take));
        self.end_small(&mut smalls, write, Err(LOST));
    }

    /// Brings the change of the data into what was read of the parities. Returns the old data.
    fn update_small(&self, small: &mut Small) -> BufMut {
        let code = self.code.as_ref().expect("only parity schemes read before they write");
        let [own, parities @ ..] = &mut small.bufs;
        let old = own.take().expect("all was read");
        let mut offset = 0;
        for new in small.data.parts() {
            let part = offset..offset + new.len();
            let mut targets: ArrayVec<ParityMut<'_>, PARTS_MAX> = ArrayVec::new();
            for (index, buf) in parities.iter_mut().flatten().enumerate() {
                let bytes = &mut buf.as_mut_slice()[part.clone()];
                targets.push(ParityMut { index: index as u8, bytes });
            }
            let strip = usize::from(small.place.strip);
            let old = &old.as_slice()[part.clone()];
            strake_parity::update(code, strip, old, new.as_slice(), &mut targets)
                .expect("all buffers are equally long");
            offset = part.end;
        }
        old
    }

    /// Puts a write that needs more thought to the head of its band. Nothing of it is written.
    fn hand_over(&self, smalls: &mut Smalls, write: u32) {
        // The task that does it again finds out for itself what failed.
        smalls.take_failed(write).for_each(drop);
        let small = smalls.get(write);
        self.leave_record(small.record.take());
        self.region_table.borrow_mut().leave(small.region);
        scratch::give_back(&self.scratch, small.bufs.iter_mut().filter_map(Option::take));
        let (range, durability) = (small.range, small.durability);
        let data = std::mem::take(&mut small.data);
        let origin = match small.caller {
            Caller::Span(origin) => origin,
            Caller::User(user) => {
                let fill = Fill::Data(data.clone());
                let mut requests = self.requests.borrow_mut();
                let request = requests.make_ordinary_write(&user, range, fill, durability);
                Origin::Host { shard: self.core, request }
            }
        };
        let work = Work::Write { range, fill: Fill::Data(data), durability };
        self.bands.borrow_mut().put_back(small.entry, work, origin);
        smalls.end(write);
    }

    /// Answers a small write that is done, and continues with its band.
    fn end_small(&self, smalls: &mut Smalls, write: u32, result: Result<(), IoError>) {
        let small = smalls.get(write);
        self.leave_record(small.record.take());
        self.region_table.borrow_mut().leave(small.region);
        if small.updates {
            if small.worth > Worth::Nothing {
                self.keep_small(small);
            }
            scratch::give_back(&self.scratch, small.bufs.iter_mut().filter_map(Option::take));
        }
        self.bands.borrow_mut().let_go(small.entry);
        let data = std::mem::take(&mut small.data);
        match small.caller {
            Caller::Span(origin) => {
                drop(data);
                self.finish(origin, result, None);
            }
            Caller::User(user) => {
                let mut requests = self.requests.borrow_mut();
                requests.answer_write(&user, small.range.start, data, small.durability, result);
            }
        }
        smalls.end(write);
    }

    /// Has the members that failed parts of a small write put out of use, and a task wait for that. The memory is given
    /// back and the failure reported at once: all tasks may be waiting for memory.
    fn expel_from_small(&self, smalls: &mut Smalls, write: u32) {
        let failed: ArrayVec<(u8, Failed), PARTS_MAX> = smalls.take_failed(write).collect();
        let small = smalls.get(write);
        small.missed = PositionSet::EMPTY;
        for (part, failed) in failed {
            // A write that fails costs the member whatever the reason: its block is stale from now on.
            let member = small.parts.member(part);
            let position = self.geometry.position_of_member(small.place.stripe, member);
            small.missed.insert(position.expect("written in this stripe"));
            let failure = self.members.borrow().failure(failed);
            self.blame(member, failure);
        }
        scratch::give_back(&self.scratch, small.bufs.iter_mut().filter_map(Option::take));
        if self.shared.is_lost() {
            self.end_small(smalls, write, Err(LOST));
        } else {
            self.concluding.borrow_mut().push_back(write);
        }
    }

    /// Makes parts of small writes that take long ordinary I/Os, which know what to do.
    pub(crate) fn promote_parts(&self, now: Nanos) {
        let mut members = self.members.borrow_mut();
        self.smalls.borrow_mut().promote(now, &mut members);
    }

    /// True when no small write is under way.
    pub(crate) fn no_small_writes(&self) -> bool {
        self.smalls.borrow().live() == 0
    }
}

/// Answers a small write of which parts failed as soon as the members that failed them are out of use everywhere.
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
