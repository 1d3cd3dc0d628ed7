//! The records of the redo log, with which a replay completes writes after a crash.
//!
//! Every member has the same log area, divided into as many [rings](crate::ring) as the array had cores at its start. A
//! record is at the same offset on every member that its write changes: a header, which is equal on all members, and
//! then the payload of the member. The write may start only after the record is stable on all of these members.
//! Therefore a record without the part of a current member belongs to a write that was never started. A complete record
//! is replayed, regardless of how much was already written: the result is the same.
//!
//! A record may also be a list of partial writes without a payload after its header, see [`crate::partial_write`].
//!
//! Data of clients may look like a header. Such blocks of a record are stored with a changed first byte, and the header
//! lists them ([`RedoPart::escaped`]), so that every block that looks like a header is a header.

use strake_units::{MemberIndex, MemberSet, StripeIndex, Uuid};

use crate::bytes::{get, put, u16_at, u32_at, u64_at, uuid_at};
use crate::layout::LOG_OFFSET;
use crate::limits::MEMBERS_MAX;
use crate::partial_write::{PartialWrite, decode_partial_writes};
use crate::ring::RecordId;

/// Bytes of a record's header, and alignment of records.
pub const REDO_HEADER_BYTES: usize = 4096;
/// Bytes of payload for each bit of [`RedoPart::escaped`].
pub const REDO_BLOCK_BYTES: usize = 4096;
/// Maximum payload of one member.
pub const REDO_PAYLOAD_MAX: usize = 64 * REDO_BLOCK_BYTES;

const MAGIC: [u8; 8] = *b"STRAKERL";
const VERSION: u16 = 1;
const AT_VERSION: usize = 8;
const AT_RING: usize = 10;
const AT_COUNT: usize = 12;
const AT_REPLACEMENT_SLOT: usize = 13;
const AT_PARTIAL_WRITES: usize = 14;
const AT_OFFSET: usize = 16;
const AT_ARRAY: usize = 24;
const AT_EPOCH: usize = 40;
const AT_GENERATION: usize = 56;
const AT_SEQUENCE: usize = 64;
const AT_FLOOR: usize = 72;
const AT_STRIPE: usize = 80;
const AT_OUT: usize = 88;
const AT_REPLACEMENT: usize = 96;
pub(crate) const AT_PARTS: usize = 128;
const PART_BYTES: usize = 40;
pub(crate) const AT_CRC: usize = 4092;

/// Rows of a usual record: of a small write with up to four parities.
const ROWS_SHORT: usize = 6;
/// The zeroes after these rows.
const AT_ZEROES: usize = AT_PARTS + ROWS_SHORT * PART_BYTES;

/// Value instead of a slot: no slot.
const NO_SLOT: u8 = u8::MAX;

const _: () = assert!(AT_PARTS + MEMBERS_MAX * PART_BYTES <= AT_CRC);
const _: () = assert!(LOG_OFFSET.is_multiple_of(REDO_HEADER_BYTES as u64));

/// The part of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedoPart {
    /// Slot of the member.
    pub slot: MemberIndex,
    /// The member that had the slot when the record was written.
    pub uuid: Uuid,
    /// First block of its strip, in blocks of the array.
    pub offset: u32,
    /// Blocks, at least 1.
    pub blocks: u32,
    /// CRC-32C of the payload as stored.
    pub crc: u32,
    /// Blocks of [`REDO_BLOCK_BYTES`] of the payload that are stored with their first byte changed.
    pub escaped: u64,
}

/// The header of a record without its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedoHeader {
    /// The array.
    pub array: Uuid,
    /// The activation that wrote the record.
    pub epoch: Uuid,
    /// A generation of labels that was valid when the record was written.
    pub generation: u64,
    /// The ring of the record.
    pub ring: u16,
    /// Counts the records of the ring in this activation, from 1. Writes of the same blocks have increasing numbers.
    pub sequence: u64,
    /// Every record of the ring with a smaller number was stably executed when this record was written.
    pub floor: u64,
    /// The stripe that is written; 0 in a list of partial writes, each of which has its own.
    pub stripe: StripeIndex,
    /// Members that were not in sync.
    pub out: MemberSet,
    /// The replacement that was written together with a member, and the slot of the member.
    pub replacement: Option<(MemberIndex, Uuid)>,
}

impl RedoHeader {
    /// Returns the identifier of the record.
    #[must_use]
    pub const fn id(&self) -> RecordId {
        RecordId { ring: self.ring, sequence: self.sequence }
    }
}

/// The payload of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedoPayload {
    /// No payload; only the floor of the header counts. The record is a mark, or a list without entries.
    Nothing,
    /// The parts of the members by slot, at most one for each slot.
    Parts(Vec<RedoPart>),
    /// Partial writes.
    PartialWrites(Vec<PartialWrite>),
}

