//! Degraded reads: of one strip in one band, whose member cannot be read, from strips that all can. They are what a
//! random read of a degraded array is where it is not a clean one, so they take no task, no request and no I/O of their
//! own, as small writes do: a place in a table knows what is outstanding, and goes on when nothing is.
//!
//! ```text
//!  a user's read, or the head of a band --> waits for a place --> survivors read --> recovered into --> answered
//!                                                |                      |            the user's buffer
//!                                                v members changed      v one failed or takes long, members changed
//!                                             to the head of its band, for a task
//! ```
//!
//! So many are under way at a time that what they read stays near the core until they use it; others wait, first come,
//! first served. Nothing is decided here that is not decided by the planner for every read: which strips are read
//! follows from `Strategy::Degraded`, and a test compares them.

mod table;

use arrayvec::ArrayVec;
use strake_block::{SgMut, Token};
use strake_raid::{Band, Geometry, Place, StripeMap};
use strake_units::{Lba, LbaRange, MemberIndex, MemberSet, Nanos, PositionSet, StripSet};

use super::execute::Failed;
use super::members::{self, DirectRead};
use super::scratch::Scratch;
use super::{Shard, scratch};
use crate::message::{Origin, View, Work};

pub(super) use super::execute::STRIPS_MAX;
pub(crate) use table::DegradedReads;
use table::{Strip, Wanted};

/// Who is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// A user on this thread.
    User(DirectRead),
    /// The sender of the span.
    Span(Origin),
}

/// How members stand, as far as reads are concerned that have to be recovered. By the default none is recovered here.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// Members that can be read at once and everywhere.
    readable: MemberSet,
    /// Members that are not in use.
    absent: MemberSet,
    /// Members that are in sync in some regions only.
    rebuilding: MemberSet,
    /// Members that sit out.
    sits: MemberSet,
    /// Members that have not answered for long.
    lagging: MemberSet,
}

/// What a degraded read reads.
#[derive(Clone, Copy)]
struct Survivors {
    place: Place,
    map: StripeMap,
    band: Band,
    strips: StripSet,
}

/// The strips that are read to recover data strip `wanted` of a stripe whose strips in `hidden` cannot be read;
/// `None` when it can be read itself or too few are left.
fn survivors(geometry: &Geometry, wanted: u8, hidden: StripSet) -> Option<StripSet> {
    if !hidden.contains(wanted) {
        return None;
    }
    let data = geometry.all_data_strips();
    let mut parities = (geometry.all_strips() - data - hidden).iter();
    let mut strips = data - hidden;
    for _ in 0..(data & hidden).len() {
        strips.insert(parities.next()?);
    }
    Some(strips)
}

impl Shard {
    /// How members stand now.
    pub(super) fn standing(&self) -> Standing {
        let members = self.members.borrow();
        let (sits, lagging) = (self.sits.borrow().members(), members.lagging());
        let recovers = self.geometry.parity_strips() > 0;
        if !recovers || !members.degraded() && (sits | lagging).is_empty() {
            return Standing::default();
        }
        Standing {
            // A member with two devices may change them before a read is back.
            readable: (members.readable() & members.plain()) - sits,
            absent: members.viewed(View::Absent),
            rebuilding: members.viewed(View::Rebuilding),
            sits,
            lagging,
        }
    }

    /// What is read to recover `range`, when that is all of a degraded read of this core; `avoid` are positions that
    /// take long.
    fn survivors(
        &self,
        range: LbaRange,
        avoid: PositionSet,
        standing: &Standing,
    ) -> Option<Survivors> {
        let geometry = &self.geometry;
        let place = geometry.place(range.start);
        let band_blocks = geometry.band_blocks();
        let within = band_blocks - (place.offset & (band_blocks - 1));
        let region = self.regions.region_of(place.stripe);
        let ours = self.regions.owner(region, self.cores).0 == self.core;
        if standing.readable.is_empty() || range.blocks > within.into() || !ours {
            return None;
        }
        if self.is_bad_band(place.stripe, place.offset) {
            return None;
        }
        // Reading around a member relies on parity, which has to be right.
        if !self.region_table.borrow().trusted(region) {
            return None;
        }
        let mut hidden = standing.absent | standing.sits | standing.lagging;
        for member in standing.rebuilding {
            if self.rebuild.borrow().lacks(member, region) {
                hidden.insert(member);
            }
        }
        let map = geometry.stripe_map(place.stripe);
        let strips_of = |positions| map.strips_of_positions(positions);
        let hidden = strips_of(map.positions_of_members(hidden) | avoid);
        let strips = survivors(geometry, place.strip, hidden)?;
        let readable = strips_of(map.positions_of_members(standing.readable));
        let index = (place.offset >> band_blocks.trailing_zeros()) as u16;
        let band = Band { stripe: place.stripe, index };
        strips.is_subset(readable).then_some(Survivors { place, map, band, strips })
    }

