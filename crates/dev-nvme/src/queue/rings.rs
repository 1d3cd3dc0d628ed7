//! The two rings of a queue, in memory that the controller reaches, and their doorbells.

use crate::limits::{HEAD_BATCH, LISTS, PAGE};
use crate::memory::{Doorbell, Entries};
use crate::shared::Shared;
use crate::window::{Block, Window};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use strake_nvme_wire::Status;

/// Words of a command, and of a completion.
const COMMAND: usize = 8;
const COMPLETION: usize = 2;

/// A command as words. The words that are not listed are zero in every command of the driver.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    /// Opcode, flags, command identifier and namespace.
    pub(crate) head: u64,
    pub(crate) prps: (u64, u64),
    /// Dwords 10 and 11, 12 and 13, 14 and 15.
    pub(crate) arguments: [u64; 3],
}

/// A submission and a completion queue, and pages for lists.
pub(crate) struct Rings {
    /// Completions, then commands, then lists.
    block: Arc<Block>,
    completions: Entries<COMPLETION>,
    commands: Entries<COMMAND>,
    entries: u16,
    /// The next entry for a command, and the last value of the doorbell.
    tail: u16,
    rung: u16,
    /// The next completion, and the last value of its doorbell.
    head: u16,
    taken: u16,
    /// The phase of completions in this pass, as the bit in the upper word.
    phase: u64,
    batch: u16,
    doorbells: Option<Doorbells>,
}

/// The doorbells of the controller.
pub(crate) struct Doorbells {
    pub(crate) tail: Doorbell,
    pub(crate) head: Doorbell,
    /// Words of the shadow doorbells and of the event indices, if the controller uses them.
    pub(crate) shadow: Option<Shadow>,
}

/// Shadow doorbells (Base, section 5.8): the controller reads them, and an event index defines from which value on the
/// driver must also write the doorbell.
pub(crate) struct Shadow {
    pub(crate) shared: Arc<Shared>,
    /// Offset in bytes in both pages.
    pub(crate) tail: usize,
    pub(crate) head: usize,
}

/// The phase bit in the upper word of a completion.
const PHASE: u64 = 1 << 48;

impl Rings {
    pub(crate) fn new(window: &Arc<Window>, entries: u16) -> io::Result<Self> {
        let block = window.allocate(Self::bytes(entries))?;
        let count = usize::from(entries);
        Ok(Self {
            completions: Entries::new(&block.memory, 0, count),
            commands: Entries::new(&block.memory, Self::commands(entries), count),
            block: Arc::new(block),
            entries,
            tail: 0,
            rung: 0,
            head: 0,
            taken: 0,
            phase: PHASE,
            batch: HEAD_BATCH.min(entries / 2).max(1),
            doorbells: None,
        })
    }

    /// Bytes of both rings and of the pages for lists.
    pub(crate) fn bytes(entries: u16) -> usize {
        Self::lists(entries) + usize::from(LISTS) * PAGE
    }

    const fn commands(entries: u16) -> usize {
        (entries as usize * COMPLETION * 8).next_multiple_of(PAGE)
    }

    const fn lists(entries: u16) -> usize {
        Self::commands(entries) + (entries as usize * COMMAND * 8).next_multiple_of(PAGE)
    }

    /// The memory, which must exist as long as the controller may use it.
    pub(crate) fn block(&self) -> Arc<Block> {
        Arc::clone(&self.block)
    }

