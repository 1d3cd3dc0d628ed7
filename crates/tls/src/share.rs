//! What both sides agree on that nobody else knows, even if the key becomes known later (RFC 8446, section 4.2.8).

use crate::error::{Alert, TlsError};
use ring::agreement::{
    Algorithm, ECDH_P256, ECDH_P384, EphemeralPrivateKey, UnparsedPublicKey, X25519,
    agree_ephemeral,
};
use ring::rand::SecureRandom;
use strake_nvme_auth::{self as auth, EXPONENT_BYTES};
use zeroize::Zeroizing;

/// A group for the exchange (RFC 8446, section 4.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Secp256r1 = 0x17,
    Secp384r1 = 0x18,
    X25519 = 0x1d,
    /// The one that all of NVMe/TCP must have (TCP, section 3.6.1.2).
    Ffdhe3072 = 0x101,
}

/// Those we know, in the order of preference: what is quick first.
pub(crate) const GROUPS: [Group; 4] =
    [Group::X25519, Group::Secp384r1, Group::Secp256r1, Group::Ffdhe3072];

impl Group {
    pub(crate) fn of(number: u16) -> Option<Self> {
        GROUPS.into_iter().find(|group| *group as u16 == number)
    }

    const fn curve(self) -> Option<&'static Algorithm> {
        match self {
            Self::Secp256r1 => Some(&ECDH_P256),
            Self::Secp384r1 => Some(&ECDH_P384),
            Self::X25519 => Some(&X25519),
            Self::Ffdhe3072 => None,
        }
    }
}

enum Private {
    Curve(EphemeralPrivateKey, &'static Algorithm),
    Field(Zeroizing<[u8; EXPONENT_BYTES]>),
}

/// One side's part of an exchange. It is used once.
pub(crate) struct Share {
    pub(crate) group: Group,
    /// What the other side is told.
    pub(crate) public: Vec<u8>,
    private: Private,
}

impl Share {
    pub(crate) fn new(group: Group, random: &dyn SecureRandom) -> Result<Self, TlsError> {
        let Some(curve) = group.curve() else {
            let mut exponent = Zeroizing::new([0; EXPONENT_BYTES]);
            random.fill(&mut *exponent)?;
            let public = auth::Group::Ffdhe3072.public(&exponent);
            return Ok(Self { group, public, private: Private::Field(exponent) });
        };
        let private = EphemeralPrivateKey::generate(curve, random)?;
        let public = private.compute_public_key()?.as_ref().to_vec();
        Ok(Self { group, public, private: Private::Curve(private, curve) })
    }

    /// What both have in common.
    pub(crate) fn agree(self, theirs: &[u8]) -> Result<Zeroizing<Vec<u8>>, TlsError> {
        let wrong = TlsError::Breach(Alert::IllegalParameter);
        match self.private {
            Private::Curve(private, curve) => {
                let theirs = UnparsedPublicKey::new(curve, theirs);
                agree_ephemeral(private, &theirs, |agreed| Zeroizing::new(agreed.to_vec()))
                    .map_err(|_| wrong)
            }
            Private::Field(exponent) => {
                let agreed = auth::Group::Ffdhe3072.shared(theirs, &exponent);
                agreed.map(Zeroizing::new).ok_or(wrong)
            }
        }
    }
}
