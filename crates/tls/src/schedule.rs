//! What keys are made of (RFC 8446, section 7).

use crate::error::TlsError;
use ring::hkdf::{self, KeyType, Okm, Prk, Salt};
use ring::{digest, hmac};
use strake_nvme_auth::PskHash;

pub(crate) const fn hkdf_of(hash: PskHash) -> hkdf::Algorithm {
    match hash {
        PskHash::Sha256 => hkdf::HKDF_SHA256,
        PskHash::Sha384 => hkdf::HKDF_SHA384,
    }
}

const fn hmac_of(hash: PskHash) -> hmac::Algorithm {
    match hash {
        PskHash::Sha256 => hmac::HMAC_SHA256,
        PskHash::Sha384 => hmac::HMAC_SHA384,
    }
}

const fn digest_of(hash: PskHash) -> &'static digest::Algorithm {
    match hash {
        PskHash::Sha256 => &digest::SHA256,
        PskHash::Sha384 => &digest::SHA384,
    }
}

/// HKDF-Expand-Label, for what is made of it. Labels are those of RFC 8446, contexts are hashes.
pub(crate) fn expand<L: KeyType, R: for<'a> From<Okm<'a, L>>>(
    secret: &Prk,
    (label, context): (&str, &[u8]),
    kind: L,
) -> Result<R, TlsError> {
    let length = (kind.len() as u16).to_be_bytes();
    let (prefix, context_bytes) = (b"tls13 ", [context.len() as u8]);
    let label_bytes = [(prefix.len() + label.len()) as u8];
    let info: [&[u8]; 6] =
        [&length, &label_bytes, prefix, label.as_bytes(), &context_bytes, context];
    Ok(R::from(secret.expand(&info, kind)?))
}

/// The messages of a handshake so far.
#[derive(Clone)]
pub(crate) struct Transcript {
    hash: PskHash,
    context: digest::Context,
}

impl Transcript {
    pub(crate) fn new(hash: PskHash) -> Self {
        Self { hash, context: digest::Context::new(digest_of(hash)) }
    }

    /// One that begins with a first hello that was answered with a request for another (RFC 8446, section 4.4.1).
    pub(crate) fn retried(hash: PskHash, first: &[u8], request: &[u8]) -> Self {
        let first = digest::digest(digest_of(hash), first);
        let mut transcript = Self::new(hash);
        transcript.add(&[254, 0, 0, hash.bytes() as u8]);
        transcript.add(first.as_ref());
        transcript.add(request);
        transcript
    }

    pub(crate) fn add(&mut self, message: &[u8]) {
        self.context.update(message);
    }

    pub(crate) fn value(&self) -> digest::Digest {
        self.context.clone().finish()
    }

    pub(crate) const fn hash(&self) -> PskHash {
        self.hash
    }
}

/// A secret from which others are derived, all with one hash function.
pub(crate) struct Stem {
    hash: PskHash,
    secret: Prk,
}

impl Stem {
    /// The early secret.
    pub(crate) fn of_key(hash: PskHash, psk: &[u8]) -> Self {
        Self { hash, secret: Salt::new(hkdf_of(hash), &[]).extract(psk) }
    }

    /// Derive-Secret.
    pub(crate) fn derive(&self, label: &str, context: &[u8]) -> Result<Prk, TlsError> {
        expand(&self.secret, (label, context), hkdf_of(self.hash))
    }

    /// The next secret: what this one is and `input` together.
    fn next(&self, input: &[u8]) -> Result<Self, TlsError> {
        let nothing = digest::digest(digest_of(self.hash), &[]);
        let label = ("derived", nothing.as_ref());
        let salt: Salt = expand(&self.secret, label, hkdf_of(self.hash))?;
        Ok(Self { hash: self.hash, secret: salt.extract(input) })
    }

    /// The handshake secret, of an early secret and what both sides agreed on.
    pub(crate) fn with_agreed(&self, agreed: &[u8]) -> Result<Self, TlsError> {
        self.next(agreed)
    }

    /// The master secret, of a handshake secret.
    pub(crate) fn master(&self) -> Result<Self, TlsError> {
        self.next(&[0; 48][..self.hash.bytes()])
    }

    /// What proves that whoever sent a hello knows the key, for what is in the transcript (RFC 8446, section 4.2.11.2).
    pub(crate) fn binder(&self, transcript: &Transcript) -> Result<hmac::Tag, TlsError> {
        let key = self.binder_key()?;
        Ok(hmac::sign(&key, transcript.value().as_ref()))
    }

    /// Whether a binder is what it must be, in a time that does not tell where it is not.
    pub(crate) fn is_bound(
        &self,
        transcript: &Transcript,
        binder: &[u8],
    ) -> Result<bool, TlsError> {
        let key = self.binder_key()?;
        Ok(hmac::verify(&key, transcript.value().as_ref(), binder).is_ok())
    }

    fn binder_key(&self) -> Result<hmac::Key, TlsError> {
        let nothing = digest::digest(digest_of(self.hash), &[]);
        finished_key(self.hash, &self.derive("ext binder", nothing.as_ref())?)
    }
}

/// What a side proves at the end of a handshake that it made the same keys with (RFC 8446, section 4.4.4).
pub(crate) fn finished_key(hash: PskHash, secret: &Prk) -> Result<hmac::Key, TlsError> {
    expand(secret, ("finished", &[]), hmac_of(hash))
}
