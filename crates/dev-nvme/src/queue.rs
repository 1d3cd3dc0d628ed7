//! A queue: slots that own requests, and the rings that carry the requests while the controller has them.
//!
//! ```text
//!            +--> Ready <-- more of it is to be done, again, or the session ended and is fenced --+
//! submit ----+      |                                                                            |
//!            |      +--> Sent --completion--------------------------------------------------------+
//!            |                      |
//!            +--> Over <------------+  completed; or, after the fence, not sent again
//!                  |
//!                  +--> poll
//! ```
//! A command leaves `Sent` only by its completion or by the fence of its session.

pub(crate) mod data;
mod piece;
mod recovery;
mod rings;
mod slot;
mod whole;

use crate::error::{Reason, Verdict, verdict};
use crate::facts::Facts;
use crate::lifecycle::Phase;
use crate::limits::{DEPTH_MAX, ENTRIES_PER_REQUEST, LISTS, SLOT_BITS, TRIES_MAX, TURN};
use crate::memory::{Doorbell, Registers};
use crate::shared::{BouncePool, Port, REFUSED, Request, Shared, Word, lock};
use crate::window::{Block, View};
use crate::wire::{Capabilities, offset};
use data::Described;
use piece::{Ability, Piece};
use rings::{Command, Doorbells, Rings, Seen, Shadow};
use slot::{Loan, Slot, SlotIndex, Stage};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strake_block::{
    CompletionBatch, Durability, Io, IoErrorKind, IoQueue, Op, Readiness, Sg, SgMut, Token,
};
use strake_nvme_wire::Status;
use strake_nvme_wire::nvm::opcode;
use strake_units::{Lba, Nanos};
use whole::{One, Usual};

pub(crate) use piece::device_info;

/// The memory that a dropped queue leaves, which the controller may still use.
#[derive(Debug)]
pub(crate) struct Estate {
    slots: Box<[Slot]>,
    bounces: Arc<BouncePool>,
    _rings: Arc<Block>,
}

impl Drop for Estate {
    /// Returns the chunks: the controller no longer uses them.
    fn drop(&mut self) {
        for slot in &self.slots {
            if let Loan::Bounce(chunk) = slot.loan {
                self.bounces.give_back(chunk);
            }
        }
    }
}

/// A submission and completion path of an [`NvmeDevice`](crate::NvmeDevice).
pub struct NvmeQueue {
    shared: Arc<Shared>,
    registers: Arc<Registers>,
    port: Arc<Port>,
    ability: Ability,
    usual: Usual,
    /// The session word while this queue may send; [`Word::NONE`] otherwise.
    live: Word,
    /// The session to which the sent commands belong.
    session: Option<u64>,
    /// The session for which the queue requested its queue pair.
    asked: Option<u64>,
    /// Whether a completion of the session was wrong: the queue then ignores all others.
    is_broken: bool,
    /// The counter of cache losses when the queue was opened.
    renewals: u64,
    rings: Rings,
    view: View,
    slots: Box<[Slot]>,
    /// The first free slot.
    free: SlotIndex,
    lists: Vec<u16>,
    /// The slots to be sent, in order.
    ready: VecDeque<SlotIndex>,
    /// The slots to be given back.
    over: VecDeque<SlotIndex>,
    /// The number of outstanding commands, and its limit.
    sent: u16,
    sent_max: u16,
    /// Whether a request can be sent without further checks: commands may be sent, none waits, and the rings have space
    /// for all slots.
    is_open: bool,
    /// The latest known time, and the time of the next scan of the ages.
    now: Nanos,
    scan_at: Nanos,
}

/// Returns the entries of the rings of a queue for `depth` requests.
fn entries(depth: u32, cap: Capabilities) -> u16 {
    let wanted = depth.max(1) * ENTRIES_PER_REQUEST;
    // A ring of n entries holds n - 1 commands; two entries are the minimum (Base, section 3.3.1).
    wanted.next_power_of_two().clamp(2, cap.entries_max()).min(u16::MAX.into()) as u16
}

