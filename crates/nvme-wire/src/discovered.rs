//! What a host reads in a discovery log (Base, section 5.16.1.23, Figures 263 and 264; TCP, section 3.1.1).

use crate::bytes::{array_at, u16_at, u64_at};
use crate::log::DISCOVERY_BYTES;
use crate::nqn::{self, FIELD_BYTES, NqnError};

/// The only layout of entries that there is (RECFMT).
pub const FORMAT: u16 = 0;

/// What the log begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Another one whenever the log has changed (GENCTR).
    pub generation: u64,
    /// Entries that follow, as the target says (NUMREC).
    pub records: u64,
    /// How they are laid out, see [`FORMAT`].
    pub format: u16,
}

impl Header {
    /// Reads the first part of the log.
    #[must_use]
    pub fn parse(bytes: &[u8; DISCOVERY_BYTES]) -> Self {
        Self { generation: u64_at(bytes, 0), records: u64_at(bytes, 8), format: u16_at(bytes, 16) }
    }
}

/// What an entry is about (SUBTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Another discovery service.
    Referral,
    /// A subsystem with namespaces.
    Subsystem,
    /// The discovery service that was asked.
    Itself,
}

/// What carries commands to it (TRTYPE).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// RDMA.
    Rdma,
    /// Fibre Channel.
    FibreChannel,
    /// TCP.
    Tcp,
    /// Anything else, such as what stays within a machine.
    Other(u8),
}

/// Whether a connection has to be encrypted (TREQ, bits 1:0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The target does not say.
    NotSpecified,
    /// It has to be.
    Required,
    /// It need not be.
    NotRequired,
}

/// An entry: something that a host may connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// How it is reached.
    pub transport: Transport,
    /// Whether a connection has to be encrypted.
    pub channel: Channel,
    /// Its name.
    pub nqn: String,
    /// Where it is (TRADDR): of TCP an IP address.
    pub address: String,
    /// What of that address (TRSVCID): of TCP a port.
    pub service: String,
}

/// Why an entry cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryError {
    /// It is about something that is not known.
    Kind(u8),
    /// What it says of encryption means nothing.
    Channel,
    /// Its name is none.
    Name(NqnError),
    /// Its name has characters that are not shown as they are.
    NameHidden,
    /// Its address or port is not printable ASCII.
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
    /// Reads an entry of [`FORMAT`]. Its texts can be shown to people: they have neither blanks nor control characters
    /// in them, nor anything else that changes what stands around it.
    ///
    /// # Errors
    /// When it is none that can be used.
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

/// A name whose characters all show themselves and nothing else.
fn shown(name: &str) -> Option<String> {
    let is_shown = |c: char| c.is_ascii_graphic() || c.is_alphanumeric();
    name.chars().all(is_shown).then(|| name.to_owned())
}

/// ASCII text that spaces fill up, or, as some targets do it, zeros.
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
