//! What each side computes to prove that it knows its secret.

use crate::secret::Secret;
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

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

    fn digest(self, bytes: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        })
    }
}

/// HMAC over parts, one behind the other.
pub(crate) fn hmac(hash: Hash, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    match hash {
        Hash::Sha256 => finish(over::<Hmac<Sha256>>(key, parts)),
        Hash::Sha384 => finish(over::<Hmac<Sha384>>(key, parts)),
        Hash::Sha512 => finish(over::<Hmac<Sha512>>(key, parts)),
    }
}

fn over<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
    let mut mac = <M as Mac>::new_from_slice(key).expect("HMAC takes a key of any length");
    parts.iter().for_each(|part| mac.update(part));
    mac
}

fn finish(mac: impl Mac) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(mac.finalize().into_bytes().to_vec())
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
    /// The transaction identifier (T_ID).
    pub transaction: u16,
}

/// The response to a challenge (Base, sections 8.13.5.4 and 8.13.5.5).
#[must_use]
pub fn respond(
    side: Side,
    secret: &Secret,
    names: &Names,
    challenge: &Challenge<'_>,
) -> Zeroizing<Vec<u8>> {
    let (label, first, second): (&[u8], _, _) = match side {
        Side::Host => (b"HostHost", &names.host, &names.subsystem),
        Side::Controller => (b"Controller", &names.subsystem, &names.host),
    };
    let key = secret.of(first);
    let augmented = challenge.session.map(|session| augment(challenge, session));
    let value = augmented.as_ref().map_or(challenge.value, |value| value);
    let (sequence, transaction) =
        (challenge.sequence.to_le_bytes(), challenge.transaction.to_le_bytes());
    // One zero says that no secure channel is to follow, the other separates the names.
    let parts: [&[u8]; 8] =
        [value, &sequence, &transaction, &[0], label, first.as_bytes(), &[0], second.as_bytes()];
    hmac(challenge.hash, &key, &parts)
}

/// A challenge that only those can respond to who took part in the key exchange (Base, section 8.13.5.4).
fn augment(challenge: &Challenge<'_>, session: &[u8]) -> Zeroizing<Vec<u8>> {
    hmac(challenge.hash, &challenge.hash.digest(session), &[challenge.value])
}

/// Whether two responses are the same, in a time that does not depend on where they differ: both are hashed under a
/// fixed key, and the hashes are compared in constant time.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let hashed = |response| over::<Hmac<Sha256>>(b"equal", &[response]);
    hashed(one).verify_slice(&finish(hashed(other))).is_ok()
}