impl NvmeQueue {
    pub(crate) fn open(
        shared: &Arc<Shared>,
        registers: &Arc<Registers>,
        (number, depth): (u16, u32),
        facts: &Facts,
    ) -> std::io::Result<Self> {
        let depth = depth.clamp(1, DEPTH_MAX);
        let entries = entries(depth, shared.cap);
        let mut rings = Rings::new(&shared.window, entries)?;
        rings.reset();
        let (submission, completion) = rings.addresses();
        let port = Port {
            number,
            entries,
            submission,
            completion,
            attached: AtomicU64::new(0),
            at_registers: 0.into(),
        };
        Ok(Self {
            shared: Arc::clone(shared),
            registers: Arc::clone(registers),
            port: Arc::new(port),
            ability: Ability::of(facts),
            live: Word::NONE,
            session: None,
            asked: None,
            is_broken: false,
            // Partner: `Keeper::note_health`.
            renewals: shared.renewals.load(Ordering::Acquire),
            rings,
            view: View::new(&shared.window),
            slots: Slot::free(depth as u16),
            free: 0,
            usual: Usual::NONE,
            lists: (0..LISTS).collect(),
            ready: VecDeque::with_capacity(depth as usize),
            over: VecDeque::with_capacity(depth as usize),
            sent: 0,
            sent_max: entries - 1,
            is_open: false,
            now: Nanos(0),
            scan_at: Nanos(0),
        })
    }

    /// Returns the bytes of memory of a queue for `depth` requests.
    pub(crate) fn bytes(depth: u32, cap: Capabilities) -> usize {
        let depth = depth.clamp(1, DEPTH_MAX);
        // Each slot can be in the list of ready and in that of completed slots.
        let slot = size_of::<Slot>() + 2 * size_of::<SlotIndex>();
        Rings::bytes(entries(depth, cap)) + depth as usize * slot + size_of::<Self>()
    }

    /// Sends a request in pieces, or later.
    #[cold]
    #[inline(never)]
    #[allow(clippy::result_large_err)]
    fn take_slowly(&mut self, io: Io) -> Result<(), Io> {
        let index = self.free;
        let Some(slot) = self.slots.get_mut(usize::from(index)) else { return Err(io) };
        self.free = slot.next();
        slot.fill(io);
        self.start(index);
        self.look_if_open();
        Ok(())
    }

    fn look_if_open(&mut self) {
        let has_room = usize::from(self.sent_max) >= self.slots.len();
        self.is_open = has_room && self.live != Word::NONE && self.ready.is_empty();
    }

    /// Checks a request, and sends it if that is possible now.
    fn start(&mut self, index: SlotIndex) {
        let slot = &mut self.slots[usize::from(index)];
        slot.left = slot.op().range(self.ability.block).blocks;
        match self.ability.check(self.slots[usize::from(index)].op()) {
            Ok(true) => {
                self.ready.push_back(index);
                self.admit();
            }
            Ok(false) => self.end(index, Ok(())),
            Err(kind) => self.end(index, Err(kind)),
        }
    }

    fn end(&mut self, index: SlotIndex, result: Result<(), IoErrorKind>) {
        self.slots[usize::from(index)].stage = Stage::Over(result);
        self.over.push_back(index);
    }

    /// Writes a command into the ring.
    #[inline(always)]
    fn push(&mut self, opcode: u8, cid: u16, prps: (u64, u64), arguments: [u64; 3]) {
        let head = u64::from(opcode) | u64::from(cid) << 16 | self.ability.nsid_bits;
        self.sent += 1;
        self.rings.push(&Command { head, prps, arguments });
    }

    /// Sends waiting requests, as far as there are entries and memory.
    #[cold]
    fn admit(&mut self) {
        if self.live == Word::NONE {
            return;
        }
        while self.sent < self.sent_max
            && let Some(index) = self.ready.front().copied()
        {
            let slot = &self.slots[usize::from(index)];
            let done = slot.op().range(self.ability.block).blocks - slot.left;
            let piece = Piece::next(slot.op(), done, &self.ability);
            let Some(described) = self.describe(index, piece) else { break };
            self.ready.pop_front();
            let Described { prps, piece, loan } = described;
            let slot = &mut self.slots[usize::from(index)];
            slot.loan = loan;
            let cid = slot.send(piece.blocks);
            self.push(piece.opcode, cid, prps, piece.arguments(&self.ability));
        }
    }

    /// Handles the completion of a command. Returns false if there is no such command.
    #[cold]
    fn complete(&mut self, cid: u16, status: Status) -> bool {
        let index = cid & ((1 << SLOT_BITS) - 1);
        let slot = self.slots.get_mut(usize::from(index));
        if !slot.is_some_and(|slot| slot.is_answered(cid)) {
            return false;
        }
        self.sent -= 1;
        self.complete_slowly(index, status);
        true
    }

