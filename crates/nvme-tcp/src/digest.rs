//! Header and data digests: CRC-32C (TCP, section 3.3.1.1 "PDU Digests").

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;

/// The digest of bytes that lie in several places, as it is on the wire.
pub fn of_all<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; DIGEST_BYTES] {
    parts.into_iter().fold(0, crc32c::crc32c_append).to_le_bytes()
}

/// The digest of bytes in one place, as it is on the wire.
#[must_use]
pub fn of(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    of_all([bytes])
}
