//! The results of Identify as a host reads them (Base, section 5.17; NVM, section 4.1.5).

use crate::bytes::{array_at, u16_at, u32_at, u64_at};
use crate::identify::{Deallocated, INSTANCE_AT, INSTANCE_MARK, Page};

/// The properties of a controller that a host needs (Base, Figure 275).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerFacts {
    /// Serial number without padding; characters other than printable ASCII are replaced.
    pub serial: String,
    /// Model number, in the same form.
    pub model: String,
    /// Firmware revision, in the same form.
    pub firmware: String,
    /// Largest transfer of a command as a power of two of the smallest page; 0 for no limit.
    pub transfer_pages_log2: u8,
    /// Maximum commands in flight of a queue; 0 if not reported.
    pub commands_max: u16,
    /// Supported events, see [`event`](crate::feature::event).
    pub events: u32,
    /// Whether any command restarts the keep-alive timer, not only Keep Alive (CTRATT, TBKAS).
    pub traffic_is_life: bool,
    /// Time to quiesce after the disconnect of a host, in milliseconds (CQT, TP4129); 0 if not reported.
    pub quiesce_ms: u16,
    /// Number of ANA groups (CMIC, NANAGRPID); 0 without ANA reporting.
    pub access_groups: u32,
    /// Optional commands, see [`optional`](crate::identify::optional).
    pub commands: u16,
    /// Whether completed writes may need a flush.
    pub write_cache: bool,
    /// Data bytes in a capsule of an I/O queue.
    pub in_capsule_bytes: u32,
    /// Offset of that data behind the command, in bytes.
    pub in_capsule_offset: u32,
}

impl ControllerFacts {
    /// Parses a page.
    #[must_use]
    pub fn parse(page: &Page) -> Self {
        Self {
            serial: text(&array_at::<4096, 20>(page, 4)),
            model: text(&array_at::<4096, 40>(page, 24)),
            firmware: text(&array_at::<4096, 8>(page, 64)),
            transfer_pages_log2: page[77],
            commands_max: u16_at(page, 514),
            events: u32_at(page, 92),
            traffic_is_life: page[96] & 1 << 6 != 0,
            quiesce_ms: u16_at(page, 386),
            access_groups: if page[76] & 1 << 3 != 0 { u32_at(page, 348).max(1) } else { 0 },
            commands: u16_at(page, 520),
            write_cache: page[525] & 1 != 0,
            in_capsule_bytes: u32_at(page, 1792).saturating_mul(16).saturating_sub(64),
            in_capsule_offset: u32::from(u16_at(page, 1800)) * 16,
        }
    }
}

/// Printable ASCII without surrounding spaces.
fn text(bytes: &[u8]) -> String {
    let shown = |&byte: &u8| if (0x20..0x7f).contains(&byte) { char::from(byte) } else { ' ' };
    bytes.iter().map(shown).collect::<String>().trim().to_owned()
}

/// The properties of a namespace that a host needs (NVM, Figure 97).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Size in blocks.
    pub blocks: u64,
    /// Bytes of a block as a power of two.
    pub block_log2: u8,
    /// Metadata bytes of a block.
    pub metadata_bytes: u16,
    /// The content of deallocated blocks.
    pub deallocated: Deallocated,
    /// Whether writes are rejected.
    pub write_protected: bool,
    /// The ANA group (ANAGRPID).
    pub access_group: u32,
    /// The preferred size of writes in blocks; 0 for no preference.
    pub optimal_blocks: u16,
    /// The reservation capabilities, see [`capabilities`](crate::reservation::capabilities).
    pub reservations: u8,
    /// The NGUID; zero if there is none.
    pub nguid: [u8; 16],
    /// The EUI64; zero if there is none.
    pub eui64: [u8; 8],
    /// The instance of its device: it stays the same while no completed command can have been lost, flushed or not.
    /// Only Strake targets report it, in vendor-specific bytes.
    pub instance: Option<[u8; 16]>,
}

impl NamespaceFacts {
    /// Parses a page.
    #[must_use]
    pub fn parse(page: &Page) -> Self {
        // FLBAS: the current format, in two parts.
        let format = usize::from(page[26] & 0xf | page[26] >> 1 & 0x30);
        let at = 128 + format * 4;
        let optimal = if page[24] & 1 << 4 != 0 { u16_at(page, 72).saturating_add(1) } else { 0 };
        Self {
            blocks: u64_at(page, 0),
            block_log2: page[at + 2],
            metadata_bytes: u16_at(page, at),
            deallocated: match page[33] & 0b111 {
                1 => Deallocated::Zeroes,
                _ => Deallocated::Unspecified,
            },
            write_protected: page[99] & 1 != 0,
            access_group: u32_at(page, 92),
            optimal_blocks: optimal,
            reservations: page[31],
            nguid: array_at(page, 104),
            eui64: array_at(page, 120),
            instance: (array_at(page, INSTANCE_AT) == INSTANCE_MARK)
                .then(|| array_at(page, INSTANCE_AT + INSTANCE_MARK.len())),
        }
    }
}

/// The UUID in a list of namespace identification descriptors (Base, Figure 277), if there is one.
#[must_use]
pub fn uuid_of(page: &Page) -> Option<[u8; 16]> {
    let mut rest = &page[..];
    while let [kind, length, _, _, tail @ ..] = rest {
        let length = usize::from(*length);
        if length == 0 || length > tail.len() {
            return None;
        }
        if *kind == 3
            && let Some(uuid) = tail[..length].first_chunk::<16>()
        {
            return Some(*uuid);
        }
        rest = &tail[length..];
    }
    None
}

/// The largest Write Zeroes in bytes, for pages of 4 KiB, from the command set specific page (NVM, Figure 102, WZSL);
/// `None` for no limit.
#[must_use]
pub fn zeroes_bytes_max(page: &Page) -> Option<u64> {
    match page[1] {
        0 => None,
        log2 => Some(4096_u64.checked_shl(log2.into()).unwrap_or(u64::MAX)),
    }
}
