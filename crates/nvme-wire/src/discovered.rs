//! The discovery log page as a host reads it (Base, section 5.16.1.23, Figures 263 and 264; TCP, section 3.1.1).

use crate::bytes::{array_at, u16_at, u64_at};
use crate::log::DISCOVERY_BYTES;
use crate::nqn::{self, FIELD_BYTES, NqnError};

/// The only defined record format (RECFMT).
pub const FORMAT: u16 = 0;

/// The header of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// A number that changes with the log (GENCTR).
    pub generation: u64,
    /// The number of entries that the target reports (NUMREC).
    pub records: u64,
    /// The record format, see [`FORMAT`].
    pub format: u16,
}

impl Header {
    /// Parses the header of the log.
    #[must_use]
    pub fn parse(bytes: &[u8; DISCOVERY_BYTES]) -> Self {
        Self { generation: u64_at(bytes, 0), records: u64_at(bytes, 8), format: u16_at(bytes, 16) }
    }
}

/// The subject of an entry (SUBTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Another discovery service.
    Referral,
    /// A subsystem with namespaces.
    Subsystem,
    /// The discovery service itself.
    Itself,
}

/// The transport type (TRTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// RDMA.
    Rdma,
    /// Fibre Channel.
    FibreChannel,
    /// TCP.
    Tcp,
    /// Any other transport, such as one within a host.
    Other(u8),
}

/// Whether a connection must use a secure channel (TREQ, bits 1:0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Not specified.
    NotSpecified,
    /// Required.
    Required,
    /// Not required.
    NotRequired,
}

/// An entry: a subsystem that a host may connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The subject.
    pub kind: Kind,
    /// The transport.
    pub transport: Transport,
    /// Whether a connection must use a secure channel.
    pub channel: Channel,
    /// The NQN.
    pub nqn: String,
    /// The transport address (TRADDR): for TCP an IP address.
    pub address: String,
    /// The transport service (TRSVCID): for TCP a port.
    pub service: String,
}

/// The reason why an entry is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryError {
    /// The subject is unknown.
    Kind(u8),
    /// The secure channel field is reserved.
    Channel,
    /// The NQN is invalid.
    Name(NqnError),
    /// The NQN has characters without a visible form.
    NameHidden,
    /// The address or port is not printable ASCII.
    Place,
}

impl std::fmt::Display for EntryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kind(kind) => write!(f, "it is of an unknown kind ({kind:#04x})"),
            Self::Channel => f.write_str("what it says of encryption means nothing"),
            Self::Name(error) => write!(f, "its name is none: {error}"),
            Self::NameHidden => f.write_str("its name has characters that cannot be shown"),
            Self::Place => f.write_str("its address is no printable text"),
        }
    }
}

impl std::error::Error for EntryError {}

impl Entry {
    /// Parses an entry of [`FORMAT`]. Its texts can be displayed safely: they contain no spaces, no control characters,
    /// and no characters that change the surrounding text.
    ///
    /// Returns an error if the entry is unusable.
    pub fn parse(bytes: &[u8; DISCOVERY_BYTES]) -> Result<Self, EntryError> {
        let nqn = nqn::parse(&array_at::<_, FIELD_BYTES>(bytes, 256))
            .map_err(EntryError::Name)
            .and_then(|name| shown(name).ok_or(EntryError::NameHidden))?;
        Ok(Self {
            kind: match bytes[2] {
                1 => Kind::Referral,
                2 => Kind::Subsystem,
                3 => Kind::Itself,
                other => return Err(EntryError::Kind(other)),
            },
            transport: match bytes[0] {
                1 => Transport::Rdma,
                2 => Transport::FibreChannel,
                3 => Transport::Tcp,
                other => Transport::Other(other),
            },
            channel: match bytes[3] & 0b11 {
                0b00 => Channel::NotSpecified,
                0b01 => Channel::Required,
                0b10 => Channel::NotRequired,
                _ => return Err(EntryError::Channel),
            },
            nqn,
            address: padded(&bytes[512..768])?,
            service: padded(&bytes[32..64])?,
        })
    }
}

/// A name, if all its characters are visible and have no other effect.
fn shown(name: &str) -> Option<String> {
    let is_shown = |c: char| c.is_ascii_graphic() || c.is_alphanumeric();
    name.chars().all(is_shown).then(|| name.to_owned())
}

/// ASCII text that is padded with spaces or, by some targets, with zeros.
fn padded(field: &[u8]) -> Result<String, EntryError> {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    let text = field[..end].trim_ascii_end();
    match text.iter().all(u8::is_ascii_graphic) {
        true => Ok(text.iter().copied().map(char::from).collect()),
        false => Err(EntryError::Place),
    }
}

#[cfg(test)]
mod tests;
