//! The keys of NVMe/TCP's secure channels: what people exchange, and what TLS is given.
//!
//! ```text
//! configured PSK --HostNQN--> retained PSK --nvme-tls-psk, identity--> TLS PSK
//! ```
//! (*NVM Express TCP Transport Specification 1.0*, section 3.6.1, called TCP here; PSK identities of version 1 are of
//! revision 1.1.) A key is one between a host and all subsystems it connects to; what TLS is given differs for each.

use crate::proof::{Hash, Names, hmac};
use crate::secret::crc32;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::str::FromStr;
use zeroize::Zeroizing;

/// Bytes of the longest label's or context's text in HKDF-Expand-Label (RFC 8446, section 7.1).
const FIELD_BYTES_MAX: usize = 255;

/// The hash function of a cipher suite, and of a key for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PskHash {
    /// SHA-256, of `TLS_AES_128_GCM_SHA256`.
    Sha256 = 1,
    /// SHA-384, of `TLS_AES_256_GCM_SHA384`.
    Sha384 = 2,
}

impl PskHash {
    /// Bytes of its output.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }

    fn of(digits: &str) -> Option<Self> {
        match digits {
            "01" => Some(Self::Sha256),
            "02" => Some(Self::Sha384),
            _ => None,
        }
    }

    const fn digits(self) -> &'static str {
        match self {
            Self::Sha256 => "01",
            Self::Sha384 => "02",
        }
    }

    const fn of_length(bytes: usize) -> Self {
        if bytes == 48 { Self::Sha384 } else { Self::Sha256 }
    }

    const fn for_hmac(self) -> Hash {
        match self {
            Self::Sha256 => Hash::Sha256,
            Self::Sha384 => Hash::Sha384,
        }
    }
}

/// The configured key of a host, of 32 or 48 bytes. It is never shown, except to the operator who had it made.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsKey {
    key: Zeroizing<Vec<u8>>,
    /// How the key is made one for a single host.
    transform: Option<PskHash>,
}

impl fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsKey").finish_non_exhaustive()
    }
}

/// Why a text is no key for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsKeyError {
    /// It does not look like `NVMeTLSkey-1:hh:...:`.
    Format,
    /// `hh` is none of 00 to 02.
    Transform,
    /// The key has not as many bytes as `hh` wants.
    Length,
    /// The key is not what its checksum says: something was mistyped or cut off.
    Checksum,
}

impl fmt::Display for TlsKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => {
                "a key for TLS is NVMeTLSkey-1:hh:...: with base64 between the last two colons"
            }
            Self::Transform => "the second part of a key for TLS is one of 00, 01 and 02",
            Self::Length => "a key for TLS has 32 bytes, or 48 with 00 or 02",
            Self::Checksum => "the key's checksum is wrong: it was mistyped or cut off",
        })
    }
}

impl std::error::Error for TlsKeyError {}

/// The interchange format (TCP, section 3.6.1.5): the key and its CRC-32, in base64. Whether a 32-byte key may go with
/// 02 is not said there; tools neither make nor take one, because such a key would be weaker than its cipher suite.
impl FromStr for TlsKey {
    type Err = TlsKeyError;

    fn from_str(text: &str) -> Result<Self, TlsKeyError> {
        let rest = text.trim().strip_prefix("NVMeTLSkey-1:").ok_or(TlsKeyError::Format)?;
        let rest = rest.strip_suffix(':').ok_or(TlsKeyError::Format)?;
        let (transform, encoded) = rest.split_once(':').ok_or(TlsKeyError::Format)?;
        let transform = match transform {
            "00" => None,
            digits => Some(PskHash::of(digits).ok_or(TlsKeyError::Transform)?),
        };
        let mut key = Zeroizing::new(STANDARD.decode(encoded).map_err(|_| TlsKeyError::Format)?);
        let length = key.len().checked_sub(4).ok_or(TlsKeyError::Length)?;
        let fits = match transform {
            None => matches!(length, 32 | 48),
            Some(hash) => length == hash.bytes(),
        };
        if !fits {
            return Err(TlsKeyError::Length);
        }
        let said = key.split_off(length);
        if crc32(&key).to_le_bytes() != said[..] {
            return Err(TlsKeyError::Checksum);
        }
        Ok(Self { key, transform })
    }
}

/// A new key for `TLS_AES_128_GCM_SHA256`, of random bytes: one that every host can use.
impl From<[u8; 32]> for TlsKey {
    fn from(key: [u8; 32]) -> Self {
        Self { key: Zeroizing::new(key.to_vec()), transform: Some(PskHash::Sha256) }
    }
}

/// What TLS is given.
pub struct Psk {
    /// How the host names the key.
    pub identity: String,
    /// What it goes with.
    pub hash: PskHash,
    /// The key itself.
    pub secret: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Psk").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// How the input of HKDF encodes what a key is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Labels {
    /// As RFC 8446 says.
    Specified,
    /// As nvme-cli did for years: the length least significant byte first, and no lengths of label and context. Hosts
    /// whose keys it put into the kernel have such ones.
    Unframed,
}

