//! The table of small writes and of direct writes of whole stripes. The entries are allocated once and reused: the
//! fields of a new write are stored in place, and entries never move.
//!
//! [`Out`] describes the states of a part in progress. A small write cannot overlap the copy of its band to a
//! replacement, because the copy takes the band.

use strake_block::{Buf, BufMut, Durability, Op, Sg};
use strake_raid::{PARTS_MAX, Parts, Place, WholeStripe};
use strake_units::{
    Lba, LbaRange, MemberIndex, MemberSet, Nanos, PositionSet, RegionIndex, StripeIndex,
};

use super::strips::PartBufs;
use super::{
    Caller, Failed, Members, Origin, PartIo, RecordIndex, TIMEOUT_CHECK, Unplaced, Whole, Worth,
};
use crate::shard::members::{Out, Part, PartBack, PartTaken, Strays, next_generation};
use crate::trace::{Arrival, Stage, Stages};

/// The phase of a small write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The parts are read. With copies, there is no such phase.
    Read,
    /// The record of the parts is written to the redo log. Most small writes have no such phase.
    Log,
    /// The parts are written.
    Write,
}

/// Number of phases.
const PHASES: usize = 3;

/// The start time of a phase that has not started.
const NEVER: Nanos = Nanos(u64::MAX);

/// No part of a phase has completed.
const NO_PART: u8 = u8::MAX;

/// A small write.
pub(crate) struct Small {
    write: u32,
    /// Counts the phases of this entry. A completion with another generation belongs to an earlier write or phase.
    generation: u32,
    live: bool,
    pub(super) phase: Phase,
    /// True if parts have failed.
    pub(super) failed: bool,
    pub(super) out: Out,
    /// True if the parities are computed from the data that are read.
    pub(super) updates: bool,
    /// True if the parts are recorded in the redo log.
    pub(super) logged: bool,
    /// The part of the column to cache.
    pub(super) worth: Worth,
    pub(super) durability: Durability,
    /// The partial-write record of the write.
    pub(in crate::shard) record: Option<RecordIndex>,
    /// The parts: the data strip and then the parities, or the copies. Only without `stripe`.
    pub(super) parts: Parts,
    /// The stripe of a write of a whole stripe. The parts are the data strips and then the parities.
    pub(super) stripe: Option<WholeStripe>,
    /// The entry of the band.
    pub(super) entry: u32,
    pub(super) region: RegionIndex,
    pub(in crate::shard) place: Place,
    /// [`Members::membership_epoch`] when the write started.
    pub(super) membership_epoch: u64,
    /// Start times of the phases up to the present one. `Read` has one if the write updates parities, and `Log` unless
    /// it is [`NEVER`].
    began: [Nanos; PHASES],
    /// The part that completed last in each phase, or [`NO_PART`].
    last: [u8; PHASES],
    pub(in crate::shard) range: LbaRange,
    /// Data of the user; empty while copies are written.
    pub(in crate::shard) data: Sg,
    pub(super) caller: Caller,
    /// Positions of the stripe whose members failed to write their part.
    pub(super) missed: PositionSet,
    /// The old data, if any, and then the parities. The parities are updated or computed in place, and then written.
    pub(super) bufs: PartBufs,
}

impl Small {
    fn empty(write: u32) -> Self {
        Self {
            write,
            generation: 0,
            live: false,
            phase: Phase::Read,
            failed: false,
            out: Out::default(),
            updates: false,
            logged: false,
            worth: Worth::Nothing,
            durability: Durability::Normal,
            record: None,
            parts: Parts::NONE,
            stripe: None,
            entry: 0,
            region: RegionIndex(0),
            place: Place { stripe: StripeIndex(0), strip: 0, offset: 0 },
            membership_epoch: 0,
            began: [NEVER; PHASES],
            last: [NO_PART; PHASES],
            range: LbaRange::new(Lba(0), 0),
            data: Sg::default(),
            caller: Caller::Span(Origin::Maintenance, Nanos(0)),
            missed: PositionSet::EMPTY,
            bufs: [const { None }; PARTS_MAX],
        }
    }

