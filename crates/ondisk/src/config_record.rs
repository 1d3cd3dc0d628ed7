//! The record of the control plane on every member: opaque bytes in two [slots](crate::slot) of 256 KiB.

use strake_units::Uuid;

use crate::bytes::{get, put, u32_at, u64_at};
use crate::slot::Sequenced;

/// Bytes of one slot.
pub const CONFIG_SLOT_BYTES: usize = 256 << 10;
/// Bytes of a record in front of its content.
pub const CONFIG_HEADER_BYTES: usize = 64;
/// Maximum bytes of content.
pub const CONFIG_BYTES_MAX: usize = CONFIG_SLOT_BYTES - CONFIG_HEADER_BYTES;

const MAGIC: [u8; 8] = *b"STRAKECF";
const AT_ARRAY: usize = 8;
const AT_SEQUENCE: usize = 24;
const AT_BYTES: usize = 32;
const AT_DIGEST: usize = 36;
const AT_CRC: usize = 60;
const ALIGN: usize = 4096;

/// Encodes a record of `content`, padded with zeroes to a multiple of 4 KiB. Returns `None` if the content is longer
/// than [`CONFIG_BYTES_MAX`].
#[must_use]
pub fn encode_config(array: Uuid, sequence: u64, content: &[u8]) -> Option<Vec<u8>> {
    if content.len() > CONFIG_BYTES_MAX {
        return None;
    }
    let mut out = vec![0; (CONFIG_HEADER_BYTES + content.len()).next_multiple_of(ALIGN)];
    put(&mut out, 0, &MAGIC);
    put(&mut out, AT_ARRAY, &array.0);
    put(&mut out, AT_SEQUENCE, &sequence.to_le_bytes());
    put(&mut out, AT_BYTES, &(content.len() as u32).to_le_bytes());
    put(&mut out, AT_DIGEST, &blake3::hash(content).as_bytes()[..16]);
    put(&mut out, CONFIG_HEADER_BYTES, content);
    let crc = crc32c::crc32c(&out[..AT_CRC]);
    put(&mut out, AT_CRC, &crc.to_le_bytes());
    Some(out)
}

/// Returns the bytes of a record whose first 4 KiB are `start`, at most [`CONFIG_SLOT_BYTES`]. Returns 4 KiB without a
/// record.
#[must_use]
pub fn config_bytes(start: &[u8]) -> usize {
    if start.len() < CONFIG_HEADER_BYTES || start[..8] != MAGIC {
        return ALIGN;
    }
    let length = (u32_at(start, AT_BYTES) as usize).min(CONFIG_BYTES_MAX);
    (CONFIG_HEADER_BYTES + length).next_multiple_of(ALIGN)
}

/// Decodes the content of a record of `array`. Returns `None` if the bytes are not a valid record.
#[must_use]
pub fn decode_config(bytes: &[u8], array: Uuid) -> Option<Sequenced<Vec<u8>>> {
    let sound = bytes.len() >= CONFIG_HEADER_BYTES
        && bytes[..8] == MAGIC
        && crc32c::crc32c(&bytes[..AT_CRC]) == u32_at(bytes, AT_CRC)
        && get::<16>(bytes, AT_ARRAY) == array.0;
    if !sound {
        return None;
    }
    let length = u32_at(bytes, AT_BYTES) as usize;
    let content = bytes.get(CONFIG_HEADER_BYTES..CONFIG_HEADER_BYTES.checked_add(length)?)?;
    let whole = blake3::hash(content).as_bytes()[..16] == get::<16>(bytes, AT_DIGEST);
    whole.then(|| Sequenced { sequence: u64_at(bytes, AT_SEQUENCE), record: content.to_vec() })
}