    /// The addresses of the commands and of the completions for the controller.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        (self.block.iova + Self::commands(self.entries) as u64, self.block.iova)
    }

    /// A page for a list: its words, and its address for the controller.
    pub(crate) fn list(&self, list: u16) -> (&[AtomicU64], u64) {
        let at = Self::lists(self.entries) + usize::from(list) * PAGE;
        (&self.block.memory.words()[at / 8..(at + PAGE) / 8], self.block.iova + at as u64)
    }

    /// Empties the rings, as after the creation of the queues. The controller does not have them.
    pub(crate) fn reset(&mut self) {
        let words = &self.block.memory.words()[..Self::commands(self.entries) / 8];
        words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        (self.tail, self.rung, self.head, self.taken, self.phase) = (0, 0, 0, 0, PHASE);
        self.doorbells = None;
    }

    pub(crate) fn connect(&mut self, doorbells: Doorbells) {
        self.doorbells = Some(doorbells);
    }

    /// Writes a command into its entry. The caller keeps fewer commands outstanding than there are entries.
    #[inline(always)]
    pub(crate) fn push(&mut self, command: &Command) {
        let place = &self.commands.all()[usize::from(self.tail)];
        // The doorbell publishes these stores. Words 1 and 2 are always zero.
        place[0].store(command.head.to_le(), Ordering::Relaxed);
        place[3].store(command.prps.0.to_le(), Ordering::Relaxed);
        place[4].store(command.prps.1.to_le(), Ordering::Relaxed);
        place[5].store(command.arguments[0].to_le(), Ordering::Relaxed);
        place[6].store(command.arguments[1].to_le(), Ordering::Relaxed);
        place[7].store(command.arguments[2].to_le(), Ordering::Relaxed);
        self.tail = if self.tail + 1 == self.entries { 0 } else { self.tail + 1 };
    }

    /// Whether there are commands of which the controller was not notified.
    #[inline]
    pub(crate) const fn has_news(&self) -> bool {
        self.tail != self.rung
    }

    /// Notifies the controller of all commands.
    #[inline]
    pub(crate) fn ring_tail(&mut self) {
        let old = std::mem::replace(&mut self.rung, self.tail);
        if let Some(Doorbells { tail, shadow, .. }) = &self.doorbells {
            match shadow {
                None => tail.ring(self.tail.into()),
                Some(shadow) => {
                    if shadow.ring(shadow.tail, old, self.tail) {
                        tail.ring(self.tail.into());
                    }
                }
            }
        }
    }

    /// Returns the next completion: the command identifier and the status.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<(u16, Status)> {
        let [_, last] = &self.completions.all()[usize::from(self.head)];
        // The phase is in the last word of an entry; once it is visible, all earlier writes of the controller are
        // visible, including the data of the command.
        let word = u64::from_le(last.load(Ordering::Acquire));
        if word & PHASE != self.phase {
            return None;
        }
        self.head += 1;
        if self.head == self.entries {
            (self.head, self.phase) = (0, self.phase ^ PHASE);
        }
        Some(((word >> 32) as u16, Status::of_word((word >> 48) as u16)))
    }

    /// Starts to take successful completions, until [`stop`](Self::stop).
    #[inline(always)]
    pub(crate) const fn start(&self) -> Cursor<'_> {
        let phase = (self.phase >> 32) as u32;
        Cursor { entries: self.completions.all(), head: self.head as usize, phase }
    }

    /// Records what was taken: the position of the cursor.
    #[inline(always)]
    pub(crate) const fn stop(&mut self, (head, phase): (usize, u32)) {
        // The cursor may be behind the last entry.
        let wraps = head == self.entries as usize;
        self.head = if wraps { 0 } else { head as u16 };
        self.phase = (phase as u64) << 32 ^ if wraps { PHASE } else { 0 };
    }

    /// Whether there is no further completion, and the controller was notified of all taken ones.
    #[inline(always)]
    pub(crate) fn is_quiet(&self) -> bool {
        let next = self.completions.all().get(usize::from(self.head));
        // The value is only compared: a completion is read again when it is taken.
        let is_old =
            |word: &AtomicU64| u64::from_le(word.load(Ordering::Relaxed)) & PHASE != self.phase;
        next.is_some_and(|[_, last]| is_old(last)) && self.head == self.taken
    }

    /// Whether the controller must be notified of taken completions.
    #[inline]
    pub(crate) const fn owes_head(&self, is_empty: bool) -> bool {
        let taken = if self.head >= self.taken {
            self.head - self.taken
        } else {
            self.entries - self.taken + self.head
        };
        taken >= self.batch || (is_empty && taken > 0)
    }

    /// Notifies the controller of the taken completions.
    pub(crate) fn ring_head(&mut self) {
        let old = std::mem::replace(&mut self.taken, self.head);
        if let Some(Doorbells { head, shadow, .. }) = &self.doorbells {
            match shadow {
                None => head.ring(self.head.into()),
                Some(shadow) => {
                    if shadow.ring(shadow.head, old, self.head) {
                        head.ring(self.head.into());
                    }
                }
            }
        }
    }
}

