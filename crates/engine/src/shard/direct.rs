//! Direct reads: reads of one strip in one band, from a member in sync without bad blocks there. Direct reads need no
//! task, no span and no request. In all other cases, a direct read becomes an ordinary request.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use strake_block::{CompletionBatch, Io, IoError, Op, SgMut, Token};
use strake_raid::{Access, Single, Spot, single};
use strake_units::{Lba, LbaRange, Nanos};

use super::Shard;
use super::degraded_reads::DegradedReads;
use super::members::{
    DirectRead, Failed, HostRead, Members, PartBack, PartIo, PartTaken, Takers, Whole,
};
use super::requests::Requests;
use super::small::Smalls;
use crate::array::Waker;
use crate::pacing::Came;
use crate::port::{Near, Port};
use crate::queue::ArrayQueue;
use crate::shared_status::SharedStatus;

impl Shard {
    /// True if this is shard `core` of the array with this shared status.
    pub(crate) fn is_of(&self, shared: &Arc<SharedStatus>, core: usize) -> bool {
        Arc::ptr_eq(&self.shared, shared) && usize::from(self.core) == core
    }

    /// Opens a queue for a user on this thread.
    pub(crate) fn open_port(self: &Rc<Self>, depth: u32, wake: Waker) -> ArrayQueue {
        let near = Rc::new(Near {
            requests: RefCell::new(VecDeque::with_capacity(depth as usize)),
            replies: RefCell::new(CompletionBatch::new(depth as usize)),
            gone: Cell::new(false),
        });
        let port = self.requests.borrow_mut().connect(Port::Near(Rc::clone(&near)));
        ArrayQueue::near(near, self, port as u16, depth, wake)
    }

    /// Sends a read directly to its member, or returns the buffer if this is not possible.
    #[inline]
    pub(crate) fn read_directly(
        &self,
        port: u16,
        token: Token,
        at: Lba,
        data: SgMut,
    ) -> Result<(), SgMut> {
        let bytes = data.len();
        let mut requests = self.requests.borrow_mut();
        let range = self.geometry.range(at, bytes);
        let spot = range.filter(|_| requests.room_for_direct() > 0);
        let Some(spot) = spot.and_then(|range| self.geometry.spot(range)) else { return Err(data) };
        let mut members = self.members.borrow_mut();
        match send_read(self, &mut members, (port, requests.came()), (token, at), &spot, data) {
            Ok(()) => {
                requests.went_directly(port, 1, bytes);
                Ok(())
            }
            Err(data) => {
                drop((requests, members));
                self.recover_directly(
                    (port, token),
                    LbaRange::new(at, spot.blocks.into()),
                    &spot,
                    data,
                )
            }
        }
    }

    /// Rings the doorbells for direct I/Os.
    pub(crate) fn ring(&self, now: Nanos) {
        self.members.borrow_mut().ring_direct(now);
    }

    /// Collects completions from the members, and answers direct reads.
    pub(crate) fn collect(&self, now: Nanos, host_reads: &mut VecDeque<HostRead>) -> usize {
        let mut home = Home {
            shard: (!self.no_bad_blocks()).then_some(self),
            requests: &mut self.requests.borrow_mut(),
            smalls: &mut self.smalls.borrow_mut(),
            degraded_reads: &mut self.degraded_reads.borrow_mut(),
            host_reads,
        };
        let seen = self.members.borrow_mut().poll(now, &self.scheduler, &mut home);
        home.requests.count_alike();
        seen
    }

    /// Promotes slow direct reads to ordinary requests, which handle slow members.
    pub(crate) fn promote_direct(&self, now: Nanos) {
        let mut requests = self.requests.borrow_mut();
        self.members.borrow_mut().promote_direct(now, |read| requests.make_ordinary(read));
    }
}