    /// Returns the index in the table.
    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.write
    }

    /// Starts a phase.
    #[inline]
    pub(super) fn begin_phase(&mut self, phase: Phase, now: Nanos) {
        self.generation = next_generation(self.generation);
        (self.phase, self.began[phase as usize]) = (phase, now);
    }

    /// Starts the record of a partial write, which other code writes.
    pub(super) fn begin_record(&mut self, now: Nanos) {
        self.began[Phase::Log as usize] = now;
    }

    /// Returns the start time of the phase.
    #[inline]
    fn since(&self) -> Nanos {
        self.began[self.phase as usize]
    }

    /// Records that no part of the phase is outstanding, and that `part` completed last.
    #[inline]
    fn note_last(&mut self, part: u8) {
        self.last[self.phase as usize] = part;
    }

    /// Returns the stages of a write that ends at `now`. `queued`: the time at which the write was queued in its band.
    #[inline(never)]
    pub(super) fn stages(&self, now: Nanos, queued: Option<Nanos>) -> Stages {
        let mut stages = Stages::NONE;
        // From the last phase to the first: each phase ends when the next one begins.
        let mut end = now;
        let phases = [
            (Phase::Write, Stage::Write, self.phase == Phase::Write),
            (Phase::Log, Stage::Log, self.began[Phase::Log as usize] != NEVER),
            (Phase::Read, Stage::Read, self.updates),
        ];
        for (phase, stage, has_begun) in phases {
            if has_begun {
                let began = self.began[phase as usize];
                stages.add(stage, end.since(began));
                if let Some(member) = self.last_member(phase) {
                    stages.ended_by(stage, member);
                }
                end = began;
            }
        }
        if let Some(queued) = queued {
            stages.add(Stage::Band, end.since(queued));
        }
        stages
    }

    /// Returns the member of the last part of `phase`; `None` without completed parts. A partial write is recorded with
    /// other writes, and has no parts in this phase.
    fn last_member(&self, phase: Phase) -> Option<MemberIndex> {
        let last = self.last[phase as usize];
        let count = self.stripe.map_or(self.parts.count(), |stripe| stripe.parts());
        (last < count).then(|| self.member(last))
    }

    /// Returns the member of a part.
    pub(super) const fn member(&self, part: u8) -> MemberIndex {
        match &self.stripe {
            None => self.parts.member(part),
            Some(stripe) => stripe.member(part),
        }
    }

    /// Returns the arrival in the queue of the band at `now`, for a task: after a failed attempt, or without one.
    pub(super) fn arrival(&self, now: Nanos) -> Arrival {
        if !self.failed {
            return Arrival::at(now);
        }
        let first = if self.updates { Phase::Read } else { self.phase };
        let took = now.since(self.began[first as usize]);
        Arrival::after_attempt(now, took, self.last_member(self.phase))
    }

    /// Returns the members of the parts.
    pub(in crate::shard) fn written_on(&self) -> &[MemberIndex] {
        self.parts.members()
    }

    /// Returns the old data, until the partial-write record is written.
    pub(in crate::shard) fn old_data(&self) -> &[u8] {
        self.bufs[0].as_ref().expect("kept until then").as_slice()
    }

    /// Takes the buffer of the old data.
    pub(in crate::shard) fn take_old(&mut self) -> Option<BufMut> {
        self.bufs[0].take()
    }

    /// Returns the new parities, in order.
    pub(in crate::shard) fn new_parities(&self) -> impl Iterator<Item = &[u8]> {
        self.bufs[1..usize::from(self.parts.count())].iter().flatten().map(|buf| buf.as_slice())
    }

    /// Returns the set of the members of the parts.
    #[inline]
    pub(super) fn needs(&self) -> MemberSet {
        self.written_on().iter().collect()
    }

    /// Returns the name of a part in this phase.
    #[inline]
    fn io(&self, part: u8) -> (PartIo, u32) {
        (PartIo { whole: Whole::Write, number: self.write, part }, self.generation)
    }

    /// Returns a part of this phase at `at`, see [`Part::at`].
    #[inline]
    pub(super) fn part(&self, part: u8, at: Lba) -> Part {
        self.part_on(part, self.parts.member(part), at)
    }

    /// Returns such a part on `member`.
    #[inline]
    pub(super) fn part_on(&self, part: u8, member: MemberIndex, at: Lba) -> Part {
        let (io, generation) = self.io(part);
        Part { io, generation, member, at }
    }

    /// Returns the new bytes of a part: the data, or an updated parity.
    pub(super) fn content(&self, part: u8) -> impl Iterator<Item = &[u8]> {
        let data = if part == 0 { self.data.parts() } else { &[] };
        let parity = if part == 0 { None } else { self.bufs[usize::from(part)].as_ref() };
        data.iter().map(Buf::as_slice).chain(parity.map(BufMut::as_slice))
    }

    /// Takes the buffers of all parts of a small write.
    #[inline]
    pub(super) fn take_bufs(&mut self) -> impl Iterator<Item = BufMut> + '_ {
        self.bufs[..usize::from(self.parts.count())].iter_mut().filter_map(Option::take)
    }

    /// Takes the buffers of a small write or of a write of a whole stripe.
    pub(super) fn take_all_bufs(&mut self) -> impl Iterator<Item = BufMut> + '_ {
        self.bufs.iter_mut().filter_map(Option::take)
    }

    /// Takes the buffer of a completed part.
    #[inline(always)]
    fn keep(&mut self, part: u8, op: &mut Op) {
        match op {
            Op::Read { data, .. } => {
                self.bufs[usize::from(part)] = std::mem::take(data).into_single();
            }
            Op::Write { data, .. } => {
                let data = std::mem::take(data);
                if part > 0 && self.updates {
                    // No other owner shares the memory. A part of a record has several pieces, which the record keeps.
                    self.bufs[usize::from(part)] =
                        data.into_single().and_then(|buf| buf.reclaim().ok());
                } else if self.stripe.is_some() {
                    self.keep_strip(part, data);
                } else if self.data.parts().is_empty() {
                    self.data = data;
                }
            }
            Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {}
        }
    }
}

