//! Why a secure channel is not available, or has ended.

use std::fmt;

/// What one side tells the other before it gives up (RFC 8446, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alert {
    /// All was said.
    CloseNotify = 0,
    /// Something that does not come now.
    UnexpectedMessage = 10,
    /// A record that is not what its tag says.
    BadRecordMac = 20,
    /// A record that is too long.
    RecordOverflow = 22,
    /// No cipher suite, group or way to use a key that both know.
    HandshakeFailure = 40,
    /// A value that makes no sense.
    IllegalParameter = 47,
    /// A message that makes no sense.
    DecodeError = 50,
    /// The other side does not know the key that it names, or names none that is known.
    DecryptError = 51,
    /// Another version of TLS.
    ProtocolVersion = 70,
    /// We cannot go on, for no fault of the other side.
    InternalError = 80,
    /// Something that has to be in a message is not.
    MissingExtension = 109,
    /// Something that was not asked for is in a message.
    UnsupportedExtension = 110,
}

impl Alert {
    const ALL: [Self; 12] = [
        Self::CloseNotify,
        Self::UnexpectedMessage,
        Self::BadRecordMac,
        Self::RecordOverflow,
        Self::HandshakeFailure,
        Self::IllegalParameter,
        Self::DecodeError,
        Self::DecryptError,
        Self::ProtocolVersion,
        Self::InternalError,
        Self::MissingExtension,
        Self::UnsupportedExtension,
    ];

    /// What a number means; those that are not here are of certificates and names, which make no sense here.
    pub(crate) fn of(number: u8) -> Self {
        let found = Self::ALL.into_iter().find(|alert| *alert as u8 == number);
        found.unwrap_or(Self::UnexpectedMessage)
    }

    /// What tells it before there are keys.
    pub(crate) fn record(self) -> [u8; 7] {
        [21, 3, 3, 0, 2, 2, self as u8]
    }
}

/// Why a handshake or a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TlsError {
    /// The other side did what it must not.
    Breach(Alert),
    /// The other side gave up and said why, by a number of RFC 8446, section 6.
    PeerAlert(u8),
    /// The connection ended, and the other side had not said that it would.
    Truncated,
}

impl TlsError {
    /// What to tell the other side; nothing if it was first.
    #[must_use]
    pub const fn alert(self) -> Option<Alert> {
        match self {
            Self::Breach(alert) => Some(alert),
            Self::PeerAlert(_) | Self::Truncated => None,
        }
    }
}

impl From<openssl::error::ErrorStack> for TlsError {
    /// What OpenSSL refuses without a reason that would be the other side's.
    fn from(_: openssl::error::ErrorStack) -> Self {
        Self::Breach(Alert::InternalError)
    }
}

const fn meaning(number: u8) -> &'static str {
    match number {
        40 => "no cipher suite, group or key is known to both",
        47 | 50 => "it did not understand a message",
        51 | 115 => "it does not know the key, or has another one for these names",
        70 => "it does not speak TLS 1.3",
        80 => "it has a trouble of its own",
        109 | 110 => "it wants something that is not used with pre-shared keys",
        116 => "it wants a certificate",
        _ => "it ended the handshake",
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerAlert(number) => {
                write!(f, "TLS was refused: {} (alert {number})", meaning(*number))
            }
            Self::Truncated => f.write_str("TLS was cut off without an end"),
            Self::Breach(alert) => f.write_str(match alert {
                Alert::DecryptError => "TLS: the other side does not know the key that it uses",
                Alert::BadRecordMac => "TLS: what came was changed on its way",
                Alert::HandshakeFailure => "TLS: no cipher suite, group or key is known to both",
                Alert::ProtocolVersion => "TLS: the other side does not speak version 1.3",
                Alert::InternalError => {
                    "TLS: OpenSSL has no memory, no random bytes, or not what it needs of version 3"
                }
                Alert::RecordOverflow => "TLS: a record was too long",
                Alert::CloseNotify
                | Alert::UnexpectedMessage
                | Alert::IllegalParameter
                | Alert::DecodeError
                | Alert::MissingExtension
                | Alert::UnsupportedExtension => "TLS: what came made no sense",
            }),
        }
    }
}

impl std::error::Error for TlsError {}
