//! Constants that recovery after a crash depends on, recorded in labels of format 2.
//!
//! A record on a drive means what the program that wrote it took these for: where the band of a write ends, how long a
//! ring is, by which polynomial parity was computed. A program with another value would do writes again that were
//! overtaken, or pass over those that were not. So a label tells the values, and one that tells others is refused by
//! the constant's name. Constants of other crates are checked against this table where both are known
//! (`crates/engine/src/recorded.rs`), at compile time.

use crate::bad_blocks::{BAD_PAGES, BAD_RUNS_MAX};
use crate::bitmap::{PAGE_BITS, PAGES_PER_BITMAP};
use crate::bytes::{put, u32_at};
use crate::config_record::CONFIG_SLOT_BYTES;
use crate::error::{LabelErrorKind, Wanted};
use crate::layout::{
    BAD_BLOCKS_OFFSET, BITMAP_OFFSET, BITMAPS_MAX, CONFIG_OFFSET, HEAD_BYTES, HEAD_RING_OFFSET,
    LOG_OFFSET, RING_SLOTS, SLOT_BYTES, TAIL_BYTES, TAIL_RING_FROM_END,
};
use crate::limits::MEMBERS_MAX;
use crate::lineage::{HISTORY_MAX, REPLACEMENTS_MAX};
use crate::partial_write::{PARTIAL_WRITE_BLOCKS_MAX, PARTIAL_WRITE_PARITIES_MAX, WITNESS_BYTES};
use crate::redo::{REDO_BLOCK_BYTES, REDO_HEADER_BYTES, REDO_PAYLOAD_MAX};
use crate::ring::REDO_LEAD_BYTES;
use crate::slot::PAGE_BYTES;

/// Bytes of a strip that one band holds at most: a write of a band has one record, and the newest record counts.
pub const BAND_BYTES: u32 = 128 << 10;
/// The polynomial of the field in which parities are computed, x^8 + x^4 + x^3 + x^2 + 1.
pub const FIELD_POLYNOMIAL: u32 = 0x11d;

/// Which factors make which parity: powers of the low byte for as many parities as the second byte says at most, and
/// for more a Cauchy matrix whose rows begin at the third byte.
pub const PARITY_FACTORS: u32 = 0x80_03_02;
/// Milliseconds for which the target of a remote drive may carry out requests of a host that is gone, at most. A
/// program uses no drive that needs longer, and an array that another program used is left alone for as long.
pub const SETTLE_MS: u32 = 13_000;

/// Constants of format 2. A change of any of them, or of their number, is a new format.
pub const CONSTANTS: [(&str, u32); 28] = [
    ("band bytes", BAND_BYTES),
    ("field polynomial", FIELD_POLYNOMIAL),
    ("parity factors", PARITY_FACTORS),
    ("settle time of remote drives in milliseconds", SETTLE_MS),
    ("maximum number of members", MEMBERS_MAX as u32),
    ("label bytes", SLOT_BYTES as u32),
    ("label ring slots", RING_SLOTS as u32),
    ("head ring offset", HEAD_RING_OFFSET as u32),
    ("tail ring offset from the end", TAIL_RING_FROM_END as u32),
    ("data offset", HEAD_BYTES as u32),
    ("tail bytes", TAIL_BYTES as u32),
    ("activations in history", HISTORY_MAX as u32),
    ("maximum number of replacements", REPLACEMENTS_MAX as u32),
    ("bitmap offset", BITMAP_OFFSET as u32),
    ("number of bitmaps", BITMAPS_MAX as u32),
    ("pages per bitmap", PAGES_PER_BITMAP),
    ("regions per bitmap page", PAGE_BITS),
    ("control plane record offset", CONFIG_OFFSET as u32),
    ("control plane record slot bytes", CONFIG_SLOT_BYTES as u32),
    ("bad block list offset", BAD_BLOCKS_OFFSET as u32),
    ("bad block list bytes", (BAD_PAGES * PAGE_BYTES) as u32),
    ("maximum number of bad block runs", BAD_RUNS_MAX as u32),
    ("redo log offset", LOG_OFFSET as u32),
    ("redo ring bytes before records", REDO_LEAD_BYTES as u32),
    ("redo header bytes", REDO_HEADER_BYTES as u32),
    ("redo block bytes", REDO_BLOCK_BYTES as u32),
    ("maximum redo payload bytes", REDO_PAYLOAD_MAX as u32),
    ("partial-write record limits", partial_write_limits()),
];

/// Bytes of the table in a label.
pub(crate) const CONSTANTS_BYTES: usize = CONSTANTS.len() * 4;

/// Blocks and parities of one partial write and bytes of a witness: a byte each.
const fn partial_write_limits() -> u32 {
    PARTIAL_WRITE_BLOCKS_MAX
        | (PARTIAL_WRITE_PARITIES_MAX as u32) << 8
        | (WITNESS_BYTES as u32) << 16
}

/// Writes the table to the start of `out`.
pub(crate) fn encode_constants(out: &mut [u8]) {
    for (nth, (_, value)) in CONSTANTS.iter().enumerate() {
        put(out, nth * 4, &value.to_le_bytes());
    }
}

/// Compares the table at the start of `bytes`, in which a label of `generation` says that there are `count`, with the
/// values that this program has.
pub(crate) fn check_constants(
    bytes: &[u8],
    count: u8,
    generation: u64,
) -> Result<(), LabelErrorKind> {
    let differs = |name, recorded: u32, expected: u32| {
        let (recorded, wanted) = (recorded.into(), Wanted::Exactly(expected.into()));
        Err(LabelErrorKind::Field { name, area: None, recorded, wanted, generation })
    };
    if usize::from(count) != CONSTANTS.len() {
        return differs("number of constants", count.into(), CONSTANTS.len() as u32);
    }
    for (nth, (name, expected)) in CONSTANTS.iter().enumerate() {
        let recorded = u32_at(bytes, nth * 4);
        if recorded != *expected {
            return differs(name, recorded, *expected);
        }
    }
    Ok(())
}
