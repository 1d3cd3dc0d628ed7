//! Header and data digests: CRC-32C (TCP, section 3.3.1.1 "PDU Digests").

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;

/// A digest under way, for bytes that lie in several places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u32);

impl Digest {
    /// The digest of what came before and `bytes`.
    #[must_use]
    pub fn and(self, bytes: &[u8]) -> Self {
        Self(crc32c::crc32c_append(self.0, bytes))
    }

    /// As it is on the wire.
    #[must_use]
    pub const fn bytes(self) -> [u8; DIGEST_BYTES] {
        self.0.to_le_bytes()
    }
}

/// The digest of bytes that lie in several places, as it is on the wire.
pub fn of_all<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; DIGEST_BYTES] {
    parts.into_iter().fold(Digest::default(), Digest::and).bytes()
}

/// The digest of bytes in one place, as it is on the wire.
#[must_use]
pub fn of(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    Digest::default().and(bytes).bytes()
}