    /// Recovers a user's read of a member that cannot be read, or hands the buffer back when it is not that simple.
    #[cold]
    pub(super) fn recover_directly(
        &self,
        (port, token): (u16, Token),
        (at, blocks): (Lba, u64),
        member: MemberIndex,
        data: SgMut,
    ) -> Result<(), SgMut> {
        let standing = self.standing.get();
        // Now and then a member that sits out is read all the same, which is not decided here.
        if standing.sits.contains(member) {
            return Err(data);
        }
        let range = LbaRange::new(at, blocks);
        let Some(survivors) = self.survivors(range, PositionSet::EMPTY, &standing) else {
            return Err(data);
        };
        // Every read of this kind may be put back: who is queued already keeps the room for that.
        if !self.has_room_for(survivors.band) {
            return Err(data);
        }
        let mut table = self.degraded_reads.borrow_mut();
        let mut scratch = self.scratch.borrow_mut();
        let Some(at_once) = may_begin(&table, &mut scratch, &survivors, data.len()) else {
            return Err(data);
        };
        let Some(entry) = self.bands.borrow_mut().hold(survivors.band) else { return Err(data) };
        let mut requests = self.requests.borrow_mut();
        requests.went_directly(port, data.len());
        let (since, came, bytes) = (self.now.get(), requests.came(), data.len());
        let bytes = bytes as u32;
        let user = DirectRead { token, at, since, issued: 0, bytes, port, member, came };
        let (reader, avoid) = (Reader::User(user), PositionSet::EMPTY);
        if at_once {
            let wanted = self.read_survivors(&mut table, &mut scratch, survivors, data.len());
            (wanted.reader, wanted.entry, wanted.range) = (reader, entry, range);
            (wanted.avoid, wanted.data) = (avoid, data);
        } else {
            table.enqueue(Wanted { reader, entry, range, avoid, data });
        }
        Ok(())
    }

    /// Takes the read at the head of the band of `entry`, if it is one to be recovered.
    pub(crate) fn begin_degraded_read(&self, entry: u32) -> bool {
        let mut bands = self.bands.borrow_mut();
        let Some((range, avoid, band)) = bands.sole_read(entry) else { return false };
        let Some(survivors) = self.survivors(range, avoid, &self.standing()) else { return false };
        debug_assert_eq!(survivors.band, band, "a span lies in its band");
        let mut table = self.degraded_reads.borrow_mut();
        let mut scratch = self.scratch.borrow_mut();
        let bytes = (range.blocks as usize) << self.geometry.block_size().shift();
        let Some(at_once) = may_begin(&table, &mut scratch, &survivors, bytes) else {
            return false;
        };
        let (data, origin) = bands.take_read(entry);
        let wanted = Wanted { reader: Reader::Span(origin), entry, range, avoid, data };
        if at_once {
            *self.read_survivors(&mut table, &mut scratch, survivors, bytes) = wanted;
        } else {
            table.enqueue(wanted);
        }
        true
    }

