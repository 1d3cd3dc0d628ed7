//! The table of degraded reads. Its places are made once and used again, like those of small writes; in which ways a
//! part may be out, [`Out`] says.
//!
//! Reads that have no place yet wait in front of it, first come, first served.

use std::collections::VecDeque;

use strake_block::{Op, SgMut};
use strake_raid::Place;
use strake_units::{Lba, LbaRange, MemberIndex, Nanos, PositionSet, StripSet, StripeIndex};

use super::Reader;
use crate::limits::TIMEOUT_CHECK;
use crate::message::Origin;
use crate::shard::members::{
    DirectRead, Failed, Members, Part, PartBack, PartIo, PartTaken, Unplaced, Whole,
    next_generation,
};
use crate::shard::parts::{Out, Strays};

/// A read that is to be recovered. It holds its band.
pub(super) struct Wanted {
    pub(super) reader: Reader,
    /// Its band's.
    pub(super) entry: u32,
    pub(super) range: LbaRange,
    /// Slow positions of the stripe, as the sender sees them.
    pub(super) avoid: PositionSet,
    /// The user's: nothing but what is recovered is written into it.
    pub(super) data: SgMut,
}

/// A degraded read that is in progress.
pub(super) struct Read {
    number: u32,
    /// Counts the reads of this place: a part that comes back in another one than it left in is not this one's.
    generation: u32,
    live: bool,
    /// Some of its parts have failed, or take long.
    pub(super) failed: bool,
    pub(super) out: Out,
    /// When it was begun, as a time and by [`Members::membership_epoch`].
    since: Nanos,
    pub(super) membership_epoch: u64,
    pub(super) place: Place,
    /// The strips that are read: its parts, in this order.
    pub(super) strips: StripSet,
    pub(super) wanted: Wanted,
}

impl Read {
    fn empty(number: u32) -> Self {
        Self {
            number,
            generation: 0,
            live: false,
            failed: false,
            out: Out::default(),
            since: Nanos(0),
            membership_epoch: 0,
            place: Place { stripe: StripeIndex(0), strip: 0, offset: 0 },
            strips: StripSet::EMPTY,
            wanted: Wanted {
                reader: Reader::Span(Origin::Maintenance),
                entry: 0,
                range: LbaRange::new(Lba(0), 0),
                avoid: PositionSet::EMPTY,
                data: SgMut::default(),
            },
        }
    }

    /// A part of it that is to be read from `at` in its member's data area.
    #[inline]
    pub(super) fn part(&self, part: u8, member: MemberIndex, at: Lba) -> Part {
        let io = PartIo { whole: Whole::Read, number: self.number, part };
        Part { io, generation: self.generation, member, at }
    }
}

/// A strip that is read.
#[derive(Default)]
pub(super) struct Strip {
    pub(super) member: MemberIndex,
    /// What was read, in one buffer.
    pub(super) data: SgMut,
}

/// All of them.
pub(crate) struct DegradedReads {
    places: Box<[Read]>,
    free: Vec<u32>,
    /// Of each place as many as a recovery takes.
    strips: Box<[Strip]>,
    strips_each: usize,
    /// Those with nothing outstanding.
    due: Vec<u32>,
    waiting: VecDeque<Wanted>,
    waiting_max: usize,
    strays: Strays,
}

impl DegradedReads {
    /// For stripes of `data_strips` strips of data, with places for `reads` and room for
    /// `waiting` more.
    pub(crate) fn new(data_strips: u8, reads: usize, waiting: usize) -> Self {
        let numbers = 0..reads as u32;
        let strips_each = usize::from(data_strips);
        Self {
            places: numbers.clone().map(Read::empty).collect(),
            free: numbers.rev().collect(),
            strips: (0..reads * strips_each).map(|_| Strip::default()).collect(),
            strips_each,
            waiting_max: waiting,
            due: Vec::with_capacity(reads),
            waiting: VecDeque::with_capacity(waiting),
            strays: Strays::default(),
        }
    }

