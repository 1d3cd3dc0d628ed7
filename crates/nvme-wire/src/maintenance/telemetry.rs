//! Telemetry: the state of the firmware, which the vendor of the drive can analyze (Base, sections 5.16.1.8
//! "Telemetry Host-Initiated", 5.16.1.9 "Telemetry Controller-Initiated" and 8.24).

use crate::bytes::u16_at;
use crate::maintenance::AdminCommand;

/// Bytes of a block of the log, and of its header.
pub const BLOCK_BYTES: u32 = 512;
/// Maximum bytes of the areas 1 to 3: their last block is a 16-bit number.
pub const BYTES_MAX: u64 = (u16::MAX as u64 + 1) * BLOCK_BYTES as u64;

/// The log to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiator {
    /// The host requests the data: the controller captures its present state.
    Host,
    /// The controller captured the data because of an internal event.
    Controller,
}

impl Initiator {
    /// The identifier of the log page.
    #[must_use]
    pub const fn page(self) -> u8 {
        match self {
            Self::Host => 0x07,
            Self::Controller => 0x08,
        }
    }
}

/// Whether a read of the header requests new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// The controller captures its state first; only for [`Initiator::Host`].
    New,
    /// The data that were captured before.
    Present,
}

/// The command that reads the header.
#[must_use]
pub fn read_header(initiator: Initiator, capture: Capture) -> AdminCommand {
    let creates = matches!((initiator, capture), (Initiator::Host, Capture::New));
    // The event of controller-initiated data is retained, so that a read loses nothing.
    let retains = matches!(initiator, Initiator::Controller);
    AdminCommand::log_page(initiator.page(), (0, BLOCK_BYTES), creates as u8, retains)
}

/// The command that reads `bytes` bytes from `offset` on, both multiples of [`BLOCK_BYTES`].
#[must_use]
pub fn read(initiator: Initiator, offset: u64, bytes: u32) -> AdminCommand {
    let retains = matches!(initiator, Initiator::Controller);
    AdminCommand::log_page(initiator.page(), (offset, bytes), 0, retains)
}

/// The last area to read. An area contains the areas before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// The smallest amount of data.
    One = 1,
    /// A medium amount of data.
    Two = 2,
    /// All data of the areas 1 to 3.
    Three = 3,
}

impl Area {
    /// The area of a number.
    #[must_use]
    pub const fn of(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::One),
            2 => Some(Self::Two),
            3 => Some(Self::Three),
            _ => None,
        }
    }
}

/// The header of the log (Base, Figures 214 and 216).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The last block of each area, in order; block 0 is the header.
    pub last_blocks: [u16; 3],
    /// Whether controller-initiated data exist.
    pub is_available: bool,
    /// Changes when the data change: the generation number of this log.
    pub generation: u8,
}

/// Why a header is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// It is the page with this identifier.
    Page(u8),
    /// An area ends before the area that it contains.
    Areas([u16; 3]),
}

impl std::fmt::Display for BadHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Page(page) => write!(f, "the drive returned log page {page:02x}h instead"),
            Self::Areas([one, two, three]) => {
                write!(
                    f,
                    "its areas end at the blocks {one}, {two} and {three}, which is impossible"
                )
            }
        }
    }
}

impl Header {
    /// Parses the header of the log of `initiator`.
    ///
    /// # Errors
    /// It is another page, or its areas are impossible.
    pub fn parse(
        bytes: &[u8; BLOCK_BYTES as usize],
        initiator: Initiator,
    ) -> Result<Self, BadHeader> {
        if bytes[0] != initiator.page() {
            return Err(BadHeader::Page(bytes[0]));
        }
        let last_blocks = [u16_at(bytes, 8), u16_at(bytes, 10), u16_at(bytes, 12)];
        if !last_blocks.is_sorted() {
            return Err(BadHeader::Areas(last_blocks));
        }
        let generation = match initiator {
            Initiator::Host => bytes[381],
            Initiator::Controller => bytes[383],
        };
        Ok(Self { last_blocks, is_available: bytes[382] & 1 != 0, generation })
    }

    /// Bytes of the log up to the end of `area`, with the header.
    #[must_use]
    pub const fn bytes(&self, area: Area) -> u64 {
        let last = self.last_blocks[area as usize - 1];
        (last as u64 + 1) * BLOCK_BYTES as u64
    }
}
