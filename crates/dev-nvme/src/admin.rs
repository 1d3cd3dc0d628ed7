//! The admin queue, which only the keeper uses.

use crate::limits::{ADMIN_ENTRIES, PAGE};
use crate::memory::Registers;
use crate::window::{Block, Window};
use crate::wire::{Capabilities, cc, offset};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strake_nvme_wire::{Cqe, Sqe};
use strake_units::Nanos;

/// Bytes of a command, and of a completion.
const COMMAND: usize = 64;
const COMPLETION: usize = 16;

/// Bytes of the rings and of the pages for data.
pub(crate) const ADMIN_BYTES: usize = 5 * PAGE;

/// The admin queue pair: rings of a page each, and pages for data. `P` is the keeper's context of a pending command.
pub(crate) struct Admin<P> {
    block: Block,
    registers: Arc<Registers>,
    cap: Capabilities,
    tail: u16,
    head: u16,
    phase: bool,
    /// For each slot, the identifier of its command, the time when it was sent, and its context. The upper bits of an
    /// identifier count commands, as those of I/O queues do.
    pending: Vec<Option<(u16, Nanos, P)>>,
    turn: u16,
}

/// A page for the data of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataPage {
    /// Used by the steps of the preparation.
    Steps = 2,
    /// Used by log pages.
    Logs = 3,
    /// Used by the Identify of the namespace after a change.
    Namespace = 4,
}

/// A completion from the controller.
pub(crate) enum Answered<P> {
    /// The completion of a pending command.
    To(P, Cqe),
    /// A completion of a command that was not sent.
    Unknown(u16),
}

impl<P> Admin<P> {
    /// `cap` are the checked capabilities: a controller may return other values later.
    pub(crate) fn new(
        window: &Arc<Window>,
        registers: &Arc<Registers>,
        cap: Capabilities,
    ) -> io::Result<Self> {
        Ok(Self {
            block: window.allocate(ADMIN_BYTES)?,
            registers: Arc::clone(registers),
            cap,
            tail: 0,
            head: 0,
            phase: true,
            pending: (0..ADMIN_ENTRIES).map(|_| None).collect(),
            turn: 0,
        })
    }

    /// Announces the queue to a disabled controller, and enables the controller.
    pub(crate) fn enable(&mut self) {
        let words = &self.block.memory.words()[..2 * PAGE / 8];
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        (self.tail, self.head, self.phase) = (0, 0, true);
        let less_one = u32::from(ADMIN_ENTRIES - 1);
        self.registers.write(offset::AQA, less_one << 16 | less_one);
        self.registers.write_long(offset::ASQ, self.block.iova);
        self.registers.write_long(offset::ACQ, self.block.iova + PAGE as u64);
        self.registers.write(offset::CC, cc::ENABLED);
    }

    /// Removes and returns all pending commands: the controller will not answer them.
    pub(crate) fn abandon(&mut self) -> impl Iterator<Item = P> + '_ {
        self.pending.iter_mut().filter_map(|place| place.take().map(|(.., pending)| pending))
    }

    /// Returns whether a pending command satisfies `is`.
    pub(crate) fn any(&self, is: impl Fn(&P) -> bool) -> bool {
        self.pending.iter().flatten().any(|(.., pending)| is(pending))
    }

    /// Returns whether a command has no answer within its time; `None` means no limit.
    pub(crate) fn is_late(&self, now: Nanos, time: impl Fn(&P) -> Option<Nanos>) -> bool {
        let is_late =
            |sent: Nanos, pending| time(pending).is_some_and(|most| now.since(sent) >= most);
        self.pending.iter().flatten().any(|(_, sent, pending)| is_late(*sent, pending))
    }

    /// Returns the commands without an answer after `time`.
    pub(crate) fn late(&mut self, now: Nanos, time: Nanos) -> impl Iterator<Item = &mut P> {
        let pending = self.pending.iter_mut().flatten();
        pending.filter(move |(_, sent, _)| now.since(*sent) >= time).map(|(.., pending)| pending)
    }

    /// Returns the number of pending commands that satisfy `is`.
    pub(crate) fn count(&self, is: impl Fn(&P) -> bool) -> usize {
        self.pending.iter().flatten().filter(|(.., pending)| is(pending)).count()
    }

    /// Returns the pending commands with their command IDs.
    pub(crate) fn pending(&mut self) -> impl Iterator<Item = (u16, &mut P)> {
        self.pending.iter_mut().flatten().map(|(cid, _, pending)| (*cid, pending))
    }

    /// Returns the number of commands that can be sent now.
    pub(crate) fn room(&self) -> usize {
        let free = self.pending.iter().filter(|place| place.is_none()).count();
        // A ring of n entries holds n - 1 commands.
        free.saturating_sub(1)
    }

    /// Sends a command; returns `pending` if the queue is full.
    pub(crate) fn send(&mut self, now: Nanos, sqe: Sqe, pending: P) -> Result<(), P> {
        if self.room() == 0 {
            return Err(pending);
        }
        let Some(at) = self.pending.iter().position(Option::is_none) else { return Err(pending) };
        self.turn = self.turn.wrapping_add(ADMIN_ENTRIES);
        let cid = self.turn | at as u16;
        self.block.memory.put(usize::from(self.tail) * COMMAND, &sqe.named(cid).0);
        self.pending[at] = Some((cid, now, pending));
        self.tail = (self.tail + 1) % ADMIN_ENTRIES;
        self.registers.write(self.cap.doorbell(0), self.tail.into());
        Ok(())
    }

    /// Returns the next completion.
    pub(crate) fn next(&mut self) -> Option<Answered<P>> {
        let at = PAGE + usize::from(self.head) * COMPLETION;
        let words = self.block.memory.words();
        // If the phase is visible, all earlier writes of the controller are visible.
        let last = u64::from_le(words[at / 8 + 1].load(Ordering::Acquire));
        if (last >> 48 & 1 != 0) != self.phase {
            return None;
        }
        let mut bytes = [0; COMPLETION];
        self.block.memory.get(at, &mut bytes);
        let cqe = Cqe::parse(&bytes);
        self.head += 1;
        if self.head == ADMIN_ENTRIES {
            (self.head, self.phase) = (0, !self.phase);
        }
        self.registers.write(self.cap.doorbell(1), self.head.into());
        let place = self.pending.get_mut(usize::from(cqe.cid % ADMIN_ENTRIES));
        Some(match place.and_then(|place| place.take_if(|(cid, ..)| *cid == cqe.cid)) {
            Some((.., pending)) => Answered::To(pending, cqe),
            None => Answered::Unknown(cqe.cid),
        })
    }

    /// Returns the address of a page for the controller.
    pub(crate) fn page_address(&self, page: DataPage) -> u64 {
        self.block.iova + page as u64 * PAGE as u64
    }

    /// Returns the content of a page.
    pub(crate) fn page(&self, page: DataPage) -> [u8; PAGE] {
        let mut bytes = [0; PAGE];
        self.block.memory.get(page as usize * PAGE, &mut bytes);
        bytes
    }
}