    /// Whether the volatile cache may have been lost since the queue was opened.
    #[inline]
    fn has_lost(&self) -> bool {
        // Partner: `Keeper::note_health`.
        self.renewals != self.shared.renewals.load(Ordering::Acquire)
    }

    /// Handles the completion of an outstanding command.
    #[cold]
    fn complete_slowly(&mut self, index: SlotIndex, status: Status) {
        let block = self.ability.block;
        let slot = &mut self.slots[usize::from(index)];
        slot.know_size(block);
        if status.is_success() {
            slot.left -= u64::from(slot.blocks);
        }
        self.settle_loan(index, status.is_success());
        let has_lost = self.has_lost();
        let slot = &mut self.slots[usize::from(index)];
        if status.is_success() {
            // The data that a flush should make stable, or that a read should return, may have been lost before.
            let relies = matches!(slot.op(), Op::Read { .. } | Op::Flush);
            if has_lost && relies {
                return self.end(index, Err(IoErrorKind::Gone));
            }
            slot.ages.tries = 0;
            if slot.left == 0 {
                return self.end(index, Ok(()));
            }
            slot.stage = Stage::Ready;
            return self.ready.push_back(index);
        }
        match verdict(status) {
            Verdict::Retry(_) if slot.ages.tries < TRIES_MAX => {
                slot.stage = Stage::Ready;
                self.ready.push_back(index);
            }
            Verdict::Retry(kind) | Verdict::Fail(kind) => self.end(index, Err(kind)),
        }
    }

    /// The session has changed: determines what the queue may do.
    #[cold]
    fn look(&mut self, word: Word) {
        self.live = Word::NONE;
        match word.phase() {
            Phase::Parked | Phase::Unfenced => {}
            Phase::Live if self.session == Some(word.session()) => self.live = word,
            Phase::Live => {
                self.recover();
                self.attach(word);
            }
            Phase::Fenced => self.recover(),
            Phase::Gone => {
                self.recover();
                while let Some(index) = self.ready.pop_front() {
                    self.end(index, Err(IoErrorKind::Gone));
                }
            }
        }
    }

    /// Requests the queue pair in a session, and uses it once it exists.
    fn attach(&mut self, word: Word) {
        // Partner: the keeper, which stores it after the creation of the pair.
        let attached = self.port.attached.load(Ordering::Acquire);
        if attached == REFUSED {
            while let Some(index) = self.ready.pop_front() {
                self.end(index, Err(IoErrorKind::Device));
            }
            return;
        }
        if attached != word.session() {
            if self.asked.replace(word.session()) != Some(word.session()) {
                self.shared.ask(Request::Attach(Arc::clone(&self.port)));
            }
            return;
        }
        self.renew();
        self.rings.connect(self.doorbells());
        (self.session, self.live) = (Some(word.session()), word);
    }

    /// Takes over the session's properties of the namespace.
    fn renew(&mut self) {
        if let Some(facts) = &lock(&self.shared.known).facts {
            (self.ability, self.usual) = (Ability::of(facts), Usual::NONE);
        }
    }

    fn doorbells(&self) -> Doorbells {
        let cap = self.shared.cap;
        let index = usize::from(self.port.number) * 2;
        let (tail, head) = (cap.doorbell(index), cap.doorbell(index + 1));
        // Partner: the keeper, which stores it before the start of the session.
        let is_shadowed = self.shared.uses_shadow.load(Ordering::Acquire);
        let shadow = is_shadowed.then(|| Shadow {
            shared: Arc::clone(&self.shared),
            tail: tail - offset::DOORBELLS,
            head: head - offset::DOORBELLS,
        });
        Doorbells {
            tail: Doorbell::new(&self.registers, tail),
            head: Doorbell::new(&self.registers, head),
            shadow,
        }
    }

    /// Moves completed requests into the batch.
    fn give_back(&mut self, batch: &mut CompletionBatch) {
        while let Some(place) = batch.place()
            && let Some(index) = self.over.pop_front()
        {
            let slot = &mut self.slots[usize::from(index)];
            let Stage::Over(result) = slot.stage else {
                unreachable!("what is over holds its result");
            };
            slot.release(std::mem::replace(&mut self.free, index), place, result);
        }
    }

