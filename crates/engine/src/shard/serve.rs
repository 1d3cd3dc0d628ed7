//! Handing out host requests: clean reads straight to their members, everything else to the band's owner.

use strake_block::{BufMut, IoError, IoErrorKind, Op, SgMut};
use strake_raid::{Access, Band, Piece, Sets, Single, hull, single};
use strake_units::{Lba, LbaRange, MemberIndex, PositionSet};

use super::execute::Failed;
use super::members::{Failure, HostRead, Members, settled};
use super::requests::Body;
use super::{Job, Shard};
use crate::limits::{MAILBOX_DEPTH, SPANS_PER_WRITE, STALLS_PER_TURN};
use crate::message::{Origin, Peer, Span, Work};

/// Kinds of requests, as they are handed out.
enum What {
    Read,
    Write,
    Flush,
}

/// A request could not be handed out completely: something is full.
struct Stalled;

impl Shard {
    /// Hands out as much of the waiting requests as there is room for. Returns how many were finished with.
    pub(crate) fn hand_out(&self) -> usize {
        let mut done = 0;
        while let Some(span) = { self.retries.borrow_mut().pop_front() } {
            if !self.has_room_for(span.band) {
                self.retries.borrow_mut().push_front(span);
                return done;
            }
            self.send_to_owner(span);
            done += 1;
        }
        // A request that cannot go on makes way for the next, so that a large one does not hold up others for long.
        let mut stalled = 0;
        let mut waiting = self.requests.borrow().splitting.len();
        while waiting > 0 && stalled < STALLS_PER_TURN {
            waiting -= 1;
            let Some(request) = self.requests.borrow_mut().splitting.pop_front() else { break };
            if self.hand_out_one(request).is_err() {
                self.requests.borrow_mut().splitting.push_back(request);
                stalled += 1;
                continue;
            }
            self.requests.borrow_mut().all_out(request);
            done += 1;
        }
        done
    }

    fn hand_out_one(&self, request: u32) -> Result<(), Stalled> {
        let (range, what) = {
            let mut requests = self.requests.borrow_mut();
            let request = requests.get(request);
            let what = match &request.body {
                Body::Read { .. } => What::Read,
                Body::Flush => What::Flush,
                Body::Write { .. } => What::Write,
            };
            (request.range, what)
        };
        match what {
            What::Read => self.hand_out_read(request, range),
            What::Flush => self.hand_out_flush(request),
            What::Write => self.hand_out_write(request, range),
        }
    }

    fn hand_out_flush(&self, request: u32) -> Result<(), Stalled> {
        self.requests.borrow_mut().span_out(request);
        self.jobs.borrow_mut().push_back(Job::Flush { request });
        Ok(())
    }

    fn hand_out_write(&self, request: u32, range: LbaRange) -> Result<(), Stalled> {
        let stripe_blocks = self.geometry.stripe_data_blocks();
        loop {
            let (next, bands_done) = {
                let mut requests = self.requests.borrow_mut();
                let place = requests.get(request);
                (place.next, place.bands_done)
            };
            if next >= range.end() {
                return Ok(());
            }
            // One stripe at a time: its bands are few, so skipping those already handed out is cheap.
            let stripe_end = (next.0 / stripe_blocks + 1) * stripe_blocks;
            let part = LbaRange::new(next, stripe_end.min(range.end().0) - next.0);
            for band in self.geometry.bands(part).skip(bands_done) {
                if self.requests.borrow_mut().get(request).outstanding() >= SPANS_PER_WRITE {
                    return Err(Stalled);
                }
                self.route(band, request)?;
                self.requests.borrow_mut().get(request).bands_done += 1;
            }
            let mut requests = self.requests.borrow_mut();
            let place = requests.get(request);
            place.next = part.end();
            place.bands_done = 0;
        }
    }

