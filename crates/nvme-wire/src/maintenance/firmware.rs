//! Firmware: the slots of a controller, the transfer of an image, and its activation (Base, sections 5.12 "Firmware
//! Commit", 5.13 "Firmware Image Download", 5.16.1.4 and 3.11).

use crate::bytes::u16_at;
use crate::command::admin;
use crate::log::{FIRMWARE_BYTES, page};
use crate::maintenance::{AdminCommand, Transfer};
use crate::status::Status;

/// Maximum bytes of an image.
pub const IMAGE_BYTES_MAX: usize = 64 << 20;
/// Number of slots that the log page can describe.
pub const SLOTS: usize = 7;
/// Seconds within which a drive has to store an image.
const COMMIT_TIME_S: u32 = 300;
/// Bytes of a piece if the drive does not report its granularity.
const PIECE_BYTES_UNKNOWN: u32 = 4096;

/// The slots of a controller, and how an image is transferred (Base, Figure 275).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Number of slots, 1 to 7 (FRMW, bits 3:1).
    pub slots: u8,
    /// Slot 1 cannot be written (FRMW, bit 0).
    pub first_read_only: bool,
    /// An image can be activated without a reset (FRMW, bit 4).
    pub activates_now: bool,
    /// Bytes to which the pieces of an image are aligned; 0 if the drive does not report it (FWUG).
    pub granularity_bytes: u32,
    /// Maximum time for which the drive stops executing commands during an activation without a reset, in
    /// milliseconds; 0 if the drive does not report it (MTFA).
    pub pause_ms_max: u32,
}

impl Capabilities {
    pub(super) fn of(page: &[u8; 4096]) -> Self {
        let granularity_bytes = match page[319] {
            0 => 0,
            u8::MAX => 4,
            units => u32::from(units) * 4096,
        };
        Self {
            slots: page[260] >> 1 & 0b111,
            first_read_only: page[260] & 1 != 0,
            activates_now: page[260] & 1 << 4 != 0,
            granularity_bytes,
            pause_ms_max: u32::from(u16_at(page, 270)) * 100,
        }
    }

    /// Whether an image can be written to `slot`. Slot 0 lets the controller choose.
    #[must_use]
    pub const fn can_write(&self, slot: u8) -> bool {
        slot <= self.slots && !(slot == 1 && self.first_read_only)
    }

    /// Bytes of a piece of an image, with transfers of at most `transfer_bytes`; `None` if the granularity exceeds the
    /// transfer.
    #[must_use]
    pub const fn piece_bytes(&self, transfer_bytes: u32) -> Option<u32> {
        match self.granularity_bytes {
            0 if transfer_bytes < PIECE_BYTES_UNKNOWN => None,
            0 => Some(PIECE_BYTES_UNKNOWN),
            step if step > transfer_bytes => None,
            step => Some(transfer_bytes / step * step),
        }
    }
}

/// The firmware slot page (Base, Figure 211).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The slot of the running firmware.
    pub running: u8,
    /// The slot whose firmware runs after the next reset; `None` if that was not determined.
    pub next: Option<u8>,
    /// The revisions by slot, from slot 1 on; empty for an empty slot.
    pub revisions: [String; SLOTS],
}

impl Slots {
    /// Parses the page.
    #[must_use]
    pub fn parse(page: &[u8; FIRMWARE_BYTES]) -> Self {
        let next = page[0] >> 4 & 0b111;
        let revision = |slot: usize| {
            let bytes = &page[8 + slot * 8..16 + slot * 8];
            let shown = |&byte: &u8| match byte {
                0x20..0x7f => char::from(byte),
                _ => ' ',
            };
            bytes.iter().map(shown).collect::<String>().trim().to_owned()
        };
        Self {
            running: page[0] & 0b111,
            next: (next != 0).then_some(next),
            revisions: std::array::from_fn(revision),
        }
    }
}

/// The command that reads the slots.
#[must_use]
pub fn read_slots() -> AdminCommand {
    AdminCommand::log_page(page::FIRMWARE, (0, FIRMWARE_BYTES as u32), 0, true)
}

/// The command that transfers a piece of an image. `offset` and the length of the piece are multiples of four.
#[must_use]
pub fn download(offset: u32, piece: Vec<u8>) -> AdminCommand {
    let dwords = [(piece.len() as u32 / 4).saturating_sub(1), offset / 4, 0, 0, 0, 0];
    let transfer = Transfer::ToDrive(piece);
    AdminCommand {
        dwords,
        ..AdminCommand::new(admin::DOWNLOAD, "Firmware Image Download", transfer)
    }
}

/// When the committed image runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// After the next reset.
    AtReset,
    /// Immediately, without a reset.
    Now,
}

impl Activation {
    /// The name in commands and messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::AtReset => "reset",
            Self::Now => "now",
        }
    }

    /// The activation with the name `word`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::AtReset, Self::Now].into_iter().find(|activation| activation.word() == word)
    }
}

/// The command that stores the transferred image in `slot`, or in a slot that the controller chooses (0), and activates
/// it (CA 1 or 3; Base, Figure 180).
#[must_use]
pub fn commit(slot: u8, activation: Activation) -> AdminCommand {
    let action = match activation {
        Activation::AtReset => 0b001,
        Activation::Now => 0b011,
    };
    let dword = action << 3 | slot as u32 & 0b111;
    let plain = AdminCommand::new(admin::COMMIT, "Firmware Commit", Transfer::Nothing);
    AdminCommand { dwords: [dword, 0, 0, 0, 0, 0], time_s: COMMIT_TIME_S, ..plain }
}

/// The result of Firmware Commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// Success.
    Done,
    /// The image is stored, and runs after this reset.
    Needs(Reset),
    /// The image is not stored.
    Rejected(Rejection),
    /// Another status.
    Failed(Status),
}

/// A reset that activates firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// A reset of the controller.
    Controller,
    /// A reset of the NVM subsystem.
    Subsystem,
    /// A conventional reset of the PCI Express function.
    Conventional,
}

/// Why an image was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The slot does not exist or is read-only.
    Slot,
    /// The image is damaged or for another drive.
    Image,
    /// The activation would take longer than the drive reported (MTFA).
    Time,
    /// The drive does not permit this image.
    Prohibited,
    /// Pieces of the image overlap, or are missing.
    Pieces,
}

impl Committed {
    /// The result of a status (Base, Figures 97 and 181).
    #[must_use]
    pub const fn of(status: Status) -> Self {
        match (status.code_type(), status.code()) {
            _ if status.is_success() => Self::Done,
            (1, 0x06) => Self::Rejected(Rejection::Slot),
            (1, 0x07) => Self::Rejected(Rejection::Image),
            (1, 0x0b) => Self::Needs(Reset::Conventional),
            (1, 0x10) => Self::Needs(Reset::Subsystem),
            (1, 0x11) => Self::Needs(Reset::Controller),
            (1, 0x12) => Self::Rejected(Rejection::Time),
            (1, 0x13) => Self::Rejected(Rejection::Prohibited),
            (1, 0x14) => Self::Rejected(Rejection::Pieces),
            _ => Self::Failed(status),
        }
    }
}
