//! Direct reads: normal reads of one strip with minimal state.
//!
//! A slow direct read is *promoted*: it becomes an ordinary I/O of an ordinary request, which handles slow members. A
//! failed direct read is promoted too.

use std::slice::IterMut;

use strake_block::{Completion, Io, Op, SgMut, Token};
use strake_units::{Lba, LbaRange, MemberIndex, Nanos};

use super::back::take_data;
use super::token::{self, Named};
use super::{Inflight, Members, Waiter};
use crate::limits::{MEMBER_DEPTH, TIMEOUT_CHECK};
use crate::pacing::Came;

/// Marks a read that is not promoted.
const ORDINARY: u32 = u32::MAX;

/// The origin and the properties of a direct read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DirectRead {
    /// The user's token.
    pub(crate) token: Token,
    /// The first block in the array.
    pub(crate) at: Lba,
    /// The time at which the read was accepted and issued.
    pub(crate) since: Nanos,
    /// [`Members::membership_epoch`] at that time.
    pub(crate) issued: u64,
    pub(crate) bytes: u32,
    pub(crate) port: u16,
    pub(crate) member: MemberIndex,
    /// The state of maintenance.
    pub(crate) came: Came,
}

impl DirectRead {
    /// True if `other` has the same user and the same accounting.
    #[inline]
    fn is_like(&self, other: &Self) -> bool {
        (self.since, self.bytes, self.port, self.came)
            == (other.since, other.bytes, other.port, other.came)
    }
}

/// An entry, which is one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Place {
    read: DirectRead,
    /// Counts the reads of this entry.
    generation: u32,
    /// The ordinary I/O of a promoted read. In a free entry, the next free entry, which is never [`ORDINARY`].
    promoted: u32,
    live: bool,
}

const _: () = assert!(size_of::<Place>() == 64, "a direct read takes one cache line");

/// An I/O without an entry in the table of ordinary I/Os.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unplaced {
    pub(crate) member: MemberIndex,
    /// The time at which the I/O was issued.
    pub(crate) since: Nanos,
    /// [`Members::membership_epoch`] at that time.
    pub(crate) issued: u64,
}

/// The table of direct reads.
pub(super) struct Direct {
    places: Box<[Place]>,
    /// The first free entry. The list ends with an invalid index.
    free: u32,
    live: usize,
}

/// A completed direct read.
pub(super) enum Back<'a> {
    /// An unpromoted read.
    Read(&'a DirectRead),
    /// A promoted read, with its ordinary I/O.
    Promoted(u32),
}

impl Direct {
    /// Creates a table for `requests` reads.
    pub(super) fn new(requests: usize) -> Self {
        let place = |next| Place { promoted: next, ..Place::default() };
        Self { places: (1..=requests as u32).map(place).collect(), free: 0, live: 0 }
    }

    /// Returns the number of reads that devices have, promoted or not.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Takes a completed read.
    #[inline]
    pub(super) fn take(&mut self, at: u32, generation: u32) -> Back<'_> {
        let Place { generation: expected, promoted, live, .. } = self.places[at as usize];
        assert!(live && expected == generation, "a device completed a read twice");
        self.release(at);
        match promoted {
            ORDINARY => Back::Read(&self.places[at as usize].read),
            slot => Back::Promoted(slot),
        }
    }

    #[inline]
    fn release(&mut self, at: u32) {
        let place = &mut self.places[at as usize];
        place.generation = token::next(place.generation);
        (place.live, place.promoted) = (false, self.free);
        self.free = at;
        self.live -= 1;
    }

    /// Returns the read of `done` and its index, if `done` is an unpromoted direct read that completed successfully.
    #[inline]
    pub(super) fn sound(&self, done: &Completion) -> Option<(u32, &DirectRead)> {
        let Named::Direct { place: at, generation } = Named::of(done.token) else { return None };
        let place = &self.places[at as usize];
        let Op::Read { data, .. } = &done.op else { return None };
        let sound = place.promoted == ORDINARY
            && place.generation == generation
            && done.result.is_ok()
            && data.len() == place.read.bytes as usize;
        sound.then_some((at, &place.read))
    }

    /// Takes the successful read at index `at`, which is the next in `batch`.
    #[inline]
    pub(super) fn take_sound(
        &mut self,
        at: u32,
        batch: &mut IterMut<'_, Completion>,
    ) -> Option<(Token, Lba, SgMut)> {
        self.release(at);
        let DirectRead { token, at, .. } = self.places[at as usize].read;
        Some((token, at, take_data(batch.next()?)))
    }

    /// Returns the index of the next read in `batch`, if it is successful and like `first`.
    #[inline]
    pub(super) fn next_like(
        &self,
        first: &DirectRead,
        batch: &IterMut<'_, Completion>,
    ) -> Option<u32> {
        let (at, read) = self.sound(batch.as_slice().first()?)?;
        read.is_like(first).then_some(at)
    }
}