    /// True when another read may be taken in, to wait if need be.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < self.waiting_max
    }

    /// True when there is a place for another read.
    #[inline]
    pub(super) fn has_place(&self) -> bool {
        !self.free.is_empty()
    }

    /// Reads under way.
    #[inline]
    pub(super) fn under_way(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes a read in behind those that wait.
    #[inline]
    pub(super) fn enqueue(&mut self, wanted: Wanted) {
        self.waiting.push_back(wanted);
    }

    /// The read that has waited longest.
    #[inline]
    pub(super) fn front(&self) -> Option<&Wanted> {
        self.waiting.front()
    }

    /// Takes it out.
    #[inline]
    pub(super) fn take_front(&mut self) -> Wanted {
        self.waiting.pop_front().expect("one waits")
    }

    /// A place for a read, of which what is wanted is still to be said.
    #[inline(always)]
    pub(super) fn begin(
        &mut self,
        (place, strips): (Place, StripSet),
        (now, membership_epoch): (Nanos, u64),
    ) -> (&mut Read, &mut [Strip]) {
        let number = self.free.pop().expect("there is a place");
        let read = &mut self.places[number as usize];
        read.generation = next_generation(read.generation);
        (read.live, read.failed) = (true, false);
        (read.place, read.strips, read.since, read.membership_epoch) =
            (place, strips, now, membership_epoch);
        (read, of_place(&mut self.strips, self.strips_each, number))
    }

    /// A read under way, and its strips.
    #[inline]
    pub(super) fn get(&mut self, number: u32) -> (&mut Read, &mut [Strip]) {
        let read = &mut self.places[number as usize];
        assert!(read.live, "a recovered read outlives its I/Os");
        (read, of_place(&mut self.strips, self.strips_each, number))
    }

    /// Frees the place. Its buffers were released already.
    #[inline]
    pub(super) fn end(&mut self, number: u32) {
        let (read, strips) = self.get(number);
        debug_assert!(strips.iter().all(|strip| strip.data.is_empty()), "they were given back");
        read.live = false;
        self.free.push(number);
    }

    /// A read with nothing outstanding.
    #[inline]
    pub(super) fn next_due(&mut self) -> Option<u32> {
        self.due.pop()
    }

    /// A part came back by its own token.
    #[inline]
    pub(crate) fn part_back(&mut self, part: PartBack<'_>) -> PartTaken {
        let (io, generation) = (part.io, part.generation);
        if let Some(slot) = self.strays.take_promoted(part.done.token) {
            return PartTaken::Promoted(slot);
        }
        let read = &mut self.places[io.number as usize];
        let mine =
            read.live && read.generation == generation && read.out.unpromoted().contains(io.part);
        assert!(mine, "a device completed an I/O twice");
        let strips = of_place(&mut self.strips, self.strips_each, io.number);
        let strip = &mut strips[usize::from(io.part)];
        if let Some(failed) = part.failed(strip.member, read.membership_epoch) {
            read.failed = true;
            self.strays.fail(io, failed);
        }
        if let Op::Read { data, .. } = &mut part.done.op {
            // Nothing is assembled on the way that was just written: see decision 13.
            std::mem::swap(&mut strip.data, data);
        }
        let since = read.since;
        if read.out.back(io.part) {
            self.due.push(io.number);
        }
        PartTaken::Here(since)
    }

    /// A part that is an ordinary I/O is no longer waited for. The caller deals with its member.
    pub(crate) fn passed(&mut self, io: PartIo) {
        let (read, _) = self.get(io.number);
        read.failed = true;
        if read.out.back(io.part) {
            self.due.push(io.number);
        }
    }

    /// As [`Strays::failed`].
    pub(in crate::shard) fn failed(&self) -> impl Iterator<Item = Failed> + '_ {
        self.strays.failed()
    }

    /// The parts of `number` that failed, and how.
    pub(super) fn take_failures(&mut self, number: u32) -> impl Iterator<Item = (u8, Failed)> + '_ {
        self.strays.take_failed(number)
    }

    /// A part that is an ordinary I/O came back.
    pub(crate) fn back(&mut self, io: PartIo, op: Op, failed: Option<Failed>) {
        let (read, strips) = self.get(io.number);
        if let Op::Read { data, .. } = op {
            strips[usize::from(io.part)].data = data;
        }
        read.failed |= failed.is_some();
        if read.out.back(io.part) {
            self.due.push(io.number);
        }
        failed.into_iter().for_each(|failed| self.strays.fail(io, failed));
    }

    /// Makes ordinary I/Os of parts that take long.
    pub(super) fn promote(&mut self, now: Nanos, members: &mut Members) {
        for read in &mut self.places {
            let unplaced = read.out.unpromoted();
            if !read.live || unplaced.is_empty() || now.since(read.since) < TIMEOUT_CHECK {
                continue;
            }
            let strips = of_place(&mut self.strips, self.strips_each, read.number);
            for (part, strip) in (0u8..).zip(strips).filter(|(part, _)| unplaced.contains(part)) {
                let io = PartIo { whole: Whole::Read, number: read.number, part };
                let (since, issued) = (read.since, read.membership_epoch);
                let what = Unplaced { member: strip.member, since, issued };
                self.strays.promote(members.promote_part(now, (io, read.generation), what, true));
            }
            read.out.promote();
        }
    }

    /// Users' reads that are under way or wait, when the shard ends.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = DirectRead> + '_ {
        let live = self.places.iter().filter(|read| read.live).map(|read| &read.wanted);
        live.chain(&self.waiting).filter_map(|wanted| match wanted.reader {
            Reader::User(read) => Some(read),
            Reader::Span(_) => None,
        })
    }
}

/// The strips of a place.
#[inline]
fn of_place(strips: &mut [Strip], each: usize, number: u32) -> &mut [Strip] {
    let first = number as usize * each;
    &mut strips[first..first + each]
}
