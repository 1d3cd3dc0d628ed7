//! Constants that recovery after a crash depends on, recorded in labels of format 2.
//!
//! The meaning of a record on a drive depends on constants of the program that wrote it: the size of a band, the bytes
//! of a ring, and the polynomial of the parity. A program with other values would replay obsolete records, or ignore
//! valid ones. A label therefore records the values, and a label with other values is refused with the name of the
//! constant. `crates/engine/src/recorded.rs` compares constants of other crates with this table at compile time.

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

/// Maximum bytes of a strip in one band. A write of a band has one record, and the newest record counts.
pub const BAND_BYTES: u32 = 128 << 10;
/// The polynomial of the field in which parities are computed, x^8 + x^4 + x^3 + x^2 + 1.
pub const FIELD_POLYNOMIAL: u32 = 0x11d;

/// The factors of the parities. The low byte is the base of powers, which are the factors for up to as many parities as
/// the second byte specifies. For more parities, the factors are a Cauchy matrix whose rows start at the third byte.
pub const PARITY_FACTORS: u32 = 0x80_03_02;
/// Maximum time in milliseconds in which the controller of a remote drive may execute requests of a failed host. A
/// program uses no drive that needs more time, and waits for this time before it uses an array that another program
/// used.
pub const SETTLE_MS: u32 = 13_000;

/// Constants of format 2. A change of any constant, or of their number, requires a new format.
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

/// The limits of one partial write as one byte each: blocks, parities, and bytes of a witness.
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

/// Compares the table at the start of `bytes` with the values of this program. `count` and `generation` are the number
/// of constants and the generation in the label.
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