/// A decoded header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedoRecord {
    /// The header without its rows.
    pub header: RedoHeader,
    /// The rows.
    pub payload: RedoPayload,
}

impl RedoRecord {
    /// Returns the parts of the members.
    #[must_use]
    pub fn parts(&self) -> &[RedoPart] {
        match &self.payload {
            RedoPayload::Parts(parts) => parts,
            RedoPayload::Nothing | RedoPayload::PartialWrites(_) => &[],
        }
    }
}

/// Writes the header of a record at byte offset `offset` of a member into `out`.
///
/// # Panics
/// If `out` is not [`REDO_HEADER_BYTES`] long, or there are more parts than an array has members.
pub fn encode_redo(header: &RedoHeader, parts: &[RedoPart], offset: u64, out: &mut [u8]) {
    out.fill(0);
    encode_redo_again(header, parts, offset, out);
}

/// Like [`encode_redo`], but `out` already contains zeroes, or a header that one of the two functions wrote. Then most
/// of the block stays as it is.
///
/// # Panics
/// Like [`encode_redo`].
pub fn encode_redo_again(header: &RedoHeader, parts: &[RedoPart], offset: u64, out: &mut [u8]) {
    assert!(parts.len() <= MEMBERS_MAX, "an array has at most {MEMBERS_MAX} members");
    assert_eq!(out.len(), REDO_HEADER_BYTES, "a header is one block");
    let former = usize::from(out[AT_COUNT]).min(MEMBERS_MAX);
    out[AT_PARTS..AT_PARTS + former.max(parts.len()) * PART_BYTES].fill(0);
    for (part, row) in parts.iter().zip(out[AT_PARTS..].chunks_exact_mut(PART_BYTES)) {
        row[0] = part.slot.0;
        put(row, 4, &part.crc.to_le_bytes());
        put(row, 8, &part.offset.to_le_bytes());
        put(row, 12, &part.blocks.to_le_bytes());
        put(row, 16, &part.escaped.to_le_bytes());
        put(row, 24, &part.uuid.0);
    }
    let unused = &out[AT_PARTS + parts.len() * PART_BYTES..AT_CRC];
    debug_assert!(unused.iter().all(|byte| *byte == 0), "a used block contains only a header");
    head(header, parts.len() as u8, 0, offset, out);
    let crc = if parts.len() <= ROWS_SHORT {
        padded_crc(crc32c::crc32c(&out[..AT_ZEROES]))
    } else {
        crc32c::crc32c(&out[..AT_CRC])
    };
    put(out, AT_CRC, &crc.to_le_bytes());
}

/// Completes `out`, which contains only the rows, as the header of a record.
pub(crate) fn seal(
    header: &RedoHeader,
    parts: u8,
    partial_writes: u16,
    offset: u64,
    out: &mut [u8],
) {
    head(header, parts, partial_writes, offset, out);
    let crc = crc32c::crc32c(&out[..AT_CRC]);
    put(out, AT_CRC, &crc.to_le_bytes());
}

/// Writes the fields before the rows into `out`.
fn head(header: &RedoHeader, parts: u8, partial_writes: u16, offset: u64, out: &mut [u8]) {
    out[..AT_PARTS].fill(0);
    put(out, 0, &MAGIC);
    put(out, AT_VERSION, &VERSION.to_le_bytes());
    put(out, AT_RING, &header.ring.to_le_bytes());
    out[AT_COUNT] = parts;
    out[AT_REPLACEMENT_SLOT] = header.replacement.map_or(NO_SLOT, |(slot, _)| slot.0);
    put(out, AT_PARTIAL_WRITES, &partial_writes.to_le_bytes());
    put(out, AT_OFFSET, &offset.to_le_bytes());
    put(out, AT_ARRAY, &header.array.0);
    put(out, AT_EPOCH, &header.epoch.0);
    put(out, AT_GENERATION, &header.generation.to_le_bytes());
    put(out, AT_SEQUENCE, &header.sequence.to_le_bytes());
    put(out, AT_FLOOR, &header.floor.to_le_bytes());
    put(out, AT_STRIPE, &header.stripe.0.to_le_bytes());
    put(out, AT_OUT, &header.out.bits().to_le_bytes());
    put(out, AT_REPLACEMENT, &header.replacement.map_or(Uuid::NIL, |(_, uuid)| uuid).0);
}

