//! Format NVM: the drive erases a namespace, and may change the size of its blocks (Base, section 5.14; NVM, sections
//! 4.1.5 and 5.1).

use crate::bytes::u16_at;
use crate::command::admin;
use crate::maintenance::{AdminCommand, Transfer};

/// Seconds after which a format counts as unanswered. A drive may overwrite all its data before it answers, and a
/// driver that gives up resets the controller.
pub const TIME_S: u32 = 8 * 3600;

/// The erasure of data (SES; Base, Figure 189).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Erase {
    /// No secure erasure: old data may remain on the medium.
    None,
    /// Erase the data of users.
    User,
    /// Change the key with which the data are encrypted.
    Crypto,
}

impl Erase {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::None, Self::User, Self::Crypto];

    /// The name in commands and messages.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::User => "user",
            Self::Crypto => "crypto",
        }
    }

    /// The kind with the name `word`.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|erase| erase.word() == word)
    }
}

/// The properties of the command (Base, Figure 275, FNA).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// A format applies to all namespaces.
    pub formats_all: bool,
    /// A secure erasure applies to all namespaces.
    pub erases_all: bool,
    /// The cryptographic erasure is supported.
    pub crypto: bool,
}

impl Capabilities {
    pub(super) const fn of(page: &[u8; 4096]) -> Self {
        let bits = page[524];
        Self {
            formats_all: bits & 1 != 0,
            erases_all: bits & 1 << 1 != 0,
            crypto: bits & 1 << 2 != 0,
        }
    }

    /// Whether a format with `erase` of one namespace applies to all of them.
    #[must_use]
    pub const fn applies_to_all(self, erase: Erase) -> bool {
        self.formats_all || self.erases_all && !matches!(erase, Erase::None)
    }
}

/// A format of blocks (NVM, Figure 98).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFormat {
    /// Its number.
    pub number: u8,
    /// Bytes of a block as a power of two; 0 if the format is unused.
    pub block_log2: u8,
    /// Bytes of metadata of a block.
    pub metadata_bytes: u16,
    /// Relative performance: 0 is best, 3 is degraded.
    pub performance: u8,
}

/// The formats of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formats {
    /// The supported formats, by number.
    pub all: Vec<BlockFormat>,
    /// The number of the current format.
    pub current: u8,
}

impl Formats {
    /// Parses the Identify page of a namespace. The page has room for 64 formats.
    #[must_use]
    pub fn parse(page: &[u8; 4096]) -> Self {
        // NLBAF is zero-based.
        let count = page[25].min(63) + 1;
        let all = (0..count).map(|number| {
            let at = 128 + usize::from(number) * 4;
            let (metadata_bytes, performance) = (u16_at(page, at), page[at + 3] & 0b11);
            BlockFormat { number, block_log2: page[at + 2], metadata_bytes, performance }
        });
        // FLBAS: the lower bits and, for more than 16 formats, the upper bits.
        let upper = if count > 16 { page[26] >> 1 & 0x30 } else { 0 };
        let all = all.filter(|format| format.block_log2 != 0).collect();
        Self { all, current: page[26] & 0xf | upper }
    }

    /// The format with this number.
    #[must_use]
    pub fn numbered(&self, number: u8) -> Option<&BlockFormat> {
        self.all.iter().find(|format| format.number == number)
    }

    /// The fastest format with blocks of `bytes` bytes and without metadata.
    #[must_use]
    pub fn of_bytes(&self, bytes: u32) -> Option<&BlockFormat> {
        let is_it = |format: &&BlockFormat| {
            format.metadata_bytes == 0 && 1_u32.checked_shl(format.block_log2.into()) == Some(bytes)
        };
        self.all.iter().filter(is_it).min_by_key(|format| (format.performance, format.number))
    }
}

/// The command that formats the namespace `nsid` with the format `number`, without protection information.
#[must_use]
pub fn format(nsid: u32, number: u8, erase: Erase) -> AdminCommand {
    let (lower, upper) = (number as u32 & 0xf, number as u32 >> 4 & 0b11);
    let dword = lower | (erase as u32) << 9 | upper << 12;
    let plain = AdminCommand::new(admin::FORMAT, "Format NVM", Transfer::Nothing);
    AdminCommand { nsid, dwords: [dword, 0, 0, 0, 0, 0], time_s: TIME_S, ..plain }
}

/// The command of a namespace with these values, as [`format()`] returns it; `None` for every other command.
#[must_use]
pub fn of_dword(nsid: u32, dword: u32) -> Option<AdminCommand> {
    let erase = Erase::ALL.into_iter().find(|erase| *erase as u32 == dword >> 9 & 0b111)?;
    let number = (dword & 0xf | (dword >> 12 & 0b11) << 4) as u8;
    let command = format(nsid, number, erase);
    let is_one = !matches!(nsid, 0 | crate::nvm::ALL_NAMESPACES);
    (is_one && command.dwords[0] == dword).then_some(command)
}
