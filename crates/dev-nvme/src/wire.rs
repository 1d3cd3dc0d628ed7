//! Registers and commands of memory-based transports, which `strake-nvme-wire` does not contain.

use crate::limits::PAGE;
use strake_nvme_wire::Sqe;
use strake_nvme_wire::bytes::put;

/// Offsets of registers in bytes (Base, section 3.1.3).
pub(crate) mod offset {
    pub(crate) const CAP: usize = 0x00;
    pub(crate) const CC: usize = 0x14;
    pub(crate) const CSTS: usize = 0x1c;
    pub(crate) const AQA: usize = 0x24;
    pub(crate) const ASQ: usize = 0x28;
    pub(crate) const ACQ: usize = 0x30;
    pub(crate) const DOORBELLS: usize = 0x1000;
}

/// Bits of Controller Configuration (Base, section 3.1.3.5).
pub(crate) mod cc {
    /// Enabled, with pages of 4 KiB, entries of 64 and 16 bytes, round robin and the NVM command set.
    pub(crate) const ENABLED: u32 = 1 | 6 << 16 | 4 << 20;
    /// A normal shutdown is announced.
    pub(crate) const SHUTDOWN: u32 = 0b01 << 14;
}

/// Controller Status (Base, section 3.1.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Csts(pub(crate) u32);

impl Csts {
    /// NVM Subsystem Reset Occurred; writing a one clears it.
    pub(crate) const NSSRO: u32 = 1 << 4;

    /// Whether no device answers: it was removed, or its memory is not decoded.
    pub(crate) const fn is_all_ones(self) -> bool {
        self.0 == u32::MAX
    }

    pub(crate) const fn is_ready(self) -> bool {
        self.0 & 1 != 0
    }

    pub(crate) const fn is_fatal(self) -> bool {
        self.0 & 1 << 1 != 0
    }

    pub(crate) const fn is_shut_down(self) -> bool {
        self.0 >> 2 & 0b11 == 0b10
    }

    pub(crate) const fn was_subsystem_reset(self) -> bool {
        self.0 & Self::NSSRO != 0
    }
}

/// Controller Capabilities (Base, section 3.1.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Capabilities(pub(crate) u64);

impl Capabilities {
    /// Entries of the largest queue (MQES).
    pub(crate) const fn entries_max(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }

    /// The longest time to become ready or not ready, in units of 500 ms (TO).
    pub(crate) const fn ready_units(self) -> u64 {
        self.0 >> 24 & 0xff
    }

    /// Bytes between two doorbells (DSTRD).
    pub(crate) const fn doorbell_stride(self) -> usize {
        4 << (self.0 >> 32 & 0xf)
    }

    /// Whether the controller supports the NVM command set (CSS).
    pub(crate) const fn has_nvm(self) -> bool {
        self.0 & 1 << 37 != 0
    }

    /// Bytes of the smallest memory page (MPSMIN).
    pub(crate) const fn page_min(self) -> usize {
        PAGE << (self.0 >> 48 & 0xf)
    }

    /// Returns the offset of a doorbell: twice the number of a queue, plus one for its completion queue.
    pub(crate) const fn doorbell(self, index: usize) -> usize {
        offset::DOORBELLS + index * self.doorbell_stride()
    }
}

/// Admin commands of memory-based transports (Base, Figure 138).
mod opcode {
    pub(super) const DELETE_SUBMISSION: u8 = 0x00;
    pub(super) const CREATE_SUBMISSION: u8 = 0x01;
    pub(super) const DELETE_COMPLETION: u8 = 0x04;
    pub(super) const CREATE_COMPLETION: u8 = 0x05;
    pub(super) const DOORBELL_BUFFERS: u8 = 0x7c;
}

/// Returns a command whose data are described by PRPs.
pub(crate) fn command(opcode: u8, nsid: u32, (prp1, prp2): (u64, u64)) -> Sqe {
    let mut sqe = Sqe([0; 64]);
    sqe.0[0] = opcode;
    put(&mut sqe.0, 4, &nsid.to_le_bytes());
    put(&mut sqe.0, 24, &prp1.to_le_bytes());
    put(&mut sqe.0, 32, &prp2.to_le_bytes());
    sqe
}

/// A queue in memory: its number, its entries and its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) number: u16,
    pub(crate) entries: u16,
    pub(crate) address: u64,
}

impl Ring {
    const fn dword_10(self) -> u32 {
        (self.entries as u32 - 1) << 16 | self.number as u32
    }

    /// Creates a completion queue without interrupts.
    pub(crate) fn create_completion(self) -> Sqe {
        let sqe = command(opcode::CREATE_COMPLETION, 0, (self.address, 0));
        sqe.with(10, self.dword_10()).with(11, 1)
    }

    /// Creates a submission queue for the completion queue with the same number.
    pub(crate) fn create_submission(self) -> Sqe {
        let sqe = command(opcode::CREATE_SUBMISSION, 0, (self.address, 0));
        sqe.with(10, self.dword_10()).with(11, u32::from(self.number) << 16 | 1)
    }
}

pub(crate) fn delete_submission(number: u16) -> Sqe {
    command(opcode::DELETE_SUBMISSION, 0, (0, 0)).with(10, number.into())
}

pub(crate) fn delete_completion(number: u16) -> Sqe {
    command(opcode::DELETE_COMPLETION, 0, (0, 0)).with(10, number.into())
}

/// Shadow doorbells and event indices (Base, section 5.8), each in a page.
pub(crate) fn doorbell_buffers(shadow: u64, events: u64) -> Sqe {
    command(opcode::DOORBELL_BUFFERS, 0, (shadow, events))
}

/// Aborts a command of a queue (Base, section 5.1).
pub(crate) fn abort(queue: u16, cid: u16) -> Sqe {
    let opcode = strake_nvme_wire::command::admin::ABORT;
    command(opcode, 0, (0, 0)).with(10, u32::from(cid) << 16 | u32::from(queue))
}

/// Dword 12 of a command with blocks (NVM, section 3.2).
pub(crate) mod dword_12 {
    /// The data must reach, or come from, the medium.
    pub(crate) const FUA: u32 = 1 << 30;
    /// The controller adds and removes the protection information (PRACT).
    pub(crate) const ACTION: u32 = 1 << 29;
    /// As `ACTION`, and the controller checks the guard and the reference tag.
    pub(crate) const PROTECTED: u32 = ACTION | 1 << 28 | 1 << 26;
}
