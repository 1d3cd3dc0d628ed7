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
use strake_units::{Lba, LbaRange, MemberIndex, Nanos};

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
    /// Members that can be read at once and everywhere, as a mask.
    readable: u64,
    /// Members that are not in use, as a mask.
    absent: u64,
    /// Members that are in sync in some regions only, as a mask.
    rebuilding: u64,
    /// Members that sit out, as a mask.
    sits: u64,
    /// Members that have not answered for long, as a mask.
    lagging: u64,
}

/// What a degraded read reads.
#[derive(Clone, Copy)]
struct Survivors {
    place: Place,
    map: StripeMap,
    band: Band,
    /// Strips, as a mask.
    strips: u64,
}

/// The strips, as a mask, that are read to recover data strip `wanted` of a stripe whose strips in the mask `hidden`
/// cannot be read; `None` when it can be read itself or too few are left.
fn survivors(geometry: &Geometry, wanted: u8, hidden: u64) -> Option<u64> {
    if hidden & 1 << wanted == 0 {
        return None;
    }
    let data = u64::MAX >> (64 - geometry.data_strips());
    let all = u64::MAX >> (64 - geometry.width());
    let mut parities = all & !data & !hidden;
    let mut strips = data & !hidden;
    for _ in 0..(data & hidden).count_ones() {
        if parities == 0 {
            return None;
        }
        strips |= parities & parities.wrapping_neg();
        parities &= parities - 1;
    }
    Some(strips)
}

/// The numbers of the bits set in `mask`, ascending.
pub(super) fn bits(mut mask: u64) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let bit = mask.trailing_zeros() as u8;
        mask &= mask.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

impl Shard {
    /// How members stand now.
    pub(super) fn standing(&self) -> Standing {
        let members = self.members.borrow();
        let (sits, lagging) = (self.sits.borrow().mask(), members.lagging());
        let recovers = self.geometry.parity_strips() > 0;
        if !recovers || !members.degraded() && sits | lagging == 0 {
            return Standing::default();
        }
        Standing {
            // A member with two devices may change them before a read is back.
            readable: members.readable() & members.plain() & !sits,
            absent: members.viewed(View::Absent),
            rebuilding: members.viewed(View::Rebuilding),
            sits,
            lagging,
        }
    }

    /// What is read to recover `range`, when that is all of a degraded read of this core; `avoid` are positions that
    /// take long.
    fn survivors(&self, range: LbaRange, avoid: u64, standing: &Standing) -> Option<Survivors> {
        let geometry = &self.geometry;
        let place = geometry.place(range.start);
        let band_blocks = geometry.band_blocks();
        let within = band_blocks - (place.offset & (band_blocks - 1));
        let region = self.regions.region_of(place.stripe);
        let ours = self.regions.owner(region, self.cores).0 == self.core;
        if standing.readable == 0 || range.blocks > within.into() || !ours {
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
        for member in bits(standing.rebuilding) {
            if self.rebuild.borrow().lacks(MemberIndex(member), region) {
                hidden |= 1 << member;
            }
        }
        let map = geometry.stripe_map(place.stripe);
        let strips_of = |positions| map.strips_of_positions(positions);
        let hidden = strips_of(map.positions_of_members(hidden) | avoid);
        let strips = survivors(geometry, place.strip, hidden)?;
        let readable = strips_of(map.positions_of_members(standing.readable));
        let index = (place.offset >> band_blocks.trailing_zeros()) as u16;
        let band = Band { stripe: place.stripe, index };
        (strips & !readable == 0).then_some(Survivors { place, map, band, strips })
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
        if standing.sits & 1 << member.0 != 0 {
            return Err(data);
        }
        let range = LbaRange::new(at, blocks);
        let Some(survivors) = self.survivors(range, 0, &standing) else { return Err(data) };
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
        let reader = Reader::User(user);
        if at_once {
            let wanted = self.read_survivors(&mut table, &mut scratch, survivors, data.len());
            (wanted.reader, wanted.entry, wanted.range) = (reader, entry, range);
            (wanted.avoid, wanted.data) = (0, data);
        } else {
            table.enqueue(Wanted { reader, entry, range, avoid: 0, data });
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
        for ((part, strip), place) in (0u8..).zip(bits(strips)).zip(bufs) {
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
                None => self.put_back_read(&mut table.take_front(), 0),
            }
        }
    }

    /// Recovers what is wanted into the user's buffer, and answers.
    fn answer_degraded_read(&self, table: &mut DegradedReads, number: u32) {
        let (read, strips) = table.get(number);
        let count = read.strips.count_ones() as usize;
        let known: ArrayVec<u8, STRIPS_MAX> = bits(read.strips).collect();
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
    fn put_back_read(&self, wanted: &mut Wanted, unreadable: u64) {
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
        self.strips.count_ones() as usize
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
