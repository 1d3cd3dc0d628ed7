//! Reads that go straight to their member and back: of one strip in one band, of a member that is in sync, with
//! nothing bad about it. They take no task, no span and no request; whatever is out of the ordinary makes an ordinary
//! request of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use strake_block::{CompletionBatch, IoError, SgMut, Token};
use strake_raid::{Role, Scheme};
use strake_units::{Lba, MemberIndex, Nanos};

use super::Shard;
use super::members::{DirectRead, HostRead};
use crate::array::Waker;
use crate::board::Board;
use crate::port::{Near, Port};
use crate::queue::ArrayQueue;

impl Shard {
    /// True for the shard of number `core` of the array with this board.
    pub(crate) fn is_of(&self, board: &Arc<Board>, core: usize) -> bool {
        Arc::ptr_eq(&self.board, board) && usize::from(self.core) == core
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
        let readable = self.readable.get();
        let mut requests = self.requests.borrow_mut();
        if readable == 0 || !requests.may_go_directly() {
            return Err(data);
        }
        let mut members = self.members.borrow_mut();
        let usable = |member: &MemberIndex| readable & 1 << member.0 != 0;
        let shift = self.geometry.block_size().shift();
        let blocks = (bytes >> shift) as u64;
        if blocks << shift != bytes as u64 || blocks == 0 || at.0 >= self.geometry.capacity_blocks()
        {
            return Err(data);
        }
        let place = self.geometry.place(at);
        // Of one band, since that is what can be made up from the rest of a stripe at a time.
        let band_blocks = u64::from(self.geometry.band_blocks());
        if (u64::from(place.offset) & (band_blocks - 1)) + blocks > band_blocks {
            return Err(data);
        }
        let member_of = |copy: u8| {
            let role = Role::Data { strip: place.strip, copy };
            self.geometry.member(place.stripe, self.geometry.position(place.stripe, role))
        };
        let member = match self.geometry.scheme() {
            Scheme::Parity(_) | Scheme::Copies(1) => Some(member_of(0)).filter(usable),
            Scheme::Copies(copies) => {
                self.of_copies(&members, (0..copies).map(member_of).filter(usable))
            }
        };
        let Some(member) = member else { return Err(data) };
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
        members.read_directly(read, self.geometry.member_lba(place.stripe, place.offset), data)?;
        requests.went_directly(port, bytes);
        Ok(())
    }

    /// Notes which members may be read directly until the next turn: between two turns nothing changes that.
    pub(crate) fn note_readable(&self) {
        let agree = self.geometry.copies() == 1 || !self.copies_may_differ.get();
        let readable = if agree && self.no_bad_blocks() {
            self.members.borrow().readable() & !self.sits.borrow().mask()
        } else {
            0
        };
        self.readable.set(readable);
    }

    /// Makes what was sent directly visible to the members.
    pub(crate) fn ring(&self, now: Nanos) {
        self.members.borrow_mut().ring_direct(now);
    }

    /// Collects completions from the members, and answers direct reads.
    pub(crate) fn collect(&self, now: Nanos, host_reads: &mut VecDeque<HostRead>) -> usize {
        let clean = self.no_bad_blocks();
        let mut requests = self.requests.borrow_mut();
        let mut smalls = self.smalls.borrow_mut();
        let small = |io, op, failed| smalls.back(io, Some(op), failed);
        let direct = |read: &DirectRead, data: SgMut, result: Result<(), IoError>| {
            if clean && result.is_ok() && data.len() == read.bytes as usize {
                requests.answer_direct(read, data);
                return None;
            }
            let (request, range) = requests.make_ordinary(read);
            let DirectRead { member, issued, .. } = *read;
            Some(HostRead { request, member, range, data: Some(data), result, slow: false, issued })
        };
        let mut members = self.members.borrow_mut();
        let seen = members.poll(now, &self.scheduler, host_reads, direct, small);
        requests.count_alike();
        seen
    }

    /// Makes direct reads that take long ordinary ones, which know what to do.
    pub(crate) fn promote_direct(&self, now: Nanos) {
        let mut requests = self.requests.borrow_mut();
        self.members.borrow_mut().promote_direct(now, |read| requests.make_ordinary(read));
    }
}
