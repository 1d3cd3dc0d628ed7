//! Reads that go straight to their member and back: of one strip in one band, of a member that is in sync, with
//! nothing bad about it. They take no task, no span and no request; whatever is out of the ordinary makes an ordinary
//! request of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use strake_block::{CompletionBatch, IoError, Op, SgMut, Token};
use strake_raid::{Access, Single, single};
use strake_units::{Lba, Nanos};

use super::Shard;
use super::degraded_reads::DegradedReads;
use super::members::{DirectRead, Failed, HostRead, PartBack, PartIo, PartTaken, Takers, Whole};
use super::requests::Requests;
use super::small::Smalls;
use crate::array::Waker;
use crate::port::{Near, Port};
use crate::queue::ArrayQueue;
use crate::shared_status::SharedStatus;

impl Shard {
    /// True for the shard of number `core` of the array with this shared status.
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

    /// Sends a read straight to its member, or hands the buffer back when that cannot be.
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
        let Some(range) = self.geometry.range(at, bytes).filter(|_| requests.may_go_directly())
        else {
            return Err(data);
        };
        let Some(spot) = self.geometry.spot(range) else { return Err(data) };
        let sets = self.without_bad(self.sets.get(), &spot).untrusted();
        let Some(Single::Read { members: copies }) =
            single(&self.geometry, &spot, Access::Read, &sets)
        else {
            drop(requests);
            return self.recover_directly((port, token), range, &spot, data);
        };
        let mut members = self.members.borrow_mut();
        let Some(member) = self.of_copies(&members, copies.iter()) else { return Err(data) };
        let read = DirectRead {
            token,
            at,
            since: self.now.get(),
            issued: 0,
            bytes: bytes as u32,
            port,
            member,
            came: requests.came(),
        };
        members.read_directly(read, spot.member_lba(), data)?;
        requests.went_directly(port, bytes);
        Ok(())
    }

    /// Makes what was sent directly visible to the members.
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

    /// Makes direct reads that take long ordinary ones, which know what to do.
    pub(crate) fn promote_direct(&self, now: Nanos) {
        let mut requests = self.requests.borrow_mut();
        self.members.borrow_mut().promote_direct(now, |read| requests.make_ordinary(read));
    }
}

/// Takes what comes back from members without a task that waits for it.
struct Home<'a> {
    /// Who knows where bad blocks are; `None` when there are none.
    shard: Option<&'a Shard>,
    requests: &'a mut Requests,
    smalls: &'a mut Smalls,
    degraded_reads: &'a mut DegradedReads,
    host_reads: &'a mut VecDeque<HostRead>,
}

impl Takers for Home<'_> {
    #[inline]
    fn direct(&mut self, read: &DirectRead, data: SgMut, result: Result<(), IoError>) {
        // Data that were given up while the read was under way may have come as the zeroes in their place.
        let clean = self.shard.is_none_or(|shard| {
            let place = shard.geometry.place(read.at);
            !shard.is_bad_band(place.stripe, place.offset)
        });
        if clean && result.is_ok() && data.len() == read.bytes as usize {
            self.requests.answer_direct(read, data);
            return;
        }
        let (request, range) = self.requests.make_ordinary(read);
        let DirectRead { member, issued, .. } = *read;
        let data = Some(data);
        self.host_reads.push_back(HostRead {
            request,
            member,
            range,
            data,
            result,
            slow: false,
            issued,
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