impl Members {
    /// Sends `read` at `lba` in the data area of its member. Returns the buffer if the member accepts no more I/Os now.
    #[inline(always)]
    pub(crate) fn read_directly(
        &mut self,
        read: DirectRead,
        lba: Lba,
        data: SgMut,
    ) -> Result<(), SgMut> {
        let place = &mut self.members[read.member.at()];
        if !place.backlog.is_empty() || place.outstanding >= MEMBER_DEPTH {
            return Err(data);
        }
        let Some(queue) = &mut place.queue else { return Err(data) };
        let at = self.direct.free;
        let Some(free) = self.direct.places.get_mut(at as usize) else { return Err(data) };
        let token = Named::Direct { place: at, generation: free.generation }.token();
        let lba = place.area.lba(lba, self.block_size);
        if let Err(Io { op, .. }) = queue.submit_read(token, lba, data) {
            let Op::Read { data, .. } = op else { unreachable!("a read returns as one") };
            return Err(data);
        }
        place.outstanding += 1;
        self.unrung.insert(read.member);
        self.direct.free = free.promoted;
        self.direct.live += 1;
        free.read = DirectRead { issued: self.membership_epoch, ..read };
        (free.promoted, free.live) = (ORDINARY, true);
        Ok(())
    }

    /// Promotes slow direct reads to ordinary I/Os of the requests that `request` creates.
    pub(crate) fn promote_direct(
        &mut self,
        now: Nanos,
        mut request: impl FnMut(&DirectRead) -> (u32, LbaRange),
    ) {
        for at in 0..self.direct.places.len() {
            let Place { read, promoted, live, .. } = self.direct.places[at];
            if !live || promoted != ORDINARY || now.since(read.since) < TIMEOUT_CHECK {
                continue;
            }
            let (request, range) = request(&read);
            let waiter = Waiter::Host { request, range };
            let what = Unplaced { member: read.member, since: read.since, issued: read.issued };
            let promoted = self.promote(now, waiter, what, true);
            self.direct.places[at].promoted = promoted;
        }
    }

    /// Promotes an I/O to an ordinary I/O.
    pub(super) fn promote(
        &mut self,
        now: Nanos,
        waiter: Waiter,
        what: Unplaced,
        read: bool,
    ) -> u32 {
        let Unplaced { member, since, issued } = what;
        self.generation = token::next(self.generation);
        // The issue time may be inexact, but at the check before the last one, the I/O was not yet overdue.
        let earliest = Nanos(now.0.saturating_sub(2 * TIMEOUT_CHECK.0));
        let gone = self.paired.changed_hands(member, issued);
        let hasty = read && waiter.is_hasty();
        self.inflight.insert(Inflight {
            waiter,
            member: if gone { self.paired.place() } else { member },
            asked: member,
            generation: self.generation,
            started: Some(since.max(earliest)),
            read,
            hasty,
            passed: false,
            issued,
            replacement: None,
            done: None,
        })
    }

    /// Returns every unpromoted direct read in progress when the shard ends.
    pub(crate) fn abandon_direct(&mut self) -> impl Iterator<Item = DirectRead> + '_ {
        let ordinary = |place: &&mut Place| place.live && place.promoted == ORDINARY;
        self.direct.places.iter_mut().filter(ordinary).map(|place| {
            place.live = false;
            place.read
        })
    }
}