impl Small {
    /// Takes the buffer of a completed part of a whole stripe.
    #[inline(never)]
    fn keep_strip(&mut self, part: u8, data: Sg) {
        let data_strips = self.stripe.map_or(0, |stripe| stripe.data_strips());
        // The user's data are in `data` of this entry.
        if let Some(parity) = part.checked_sub(data_strips) {
            self.bufs[1 + usize::from(parity)] =
                data.into_single().and_then(|buf| buf.reclaim().ok());
        }
    }
}

/// The table of small writes.
pub(crate) struct Smalls {
    places: Box<[Small]>,
    free: Vec<u32>,
    /// Writes without outstanding parts.
    due: Vec<u32>,
    /// Number of further whole stripes for which there is room.
    stripes: usize,
    strays: Strays,
}

impl Smalls {
    /// Creates a table for `writes` writes, at most `stripes` of them of whole stripes.
    pub(crate) fn new(writes: usize, stripes: usize) -> Self {
        let numbers = 0..writes as u32;
        Self {
            places: numbers.clone().map(Small::empty).collect(),
            free: numbers.rev().collect(),
            due: Vec::with_capacity(writes),
            stripes,
            strays: Strays::default(),
        }
    }

    /// Number of further small writes for which there is room.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// True if there is room for a write of a whole stripe.
    pub(super) fn has_room_for_stripe(&self) -> bool {
        self.room() > 0 && self.stripes > 0
    }

    /// Allocates an entry as [`begin`](Self::begin) does, for a write of `stripe`.
    pub(super) fn begin_stripe(
        &mut self,
        stripe: WholeStripe,
        caller: Caller,
        range: LbaRange,
        (data, durability): (Sg, Durability),
    ) -> &mut Small {
        self.stripes -= 1;
        let small = self.begin(caller, range, data, durability);
        (small.parts, small.stripe, small.place) = (Parts::NONE, Some(stripe), stripe.place());
        (small.logged, small.updates, small.worth) = (false, false, Worth::Nothing);
        small
    }

