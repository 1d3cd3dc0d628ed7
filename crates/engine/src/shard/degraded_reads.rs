//! Degraded reads: of one strip in one band, whose member cannot be read, from strips that all can. They are what a
//! random read of a degraded array is where it is not a clean one, so they take no task, no request and no I/O of their
//! own, as small writes do: a place in a table knows what is outstanding, and continues when nothing is.
//!
//! ```text
//!  a user's read, or the head of a band --> waits for a place --> survivors read --> recovered into --> answered
//!                                                |                      |            the user's buffer
//!                                                v members changed      v one failed or takes long, members changed
//!                                             to the head of its band, for a task
//! ```
//!
//! So many are under way at a time that what they read stays near the core until they use it; others wait, first come,
//! first served. Which reads are of this kind, and which strips they read, is the answer of [`strake_raid::single()`].

mod table;

use arrayvec::ArrayVec;
use strake_block::{SgMut, Token};
use strake_raid::{Access, Sets, Single, Spot, single};
use strake_units::{LbaRange, Nanos, PositionSet, StripSet};

use super::execute::Failed;
use super::members::{self, DirectRead};
use super::scratch::Scratch;
use super::{Shard, scratch};
use crate::message::{Origin, Work};

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

impl Shard {
    /// The strips that are read to recover what is at `spot`, if a degraded read does so and `sets` are what may be
    /// read; `avoid` are positions that take long.
    fn survivors(&self, sets: Sets, spot: &Spot, avoid: PositionSet) -> Option<StripSet> {
        let sets = self.sets_at(sets, spot).lacking(spot.members_at(avoid));
        match single(&self.geometry, spot, Access::Read, &sets)? {
            Single::Recover { strips } => Some(strips),
            Single::Read { .. } | Single::Update(_) | Single::Mirror(_) => None,
        }
    }

    /// Recovers a user's read of a member that cannot be read, or hands the buffer back when it is not that simple.
    #[cold]
    pub(super) fn recover_directly(
        &self,
        (port, token): (u16, Token),
        range: LbaRange,
        spot: &Spot,
        data: SgMut,
    ) -> Result<(), SgMut> {
        let Some(strips) = self.survivors(self.sets.get(), spot, PositionSet::EMPTY) else {
            return Err(data);
        };
        // Every read of this kind may be put back: who is queued already keeps the room for that.
        if !self.has_room_for(spot.band()) {
            return Err(data);
        }
        let mut table = self.degraded_reads.borrow_mut();
        let mut scratch = self.scratch.borrow_mut();
        let Some(at_once) = may_begin(&table, &mut scratch, strips, data.len()) else {
            return Err(data);
        };
        let Some(entry) = self.bands.borrow_mut().hold(spot.band()) else { return Err(data) };
        let mut requests = self.requests.borrow_mut();
        requests.went_directly(port, 1, data.len());
        let (since, came, bytes) = (self.now.get(), requests.came(), data.len());
        let (at, bytes, member) = (range.start, bytes as u32, spot.own_member(&self.geometry));
        let user = DirectRead { token, at, since, issued: 0, bytes, port, member, came };
        let (reader, avoid) = (Reader::User(user), PositionSet::EMPTY);
        if at_once {
            let wanted = self.read_survivors(&mut table, &mut scratch, (spot, strips), data.len());
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
        let Some(spot) = self.geometry.spot(range) else { return false };
        debug_assert_eq!(spot.band(), band, "a span lies in its band");
        // Whether it is a probe was decided when it was handed out.
        let Some(strips) = self.survivors(self.sets().without_probes(), &spot, avoid) else {
            return false;
        };
        let mut table = self.degraded_reads.borrow_mut();
        let mut scratch = self.scratch.borrow_mut();
        let bytes = (range.blocks as usize) << self.geometry.block_size().shift();
        let Some(at_once) = may_begin(&table, &mut scratch, strips, bytes) else {
            return false;
        };
        let (data, origin) = bands.take_read(entry);
        let wanted = Wanted { reader: Reader::Span(origin), entry, range, avoid, data };
        if at_once {
            *self.read_survivors(&mut table, &mut scratch, (&spot, strips), bytes) = wanted;
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
        (spot, strips): (&Spot, StripSet),
        bytes: usize,
    ) -> &'a mut Wanted {
        let mut members = self.members.borrow_mut();
        let Spot { place, map, .. } = *spot;
        let now = self.now.get();
        let at = spot.member_lba();
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
        let sets = self.sets().without_probes();
        while table.has_place()
            && let Some(front) = table.front()
        {
            let spot = self.geometry.spot(front.range).expect("it was one of these when it came");
            let survivors = self.survivors(sets, &spot, front.avoid);
            let bytes = front.data.len();
            let mut scratch = self.scratch.borrow_mut();
            let memory = survivors.is_some_and(|strips| scratch.has_now(strips.len(), bytes));
            match survivors.filter(|_| memory) {
                Some(strips) => {
                    let wanted = table.take_front();
                    *self.read_survivors(table, &mut scratch, (&spot, strips), bytes) = wanted;
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

    /// Puts a read to the head of its band, for a task; positions in `unreadable` could not be read.
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

/// Whether a read of `bytes` bytes can begin at once, or else wait for its turn; `None` when it is for a task: too many
/// wait, or tasks have the memory.
fn may_begin(
    table: &DegradedReads,
    scratch: &mut Scratch,
    strips: StripSet,
    bytes: usize,
) -> Option<bool> {
    let first = table.front().is_none() && table.has_place();
    if first && scratch.has_now(strips.len(), bytes) {
        return Some(true);
    }
    (table.has_room() && table.under_way() > 0).then_some(false)
}