/// Sends at most `most` reads from the front of `batch` directly to their members, up to the first request that cannot
/// be a direct read. Returns their number.
#[inline]
pub(crate) fn read_batch(shard: &Shard, port: u16, batch: &mut VecDeque<Io>, most: u32) -> u32 {
    let mut requests = shard.requests.borrow_mut();
    let mut members = shard.members.borrow_mut();
    let most = requests.room_for_direct().min(most as usize);
    let user = (port, requests.came());
    let (mut count, mut sum) = (0, 0);
    for Io { token, op } in batch.as_mut_slices().0.iter_mut().take(most) {
        let Op::Read { at, data } = op else { break };
        let bytes = data.len();
        let spot = shard.geometry.range(*at, bytes).and_then(|range| shard.geometry.spot(range));
        let Some(spot) = spot else { break };
        let taken = std::mem::take(data);
        if let Err(back) = send_read(shard, &mut members, user, (*token, *at), &spot, taken) {
            *data = back;
            break;
        }
        (count, sum) = (count + 1, sum + bytes);
    }
    batch.drain(..count);
    requests.went_directly(port, count as u32, sum);
    count as u32
}

/// Sends a read of `spot` directly to its member if this is possible, and returns the buffer otherwise.
#[inline(always)]
fn send_read(
    shard: &Shard,
    members: &mut Members,
    (port, came): (u16, Came),
    (token, at): (Token, Lba),
    spot: &Spot,
    data: SgMut,
) -> Result<(), SgMut> {
    let sets = shard.without_bad(shard.sets.get(), spot).untrusted();
    let Some(Single::Read { members: copies }) = single(&shard.geometry, spot, Access::Read, &sets)
    else {
        return Err(data);
    };
    let Some(member) = shard.of_copies(members, copies.iter()) else { return Err(data) };
    let (since, bytes) = (shard.now.get(), data.len() as u32);
    let read = DirectRead { token, at, since, issued: 0, bytes, port, member, came };
    members.read_directly(read, spot.member_lba(), data)
}

/// Receives completions for which no task waits.
struct Home<'a> {
    /// The shard, for its list of bad blocks; `None` if the list is empty.
    shard: Option<&'a Shard>,
    requests: &'a mut Requests,
    smalls: &'a mut Smalls,
    degraded_reads: &'a mut DegradedReads,
    host_reads: &'a mut VecDeque<HostRead>,
}

impl Takers for Home<'_> {
    #[inline]
    fn alike(
        &mut self,
        first: &DirectRead,
        next: impl FnMut() -> Option<(Token, Lba, SgMut)>,
    ) -> Option<u32> {
        let (issued, member) = (first.since, first.member);
        self.shard.is_none().then(|| self.requests.answer_alike(first, (issued, member), next))
    }

    #[inline]
    fn direct(&mut self, read: &DirectRead, data: SgMut, result: Result<(), IoError>) {
        // If the data were abandoned during the read, the read may have returned the zeroes that replace them.
        let clean = self.shard.is_none_or(|shard| {
            let place = shard.geometry.place(read.at);
            !shard.is_bad_band(place.stripe, place.offset)
        });
        if clean && result.is_ok() && data.len() == read.bytes as usize {
            self.requests.answer_direct(read, data, (read.since, read.member));
            return;
        }
        let (request, range) = self.requests.make_ordinary(read);
        let DirectRead { member, issued, since, .. } = *read;
        let data = Some(data);
        self.host_reads.push_back(HostRead {
            request,
            member,
            range,
            data,
            result,
            slow: false,
            issued,
            started: Some(since),
        });
    }

    #[inline]
    fn part(&mut self, part: PartBack<'_>) -> PartTaken {
        match part.io.whole {
            Whole::Write => self.smalls.part_back(part),
            Whole::Read => self.degraded_reads.part_back(part),
        }
    }

    fn ordinary_part(&mut self, io: PartIo, op: Op, failed: Option<Failed>) {
        match io.whole {
            Whole::Write => self.smalls.back(io, Some(op), failed),
            Whole::Read => self.degraded_reads.back(io, op, failed),
        }
    }

    fn host_read(&mut self, read: HostRead) {
        self.host_reads.push_back(read);
    }
}
