//! The table of small writes. Its places are made once and used again: what a write needs is written into one field by
//! field, and never moved.
//!
//! In which ways a part may be out, [`Out`] says. A small write never outlives the copy of a member to its replacement,
//! since the copy takes its band.

use strake_block::{BufMut, Durability, Op, Sg};
use strake_raid::{PARTS_MAX, Parts, Place};
use strake_units::{
    Lba, LbaRange, MemberIndex, MemberSet, Nanos, PositionSet, RegionIndex, StripeIndex,
};

use super::{
    Caller, Failed, Members, Origin, PartIo, RecordIndex, TIMEOUT_CHECK, Unplaced, Whole, Worth,
};
use crate::shard::members::{Part, PartBack, PartTaken, next_generation};
use crate::shard::parts::{Out, Strays};

/// What the parts of a small write do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// They are read. Copies skip this.
    Read,
    /// They are written.
    Write,
}

/// A small write.
pub(crate) struct Small {
    write: u32,
    /// Counts phases of this place: a part that comes back in another one than it left in is not this one's.
    generation: u32,
    live: bool,
    pub(super) phase: Phase,
    /// Some of its parts have failed.
    pub(super) failed: bool,
    pub(super) out: Out,
    /// Parities are updated from what is read.
    pub(super) updates: bool,
    /// What of what it leaves behind is kept.
    pub(super) worth: Worth,
    pub(super) durability: Durability,
    /// The partial-write record that it is in.
    pub(in crate::shard) record: Option<RecordIndex>,
    /// Where its parts are: its own strip, then the parities; or the copies.
    pub(super) parts: Parts,
    /// Its band's.
    pub(super) entry: u32,
    pub(super) region: RegionIndex,
    pub(in crate::shard) place: Place,
    /// [`Members::membership_epoch`] when it was begun.
    pub(super) membership_epoch: u64,
    /// When the phase began.
    since: Nanos,
    pub(in crate::shard) range: LbaRange,
    /// The user's; empty while copies are written.
    pub(in crate::shard) data: Sg,
    pub(super) caller: Caller,
    /// Positions of the stripe whose members failed to write their part.
    pub(super) missed: PositionSet,
    /// What was read: the old data, then the parities, which are written when they are updated.
    pub(super) bufs: [Option<BufMut>; PARTS_MAX],
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
            worth: Worth::Nothing,
            durability: Durability::Normal,
            record: None,
            parts: Parts::NONE,
            entry: 0,
            region: RegionIndex(0),
            place: Place { stripe: StripeIndex(0), strip: 0, offset: 0 },
            membership_epoch: 0,
            since: Nanos(0),
            range: LbaRange::new(Lba(0), 0),
            data: Sg::default(),
            caller: Caller::Span(Origin::Maintenance),
            missed: PositionSet::EMPTY,
            bufs: [const { None }; PARTS_MAX],
        }
    }

    /// Its place in the table.
    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.write
    }

    /// Its parts are read, or written, from now on.
    #[inline]
    pub(super) fn begin_phase(&mut self, phase: Phase, now: Nanos) {
        self.generation = next_generation(self.generation);
        (self.phase, self.since) = (phase, now);
    }

    /// The members of its parts.
    pub(in crate::shard) fn written_on(&self) -> &[MemberIndex] {
        self.parts.members()
    }

    /// The data that it is about to overwrite, as long as it is not on record.
    pub(in crate::shard) fn old_data(&self) -> &[u8] {
        self.bufs[0].as_ref().expect("kept until then").as_slice()
    }

    /// Takes the memory of those.
    pub(in crate::shard) fn take_old(&mut self) -> Option<BufMut> {
        self.bufs[0].take()
    }

    /// The parities that it is about to write, in order.
    pub(in crate::shard) fn new_parities(&self) -> impl Iterator<Item = &[u8]> {
        self.bufs[1..usize::from(self.parts.count())].iter().flatten().map(|buf| buf.as_slice())
    }

    /// The members of its parts.
    #[inline]
    pub(super) fn needs(&self) -> MemberSet {
        self.written_on().iter().collect()
    }

    /// What names a part of this phase.
    #[inline]
    fn io(&self, part: u8) -> (PartIo, u32) {
        (PartIo { whole: Whole::Write, number: self.write, part }, self.generation)
    }

    /// A part of this phase, at `at` in its member's data area.
    #[inline]
    pub(super) fn part(&self, part: u8, at: Lba) -> Part {
        let (io, generation) = self.io(part);
        Part { io, generation, member: self.parts.member(part), at }
    }

    /// Takes what came back of a part.
    #[inline]
    fn keep(&mut self, part: u8, op: &mut Op) {
        let place = &mut self.bufs[usize::from(part)];
        match op {
            Op::Read { data, .. } => *place = std::mem::take(data).into_single(),
            Op::Write { data, .. } => {
                let data = std::mem::take(data);
                if part > 0 && self.updates {
                    // Nothing else shares its memory.
                    *place = data.into_single().and_then(|buf| buf.reclaim().ok());
                } else if self.data.parts().is_empty() {
                    self.data = data;
                }
            }
            Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. } => {}
        }
    }
}

