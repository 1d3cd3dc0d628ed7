//! Messages as bytes (Base, sections 8.13.5.2 to 8.13.5.7).

use crate::exchange::Failure;
use crate::group::Group;
use crate::proof::Hash;

/// `AUTH_TYPE` of messages that all protocols have.
pub(crate) const COMMON: u8 = 0x00;
/// `AUTH_TYPE` of those of DH-HMAC-CHAP.
pub(crate) const DH_HMAC_CHAP: u8 = 0x01;

/// Identifiers of messages.
pub(crate) mod id {
    pub(crate) const NEGOTIATE: u8 = 0x00;
    pub(crate) const CHALLENGE: u8 = 0x01;
    pub(crate) const REPLY: u8 = 0x02;
    pub(crate) const SUCCESS_1: u8 = 0x03;
    pub(crate) const SUCCESS_2: u8 = 0x04;
    pub(crate) const FAILURE_2: u8 = 0xf0;
    pub(crate) const FAILURE_1: u8 = 0xf1;
}

/// The beginning of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lead {
    pub(crate) kind: u8,
    pub(crate) id: u8,
    pub(crate) transaction: u16,
}

impl Lead {
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let &[kind, id, _, _, low, high, ..] = bytes else { return None };
        Some(Self { kind, id, transaction: u16::from_le_bytes([low, high]) })
    }

    fn bytes(self) -> Vec<u8> {
        let [low, high] = self.transaction.to_le_bytes();
        vec![self.kind, self.id, 0, 0, low, high]
    }
}

/// What a host offers, of the one protocol there is.
pub(crate) struct Negotiate<'a> {
    /// Whether it requests a secure channel to follow.
    pub(crate) secure_channel: u8,
    pub(crate) hashes: &'a [u8],
    pub(crate) groups: &'a [u8],
}

const PROTOCOL_BYTES: usize = 64;
/// Room for identifiers of hashes, and behind them of groups.
const IDS: usize = 30;

impl<'a> Negotiate<'a> {
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (&secure_channel, &count) = (bytes.get(6)?, bytes.get(7)?);
        let protocols = bytes.get(8..8 + usize::from(count) * PROTOCOL_BYTES)?;
        let mut protocols = protocols.chunks_exact(PROTOCOL_BYTES);
        let ours = protocols.find(|protocol| protocol[0] == DH_HMAC_CHAP)?;
        let ids = &ours[4..];
        let hashes = ids[..IDS].get(..usize::from(ours[2]))?;
        let groups = ids[IDS..].get(..usize::from(ours[3]))?;
        Some(Self { secure_channel, hashes, groups })
    }
}

/// The controller's challenge.
pub(crate) fn challenge(
    transaction: u16,
    (hash, group): (Hash, Group),
    sequence: u32,
    (value, public): (&[u8], &[u8]),
) -> Vec<u8> {
    let mut out = Lead { kind: DH_HMAC_CHAP, id: id::CHALLENGE, transaction }.bytes();
    out.extend([hash.bytes() as u8, 0, hash as u8, group as u8]);
    out.extend((public.len() as u16).to_le_bytes());
    out.extend(sequence.to_le_bytes());
    out.extend(value);
    out.extend(public);
    out
}

/// The host's reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    pub(crate) response: &'a [u8],
    /// The host's own challenge, if the controller has to prove itself too.
    pub(crate) challenge: Option<&'a [u8]>,
    pub(crate) public: &'a [u8],
    pub(crate) sequence: u32,
}

impl<'a> Reply<'a> {
    /// Reads it; its hash must be of as many bytes.
    pub(crate) fn parse(bytes: &'a [u8], hash_bytes: usize) -> Option<Self> {
        let head: &[u8; 16] = bytes.first_chunk()?;
        if usize::from(head[6]) != hash_bytes {
            return None;
        }
        let rest = &bytes[16..];
        let public_bytes = usize::from(u16::from_le_bytes([head[10], head[11]]));
        let (response, rest) = rest.split_at_checked(hash_bytes)?;
        let (value, rest) = rest.split_at_checked(hash_bytes)?;
        let public = rest.get(..public_bytes)?;
        let sequence = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
        let challenge = (head[8] & 1 != 0).then_some(value);
        Some(Self { response, challenge, public, sequence })
    }
}