    fn hand_out_read(&self, request: u32, range: LbaRange) -> Result<(), Stalled> {
        let sets = self.sets().by_request();
        loop {
            let next = self.requests.borrow_mut().get(request).next;
            let rest = LbaRange::new(next, range.end().0 - next.0);
            let Some(piece) = self.geometry.pieces(rest).next() else { return Ok(()) };
            let bytes = (piece.segment.blocks as usize) << self.geometry.block_size().shift();
            let cut = |shard: &Self| {
                let mut requests = shard.requests.borrow_mut();
                requests.span_out(request);
                let place = requests.get(request);
                place.next = Lba(next.0 + u64::from(piece.segment.blocks));
                match &mut place.body {
                    Body::Read { data } => data.split_to(bytes),
                    Body::Write { .. } | Body::Flush => unreachable!("a read stays a read"),
                }
            };
            let part = LbaRange::new(next, u64::from(piece.segment.blocks));
            match self.clean_member(&piece, sets).filter(|_| !self.is_survivor(&piece, range)) {
                Some(member) => {
                    if self.members.borrow().room() <= self.reserved_for_tasks() {
                        return Err(Stalled);
                    }
                    let at = self.geometry.member_lba(piece.band.stripe, piece.segment.offset);
                    let data = cut(self);
                    let mut members = self.members.borrow_mut();
                    members.issue_host_read(self.now.get(), member, at, data, (request, part));
                }
                None => {
                    if !self.has_room_for(piece.band) {
                        return Err(Stalled);
                    }
                    let avoid = self.slow_positions(piece.band);
                    let unreadable = PositionSet::EMPTY;
                    let work = Work::Read { range: part, data: cut(self), unreadable, avoid };
                    self.send_to_owner(Span {
                        band: piece.band,
                        work,
                        origin: self.origin(request),
                    });
                }
            }
        }
    }

    /// The member a piece can be read from without asking its owner.
    fn clean_member(&self, piece: &Piece, sets: Sets) -> Option<MemberIndex> {
        let spot =
            self.geometry.spot(LbaRange::new(piece.segment.lba, piece.segment.blocks.into()))?;
        let window = hull(std::slice::from_ref(&piece.segment));
        let sets = match self.geometry.copies() {
            1 => sets.bad(spot.members_at(self.bad_positions(piece.band, window))),
            // Where a copy has bad blocks, others may differ from it.
            _ => self.without_bad(sets, &spot),
        };
        let Single::Read { members: copies } = single(&self.geometry, &spot, Access::Read, &sets)?
        else {
            return None;
        };
        let passes = |member: &MemberIndex| !self.sits.borrow_mut().passes(*member);
        self.of_copies(&self.members.borrow(), copies.iter().filter(passes))
    }

    /// Which of the members that hold the same is read.
    #[inline]
    pub(super) fn of_copies(
        &self,
        members: &Members,
        mut copies: impl Iterator<Item = MemberIndex>,
    ) -> Option<MemberIndex> {
        let first = copies.next()?;
        let less = |best, next| if members.load(next) < members.load(best) { next } else { best };
        Some(if self.steer { copies.fold(first, less) } else { first })
    }

    /// Positions of the band's stripe whose members sit out, or have not answered for long.
    pub(crate) fn slow_positions(&self, band: Band) -> PositionSet {
        let slow = self.sits.borrow().members() | self.members.borrow().lagging();
        if slow.is_empty() {
            return PositionSet::EMPTY;
        }
        self.geometry.positions_of_members(band.stripe, slow)
    }

    fn origin(&self, request: u32) -> Origin {
        Origin::Host { shard: self.core, request }
    }

    /// I/O places that band tasks may need; host reads leave them alone.
    fn reserved_for_tasks(&self) -> usize {
        self.task_ios
    }

    /// Room for a span of `band`, here or at its owner. Spans that others may send us keep their room.
    pub(crate) fn has_room_for(&self, band: Band) -> bool {
        let owner = self.owner(band);
        if owner == self.core {
            self.bands.borrow().room() > usize::from(self.cores) * MAILBOX_DEPTH
        } else {
            self.remote_spans.borrow()[usize::from(owner)] < MAILBOX_DEPTH
        }
    }

    /// Hands out what a write does to `band`.
    fn route(&self, band: Band, request: u32) -> Result<(), Stalled> {
        if !self.has_room_for(band) {
            return Err(Stalled);
        }
        let work = {
            let mut requests = self.requests.borrow_mut();
            requests.span_out(request);
            let request = requests.get(request);
            let Body::Write { fill, durability } = &request.body else {
                unreachable!("a write stays a write")
            };
            Work::Write { range: request.range, fill: fill.clone(), durability: *durability }
        };
        self.send_to_owner(Span { band, work, origin: self.origin(request) });
        Ok(())
    }