/// Decodes the header in `bytes` from byte offset `offset` of a member. Returns `None` if it was not written there, or
/// if this program does not support it.
#[must_use]
pub fn decode_redo(bytes: &[u8], offset: u64) -> Option<RedoRecord> {
    if bytes.len() != REDO_HEADER_BYTES
        || bytes[..8] != MAGIC
        || crc32c::crc32c(&bytes[..AT_CRC]) != u32_at(bytes, AT_CRC)
        || u16_at(bytes, AT_VERSION) != VERSION
        || u64_at(bytes, AT_OFFSET) != offset
    {
        return None;
    }
    let replacement = bytes[AT_REPLACEMENT_SLOT];
    let header = RedoHeader {
        array: uuid_at(bytes, AT_ARRAY),
        epoch: uuid_at(bytes, AT_EPOCH),
        generation: u64_at(bytes, AT_GENERATION),
        ring: u16_at(bytes, AT_RING),
        sequence: u64_at(bytes, AT_SEQUENCE),
        floor: u64_at(bytes, AT_FLOOR),
        stripe: StripeIndex(u64_at(bytes, AT_STRIPE)),
        out: MemberSet::from_bits(u64_at(bytes, AT_OUT)),
        replacement: (replacement != NO_SLOT)
            .then(|| (MemberIndex(replacement), uuid_at(bytes, AT_REPLACEMENT))),
    };
    let rows = &bytes[AT_PARTS..AT_CRC];
    let payload = match (bytes[AT_COUNT], u16_at(bytes, AT_PARTIAL_WRITES)) {
        (0, 0) => RedoPayload::Nothing,
        (parts, 0) => RedoPayload::Parts(decode_parts(rows, parts.into())?),
        (0, writes) => RedoPayload::PartialWrites(decode_partial_writes(rows, writes)?),
        (1.., 1..) => return None,
    };
    Some(RedoRecord { header, payload })
}

/// Decodes the first `count` parts in `rows`. Returns `None` if there are fewer, or if two parts have the same slot.
fn decode_parts(rows: &[u8], count: usize) -> Option<Vec<RedoPart>> {
    let rows = rows.chunks_exact(PART_BYTES);
    let parts: Vec<RedoPart> = rows.take(count).map(decode_part).collect();
    let mut slots = 0_u64;
    for part in &parts {
        let bit = 1_u64.checked_shl(part.slot.0.into()).filter(|bit| slots & bit == 0)?;
        slots |= bit;
    }
    (parts.len() == count).then_some(parts)
}

fn decode_part(row: &[u8]) -> RedoPart {
    let [slot] = get(row, 0);
    RedoPart {
        slot: MemberIndex(slot),
        crc: u32_at(row, 4),
        offset: u32_at(row, 8),
        blocks: u32_at(row, 12),
        escaped: u64_at(row, 16),
        uuid: uuid_at(row, 24),
    }
}

/// Returns the CRC-32C of the bytes before [`AT_CRC`] of a header with at most [`ROWS_SHORT`] rows. `crc` is the
/// CRC-32C of the bytes before [`AT_ZEROES`]; the rest are zeroes.
fn padded_crc(crc: u32) -> u32 {
    let (mut rest, mut state) = (!crc, 0);
    for products in &PADDING {
        state ^= products[(rest & 15) as usize];
        rest >>= 4;
    }
    !state
}

/// The products of every half byte of the state of a CRC-32C with the zeroes of a header, lowest half byte first. To
/// append `n` zeroes to a message multiplies the state by `x^(8n)`.
const PADDING: [[u32; 16]; 8] = {
    let padding = power(8 * (AT_CRC - AT_ZEROES));
    let mut products = [[0; 16]; 8];
    let mut at = 0;
    while at < 128 {
        products[at / 16][at % 16] = multiply(((at % 16) << (at / 16 * 4)) as u32, padding);
        at += 1;
    }
    products
};

/// Returns the product of two polynomials modulo the polynomial of CRC-32C (RFC 3720, section 12.1). The highest bit is
/// the coefficient of 1.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let (mut product, mut bit) = (0, 1_u32 << 31);
    while bit > 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ if b & 1 == 0 { 0 } else { 0x82f6_3b78 };
        bit >>= 1;
    }
    product
}

/// Returns `x` to the power of `exponent`, modulo the same polynomial.
const fn power(mut exponent: usize) -> u32 {
    let (mut product, mut square) = (1_u32 << 31, 1_u32 << 30);
    while exponent > 0 {
        if exponent & 1 != 0 {
            product = multiply(product, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    product
}

/// True if `block`, a block of a payload, must be stored with its first byte changed by [`escape`].
#[must_use]
pub fn must_escape(block: &[u8]) -> bool {
    block.starts_with(&MAGIC)
}

/// Changes the first byte of `block`, or restores it.
pub fn escape(block: &mut [u8]) {
    if let Some(first) = block.first_mut() {
        *first ^= 0xff;
    }
}

/// Converts a stored `payload` into the data to write. Returns false if it does not match `part`.
#[must_use]
pub fn restore(part: &RedoPart, payload: &mut [u8]) -> bool {
    if crc32c::crc32c(payload) != part.crc {
        return false;
    }
    for (at, block) in payload.chunks_mut(REDO_BLOCK_BYTES).enumerate().take(64) {
        if part.escaped & 1 << at != 0 {
            escape(block);
        }
    }
    true
}