    /// Takes completions while the batch has space. Returns true if there are no more.
    #[inline]
    fn collect(&mut self, batch: &mut CompletionBatch) -> bool {
        // A loss is published before the start of the session in which it matters.
        let has_lost = self.has_lost();
        loop {
            match if has_lost { Seen::Other } else { self.collect_whole(batch) } {
                Seen::Empty => return true,
                Seen::Unread => return false,
                Seen::Other => {}
            }
            if batch.room() == 0 {
                return false;
            }
            let Some((cid, status)) = self.rings.pop() else { return true };
            if !self.complete(cid, status) {
                self.is_broken = true;
                let session = self.session.unwrap_or_default();
                self.shared.ask(Request::Broken(session, Reason::UnknownCommand(cid)));
                return false;
            }
        }
    }

    /// Whether a poll has nothing to do: the session continues, no request waits, and there is no completion.
    #[inline(always)]
    fn is_quiet(&self, now: Nanos) -> bool {
        // An open queue has no request that is ready.
        let waits = !self.is_open || !self.over.is_empty();
        self.shared.word() == self.live && !waits && now < self.scan_at && self.rings.is_quiet()
    }

    /// Does all that a poll can have to do.
    // Within `poll`, a poll with nothing to do would save the registers that this function uses.
    #[inline(never)]
    fn poll_all(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        self.now = self.now.max(now);
        let word = self.shared.word();
        if word != self.live {
            self.look(word);
        }
        if !self.over.is_empty() {
            self.give_back(batch);
        }
        if self.session.is_some() && !self.is_broken {
            let is_empty = self.collect(batch);
            if self.rings.owes_head(is_empty) {
                let Self { shared, port, rings, live, .. } = self;
                shared.at_registers(port, *live, || rings.ring_head());
            }
        }
        if self.now >= self.scan_at {
            self.scan(word);
        }
        if !self.ready.is_empty() || !self.over.is_empty() {
            self.admit();
            if self.rings.has_news() {
                // A core without a completion may not call `ring_doorbell` again.
                let Self { shared, port, rings, live, .. } = self;
                shared.at_registers(port, *live, || rings.ring_tail());
            }
            self.give_back(batch);
        }
        self.look_if_open();
    }
}

impl IoQueue for NvmeQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        match io.op {
            Op::Read { at, data } => self.submit_read(io.token, at, data),
            Op::Write { at, data, durability } => self.submit_write(io.token, at, data, durability),
            op @ (Op::Flush | Op::Deallocate { .. } | Op::WriteZeroes { .. }) => {
                self.take_slowly(Io { token: io.token, op })
            }
        }
    }

    fn submit_read(&mut self, token: Token, at: Lba, data: SgMut) -> Result<(), Io> {
        let one = One::read(at, &data);
        self.take::<{ opcode::READ }>(token, one, || Op::Read { at, data })
    }

    fn submit_write(
        &mut self,
        token: Token,
        at: Lba,
        data: Sg,
        durability: Durability,
    ) -> Result<(), Io> {
        let one = One::write(at, &data, durability);
        self.take::<{ opcode::WRITE }>(token, one, || Op::Write { at, data, durability })
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        let word = self.shared.word();
        if word != self.live {
            self.look(word);
        }
        if !self.ready.is_empty() {
            self.admit();
        }
        if self.rings.has_news() {
            let Self { shared, port, rings, live, .. } = self;
            shared.at_registers(port, *live, || rings.ring_tail());
        }
        self.look_if_open();
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        if !self.is_quiet(now) {
            self.poll_all(now, batch);
        }
    }

    fn readiness(&self) -> Readiness {
        if self.sent == 0 && self.ready.is_empty() && self.over.is_empty() {
            Readiness::Idle
        } else if self.live != Word::NONE || !self.over.is_empty() {
            Readiness::Poll
        } else {
            // The keeper is working, which takes milliseconds at least.
            Readiness::At(self.now.plus(TURN))
        }
    }
}

impl Drop for NvmeQueue {
    /// Never waits for the controller: the memory that it may still use goes to the keeper.
    fn drop(&mut self) {
        let slots = std::mem::take(&mut self.slots);
        let (rings, port) = (self.rings.block(), Arc::clone(&self.port));
        let bounces = Arc::clone(&self.shared.bounces);
        self.shared.ask(Request::Closed(port, Estate { slots, bounces, _rings: rings }));
    }
}