    fn send_to_owner(&self, span: Span) {
        let owner = self.owner(span.band);
        if owner == self.core {
            self.bands.borrow_mut().enqueue(span);
        } else {
            self.remote_spans.borrow_mut()[usize::from(owner)] += 1;
            self.post(owner, Peer::Span(span));
        }
    }

    /// A clean read came back: answer it, or let the owner make the data up from the rest of the stripe as soon as
    /// there is room for it (a whole queue of reads may fail at once).
    pub(crate) fn host_read_back(&self, read: HostRead) {
        let HostRead { request, member, range, data, result, slow, issued } = read;
        if result.is_ok() && self.no_bad_blocks() {
            self.requests.borrow_mut().span_back(request, Ok(()), data);
            return;
        }
        let piece = self.geometry.pieces(range).next().expect("a read has a piece");
        let window = hull(std::slice::from_ref(&piece.segment));
        // Data that were given up while the read was under way may have come as the zeroes in their place.
        let given_up = self.is_given_up(piece.band, piece.segment.strip, window);
        if result.is_ok() && !given_up {
            self.requests.borrow_mut().span_back(request, Ok(()), data);
            return;
        }
        let position = self
            .geometry
            .position_of_member(piece.band.stripe, member)
            .expect("read from this stripe");
        let former = self.members.borrow().left_since(member, issued);
        let failed = result.err().map_or_else(Failed::default, |error| {
            let failure = Failure { kind: error.kind, slow, former, place: member };
            self.classify(piece.band.stripe, position, failure)
        });
        let bytes = (range.blocks as usize) << self.geometry.block_size().shift();
        let data = data.unwrap_or_else(|| SgMut::from(BufMut::alone(bytes)));
        let avoid = failed.slow | self.slow_positions(piece.band);
        let work = Work::Read { range, data, unreadable: failed.medium, avoid };
        self.retries.borrow_mut().push_back(Span {
            band: piece.band,
            work,
            origin: self.origin(request),
        });
    }
}

/// Makes every completed write stable on every member.
pub(crate) async fn flush(shard: &Shard, request: u32) {
    let group = shard.open_group();
    let failed = flush_members(shard, group).await;
    shard.members.borrow_mut().groups.close(group);
    let result = shard.expel(failed).await;
    shard.requests.borrow_mut().span_back(request, result, None);
}

/// Members that failed something, and how.
pub(crate) type FailedMembers = arrayvec::ArrayVec<(MemberIndex, Failure), 64>;

/// Flushes the members that need it. What one that fails this has lost was promised to be stable, so the caller
/// sees to it that it is out of use before relying on the flush.
pub(crate) async fn flush_members(shard: &Shard, group: super::members::Group) -> FailedMembers {
    let flushes = begin_flush(shard, group);
    settled(&shard.members, group).await;
    end_flush(shard, flushes)
}

/// Flushes that were begun, one for each member that needs it.
pub(crate) type Flushes = arrayvec::ArrayVec<super::members::IoSlot, 64>;

/// Begins to flush the members that need it, in `group`.
pub(crate) fn begin_flush(shard: &Shard, group: super::members::Group) -> Flushes {
    let members = shard.members.borrow().to_flush();
    let mut flushes = Flushes::new();
    for member in members {
        let target = super::address::Target::Raw;
        let now = shard.now.get();
        flushes.push(shard.members.borrow_mut().issue(now, group, member, target, Op::Flush));
    }
    flushes
}

/// Who failed, of the flushes of a group that is settled.
pub(crate) fn end_flush(shard: &Shard, flushes: Flushes) -> FailedMembers {
    let mut members = shard.members.borrow_mut();
    flushes
        .into_iter()
        .filter_map(|slot| members.take(slot).1.err().map(|failure| (failure.place, failure)))
        .collect()
}

impl Shard {
    /// Reports members that failed and waits until they are out of use everywhere. Not for the task that writes
    /// labels: it is the one that puts members out of use.
    pub(crate) async fn expel(&self, failed: FailedMembers) -> Result<(), IoError> {
        let since = self.members.borrow().membership_epoch();
        for (member, failure) in &failed {
            self.blame(*member, *failure);
        }
        for (member, _) in failed.iter().filter(|(_, failure)| !failure.former) {
            self.await_member_out(*member, since).await?;
        }
        if self.shared.is_lost() { Err(IoError::new(IoErrorKind::Lost)) } else { Ok(()) }
    }
}
