//! Partial writes: records of small writes with one word of each block, which shows whether the block is old or new.
//!
//! A small write changes the same blocks of one data strip and of every parity. After a crash, each of these blocks is
//! old or new, in any combination, and recovery must determine which. A parity changes exactly in the bytes in which
//! the data change: the change is the change of the data, multiplied by a nonzero factor. So if one word of the data
//! differs, the same word of every parity differs too. The new values of this word distinguish new blocks from old
//! blocks with certainty, without checksums.
//!
//! This suffices to make the blocks consistent again, and to compute the content of one lost member. One parity that
//! matches the present data determines the lost block. Otherwise, two parities that do not match determine the lost
//! block and the other content of the data. Therefore no data need to be written twice. The method requires drives that
//! write blocks atomically, and two parities.
//!
//! Many partial writes share one record ([`crate::redo`]), as rows after its header. Designed for this format; the
//! counting of unknowns is that of the design's page on performance, section 6, which has checksums in the words'
//! place.

use strake_units::StripeIndex;

use crate::bytes::{put, u16_at, u32_at, u64_at};
use crate::redo::{AT_CRC, AT_PARTS, REDO_HEADER_BYTES, RedoHeader, seal};

/// Maximum number of blocks of a strip in one partial write.
pub const PARTIAL_WRITE_BLOCKS_MAX: u32 = 128;
/// Maximum number of parities of one partial write.
pub const PARTIAL_WRITE_PARITIES_MAX: u8 = 4;

/// Bytes of the word that identifies a block.
pub const WITNESS_BYTES: usize = 4;

const ROW_BYTES: usize = 16;

/// Value instead of a word: the block does not change.
const UNCHANGED: u16 = u16::MAX;

const _: () =
    assert!(row_bytes(PARTIAL_WRITE_BLOCKS_MAX, PARTIAL_WRITE_PARITIES_MAX) <= AT_CRC - AT_PARTS);

/// A word that distinguishes one new block of the data strip, and the same block of each parity, from the old blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// The index of the first word of [`WITNESS_BYTES`] that differs; `None` if the write changes nothing in the block.
    pub word: Option<u16>,
    /// The new values of the word: in the data, and then in each parity. Unused values are 0.
    pub values: [u32; 1 + PARTIAL_WRITE_PARITIES_MAX as usize],
}

impl Witness {
    /// True if `block` of the data (`part` 0) or of parity `part` - 1 is new.
    ///
    /// # Panics
    /// If the block ends before the word.
    #[must_use]
    pub fn is_new(&self, part: u8, block: &[u8]) -> bool {
        let Some(word) = self.word else { return true };
        u32_at(block, usize::from(word) * WITNESS_BYTES) == self.values[usize::from(part)]
    }
}

/// The changes of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialWrite {
    /// The stripe.
    pub stripe: StripeIndex,
    /// The data strip that is written.
    pub strip: u8,
    /// First block of the strip, in blocks of the array.
    pub offset: u32,
    /// Number of blocks, at least 1 and at most [`PARTIAL_WRITE_BLOCKS_MAX`].
    pub blocks: u32,
    /// Number of parities, all of which are written, at most [`PARTIAL_WRITE_PARITIES_MAX`].
    pub parities: u8,
    /// The words of the blocks, in order.
    pub witnesses: Vec<Witness>,
}

/// A list of partial writes for a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartialWriteList {
    /// Partial writes in it.
    count: u16,
    /// Bytes of rows.
    bytes: usize,
}

/// The location and size of a partial write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialWritePlace {
    /// The stripe.
    pub stripe: StripeIndex,
    /// The data strip.
    pub strip: u8,
    /// First block of the strip.
    pub offset: u32,
    /// Blocks.
    pub blocks: u32,
    /// Parities.
    pub parities: u8,
}

impl PartialWriteList {
    /// Adds a partial write to the list in `page`, the future header of a record, with one witness for each of its
    /// blocks. Returns false if the list has no space.
    #[inline]
    pub fn push(
        &mut self,
        page: &mut [u8],
        place: PartialWritePlace,
        witnesses: impl Iterator<Item = Witness>,
    ) -> bool {
        let end = AT_PARTS + self.bytes + row_bytes(place.blocks, place.parities);
        if end > AT_CRC {
            return false;
        }
        let row = &mut page[AT_PARTS + self.bytes..end];
        put(row, 0, &place.stripe.0.to_le_bytes());
        put(row, 8, &place.offset.to_le_bytes());
        put(row, 12, &[place.strip, place.parities, place.blocks as u8, 0]);
        let blocks = row[ROW_BYTES..].chunks_exact_mut(block_bytes(place.parities));
        for (out, witness) in blocks.zip(witnesses) {
            put(out, 0, &witness.word.unwrap_or(UNCHANGED).to_le_bytes());
            for (out, value) in out[2..].chunks_exact_mut(4).zip(witness.values) {
                out.copy_from_slice(&value.to_le_bytes());
            }
        }
        self.bytes = end - AT_PARTS;
        self.count += 1;
        true
    }

    /// True if there is space for one more partial write of this size.
    #[must_use]
    pub fn has_room_for(&self, blocks: u32, parities: u8) -> bool {
        AT_PARTS + self.bytes + row_bytes(blocks, parities) <= AT_CRC
    }

    /// Completes `page` as the record at byte offset `offset` of a member.
    ///
    /// # Panics
    /// If `page` does not have the length of a header.
    pub fn seal(&self, header: &RedoHeader, offset: u64, page: &mut [u8]) {
        assert_eq!(page.len(), REDO_HEADER_BYTES, "a header is one block");
        page[AT_PARTS + self.bytes..].fill(0);
        seal(header, 0, self.count, offset, page);
    }
}

/// Bytes of a row about one block.
const fn block_bytes(parities: u8) -> usize {
    2 + WITNESS_BYTES * (1 + parities as usize)
}

const fn row_bytes(blocks: u32, parities: u8) -> usize {
    ROW_BYTES + blocks as usize * block_bytes(parities)
}

/// Decodes `count` partial writes in `rows`. Returns `None` if there are fewer, or if one of them is invalid.
pub(crate) fn decode_partial_writes(mut rows: &[u8], count: u16) -> Option<Vec<PartialWrite>> {
    let mut partial_writes = Vec::new();
    for _ in 0..count {
        let (row, _) = rows.split_at_checked(ROW_BYTES)?;
        let (blocks, parities) = (u32::from(row[14]), row[13]);
        if blocks == 0 || blocks > PARTIAL_WRITE_BLOCKS_MAX || parities > PARTIAL_WRITE_PARITIES_MAX
        {
            return None;
        }
        let (row, rest) = rows.split_at_checked(row_bytes(blocks, parities))?;
        partial_writes.push(PartialWrite {
            stripe: StripeIndex(u64_at(row, 0)),
            strip: row[12],
            offset: u32_at(row, 8),
            blocks,
            parities,
            witnesses: row[ROW_BYTES..].chunks_exact(block_bytes(parities)).map(witness).collect(),
        });
        rows = rest;
    }
    Some(partial_writes)
}

fn witness(row: &[u8]) -> Witness {
    let word = u16_at(row, 0);
    let mut values = [0; 1 + PARTIAL_WRITE_PARITIES_MAX as usize];
    for (value, bytes) in values.iter_mut().zip(row[2..].chunks_exact(WITNESS_BYTES)) {
        *value = u32_at(bytes, 0);
    }
    Witness { word: (word != UNCHANGED).then_some(word), values }
}
