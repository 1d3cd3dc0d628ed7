//! The table of degraded reads. Like the entries of small writes, its entries are allocated once and reused. [`Out`]
//! describes the states of a part in progress.
//!
//! Reads without an entry wait in order of arrival.

use std::collections::VecDeque;

use strake_block::{Op, SgMut};
use strake_raid::Place;
use strake_units::{Lba, LbaRange, MemberIndex, Nanos, PositionSet, StripSet, StripeIndex};

use super::Reader;
use crate::limits::TIMEOUT_CHECK;
use crate::message::Origin;
use crate::shard::members::{
    DirectRead, Failed, Members, Out, Part, PartBack, PartIo, PartTaken, Strays, Unplaced, Whole,
    next_generation,
};

/// A wanted degraded read. The read holds its band.
pub(super) struct Wanted {
    pub(super) reader: Reader,
    /// The entry of the band.
    pub(super) entry: u32,
    pub(super) range: LbaRange,
    /// Slow positions of the stripe on the core of the sender.
    pub(super) avoid: PositionSet,
    /// The buffer of the user. Only reconstructed data are written to this buffer.
    pub(super) data: SgMut,
}

/// A degraded read that is in progress.
pub(super) struct Read {
    number: u32,
    /// Counts the reads of this entry. A completion with another generation belongs to an earlier read.
    generation: u32,
    live: bool,
    /// True if parts have failed, or are slow.
    pub(super) failed: bool,
    pub(super) out: Out,
    /// Start of the read, as a time and as a value of [`Members::membership_epoch`].
    pub(super) since: Nanos,
    /// The part that completed last.
    pub(super) last: u8,
    pub(super) membership_epoch: u64,
    pub(super) place: Place,
    /// The strips to read. They are the parts, in this order.
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
            last: 0,
            membership_epoch: 0,
            place: Place { stripe: StripeIndex(0), strip: 0, offset: 0 },
            strips: StripSet::EMPTY,
            wanted: Wanted {
                reader: Reader::Span(Origin::Maintenance, Nanos(0)),
                entry: 0,
                range: LbaRange::new(Lba(0), 0),
                avoid: PositionSet::EMPTY,
                data: SgMut::default(),
            },
        }
    }

    /// Returns a part that reads from `at` in the data area of its member.
    #[inline]
    pub(super) fn part(&self, part: u8, member: MemberIndex, at: Lba) -> Part {
        let io = PartIo { whole: Whole::Read, number: self.number, part };
        Part { io, generation: self.generation, member, at }
    }
}

/// A strip that a degraded read reads.
#[derive(Default)]
pub(super) struct Strip {
    pub(super) member: MemberIndex,
    /// The content, in one buffer.
    pub(super) data: SgMut,
}

/// The table of degraded reads.
pub(crate) struct DegradedReads {
    places: Box<[Read]>,
    free: Vec<u32>,
    /// Strips of all entries; each entry has as many strips as a reconstruction needs.
    strips: Box<[Strip]>,
    strips_each: usize,
    /// Reads without outstanding parts.
    due: Vec<u32>,
    waiting: VecDeque<Wanted>,
    waiting_max: usize,
    strays: Strays,
}

impl DegradedReads {
    /// Creates a table for stripes with `data_strips` data strips, `reads` concurrent reads and `waiting` waiting
    /// reads.
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

    /// True if the table can accept another read, which may have to wait.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < self.waiting_max
    }

    /// True if another read can start.
    #[inline]
    pub(super) fn has_place(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns the number of reads in progress.
    #[inline]
    pub(super) fn under_way(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Appends a read to the waiting reads.
    #[inline]
    pub(super) fn enqueue(&mut self, wanted: Wanted) {
        self.waiting.push_back(wanted);
    }

    /// Returns the read that has waited longest.
    #[inline]
    pub(super) fn front(&self) -> Option<&Wanted> {
        self.waiting.front()
    }

    /// Removes and returns the read that has waited longest.
    #[inline]
    pub(super) fn take_front(&mut self) -> Wanted {
        self.waiting.pop_front().expect("one waits")
    }

    /// Allocates an entry for a read. The caller then stores the wanted read.
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

    /// Returns a read in progress, and its strips.
    #[inline]
    pub(super) fn get(&mut self, number: u32) -> (&mut Read, &mut [Strip]) {
        let read = &mut self.places[number as usize];
        assert!(read.live, "a recovered read outlives its I/Os");
        (read, of_place(&mut self.strips, self.strips_each, number))
    }

    /// Frees the entry. Its buffers were already released.
    #[inline]
    pub(super) fn end(&mut self, number: u32) {
        let (read, strips) = self.get(number);
        debug_assert!(strips.iter().all(|strip| strip.data.is_empty()), "they were given back");
        read.live = false;
        self.free.push(number);
    }

    /// Returns a read without outstanding parts.
    #[inline]
    pub(super) fn next_due(&mut self) -> Option<u32> {
        self.due.pop()
    }

    /// Handles a part that completed with its own token.
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
        if let Some(failed) = part.failed(|| strip.member, read.membership_epoch) {
            read.failed = true;
            self.strays.fail(io, failed);
        }
        if let Op::Read { data, .. } = &mut part.done.op {
            // The swap avoids a copy of recently written memory, see decision 13.
            std::mem::swap(&mut strip.data, data);
        }
        let since = read.since;
        if read.out.back(io.part) {
            read.last = io.part;
            self.due.push(io.number);
        }
        PartTaken::Here(since)
    }

    /// Stops waiting for a part that is an ordinary I/O. The caller handles the member.
    pub(crate) fn passed(&mut self, io: PartIo) {
        let (read, _) = self.get(io.number);
        read.failed = true;
        if read.out.back(io.part) {
            read.last = io.part;
            self.due.push(io.number);
        }
    }

    /// As [`Strays::failed`].
    pub(in crate::shard) fn failed(&self) -> impl Iterator<Item = Failed> + '_ {
        self.strays.failed()
    }

    /// Removes and returns the failed parts of `number` with their errors.
    pub(super) fn take_failures(&mut self, number: u32) -> impl Iterator<Item = (u8, Failed)> + '_ {
        self.strays.take_failed(number)
    }

    /// Handles the completion of a part that is an ordinary I/O.
    pub(crate) fn back(&mut self, io: PartIo, op: Op, failed: Option<Failed>) {
        let (read, strips) = self.get(io.number);
        if let Op::Read { data, .. } = op {
            strips[usize::from(io.part)].data = data;
        }
        read.failed |= failed.is_some();
        if read.out.back(io.part) {
            read.last = io.part;
            self.due.push(io.number);
        }
        failed.into_iter().for_each(|failed| self.strays.fail(io, failed));
    }

    /// Promotes slow parts to ordinary I/Os.
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

    /// Returns the reads of users that are in progress or waiting when the shard ends.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = DirectRead> + '_ {
        let live = self.places.iter().filter(|read| read.live).map(|read| &read.wanted);
        live.chain(&self.waiting).filter_map(|wanted| match wanted.reader {
            Reader::User(read) => Some(read),
            Reader::Span(..) => None,
        })
    }
}

/// Returns the strips of an entry.
#[inline]
fn of_place(strips: &mut [Strip], each: usize, number: u32) -> &mut [Strip] {
    let first = number as usize * each;
    &mut strips[first..first + each]
}