/// The controller's word that the host is who it says, with its own response if the host asked for one.
pub(crate) fn success(transaction: u16, hash: Hash, response: Option<&[u8]>) -> Vec<u8> {
    let mut out = Lead { kind: DH_HMAC_CHAP, id: id::SUCCESS_1, transaction }.bytes();
    out.extend([hash.bytes() as u8, 0, u8::from(response.is_some()), 0, 0, 0, 0, 0, 0, 0]);
    out.extend(response.unwrap_or_default());
    out
}

/// The controller's word that it ends here. The reason is always "authentication failed" (Base, Figure 455).
pub(crate) fn failure(transaction: u16, why: Failure) -> Vec<u8> {
    let mut out = Lead { kind: COMMON, id: id::FAILURE_1, transaction }.bytes();
    out.extend([1, why as u8]);
    out
}

/// The host's offer.
pub(crate) fn negotiate(transaction: u16, hashes: &[Hash], groups: &[Group]) -> Vec<u8> {
    let mut out = Lead { kind: COMMON, id: id::NEGOTIATE, transaction }.bytes();
    // No secure channel, and one protocol.
    out.extend([0, 1, DH_HMAC_CHAP, 0, hashes.len() as u8, groups.len() as u8]);
    let mut ids = [0; PROTOCOL_BYTES - 4];
    ids.iter_mut().zip(hashes).for_each(|(place, hash)| *place = *hash as u8);
    ids[IDS..].iter_mut().zip(groups).for_each(|(place, group)| *place = *group as u8);
    out.extend(ids);
    out
}

/// A challenge as the host reads it.
pub(crate) struct Challenged<'a> {
    pub(crate) hash: Hash,
    pub(crate) group: Group,
    pub(crate) sequence: u32,
    pub(crate) value: &'a [u8],
    pub(crate) public: &'a [u8],
}

impl<'a> Challenged<'a> {
    /// Reads it; its values must have the lengths that its hash function and group say.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let head: &[u8; 16] = bytes.first_chunk()?;
        let (hash, group) = (Hash::of(head[8])?, Group::of(head[9])?);
        let public_bytes = usize::from(u16::from_le_bytes([head[10], head[11]]));
        if usize::from(head[6]) != hash.bytes() || public_bytes != group.bytes() {
            return None;
        }
        let (value, rest) = bytes[16..].split_at_checked(hash.bytes())?;
        let sequence = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
        Some(Self { hash, group, sequence, value, public: rest.get(..public_bytes)? })
    }
}

/// The host's response, and what it asks of the controller itself: a value and its number.
pub(crate) fn reply(
    transaction: u16,
    response: &[u8],
    own: Option<(&[u8], u32)>,
    public: &[u8],
) -> Vec<u8> {
    let mut out = Lead { kind: DH_HMAC_CHAP, id: id::REPLY, transaction }.bytes();
    out.extend([response.len() as u8, 0, u8::from(own.is_some()), 0]);
    out.extend((public.len() as u16).to_le_bytes());
    out.extend(own.map_or(0, |(_, sequence)| sequence).to_le_bytes());
    out.extend(response);
    match own {
        Some((value, _)) => out.extend(value),
        None => out.resize(out.len() + response.len(), 0),
    }
    out.extend(public);
    out
}

/// What the controller responds in its word that the host is who it says; `None` when it does not.
pub(crate) fn response_of(bytes: &[u8]) -> Option<&[u8]> {
    let head: &[u8; 16] = bytes.first_chunk()?;
    if head[8] & 1 == 0 {
        return None;
    }
    bytes[16..].get(..usize::from(head[6]))
}

/// The host's word that the controller is who it says.
pub(crate) fn thanks(transaction: u16) -> Vec<u8> {
    let mut out = Lead { kind: DH_HMAC_CHAP, id: id::SUCCESS_2, transaction }.bytes();
    out.extend([0; 10]);
    out
}