    /// Number of small writes in progress.
    pub(super) fn live(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// True when every small write in progress started at `membership_epoch` or later.
    pub(crate) fn all_since(&self, membership_epoch: u64) -> bool {
        self.places.iter().all(|small| !small.live || small.membership_epoch >= membership_epoch)
    }

    /// Returns the buffers of the entry that [`begin`](Self::begin) will allocate.
    #[inline(always)]
    pub(super) fn next_bufs(&mut self) -> &mut PartBufs {
        let bufs = &mut self.places[self.next_number() as usize].bufs;
        debug_assert!(bufs.iter().all(Option::is_none), "its buffers were given back");
        bufs
    }

    /// Returns the number of the entry that [`begin`](Self::begin) will allocate.
    #[inline]
    pub(super) fn next_number(&self) -> u32 {
        *self.free.last().expect("there is room")
    }

    /// Allocates an entry for a write, whose buffers are in [`next_bufs`](Self::next_bufs).
    #[inline(always)]
    pub(super) fn begin(
        &mut self,
        caller: Caller,
        range: LbaRange,
        data: Sg,
        durability: Durability,
    ) -> &mut Small {
        let write = self.free.pop().expect("there is room");
        let small = &mut self.places[write as usize];
        (small.live, small.failed) = (true, false);
        (small.began[Phase::Log as usize], small.last) = (NEVER, [NO_PART; PHASES]);
        (small.caller, small.range, small.data, small.durability) =
            (caller, range, data, durability);
        small
    }

    #[inline]
    pub(in crate::shard) fn get(&mut self, write: u32) -> &mut Small {
        let small = &mut self.places[write as usize];
        assert!(small.live, "a small write outlives its I/Os");
        small
    }

    /// Frees the entry. Its buffers were already released.
    #[inline]
    pub(super) fn end(&mut self, write: u32) {
        let small = self.get(write);
        small.live = false;
        let was_stripe = small.stripe.take().is_some();
        self.stripes += usize::from(was_stripe);
        self.free.push(write);
    }

    /// True if some write has no outstanding parts.
    #[inline]
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns a write without outstanding parts.
    #[inline]
    pub(super) fn next_due(&mut self) -> Option<u32> {
        self.due.pop()
    }

    /// Removes and returns the failed parts of `write` with their errors.
    pub(super) fn take_failed(&mut self, write: u32) -> impl Iterator<Item = (u8, Failed)> + '_ {
        self.strays.take_failed(write)
    }

    /// As [`Strays::failed`].
    pub(in crate::shard) fn failed(&self) -> impl Iterator<Item = Failed> + '_ {
        self.strays.failed()
    }

    /// A part completed under its own token.
    #[inline]
    pub(crate) fn part_back(&mut self, part: PartBack<'_>) -> PartTaken {
        let (io, generation) = (part.io, part.generation);
        if let Some(slot) = self.strays.take_promoted(part.done.token) {
            return PartTaken::Promoted(slot);
        }
        let small = &mut self.places[io.number as usize];
        let mine = small.live
            && small.generation == generation
            && small.out.unpromoted().contains(io.part);
        assert!(mine, "a device completed an I/O twice");
        small.keep(io.part, &mut part.done.op);
        if let Some(failed) = part.failed(|| small.member(io.part), small.membership_epoch) {
            small.failed = true;
            self.strays.fail(io, failed);
        }
        let since = small.since();
        if small.out.back(io.part) {
            small.note_last(io.part);
            self.due.push(io.number);
        }
        PartTaken::Here(since)
    }

    /// An ordinary I/O of a part completed, or was abandoned and has no operation.
    pub(crate) fn back(&mut self, io: PartIo, op: Option<Op>, failed: Option<Failed>) {
        let small = self.get(io.number);
        if let Some(mut op) = op {
            small.keep(io.part, &mut op);
        }
        small.failed |= failed.is_some();
        if small.out.back(io.part) {
            small.note_last(io.part);
            self.due.push(io.number);
        }
        failed.into_iter().for_each(|failed| self.strays.fail(io, failed));
    }

    /// Promotes slow parts to ordinary I/Os.
    pub(super) fn promote(&mut self, now: Nanos, members: &mut Members) {
        for small in &mut self.places {
            let unplaced = small.out.unpromoted();
            if !small.live || unplaced.is_empty() || now.since(small.since()) < TIMEOUT_CHECK {
                continue;
            }
            for part in unplaced {
                let member = small.member(part);
                let what =
                    Unplaced { member, since: small.since(), issued: small.membership_epoch };
                let read = small.phase == Phase::Read;
                self.strays.promote(members.promote_part(now, small.io(part), what, read));
            }
            small.out.promote();
        }
    }

    /// Returns the callers of all writes in progress when the shard ends.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = (Caller, LbaRange)> + '_ {
        self.places.iter_mut().filter(|small| small.live).map(|small| (small.caller, small.range))
    }
}
