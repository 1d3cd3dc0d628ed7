//! Submission and completion queues in memory of the host (Base, section 3.3).

use crate::bus::{Bus, Unmapped};
use strake_nvme_wire::command::{CQE_BYTES, SQE_BYTES};
use strake_nvme_wire::nvm::{Blocks, opcode};
use strake_nvme_wire::{Cqe, Sqe};
use strake_units::Nanos;

/// A submission queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submission {
    pub(crate) address: u64,
    pub(crate) entries: u16,
    pub(crate) head: u16,
    pub(crate) tail: u16,
    /// The completion queue for its commands.
    pub(crate) completion: u16,
    /// What the tail doorbell showed when the queue was found empty. With shadow doorbells the controller looks at the
    /// shadow again only after the doorbell itself changed.
    pub(crate) asleep: Option<u32>,
}

impl Submission {
    pub(crate) const fn new(address: u64, entries: u16, completion: u16) -> Self {
        Self { address, entries, head: 0, tail: 0, completion, asleep: None }
    }

    /// Commands that were sent and not fetched.
    pub(crate) const fn len(&self) -> u16 {
        if self.tail >= self.head {
            self.tail - self.head
        } else {
            self.entries - self.head + self.tail
        }
    }

    /// Takes note of the doorbell. False when no host would have written this.
    pub(crate) const fn ring(&mut self, tail: u32) -> bool {
        if tail >= self.entries as u32 {
            return false;
        }
        let (tail, free) = (tail as u16, self.entries - 1 - self.len());
        let moved =
            if tail >= self.tail { tail - self.tail } else { self.entries - self.tail + tail };
        self.tail = tail;
        moved <= free
    }

    /// Fetches the next command.
    pub(crate) fn fetch(&mut self, bus: &dyn Bus) -> Result<Option<Sqe>, Unmapped> {
        if self.head == self.tail {
            return Ok(None);
        }
        let mut bytes = [0; SQE_BYTES];
        bus.read(self.address + u64::from(self.head) * SQE_BYTES as u64, &mut bytes)?;
        self.head = if self.head + 1 == self.entries { 0 } else { self.head + 1 };
        Ok(Some(Sqe(bytes)))
    }
}

/// A completion queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    address: u64,
    pub(crate) entries: u16,
    head: u16,
    tail: u16,
    /// The phase of the entries of this round.
    phase: bool,
    pub(crate) vector: Option<u16>,
}

/// How an entry is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// As it has to be.
    Whole,
    /// With the phase of the round before, so that it is none.
    Stale,
    /// Only its first half; the other half follows at the next step.
    FirstHalf,
}

impl Completion {
    pub(crate) const fn new(address: u64, entries: u16, vector: Option<u16>) -> Self {
        Self { address, entries, head: 0, tail: 0, phase: true, vector }
    }

    /// Entries that were posted and not taken.
    const fn len(&self) -> u16 {
        if self.tail >= self.head {
            self.tail - self.head
        } else {
            self.entries - self.head + self.tail
        }
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.len() + 1 >= self.entries
    }

    /// Takes note of the doorbell. False when no host would have written this.
    pub(crate) const fn ring(&mut self, head: u32) -> bool {
        if head >= self.entries as u32 {
            return false;
        }
        let (head, most) = (head as u16, self.len());
        let moved =
            if head >= self.head { head - self.head } else { self.entries - self.head + head };
        if moved <= most {
            self.head = head;
        }
        moved <= most
    }

    /// Writes an entry at the tail.
    pub(crate) fn write(
        &self,
        bus: &dyn Bus,
        cqe: Cqe,
        queue: u16,
        how: Written,
    ) -> Result<(), Unmapped> {
        let mut bytes = cqe.bytes();
        bytes[10..12].copy_from_slice(&queue.to_le_bytes());
        let phase = self.phase == (how != Written::Stale);
        bytes[14] |= u8::from(phase);
        let (first, last) = bytes.split_at(8);
        let at = self.address + u64::from(self.tail) * CQE_BYTES as u64;
        bus.write(at, first)?;
        if how == Written::FirstHalf { Ok(()) } else { bus.write(at + 8, last) }
    }

    /// What was written at the tail is an entry now.
    pub(crate) const fn advance(&mut self) {
        self.tail += 1;
        if self.tail == self.entries {
            (self.tail, self.phase) = (0, !self.phase);
        }
    }
}

/// A command that was fetched and is not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetched {
    pub(crate) queue: u16,
    pub(crate) sqe: Sqe,
    pub(crate) since: Nanos,
    /// Blocks of it that are done.
    pub(crate) blocks: u32,
}

impl Fetched {
    /// Blocks of it that are not done; 0 for commands without.
    pub(crate) fn blocks_left(&self) -> u32 {
        match self.sqe.opcode() {
            opcode::READ | opcode::WRITE | opcode::WRITE_ZEROES | opcode::VERIFY => {
                Blocks::parse(&self.sqe).count - self.blocks
            }
            _ => 0,
        }
    }
}

/// What is to be posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) queue: u16,
    pub(crate) cqe: Cqe,
}
