//! Degraded reads: reads of one strip in one band whose member cannot be read, while all other needed strips can be
//! read. Most random reads of a degraded array are normal reads or degraded reads. Like small writes, degraded reads
//! need no task, no request and no I/O of their own: an entry of a table counts the outstanding parts, and continues
//! when none is outstanding.
//!
//! ```text
//!  a user's read, or the head of a band --> waits for a place --> survivors read --> recovered into --> answered
//!                                                |                      |            the user's buffer
//!                                                v members changed      v one failed or takes long, members changed
//!                                             to the head of its band, for a task
//! ```
//!
//! The number of concurrent reads is limited so that the survivors stay in the CPU cache until they are used. Further
//! reads wait in order of arrival. [`strake_raid::single()`] decides which reads are degraded reads, and which strips
//! they read.

mod table;

use arrayvec::ArrayVec;
use strake_block::{SgMut, Token};
use strake_raid::{Access, Sets, Single, Spot, single};
use strake_units::{LbaRange, Nanos, PositionSet, StripSet};

use super::bands::{ColumnSet, Holder};
use super::execute::Failed;
use super::members::{self, DirectRead};
use super::scratch::Scratch;
use super::{Shard, scratch};
use crate::message::{Origin, Work};
use crate::trace::{Arrival, Stage, Stages};

pub(super) use super::execute::STRIPS_MAX;
pub(crate) use table::DegradedReads;
use table::{Strip, Wanted};

const _: () = assert!(STRIPS_MAX <= members::PARTS_NAMED_MAX, "every part has its number");

/// The recipient of the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reader {
    /// A user on this thread.
    User(DirectRead),
    /// The sender of the span, and the time at which the span was queued in its band.
    Span(Origin, Nanos),
}

impl Shard {
    /// Returns the strips to read for the reconstruction of `spot`, if a degraded read applies with the readable
    /// members in `sets`. `avoid` contains slow positions.
    fn survivors(&self, sets: Sets, spot: &Spot, avoid: PositionSet) -> Option<StripSet> {
        let sets = self.sets_at(sets, spot).lacking(spot.members_at(avoid));
        match single(&self.geometry, spot, Access::Read, &sets)? {
            Single::Recover { strips } => Some(strips),
            Single::Read { .. } | Single::Update(_) | Single::Record(_) | Single::Mirror(_) => None,
        }
    }

    /// Starts a degraded read for a user, or returns the buffer if this is not possible.
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
        // Every degraded read may be put back into the queue of its band, so this room must remain free.
        if !self.has_room_for(spot.band()) {
            return Err(data);
        }
        let mut table = self.degraded_reads.borrow_mut();
        let mut scratch = self.scratch.borrow_mut();
        let Some(at_once) = may_begin(&table, &mut scratch, strips, data.len()) else {
            return Err(data);
        };
        let held = self.bands.borrow_mut().hold(spot.band(), Holder::Whole);
        let Some(entry) = held else { return Err(data) };
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

    /// Starts the read at the head of the band of `entry`, if it is a degraded read.
    pub(crate) fn begin_degraded_read(&self, entry: u32) -> bool {
        let mut bands = self.bands.borrow_mut();
        let Some((range, avoid, band)) = bands.sole_read(entry) else { return false };
        let Some(spot) = self.geometry.spot(range) else { return false };
        debug_assert_eq!(spot.band(), band, "a span lies in its band");
        // The decision about probes was made when the read was handed out.
        let Some(strips) = self.survivors(self.sets().without_probes(), &spot, avoid) else {
            return false;
        };
        let mut table = self.degraded_reads.borrow_mut();
        let mut scratch = self.scratch.borrow_mut();
        let bytes = (range.blocks as usize) << self.geometry.block_size().shift();
        let Some(at_once) = may_begin(&table, &mut scratch, strips, bytes) else {
            return false;
        };
        let (data, origin, queued) = bands.take_read(entry);
        let reader = Reader::Span(origin, queued);
        let wanted = Wanted { reader, entry, range, avoid, data };
        if at_once {
            *self.read_survivors(&mut table, &mut scratch, (&spot, strips), bytes) = wanted;
        } else {
            table.enqueue(wanted);
        }
        true
    }

    /// Allocates an entry for a read of `bytes` bytes, and reads the survivors. The caller has checked that an entry
    /// and memory are available, and stores the wanted read in the entry.
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

    /// Continues degraded reads without outstanding parts. Returns their number.
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

    /// Starts waiting reads, as far as there are entries and memory.
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
                // The reads in progress will release memory.
                None if survivors.is_some() && table.under_way() > 0 => return,
                None => {
                    let arrival = Arrival::at(self.now.get());
                    self.put_back_read(&mut table.take_front(), PositionSet::EMPTY, arrival);
                }
            }
        }
    }

    /// Reconstructs the data in the user's buffer, and answers the read.
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
        self.bands.borrow_mut().let_go(read.wanted.entry, || ColumnSet::ALL);
        let data = std::mem::take(&mut read.wanted.data);
        let (since, last) = (read.since, strips[usize::from(read.last)].member);
        match &read.wanted.reader {
            Reader::User(user) => {
                self.requests.borrow_mut().answer_direct(user, data, (since, last));
            }
            Reader::Span(origin, queued) => {
                let waited = Stages::NONE.with(Stage::Band, since.since(*queued), None);
                let stages = waited.with(Stage::Read, self.now.get().since(since), Some(last));
                self.finish(*origin, Ok(()), Some(data), &stages);
            }
        }
        table.end(number);
    }

    /// Releases the buffers of the survivors.
    fn give_back_strips(&self, strips: &mut [Strip]) {
        let data = strips.iter_mut().map(|strip| std::mem::take(&mut strip.data));
        scratch::give_back(&self.scratch, data.filter_map(SgMut::into_single));
    }

    /// Ends a read that needs a task. The task repeats the read and considers the failures.
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
        let (now, last) = (self.now.get(), strips[usize::from(read.last)].member);
        self.give_back_strips(strips);
        let arrival = match read.failed {
            true => Arrival::after_attempt(now, now.since(read.since), Some(last)),
            false => Arrival::at(now),
        };
        self.put_back_read(&mut read.wanted, failed.medium, arrival);
        table.end(number);
    }

    /// Puts a read at the head of its band, for a task. Positions in `unreadable` could not be read.
    fn put_back_read(&self, wanted: &mut Wanted, unreadable: PositionSet, arrival: Arrival) {
        let origin = match &wanted.reader {
            Reader::Span(origin, _) => *origin,
            Reader::User(user) => {
                let (request, _) = self.requests.borrow_mut().make_ordinary(user);
                Origin::Host { shard: self.core, request }
            }
        };
        let data = std::mem::take(&mut wanted.data);
        let work = Work::Read { range: wanted.range, data, unreadable, avoid: wanted.avoid };
        let again = (work, origin, arrival);
        self.bands.borrow_mut().put_back(wanted.entry, again, || ColumnSet::ALL);
    }

    /// Promotes slow parts of degraded reads to ordinary I/Os, which handle slow members.
    pub(crate) fn promote_degraded_reads(&self, now: Nanos) {
        let mut members = self.members.borrow_mut();
        self.degraded_reads.borrow_mut().promote(now, &mut members);
    }
}

/// Decides whether a read of `bytes` bytes may start immediately or must wait. Returns `None` if a task must execute
/// the read, because too many reads wait or tasks use the memory.
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
