//! Distribution of host requests: normal reads directly to their members, all other requests to the owner of the band.

use strake_block::{BufMut, IoError, IoErrorKind, Op, SgMut};
use strake_raid::{Access, Band, Piece, Sets, Single, hull, single};
use strake_units::{Lba, LbaRange, MemberIndex, PositionSet};

use super::execute::Failed;
use super::members::{Failure, HostRead, Members, settled};
use super::requests::Body;
use super::{Job, Shard, band_task};
use crate::limits::{MAILBOX_DEPTH, SPANS_PER_WRITE, STALLS_PER_TURN};
use crate::message::{Origin, Peer, Span, Work};
use crate::trace::{Stage, Stages};

/// Kinds of requests.
enum What {
    Read,
    Write,
    Flush,
}

/// A request could not be handed out completely, because a table or queue is full.
struct Stalled;

impl Shard {
    /// Hands out waiting requests as far as there is room. Returns the number of requests that were handed out
    /// completely.
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
        // A request that is blocked moves behind the next request, so that a large request does not delay other
        // requests for long.
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
            // The loop handles one stripe at a time. A stripe has few bands, so the loop can skip bands that were
            // handed out.
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
                    let (band, origin) = (piece.band, self.origin(request));
                    self.send_to_owner(Span { band, work, origin });
                }
            }
        }
    }

    /// Returns the member from which a piece can be read without its owner.
    fn clean_member(&self, piece: &Piece, sets: Sets) -> Option<MemberIndex> {
        let spot =
            self.geometry.spot(LbaRange::new(piece.segment.lba, piece.segment.blocks.into()))?;
        let window = hull(std::slice::from_ref(&piece.segment));
        let sets = match self.geometry.copies() {
            1 => sets.bad(spot.members_at(self.bad_positions(piece.band, window))),
            // If a copy has bad blocks, other copies may differ from it.
            _ => self.without_bad(sets, &spot),
        };
        let Single::Read { members: copies } = single(&self.geometry, &spot, Access::Read, &sets)?
        else {
            return None;
        };
        let passes = |member: &MemberIndex| !self.sits.borrow_mut().passes(*member);
        self.of_copies(&self.members.borrow(), copies.iter().filter(passes))
    }

    /// Selects the member to read among the members with copies.
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

    /// Returns the positions in the stripe of the band whose members are avoided by reads, or have slow reads.
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

    /// Number of I/Os that are reserved for band tasks. Host reads do not use them.
    fn reserved_for_tasks(&self) -> usize {
        self.task_ios
    }

    /// True if there is room for a span of `band`, here or at its owner. The room for spans from other shards is
    /// reserved.
    #[inline(always)]
    pub(crate) fn has_room_for(&self, band: Band) -> bool {
        let owner = self.owner(band);
        if owner == self.core {
            self.bands.borrow().room() > usize::from(self.cores) * MAILBOX_DEPTH
        } else {
            self.remote_spans.borrow()[usize::from(owner)] < MAILBOX_DEPTH
        }
    }

    /// Hands out the span of a write in `band`.
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
            self.bands.borrow_mut().enqueue(span, self.now.get());
        } else {
            self.remote_spans.borrow_mut()[usize::from(owner)] += 1;
            self.post(owner, Peer::Span(span));
        }
    }

    /// Handles a completed normal read: answers it, or lets the owner reconstruct the data from the rest of the stripe
    /// as soon as there is room. A whole queue of reads may fail at the same time.
    pub(crate) fn host_read_back(&self, read: HostRead) {
        let HostRead { request, member, range, data, result, slow, issued, started } = read;
        let now = self.now.get();
        let took = now.since(started.unwrap_or(now));
        let stages = Stages::NONE.with(Stage::Read, took, Some(member));
        if result.is_ok() && self.no_bad_blocks() {
            self.requests.borrow_mut().span_back(request, Ok(()), data, &stages);
            return;
        }
        let piece = self.geometry.pieces(range).next().expect("a read has a piece");
        let window = hull(std::slice::from_ref(&piece.segment));
        // If the data were abandoned during the read, the read may have returned the zeroes that replace them.
        let given_up = self.is_given_up(piece.band, piece.segment.strip, window);
        if result.is_ok() && !given_up {
            self.requests.borrow_mut().span_back(request, Ok(()), data, &stages);
            return;
        }
        self.requests.borrow_mut().retries(request, took, Some(member));
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
    let begun = shard.now.get();
    let failed = flush_members(shard, group).await;
    let last = band_task::last_member(shard, group);
    shard.members.borrow_mut().groups.close(group);
    let result = shard.expel(failed).await;
    let stages = Stages::NONE.with(Stage::Flush, shard.now.get().since(begun), last);
    shard.requests.borrow_mut().span_back(request, result, None, &stages);
}

/// Members that failed, with their failures.
pub(crate) type FailedMembers = arrayvec::ArrayVec<(MemberIndex, Failure), 64>;

/// Flushes the members that need a flush. A member that fails its flush may lose data that should be stable, so the
/// caller must put the member out of use before it relies on the flush.
pub(crate) async fn flush_members(shard: &Shard, group: super::members::Group) -> FailedMembers {
    let flushes = begin_flush(shard, group);
    settled(&shard.members, group).await;
    end_flush(shard, flushes)
}

/// Flushes in progress, one for each member that needs a flush.
pub(crate) type Flushes = arrayvec::ArrayVec<super::members::IoSlot, 64>;

/// Starts flushes of the members that need a flush, in `group`.
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

/// Returns the members whose flush failed, after the group has settled.
pub(crate) fn end_flush(shard: &Shard, flushes: Flushes) -> FailedMembers {
    let mut members = shard.members.borrow_mut();
    flushes
        .into_iter()
        .filter_map(|slot| members.take(slot).1.err().map(|failure| (failure.place, failure)))
        .collect()
}

impl Shard {
    /// Reports members that failed and waits until they are out of use everywhere. The label task must not call this
    /// function, because it puts members out of use itself.
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
