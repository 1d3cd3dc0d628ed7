//! What each side computes to prove that it knows its secret.

use crate::secret::Secret;
use ring::{digest, hmac};

/// A hash function (Base, Figure 449).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hash {
    /// SHA-256.
    Sha256 = 1,
    /// SHA-384.
    Sha384 = 2,
    /// SHA-512.
    Sha512 = 3,
}

/// Bytes of the longest hash.
pub(crate) const HASH_BYTES_MAX: usize = 64;

impl Hash {
    /// The function of this number.
    #[must_use]
    pub const fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Sha256,
            2 => Self::Sha384,
            3 => Self::Sha512,
            _ => return None,
        })
    }

    /// Bytes of its output.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    fn algorithm(self) -> hmac::Algorithm {
        match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}

/// HMAC over parts, one behind the other.
pub(crate) fn hmac(hash: Hash, key: &[u8], parts: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hash.algorithm(), key));
    parts.iter().for_each(|part| context.update(part));
    context.sign()
}

/// Who talks to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// The host's NQN.
    pub host: String,
    /// The subsystem's NQN.
    pub subsystem: String,
}

/// Whose response it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The host's.
    Host,
    /// The controller's.
    Controller,
}

/// What is responded to.
#[derive(Clone, Copy)]
pub struct Challenge<'a> {
    /// The hash function agreed on.
    pub hash: Hash,
    /// The value itself.
    pub value: &'a [u8],
    /// What both sides made of the key exchange, if there was one.
    pub session: Option<&'a [u8]>,
    /// Its number.
    pub sequence: u32,
    /// The number of the conversation.
    pub transaction: u16,
}

/// The response to a challenge (Base, sections 8.13.5.4 and 8.13.5.5).
#[must_use]
pub fn respond(side: Side, secret: &Secret, names: &Names, challenge: &Challenge<'_>) -> hmac::Tag {
    let (label, first, second): (&[u8], _, _) = match side {
        Side::Host => (b"HostHost", &names.host, &names.subsystem),
        Side::Controller => (b"Controller", &names.subsystem, &names.host),
    };
    let key = secret.of(first);
    let augmented = challenge.session.map(|session| augment(challenge, session));
    let value = augmented.as_ref().map_or(challenge.value, AsRef::as_ref);
    let (sequence, transaction) =
        (challenge.sequence.to_le_bytes(), challenge.transaction.to_le_bytes());
    // One zero says that no secure channel is to follow, the other separates the names.
    let parts: [&[u8]; 8] =
        [value, &sequence, &transaction, &[0], label, first.as_bytes(), &[0], second.as_bytes()];
    hmac(challenge.hash, key.as_ref(), &parts)
}

/// A challenge that only those can respond to who took part in the key exchange (Base, section 8.13.5.4).
fn augment(challenge: &Challenge<'_>, session: &[u8]) -> hmac::Tag {
    let algorithm = match challenge.hash {
        Hash::Sha256 => &digest::SHA256,
        Hash::Sha384 => &digest::SHA384,
        Hash::Sha512 => &digest::SHA512,
    };
    let key = digest::digest(algorithm, session);
    hmac(challenge.hash, key.as_ref(), &[challenge.value])
}

/// Whether two responses are the same, in a time that does not depend on where they differ: both are hashed under a
/// fixed key, and ring compares hashes in constant time.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"equal");
    hmac::verify(&key, one, hmac::sign(&key, other).as_ref()).is_ok()
}
