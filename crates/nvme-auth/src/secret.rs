//! What both sides know.

use crate::proof::{Hash, hmac};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// A secret of 32, 48 or 64 bytes. It is never shown, except to the operator who had it made.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    key: Vec<u8>,
    /// How the key is made one for a single name.
    transform: Option<Hash>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

/// Why a text is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecretError {
    /// It does not look like `DHHC-1:hh:...:`.
    Format,
    /// `hh` is none of 00 to 03.
    Transform,
    /// The key has none of 32, 48 and 64 bytes.
    Length,
    /// The key is not what its checksum says: something was mistyped or cut off.
    Checksum,
}

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "a secret is DHHC-1:hh:...: with base64 between the last two colons",
            Self::Transform => "the second part of a secret is one of 00, 01, 02 and 03",
            Self::Length => "a secret has 32, 48 or 64 bytes",
            Self::Checksum => "the secret's checksum is wrong: it was mistyped or cut off",
        })
    }
}

impl std::error::Error for SecretError {}

/// The interchange format (Base, section 8.13.5.8 "DH-HMAC-CHAP Secrets"): the key and its CRC-32, in base64.
impl FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        let rest = text.trim().strip_prefix("DHHC-1:").ok_or(SecretError::Format)?;
        let rest = rest.strip_suffix(':').ok_or(SecretError::Format)?;
        let (transform, encoded) = rest.split_once(':').ok_or(SecretError::Format)?;
        let transform = match transform {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Transform),
        };
        let mut key = STANDARD.decode(encoded).map_err(|_| SecretError::Format)?;
        let length = key.len().checked_sub(4).ok_or(SecretError::Length)?;
        if !matches!(length, 32 | 48 | 64) {
            return Err(SecretError::Length);
        }
        let said = key.split_off(length);
        if crc32(&key).to_le_bytes() != said[..] {
            return Err(SecretError::Checksum);
        }
        Ok(Self { key, transform })
    }
}

/// A key as it is.
impl From<[u8; 32]> for Secret {
    fn from(key: [u8; 32]) -> Self {
        Self { key: key.to_vec(), transform: None }
    }
}

/// CRC-32 as of Ethernet and gzip (Base names RFC 1952, section 8).
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

impl Secret {
    /// The secret as people exchange it (Base, section 8.13.5.8).
    #[must_use]
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(self.key.clone());
        bytes.extend(crc32(&self.key).to_le_bytes());
        let transform = match self.transform {
            None => "00",
            Some(Hash::Sha256) => "01",
            Some(Hash::Sha384) => "02",
            Some(Hash::Sha512) => "03",
        };
        let encoded = Zeroizing::new(STANDARD.encode(&*bytes));
        Zeroizing::new(format!("DHHC-1:{transform}:{}:", *encoded))
    }

    /// The key that the host or controller of this name uses (Base, section 8.13.5.8).
    pub(crate) fn of(&self, nqn: &str) -> Zeroizing<Vec<u8>> {
        match self.transform {
            None => Zeroizing::new(self.key.clone()),
            Some(hash) => hmac(hash, &self.key, &[nqn.as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}