    /// Gives a read of `bytes` bytes a place and reads the survivors: there is a place, and memory. What is wanted is
    /// for the caller to fill in.
    #[inline]
    fn read_survivors<'a>(
        &self,
        table: &'a mut DegradedReads,
        scratch: &mut Scratch,
        survivors: Survivors,
        bytes: usize,
    ) -> &'a mut Wanted {
        let mut members = self.members.borrow_mut();
        let Survivors { place, map, strips, .. } = survivors;
        let now = self.now.get();
        let at = map.member_lba(place.offset);
        let (read, bufs) = table.begin((place, strips), (now, members.membership_epoch()));
        for ((part, strip), place) in (0u8..).zip(strips).zip(bufs) {
            place.member = map.member(map.position_of_strip(strip));
            let data = SgMut::from(scratch.take(bytes));
            let sent = members.read_part(now, read.part(part, place.member, at), data);
            read.out.sent(part, sent);
        }
        &mut read.wanted
    }

    /// Continues degraded reads of which nothing is outstanding. Returns how many.
    pub(crate) fn continue_degraded_reads(&self) -> usize {
        let mut table = self.degraded_reads.borrow_mut();
        let mut count = 0;
        let mut degraded_reads = 0;
        while let Some(number) = table.next_due() {
            count += 1;
            let (read, _) = table.get(number);
            let unchanged = self.members.borrow().membership_epoch() == read.membership_epoch;
            if read.failed || !unchanged || self.shared.is_lost() {
                self.leave_to_task(&mut table, number);
            } else {
                self.answer_degraded_read(&mut table, number);
                degraded_reads += 1;
            }
        }
        if degraded_reads > 0 {
            self.shared.count_degraded_reads(degraded_reads);
        }
        if table.front().is_some() {
            self.begin_waiting(&mut table);
        }
        count
    }

    /// Begins reads that wait, as far as there are places and memory.
    fn begin_waiting(&self, table: &mut DegradedReads) {
        let standing = self.standing();
        while table.has_place()
            && let Some(front) = table.front()
        {
            let survivors = self.survivors(front.range, front.avoid, &standing);
            let bytes = front.data.len();
            let mut scratch = self.scratch.borrow_mut();
            let memory = survivors.is_some_and(|s| scratch.has_now(s.count(), bytes));
            match survivors.filter(|_| memory) {
                Some(survivors) => {
                    let wanted = table.take_front();
                    *self.read_survivors(table, &mut scratch, survivors, bytes) = wanted;
                }
                // Those under way will bring memory back.
                None if survivors.is_some() && table.under_way() > 0 => return,
                None => self.put_back_read(&mut table.take_front(), PositionSet::EMPTY),
            }
        }
    }

    /// Recovers what is wanted into the user's buffer, and answers.
    fn answer_degraded_read(&self, table: &mut DegradedReads, number: u32) {
        let (read, strips) = table.get(number);
        let count = read.strips.len();
        let known: ArrayVec<u8, STRIPS_MAX> = read.strips.iter().collect();
        let recoveries = self.recoveries.as_ref().expect("only parity schemes recover");
        let mut recoveries = recoveries.borrow_mut();
        let recovery = recoveries.get(&known, &[read.place.strip]).expect("enough strips are read");
        let mut offset = 0;
        for part in read.wanted.data.parts_mut() {
            let bytes = offset..offset + part.len();
            let read = strips[..count].iter().map(|strip| strip.data.parts()[0].as_slice());
            let sources: ArrayVec<&[u8], STRIPS_MAX> = read.map(|s| &s[bytes.clone()]).collect();
            offset = bytes.end;
            recovery.apply(&sources, &mut [part.as_mut_slice()]).expect("all are equally long");
        }
        self.give_back_strips(&mut strips[..count]);
        self.bands.borrow_mut().let_go(read.wanted.entry);
        let data = std::mem::take(&mut read.wanted.data);
        match &read.wanted.reader {
            Reader::User(user) => self.requests.borrow_mut().answer_direct(user, data),
            Reader::Span(origin) => self.finish(*origin, Ok(()), Some(data)),
        }
        table.end(number);
    }

    /// Gives back what strips were read into.
    fn give_back_strips(&self, strips: &mut [Strip]) {
        let data = strips.iter_mut().map(|strip| std::mem::take(&mut strip.data));
        scratch::give_back(&self.scratch, data.filter_map(SgMut::into_single));
    }

    /// Ends a read that needs more thought: a task does it again, with what failed in mind.
    fn leave_to_task(&self, table: &mut DegradedReads, number: u32) {
        let failures: ArrayVec<(u8, members::Failed), STRIPS_MAX> =
            table.take_failures(number).collect();
        let (read, strips) = table.get(number);
        let stripe = read.place.stripe;
        let mut failed = Failed::default();
        for (part, failure) in failures {
            let member = strips[usize::from(part)].member;
            let position = self.geometry.position_of_member(stripe, member).expect("read there");
            let failure = self.members.borrow().failure(failure);
            self.note_failure(&mut failed, stripe, position, failure);
        }
        self.give_back_strips(strips);
        self.put_back_read(&mut read.wanted, failed.medium);
        table.end(number);
    }

    /// Puts a read to the head of its band, for a task; positions in `unreadable` were tried in vain.
    fn put_back_read(&self, wanted: &mut Wanted, unreadable: PositionSet) {
        let origin = match &wanted.reader {
            Reader::Span(origin) => *origin,
            Reader::User(user) => {
                let (request, _) = self.requests.borrow_mut().make_ordinary(user);
                Origin::Host { shard: self.core, request }
            }
        };
        let data = std::mem::take(&mut wanted.data);
        let work = Work::Read { range: wanted.range, data, unreadable, avoid: wanted.avoid };
        self.bands.borrow_mut().put_back(wanted.entry, work, origin);
    }

    /// Makes parts of degraded reads that take long ordinary I/Os, which know what to do.
    pub(crate) fn promote_degraded_reads(&self, now: Nanos) {
        let mut members = self.members.borrow_mut();
        self.degraded_reads.borrow_mut().promote(now, &mut members);
    }
}

impl Survivors {
    /// How many strips are read.
    const fn count(&self) -> usize {
        self.strips.len()
    }
}

/// Whether a read of `bytes` bytes can begin at once, or else wait for its turn; `None` when it is for a task: too many
/// wait, or tasks have the memory.
fn may_begin(
    table: &DegradedReads,
    scratch: &mut Scratch,
    survivors: &Survivors,
    bytes: usize,
) -> Option<bool> {
    let first = table.front().is_none() && table.has_place();
    if first && scratch.has_now(survivors.count(), bytes) {
        return Some(true);
    }
    (table.has_room() && table.under_way() > 0).then_some(false)
}

#[cfg(test)]
mod tests;