/// All of them.
pub(crate) struct Smalls {
    places: Box<[Small]>,
    free: Vec<u32>,
    /// Those with nothing outstanding.
    due: Vec<u32>,
    strays: Strays,
}

impl Smalls {
    /// Room for `writes` of them.
    pub(crate) fn new(writes: usize) -> Self {
        let numbers = 0..writes as u32;
        Self {
            places: numbers.clone().map(Small::empty).collect(),
            free: numbers.rev().collect(),
            due: Vec::with_capacity(writes),
            strays: Strays::default(),
        }
    }

    /// Small writes that can still be begun.
    #[inline]
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// Small writes under way.
    pub(super) fn live(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// True when every small write in progress was begun at `membership_epoch` or later.
    pub(crate) fn all_since(&self, membership_epoch: u64) -> bool {
        self.places.iter().all(|small| !small.live || small.membership_epoch >= membership_epoch)
    }

    /// A place for another one.
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
        debug_assert!(small.bufs.iter().all(Option::is_none), "its buffers were given back");
        (small.live, small.failed) = (true, false);
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

    /// Frees the place. Its buffers were released already.
    #[inline]
    pub(super) fn end(&mut self, write: u32) {
        self.get(write).live = false;
        self.free.push(write);
    }

    /// True when some have nothing outstanding.
    #[inline]
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// A write with nothing outstanding.
    #[inline]
    pub(super) fn next_due(&mut self) -> Option<u32> {
        self.due.pop()
    }

    /// The parts of `write` that failed, and how.
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
        if let Some(failed) = part.failed(small.parts.member(io.part), small.membership_epoch) {
            small.failed = true;
            self.strays.fail(io, failed);
        }
        let since = small.since;
        if small.out.back(io.part) {
            self.due.push(io.number);
        }
        PartTaken::Here(since)
    }

    /// A part that is an ordinary I/O came back, or was given up and brings nothing.
    pub(crate) fn back(&mut self, io: PartIo, op: Option<Op>, failed: Option<Failed>) {
        let small = self.get(io.number);
        if let Some(mut op) = op {
            small.keep(io.part, &mut op);
        }
        small.failed |= failed.is_some();
        if small.out.back(io.part) {
            self.due.push(io.number);
        }
        failed.into_iter().for_each(|failed| self.strays.fail(io, failed));
    }

    /// Makes ordinary I/Os of parts that take long.
    pub(super) fn promote(&mut self, now: Nanos, members: &mut Members) {
        for small in &mut self.places {
            let unplaced = small.out.unpromoted();
            if !small.live || unplaced.is_empty() || now.since(small.since) < TIMEOUT_CHECK {
                continue;
            }
            for part in unplaced {
                let member = small.parts.member(part);
                let what = Unplaced { member, since: small.since, issued: small.membership_epoch };
                let read = small.phase == Phase::Read;
                self.strays.promote(members.promote_part(now, small.io(part), what, read));
            }
            small.out.promote();
        }
    }

    /// The callers of all that are under way, when the shard ends.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = (Caller, LbaRange)> + '_ {
        self.places.iter_mut().filter(|small| small.live).map(|small| (small.caller, small.range))
    }
}