/// The next entry of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It was not written.
    Empty,
    /// It is one that must be looked at: a failure, or not the completion of a whole request.
    Other,
    /// It was not read, because there is no room for its request.
    Unread,
}

/// A position in a completion queue, for a loop in registers.
pub(crate) struct Cursor<'a> {
    entries: &'a [[AtomicU64; COMPLETION]],
    head: usize,
    /// The phase as the bit in the upper half of the upper word.
    phase: u32,
}

/// The upper half of the upper word of a completion, without the phase of this pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upper(u32);

impl Upper {
    const PHASE: u32 = (PHASE >> 32) as u32;

    /// Returns the command identifier, if the entry was written and is a success: no other bit is above the identifier.
    #[inline(always)]
    pub(crate) const fn success(self) -> Option<u16> {
        if self.0 <= u16::MAX as u32 { Some(self.0 as u16) } else { None }
    }

    /// What an entry is that is not a success.
    #[inline(always)]
    pub(crate) const fn otherwise(self) -> Seen {
        if self.0 & Self::PHASE != 0 { Seen::Empty } else { Seen::Other }
    }
}

impl Cursor<'_> {
    /// Reads the next entry.
    #[inline(always)]
    pub(crate) fn look(&mut self) -> Upper {
        let word = match self.entries.get(self.head) {
            // As in `Rings::pop`.
            Some([_, last]) => last.load(Ordering::Acquire),
            None => self.wrap(),
        };
        Upper((u64::from_le(word) >> 32) as u32 ^ self.phase)
    }

    /// Goes to the first entry, and reads it.
    #[cold]
    fn wrap(&mut self) -> u64 {
        (self.head, self.phase) = (0, self.phase ^ Upper::PHASE);
        // As in `Rings::pop`.
        self.entries[0][1].load(Ordering::Acquire)
    }

    /// Takes the entry.
    #[inline(always)]
    pub(crate) const fn take(&mut self) {
        self.head += 1;
    }

    /// Returns the position, for [`Rings::stop`].
    #[inline(always)]
    pub(crate) const fn position(&self) -> (usize, u32) {
        (self.head, self.phase)
    }
}

impl Shadow {
    /// Writes a shadow doorbell. Returns true if the doorbell must also be written: the event index of the controller
    /// is among the passed values (as Linux, `nvme_dbbuf_need_event` in drivers/nvme/host/pci.c).
    fn ring(&self, at: usize, old: u16, new: u16) -> bool {
        let words = self.shared.shadow.memory.words();
        // Orders commands before the shadow doorbell, as before a doorbell.
        fence(Ordering::Release);
        store_half(&words[at / 8], at, new.into());
        // The controller stores its event index and then reads the shadow doorbell; the order here is the reverse, so
        // that at least one side sees the store of the other.
        fence(Ordering::SeqCst);
        let word = u64::from_le(words[(PAGE + at) / 8].load(Ordering::Relaxed));
        let event = (word >> (at % 8 * 8)) as u16;
        new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
    }
}

/// Stores one half of a word. The halves are doorbells of the same queue, so that only one core writes both.
fn store_half(word: &AtomicU64, at: usize, value: u32) {
    let shift = at % 8 * 8;
    let mask = u64::from(u32::MAX) << shift;
    let was = u64::from_le(word.load(Ordering::Relaxed));
    word.store((was & !mask | u64::from(value) << shift).to_le(), Ordering::Relaxed);
}
