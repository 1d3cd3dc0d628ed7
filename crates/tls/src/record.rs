//! Records of one direction (RFC 8446, section 5).

use crate::error::{Alert, TlsError};
use crate::limits::{BODY_BYTES_MAX, DATA_BYTES_MAX, HEADER_BYTES, OVERHEAD_BYTES};
use crate::schedule::{expand, hkdf_of};
use ring::aead::{self, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{KeyType, Okm, Prk};
use std::ops::Range;
use strake_nvme_auth::PskHash;

/// Types of records.
pub(crate) mod content {
    pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
    pub(crate) const ALERT: u8 = 21;
    pub(crate) const HANDSHAKE: u8 = 22;
    pub(crate) const DATA: u8 = 23;
}

/// What is in front of a record.
#[derive(Clone, Copy)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    /// Bytes behind it.
    pub(crate) body: usize,
}

impl Header {
    /// Reads one, if it is there. The version in it means nothing but that TLS is spoken.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>, TlsError> {
        let Some(&[kind, major, _, high, low]) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        if !(content::CHANGE_CIPHER_SPEC..=content::DATA).contains(&kind) || major != 3 {
            return Err(TlsError::Breach(Alert::UnexpectedMessage));
        }
        let body = usize::from(u16::from_be_bytes([high, low]));
        let most = if kind == content::DATA { BODY_BYTES_MAX } else { DATA_BYTES_MAX };
        if body > most {
            return Err(TlsError::Breach(Alert::RecordOverflow));
        }
        Ok(Some(Self { kind, body }))
    }
}

/// What the nonces of a key are made of.
struct Iv([u8; NONCE_LEN]);

struct IvLength;

impl KeyType for IvLength {
    fn len(&self) -> usize {
        NONCE_LEN
    }
}

impl From<Okm<'_, IvLength>> for Iv {
    fn from(okm: Okm<'_, IvLength>) -> Self {
        let mut iv = [0; NONCE_LEN];
        okm.fill(&mut iv).expect("the length is the same");
        Self(iv)
    }
}

/// The keys of one direction, and how far they were used.
pub(crate) struct Half {
    hash: PskHash,
    secret: Prk,
    key: LessSafeKey,
    iv: [u8; NONCE_LEN],
    sequence: u64,
    /// Blocks of 16 bytes that went through the key.
    blocks: u64,
}

impl Half {
    pub(crate) fn new(hash: PskHash, secret: Prk) -> Result<Self, TlsError> {
        let algorithm = match hash {
            PskHash::Sha256 => &aead::AES_128_GCM,
            PskHash::Sha384 => &aead::AES_256_GCM,
        };
        let key: UnboundKey = expand(&secret, ("key", &[]), algorithm)?;
        let Iv(iv) = expand(&secret, ("iv", &[]), IvLength)?;
        Ok(Self { hash, secret, key: LessSafeKey::new(key), iv, sequence: 0, blocks: 0 })
    }

    /// Goes on with the keys that follow these (RFC 8446, section 7.2).
    pub(crate) fn update(&mut self) -> Result<(), TlsError> {
        let next = expand(&self.secret, ("traffic upd", &[]), hkdf_of(self.hash))?;
        *self = Self::new(self.hash, next)?;
        Ok(())
    }

    pub(crate) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// A nonce is used once: the number of the record is in it.
    fn nonce(&mut self, bytes: usize) -> Result<Nonce, TlsError> {
        let mut nonce = self.iv;
        for (byte, number) in nonce[NONCE_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence =
            self.sequence.checked_add(1).ok_or(TlsError::Breach(Alert::InternalError))?;
        self.blocks += bytes.div_ceil(16) as u64;
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    /// Seals what lies behind the room for a header at the beginning of `room`, `count` bytes of it. Returns the bytes
    /// of the record.
    pub(crate) fn seal(
        &mut self,
        kind: u8,
        room: &mut [u8],
        count: usize,
    ) -> Result<usize, TlsError> {
        let total = count + OVERHEAD_BYTES;
        let length = ((total - HEADER_BYTES) as u16).to_be_bytes();
        let header = [content::DATA, 3, 3, length[0], length[1]];
        room[..HEADER_BYTES].copy_from_slice(&header);
        let inside = HEADER_BYTES..HEADER_BYTES + count + 1;
        room[inside.end - 1] = kind;
        let nonce = self.nonce(count)?;
        let sealed = &mut room[inside.clone()];
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), sealed)?;
        room[inside.end..total].copy_from_slice(tag.as_ref());
        Ok(total)
    }

    /// Opens a whole record. Returns its true type, and where in it the data is.
    pub(crate) fn open(&mut self, record: &mut [u8]) -> Result<(u8, Range<usize>), TlsError> {
        let (header, body) = record.split_at_mut(HEADER_BYTES);
        let nonce = self.nonce(body.len())?;
        let inside = self
            .key
            .open_in_place(nonce, Aad::from(&*header), body)
            .map_err(|_| TlsError::Breach(Alert::BadRecordMac))?;
        // Zeros behind the type are padding.
        let at = inside.iter().rposition(|&byte| byte != 0);
        let at = at.ok_or(TlsError::Breach(Alert::UnexpectedMessage))?;
        if at > DATA_BYTES_MAX {
            return Err(TlsError::Breach(Alert::RecordOverflow));
        }
        Ok((inside[at], HEADER_BYTES..HEADER_BYTES + at))
    }
}

/// Puts a sealed record of its own behind `out`.
pub(crate) fn put_sealed(
    out: &mut Vec<u8>,
    half: &mut Half,
    kind: u8,
    body: &[u8],
) -> Result<(), TlsError> {
    let mut record = vec![0; body.len() + OVERHEAD_BYTES];
    record[HEADER_BYTES..HEADER_BYTES + body.len()].copy_from_slice(body);
    half.seal(kind, &mut record, body.len())?;
    out.extend(record);
    Ok(())
}

#[cfg(test)]
impl Half {
    pub(crate) fn wear_out_for_test(&mut self) {
        self.blocks = crate::limits::BLOCKS_PER_KEY_MAX;
    }
}
