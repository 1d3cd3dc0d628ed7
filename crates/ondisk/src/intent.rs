//! Intents: what a write is about to change in place, told by checksums alone.
//!
//! A small write changes the same blocks of one data strip and of every parity. After a crash each of these blocks is
//! old or new, whatever order they were written in; with the checksums of the new ones it can be told which. That is
//! enough to make them agree again, and to compute what one lost member held: a parity that is as new as the data does
//! for it, and if none is, two parities that are not do for the lost block and the data's other content. So nothing of
//! what is written has to be written twice. It takes blocks that drives write whole or not at all, and two parities.
//!
//! Many intents share one record ([`crate::redo`]), as rows behind its header. Designed for this format; the counting
//! of unknowns is that of the design's page on performance, section 6.

use strake_units::StripeIndex;

use crate::bytes::{put, u32_at, u64_at};
use crate::redo::{AT_CRC, AT_PARTS, REDO_HEADER_BYTES, RedoHeader, put_header, seal};

/// Most blocks of a strip that one intent is about.
pub const INTENT_BLOCKS_MAX: u32 = 128;
/// Most parities that one intent tells of.
pub const INTENT_PARITIES_MAX: u8 = 4;

const ROW_BYTES: usize = 16;

const _: () = assert!(
    ROW_BYTES + 4 * INTENT_BLOCKS_MAX as usize * (1 + INTENT_PARITIES_MAX as usize)
        <= AT_CRC - AT_PARTS
);

/// What one write is about to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// The stripe.
    pub stripe: StripeIndex,
    /// Its data strip that is written.
    pub strip: u8,
    /// First block of the strip, in blocks of the array.
    pub offset: u32,
    /// How many, at least 1 and at most [`INTENT_BLOCKS_MAX`].
    pub blocks: u32,
    /// How many parities there are, all of which are written, at most [`INTENT_PARITIES_MAX`].
    pub parities: u8,
    /// CRC-32C of each new block: those of the data strip in order, then those of each parity.
    pub crcs: Vec<u32>,
}

impl Intent {
    /// The checksum of new block `block` of the data (`part` 0) or of parity `part` - 1.
    ///
    /// # Panics
    /// When there is no such block.
    #[must_use]
    pub fn crc(&self, part: u8, block: u32) -> u32 {
        self.crcs[(u32::from(part) * self.blocks + block) as usize]
    }
}

/// A list of intents on its way into a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntentList {
    /// Intents in it.
    count: u16,
    /// Bytes of rows.
    bytes: usize,
}

/// Where an intent is, and how much it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IntentPlace {
    /// The stripe.
    pub stripe: StripeIndex,
    /// Its data strip.
    pub strip: u8,
    /// First block of the strip.
    pub offset: u32,
    /// Blocks.
    pub blocks: u32,
    /// Parities.
    pub parities: u8,
}

impl IntentList {
    /// Adds an intent to the list in `page`, a record's header to be. `crcs` are the checksums of the new blocks, in
    /// the order of [`Intent::crcs`], and exactly as many. False when the list has no room for it.
    pub fn push(
        &mut self,
        page: &mut [u8],
        place: IntentPlace,
        crcs: impl Iterator<Item = u32>,
    ) -> bool {
        let end = AT_PARTS + self.bytes + row_bytes(place.blocks, place.parities);
        if end > AT_CRC {
            return false;
        }
        let row = &mut page[AT_PARTS + self.bytes..end];
        put(row, 0, &place.stripe.0.to_le_bytes());
        put(row, 8, &place.offset.to_le_bytes());
        put(row, 12, &[place.strip, place.parities, place.blocks as u8, 0]);
        for (out, crc) in row[ROW_BYTES..].chunks_exact_mut(4).zip(crcs) {
            out.copy_from_slice(&crc.to_le_bytes());
        }
        self.bytes = end - AT_PARTS;
        self.count += 1;
        true
    }

    /// True when there is room for one more of this size.
    #[must_use]
    pub fn has_room_for(&self, blocks: u32, parities: u8) -> bool {
        AT_PARTS + self.bytes + row_bytes(blocks, parities) <= AT_CRC
    }

    /// Makes `page` the record at byte offset `offset` of a member.
    ///
    /// # Panics
    /// When `page` is not a header long.
    pub fn seal(&self, header: &RedoHeader, offset: u64, page: &mut [u8]) {
        assert_eq!(page.len(), REDO_HEADER_BYTES, "a header is one block");
        page[AT_PARTS + self.bytes..].fill(0);
        put_header(header, 0, self.count, offset, page);
        seal(page);
    }
}

const fn row_bytes(blocks: u32, parities: u8) -> usize {
    ROW_BYTES + 4 * blocks as usize * (1 + parities as usize)
}

/// The `count` intents in `rows`; `None` when there are not so many, or one of them is not sound.
pub(crate) fn decode_intents(mut rows: &[u8], count: u16) -> Option<Vec<Intent>> {
    let mut intents = Vec::new();
    for _ in 0..count {
        let (row, _) = rows.split_at_checked(ROW_BYTES)?;
        let (blocks, parities) = (u32::from(row[14]), row[13]);
        if blocks == 0 || blocks > INTENT_BLOCKS_MAX || parities > INTENT_PARITIES_MAX {
            return None;
        }
        let (row, rest) = rows.split_at_checked(row_bytes(blocks, parities))?;
        intents.push(Intent {
            stripe: StripeIndex(u64_at(row, 0)),
            strip: row[12],
            offset: u32_at(row, 8),
            blocks,
            parities,
            crcs: row[ROW_BYTES..].chunks_exact(4).map(|crc| u32_at(crc, 0)).collect(),
        });
        rows = rest;
    }
    Some(intents)
}

/// The checksum by which an intent tells a block.
#[must_use]
pub fn intent_crc(block: &[u8]) -> u32 {
    crc32c::crc32c(block)
}
