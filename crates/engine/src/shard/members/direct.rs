//! Clean reads of one strip on their way to a member and back, as little as there has to be of each.
//!
//! One that takes long is *promoted*: it becomes an ordinary I/O of an ordinary request, which knows what to do about
//! slow members. So does one that fails.

use strake_block::{Io, Op, SgMut, Token};
use strake_units::{Lba, LbaRange, MemberIndex, Nanos};

use super::token::{self, Named};
use super::{Inflight, Members, Waiter};
use crate::limits::{MEMBER_DEPTH, TIMEOUT_CHECK};
use crate::pacing::Came;

/// Not promoted.
const ORDINARY: u32 = u32::MAX;

/// Where a direct read came from and what is to be known of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DirectRead {
    /// The user's token.
    pub(crate) token: Token,
    /// The first block, in the array.
    pub(crate) at: Lba,
    /// When it was taken in, which is when it was issued.
    pub(crate) since: Nanos,
    /// [`Members::membership_epoch`] at that time.
    pub(crate) issued: u64,
    pub(crate) bytes: u32,
    pub(crate) port: u16,
    pub(crate) member: MemberIndex,
    /// What was going on.
    pub(crate) came: Came,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    read: DirectRead,
    generation: u32,
    /// The I/O it was made.
    promoted: u32,
    live: bool,
}

/// An I/O that is noted somewhere else than among those in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unplaced {
    pub(crate) member: MemberIndex,
    /// When it was issued.
    pub(crate) since: Nanos,
    /// [`Members::membership_epoch`] at that time.
    pub(crate) issued: u64,
}

/// The table of them.
pub(super) struct Direct {
    places: Box<[Place]>,
    free: Vec<u32>,
    generation: u32,
}

/// A direct read that came back.
pub(super) enum Back<'a> {
    /// As it left.
    Read(&'a DirectRead),
    /// As the I/O it was made.
    Promoted(u32),
}

impl Direct {
    /// Room for `requests` of them.
    pub(super) fn new(requests: usize) -> Self {
        let free = (0..requests as u32).rev().collect();
        Self { places: vec![Place::default(); requests].into(), free, generation: 0 }
    }

    /// How many devices have, promoted or not.
    pub(super) fn live(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes one back from its device.
    #[inline]
    pub(super) fn take(&mut self, at: u32, generation: u32) -> Back<'_> {
        let place = &mut self.places[at as usize];
        assert!(place.live && place.generation == generation, "a device completed a read twice");
        place.live = false;
        self.free.push(at);
        match place.promoted {
            ORDINARY => Back::Read(&place.read),
            slot => Back::Promoted(slot),
        }
    }
}

impl Members {
    /// Sends `read`, whose `at` in the data area of its member is `lba`; hands the buffer back when the member takes
    /// no more now.
    #[inline]
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
        let Some(at) = self.direct.free.pop() else { return Err(data) };
        self.direct.generation = token::next(self.direct.generation);
        let generation = self.direct.generation;
        let token = Named::Direct { place: at, generation }.token();
        let lba = place.area.lba(lba, self.block_size);
        if let Err(Io { op, .. }) = queue.submit_read(token, lba, data) {
            self.direct.free.push(at);
            let Op::Read { data, .. } = op else { unreachable!("a read returns as one") };
            return Err(data);
        }
        place.outstanding += 1;
        self.unrung.insert(read.member);
        let place = &mut self.direct.places[at as usize];
        place.read = DirectRead { issued: self.membership_epoch, ..read };
        place.generation = generation;
        place.promoted = ORDINARY;
        place.live = true;
        Ok(())
    }

    /// Makes direct reads that take long ordinary I/Os of the requests that `request` makes of them.
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

    /// Makes an ordinary I/O of one without a place.
    pub(super) fn promote(
        &mut self,
        now: Nanos,
        waiter: Waiter,
        what: Unplaced,
        read: bool,
    ) -> u32 {
        let Unplaced { member, since, issued } = what;
        self.generation = token::next(self.generation);
        // Whatever the clock said when it was issued: it was not yet this old at the last look but one.
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

    /// Every direct read that is out, when the shard ends.
    pub(crate) fn abandon_direct(&mut self) -> impl Iterator<Item = DirectRead> + '_ {
        let ordinary = |place: &&mut Place| place.live && place.promoted == ORDINARY;
        self.direct.places.iter_mut().filter(ordinary).map(|place| {
            place.live = false;
            place.read
        })
    }
}