/// HKDF-Expand-Label of what HKDF-Extract makes of `input` without a salt, as long as the hash function's output: one
/// block (RFC 5869, section 2.3). `None` when the context is too long for it.
fn derive(
    hash: PskHash,
    input: &[u8],
    (label, context): (&str, &str),
    labels: Labels,
) -> Option<Zeroizing<Vec<u8>>> {
    let length = hash.bytes();
    let mut info = Vec::new();
    if labels == Labels::Specified {
        info.extend((length as u16).to_be_bytes());
        info.push((b"tls13 ".len() + label.len()) as u8);
    } else {
        info.extend((length as u16).to_le_bytes());
    }
    info.extend(b"tls13 ");
    info.extend(label.as_bytes());
    if context.len() > FIELD_BYTES_MAX {
        return None;
    }
    if labels == Labels::Specified {
        info.push(context.len() as u8);
    }
    info.extend(context.as_bytes());
    let hash = hash.for_hmac();
    let key = hmac(hash, &[], &[input]);
    Some(hmac(hash, &key, &[&info, &[1]]))
}

impl TlsKey {
    /// The key as people exchange it.
    #[must_use]
    pub fn reveal(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(self.key.to_vec());
        bytes.extend(crc32(&self.key).to_le_bytes());
        let transform = self.transform.map_or("00", PskHash::digits);
        let encoded = Zeroizing::new(STANDARD.encode(&*bytes));
        Zeroizing::new(format!("NVMeTLSkey-1:{transform}:{}:", *encoded))
    }

    /// The keys that a host offers to a subsystem, the one to be preferred first.
    #[must_use]
    pub fn offers(&self, names: &Names) -> Vec<Psk> {
        let hash = self.transform.unwrap_or(PskHash::of_length(self.key.len()));
        let offer = |version| self.psk(names, (version, hash), Labels::Specified);
        [Version::One, Version::Zero].into_iter().filter_map(offer).collect()
    }

    /// The keys that a host may mean by an identity: none when the identity is not one that this key has.
    #[must_use]
    pub fn meant_by(&self, identity: &Identity<'_>) -> Vec<Psk> {
        let names = Names { host: identity.host.into(), subsystem: identity.subsystem.into() };
        let version = if identity.digest.is_some() { Version::One } else { Version::Zero };
        let psk = |labels| self.psk(&names, (version, identity.hash), labels);
        let known = [Labels::Specified, Labels::Unframed].into_iter().filter_map(psk);
        known.filter(|psk| psk.identity == identity.text).collect()
    }

    fn psk(
        &self,
        names: &Names,
        (version, hash): (Version, PskHash),
        labels: Labels,
    ) -> Option<Psk> {
        let Names { host, subsystem } = names;
        let retained = match self.transform {
            None => self.key.clone(),
            Some(transform) => derive(transform, &self.key, ("HostNQN", host), labels)?,
        };
        let digits = hash.digits();
        let (identity, context) = match version {
            Version::Zero => {
                let identity = format!("NVMe0R{digits} {host} {subsystem}");
                (identity.clone(), identity)
            }
            Version::One => {
                let parts: [&[u8]; 4] =
                    [host.as_bytes(), b" ", subsystem.as_bytes(), b" NVMe-over-Fabrics"];
                let digest = STANDARD.encode(hmac(hash.for_hmac(), &retained, &parts));
                let identity = format!("NVMe1R{digits} {host} {subsystem} {digest}");
                (identity, format!("{digits} {digest}"))
            }
        };
        let secret = derive(hash, &retained, ("nvme-tls-psk", &context), labels)?;
        Some(Psk { identity, hash, secret })
    }
}

/// The version of an identity.
#[derive(Clone, Copy)]
enum Version {
    Zero,
    One,
}

/// What an identity says: `NVMe0R01 host subsystem`, or `NVMe1R01 host subsystem digest` (TCP, section 3.6.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    text: &'a str,
    hash: PskHash,
    /// The host's NQN.
    pub host: &'a str,
    /// The subsystem's NQN.
    pub subsystem: &'a str,
    /// What the host made of its key and the names; version 1 only.
    digest: Option<&'a str>,
}

impl<'a> Identity<'a> {
    /// Reads one; `None` when it is of no retained key of a host.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut parts = text.split(' ');
        let (kind, hash) = parts.next()?.split_at_checked(6)?;
        let (host, subsystem) = (parts.next()?, parts.next()?);
        let digest = match kind {
            "NVMe0R" => None,
            "NVMe1R" => Some(parts.next()?),
            _ => return None,
        };
        let hash = PskHash::of(hash)?;
        parts.next().is_none().then_some(Self { text, hash, host, subsystem, digest })
    }
}

#[cfg(test)]
mod tests;
