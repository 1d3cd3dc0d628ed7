//! Admin commands that maintain a drive: telemetry, Format NVM, Sanitize and firmware.
//!
//! An [`AdminCommand`] can only be made by the functions of this module and its submodules, so that no caller can send
//! another command to a drive.

pub mod firmware;
pub mod format;
pub mod sanitize;
pub mod telemetry;

#[cfg(test)]
mod tests;

use crate::command::admin;
use crate::identify::{IDENTIFY_BYTES, cns};
use crate::nvm::ALL_NAMESPACES;
use crate::status::Status;

/// Maximum bytes of the data of one command: every transport can transfer so much without a page of PRP lists of its
/// own. The drive may support less (MDTS).
pub const TRANSFER_BYTES_MAX: u32 = 128 << 10;

/// Seconds within which a drive has to answer a command that only moves data.
pub const TRANSFER_TIME_S: u32 = 60;

/// The data of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// No data.
    Nothing,
    /// So many bytes from the drive, a multiple of four.
    FromDrive(u32),
    /// These bytes to the drive, a multiple of four.
    ToDrive(Vec<u8>),
}

impl Transfer {
    /// Bytes of the data.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::FromDrive(bytes) => *bytes as usize,
            Self::ToDrive(bytes) => bytes.len(),
        }
    }
}

/// An admin command, without the description of where its data are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminCommand {
    opcode: u8,
    nsid: u32,
    dwords: [u32; 6],
    transfer: Transfer,
    name: &'static str,
    time_s: u32,
}

impl AdminCommand {
    const fn new(opcode: u8, name: &'static str, transfer: Transfer) -> Self {
        Self { opcode, nsid: 0, dwords: [0; 6], transfer, name, time_s: TRANSFER_TIME_S }
    }

    /// Identify, with the CNS `what` (Base, section 5.17).
    #[must_use]
    pub fn identify(what: u8, nsid: u32) -> Self {
        let transfer = Transfer::FromDrive(IDENTIFY_BYTES as u32);
        let dwords = [what as u32, 0, 0, 0, 0, 0];
        Self { nsid, dwords, ..Self::new(admin::IDENTIFY, "Identify", transfer) }
    }

    /// Identify of the controller.
    #[must_use]
    pub fn identify_controller() -> Self {
        Self::identify(cns::CONTROLLER, 0)
    }

    /// Get Log Page of the whole controller: `bytes` bytes, a multiple of four, from `offset` on. `specific` is the log
    /// specific field (LSP), and `retains` keeps an event that a read would clear (RAE). Base, section 5.16.
    fn log_page(page: u8, (offset, bytes): (u64, u32), specific: u8, retains: bool) -> Self {
        let dwords = bytes / 4 - 1;
        let low = (dwords & 0xffff) << 16 | (retains as u32) << 15;
        let dwords = [
            low | (specific as u32 & 0x7f) << 8 | page as u32,
            dwords >> 16,
            offset as u32,
            (offset >> 32) as u32,
            0,
            0,
        ];
        let transfer = Transfer::FromDrive(bytes);
        let plain = Self::new(admin::GET_LOG_PAGE, "Get Log Page", transfer);
        Self { nsid: ALL_NAMESPACES, dwords, ..plain }
    }

    /// The opcode.
    #[must_use]
    pub const fn opcode(&self) -> u8 {
        self.opcode
    }

    /// The namespace ID.
    #[must_use]
    pub const fn nsid(&self) -> u32 {
        self.nsid
    }

    /// Dwords 10 to 15.
    #[must_use]
    pub const fn dwords(&self) -> &[u32; 6] {
        &self.dwords
    }

    /// The data.
    #[must_use]
    pub const fn transfer(&self) -> &Transfer {
        &self.transfer
    }

    /// The name in messages.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Seconds within which the drive has to answer.
    #[must_use]
    pub const fn time_s(&self) -> u32 {
        self.time_s
    }
}

/// The answer of a drive to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: Status,
    /// Dword 0 of the completion.
    pub result: u32,
    /// The data from the drive, with exactly the length that the command has.
    pub data: Vec<u8>,
}

/// The maintenance functions of a controller (Base, Figure 275).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Functions {
    /// Bytes of the largest transfer, for pages of 4 KiB (MDTS); limited to [`TRANSFER_BYTES_MAX`].
    pub transfer_bytes: u32,
    /// Format NVM is supported (OACS, bit 1).
    pub formats: bool,
    /// Firmware Image Download and Firmware Commit are supported (OACS, bit 2).
    pub updates: bool,
    /// Namespace Management is supported (OACS, bit 3), so that namespaces may exist that no controller has attached.
    pub manages: bool,
    /// The telemetry log pages are supported (LPA, bit 3).
    pub telemetry: bool,
    /// The NVM subsystem may have several controllers (CMIC, bits 1 and 2), so its namespaces may be in use elsewhere.
    pub shares: bool,
    /// The actions of Sanitize.
    pub sanitize: sanitize::Capabilities,
    /// Properties of Format NVM.
    pub format: format::Capabilities,
    /// The slots of firmware, and how it is transferred.
    pub firmware: firmware::Capabilities,
}

impl Functions {
    /// Parses the Identify page of the controller.
    #[must_use]
    pub fn of(page: &[u8; IDENTIFY_BYTES]) -> Self {
        let commands = crate::bytes::u16_at(page, 256);
        let bytes = match page[77] {
            0 => TRANSFER_BYTES_MAX,
            log2 if log2 < 16 => TRANSFER_BYTES_MAX.min(4096 << log2),
            _ => TRANSFER_BYTES_MAX,
        };
        Self {
            transfer_bytes: bytes,
            formats: commands & 1 << 1 != 0,
            updates: commands & 1 << 2 != 0,
            manages: commands & 1 << 3 != 0,
            telemetry: page[261] & 1 << 3 != 0,
            shares: page[76] & 0b110 != 0,
            sanitize: sanitize::Capabilities::of(page),
            format: format::Capabilities::of(page),
            firmware: firmware::Capabilities::of(page),
        }
    }
}

/// Whether a status means that the controller refused Format NVM or Sanitize before it changed anything (Base, Figures
/// 95 and 97). Every other status of a failure may follow a change.
#[must_use]
pub const fn is_refusal(status: Status) -> bool {
    match (status.code_type(), status.code()) {
        // Invalid opcode, field or namespace; sequence error; operation denied; sanitize failed; sanitize in progress;
        // write-protected; prohibited by lockdown.
        (0, 0x01 | 0x02 | 0x0b | 0x0c | 0x15 | 0x1c | 0x1d | 0x20 | 0x23) => true,
        // Invalid format; firmware activation requires a reset; sanitize prohibited while the memory region is enabled.
        (1, 0x0a | 0x0b | 0x10 | 0x11 | 0x23) => true,
        _ => false,
    }
}

/// The namespaces in a list (Base, sections 5.17.2.3 and 5.17.2.10), of which a page holds at most 1024.
pub fn namespaces(page: &[u8; IDENTIFY_BYTES]) -> impl Iterator<Item = u32> {
    let numbers = page.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    numbers.take_while(|number| *number != 0)
}
