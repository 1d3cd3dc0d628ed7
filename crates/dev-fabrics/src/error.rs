//! Reasons for the end of an association, and the mapping of a status to an I/O error.

use std::fmt;

use rustix::io::Errno;
use strake_block::{DeviceError, DeviceRemedy, IoErrorKind};
use strake_nvme_auth::Doubt;
use strake_nvme_tcp::{FatalStatus, PduError};
use strake_nvme_wire::Status;
use strake_tls::{TlsError, WireError};
use strake_units::Uuid;

/// The reason why an association could not be established, or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The target closed the connection.
    Closed,
    /// The connection failed.
    Socket(Errno),
    /// The host name does not resolve.
    NoSuchMachine,
    /// The host name was not resolved in time.
    NamesSilent,
    /// The target did not answer in time.
    Silent,
    /// The target terminated the connection, with a status and the field that it names (TCP, section 3.6.2.5).
    Ended(u16, u32),
    /// The target violated the protocol.
    Broken(Breach),
    /// The target rejected a command of the connection setup.
    Refused(Status),
    /// The target requires authentication, and no secret is configured.
    Authentication,
    /// One side did not authenticate, or its authentication failed.
    Unproven(Doubt),
    /// The target requires a secure channel with keys from DH-HMAC-CHAP, which is not supported.
    Encryption,
    /// The TLS handshake failed, or TLS ended the connection.
    Tls(TlsError),
    /// The controller does not become ready.
    NotReady,
    /// The namespace is not usable.
    Unusable(Unfit),
    /// The address now leads to another namespace.
    Replaced,
    /// The namespace has fewer capabilities than before.
    Lesser,
    /// The namespace is the same, but another instance of its device serves it.
    AnotherInstance,
    /// The discovery log changed during every read.
    Restless,
    /// Another instance serves the namespace here than over the other paths.
    OtherInstance,
    /// It is unknown whether the namespace is the same as over the other paths.
    Nameless,
    /// The host with this identifier holds a reservation of the namespace.
    Held([u8; 16]),
    /// This host has lost its reservation, so other hosts may have written.
    TakenOver,
}

/// A protocol violation of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// An invalid PDU.
    Pdu(PduError),
    /// A PDU that a host must not receive, or not in this state.
    Unexpected,
    /// A header digest mismatch.
    HeaderDigest,
    /// A data digest mismatch that only a new connection can resolve.
    DataDigest,
    /// A PDU for a command that is not in flight.
    NoSuchCommand,
    /// A response to a command that has not been sent completely.
    TooEarly,
    /// Data for a command that does not read, or an R2T for a command that does not write.
    WrongDirection,
    /// Data, or an R2T, that does not continue at the end of the previous one.
    Offset,
    /// More data, or a larger R2T, than the command has; or an empty one.
    Length,
    /// A completion before all data has arrived.
    Short,
    /// Digests that were not requested, or missing digests although they were negotiated.
    Digests,
    /// A discovery log of an unknown format, or one that is too long.
    Log,
}

/// The reason why a namespace is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The namespace does not exist, or is empty.
    Absent,
    /// Its size in bytes exceeds the limit.
    Size,
    /// Its blocks have neither 512 nor 4096 bytes.
    BlockSize,
    /// Its blocks have metadata.
    Metadata,
    /// Data in a capsule does not directly follow the command.
    Capsule,
    /// After the end of an association, it may execute commands for longer than requests can be held.
    Quiesce,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pdu(error) => return write!(f, "it sent {error}"),
            Self::Unexpected => "it sent a PDU that is not expected",
            Self::HeaderDigest => "header digest mismatch",
            Self::DataDigest => "data digest mismatch",
            Self::NoSuchCommand => "it answered a command that is not in progress",
            Self::TooEarly => "it answered a command before that was sent whole",
            Self::WrongDirection => "it sent or asked for data of a command that has none that way",
            Self::Offset => "it sent or asked for data out of order",
            Self::Length => "it sent or asked for more or less data than a command has",
            Self::Short => "it ended a command without all of its data",
            Self::Digests => "it granted digests that were not asked for",
            Self::Log => "its discovery log is of an unknown format, or endless",
        })
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "there is no such namespace",
            Self::Size => "it claims more blocks than there can be",
            Self::BlockSize => "its blocks have neither 512 nor 4096 bytes",
            Self::Metadata => "its blocks carry metadata; format it without",
            Self::Capsule => "it wants data in capsules behind a gap",
            Self::Quiesce => {
                "the target takes too long to stop what it does for a host that is gone (CQT)"
            }
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the target closed the connection"),
            Self::Socket(errno) => {
                write!(f, "{}", std::io::Error::from_raw_os_error(errno.raw_os_error()))
            }
            Self::NoSuchMachine => f.write_str("host name not found"),
            Self::NamesSilent => {
                f.write_str("host name not resolved: name service not responding")
            }
            Self::Silent => f.write_str("the target does not answer"),
            Self::Ended(status, field) => write!(
                f,
                "the target ended the connection: it says that we broke the protocol (status {status:02x}h, field \
                 {field:x}h)"
            ),
            Self::Broken(breach) => write!(f, "the target broke the protocol: {breach}"),
            Self::Refused(status) if status.is(Status::INVALID_HOST) => {
                f.write_str(
                    "the target does not allow this host; if it has a key for TLS from it, connect with that",
                )
            }
            Self::Refused(status) if status.is(Status::INVALID_PARAMETERS) => {
                f.write_str(
                    "the target has no such subsystem, or does not allow this host, or another host with another name \
                     uses the same host identifier",
                )
            }
            Self::Refused(status) => write!(f, "the target refused ({status})"),
            Self::Authentication => f.write_str(
                "the target requires DH-HMAC-CHAP authentication; connect with the secret that it knows",
            ),
            Self::Unproven(doubt) => doubt.fmt(f),
            Self::Encryption => {
                f.write_str(
                    "the target asks for a secure channel with keys of DH-HMAC-CHAP, which is not supported; connect \
                     with a key for TLS",
                )
            }
            Self::Tls(error) => error.fmt(f),
            Self::NotReady => f.write_str("the controller does not become ready"),
            Self::Unusable(unfit) => write!(f, "the namespace cannot be used: {unfit}"),
            Self::Replaced => f.write_str("another namespace is there now"),
            Self::AnotherInstance => f.write_str("the target serves the namespace again"),
            Self::Restless => {
                f.write_str("what the target offers changes faster than it can be read")
            }
            Self::OtherInstance => f.write_str(
                "what serves the namespace here is not what serves it over its other paths, so they may not lead to \
                 the same data; is it a copy?",
            ),
            Self::Nameless => f.write_str(
                "the namespace has no identifier of its own, or is in another subsystem, so nothing tells whether it \
                 is the drive that is connected already",
            ),
            Self::Held(host) => write!(
                f,
                "another host uses the drive: the one with the identifier {} holds its reservation; disconnect the \
                 drive there, or, if that host is gone for good, take it over",
                Uuid(*host)
            ),
            Self::TakenOver => f.write_str(
                "another host may have written to it: our reservation was taken over or ended; disconnect the drive \
                 and connect it again",
            ),
            Self::Lesser => f.write_str(
                "the namespace has got a volatile cache, or can no longer be written, deallocated or reserved; unload \
                 the array that uses it, then disconnect the drive and connect it again",
            ),
        }
    }
}

impl std::error::Error for Reason {}

impl From<Breach> for Reason {
    fn from(breach: Breach) -> Self {
        Self::Broken(breach)
    }
}

impl From<Doubt> for Reason {
    fn from(doubt: Doubt) -> Self {
        Self::Unproven(doubt)
    }
}

impl From<TlsError> for Reason {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

impl From<WireError> for Reason {
    fn from(error: WireError) -> Self {
        match error {
            WireError::Socket(errno) => Self::Socket(errno),
            WireError::Tls(error) => Self::Tls(error),
        }
    }
}

impl From<PduError> for Reason {
    fn from(error: PduError) -> Self {
        match error.status {
            FatalStatus::HeaderDigest => Breach::HeaderDigest.into(),
            FatalStatus::InvalidHeader
            | FatalStatus::Sequence
            | FatalStatus::OutOfRange
            | FatalStatus::LimitExceeded
            | FatalStatus::Unsupported => Breach::Pdu(error).into(),
        }
    }
}

impl Reason {
    /// The reason for an error of the operating system or a timeout.
    pub(crate) fn of_io(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => Self::Silent,
            std::io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Socket(Errno::from_io_error(error).unwrap_or(Errno::IO)),
        }
    }

    /// True if a failed connection for this reason does not affect other connections of its association: the target
    /// answers and rejects it, or this host lacks a resource.
    pub(crate) const fn is_of_one_connection(self) -> bool {
        match self {
            Self::Refused(_)
            | Self::Authentication
            | Self::Unproven(_)
            | Self::Encryption
            | Self::Tls(_)
            | Self::Socket(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => true,
            Self::Closed
            | Self::Socket(_)
            | Self::NoSuchMachine
            | Self::NamesSilent
            | Self::Silent
            | Self::Ended(..)
            | Self::Broken(_)
            | Self::NotReady
            | Self::Unusable(_)
            | Self::Replaced
            | Self::Lesser
            | Self::AnotherInstance
            | Self::Restless
            | Self::OtherInstance
            | Self::Nameless
            | Self::Held(_)
            | Self::TakenOver => false,
        }
    }

    /// The remedy that would permit the connection, if it is known.
    #[must_use]
    pub const fn remedy(self) -> Option<DeviceRemedy> {
        match self {
            Self::Refused(status) if status.is(Status::INVALID_HOST) => Some(DeviceRemedy::TlsKey),
            Self::Authentication => Some(DeviceRemedy::Secret),
            Self::Encryption => Some(DeviceRemedy::TlsKey),
            Self::Held(_) => Some(DeviceRemedy::TakeOver),
            Self::Closed
            | Self::Socket(_)
            | Self::NoSuchMachine
            | Self::NamesSilent
            | Self::Silent
            | Self::Ended(..)
            | Self::Broken(_)
            | Self::Refused(_)
            | Self::Unproven(_)
            | Self::Tls(_)
            | Self::NotReady
            | Self::Unusable(_)
            | Self::Replaced
            | Self::Lesser
            | Self::AnotherInstance
            | Self::Restless
            | Self::OtherInstance
            | Self::Nameless
            | Self::TakenOver => None,
        }
    }

    /// The device error for this reason. `more` is appended to the message.
    pub(crate) fn of_device(self, device: impl fmt::Display, more: &str) -> DeviceError {
        let error = DeviceError::new(self.kind(), device.to_string(), format!("{self}{more}"));
        DeviceError { remedy: self.remedy(), ..error }
    }

    /// The error kind of a request that cannot be sent for this reason.
    #[must_use]
    pub const fn kind(self) -> IoErrorKind {
        match self {
            Self::Silent | Self::NamesSilent => IoErrorKind::Timeout,
            Self::Unusable(_) => IoErrorKind::Unsupported,
            // The target rejects writes of this host.
            Self::Held(_) => IoErrorKind::ReadOnly,
            Self::Closed
            | Self::Socket(_)
            | Self::NoSuchMachine
            | Self::Ended(..)
            | Self::Broken(_)
            | Self::Refused(_)
            | Self::Authentication
            | Self::Unproven(_)
            | Self::Encryption
            | Self::Tls(_)
            | Self::NotReady
            | Self::Replaced
            | Self::Lesser
            | Self::AnotherInstance
            | Self::Restless
            | Self::OtherInstance
            | Self::Nameless
            | Self::TakenOver => IoErrorKind::Gone,
        }
    }
}

/// The evaluation of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The command succeeded.
    Done,
    /// The command is sent again after a while: the target cannot execute it for now.
    Later,
    /// The command is sent again a limited number of times: its transfer failed.
    Again,
    /// The command failed.
    Failed(IoErrorKind),
}

/// Evaluates a status. Only a command that was not executed for a temporary reason is sent again; a permanently removed
/// path counts as a removed drive.
pub(crate) fn verdict(status: Status) -> Verdict {
    const PATH: u8 = 3;
    const MEDIUM: u8 = 2;
    if status.is_success() {
        return Verdict::Done;
    }
    let is_any = |known: &[Status]| known.iter().any(|known| status.is(*known));
    if !status.is_final() {
        if status.code_type() == PATH || is_any(&[Status::NOT_READY, Status::INTERRUPTED]) {
            return Verdict::Later;
        }
        if is_any(&[Status::TRANSIENT_TRANSPORT, Status::ABORTED, Status::TRANSFER_ERROR]) {
            return Verdict::Again;
        }
    }
    let known = [
        (Status::CAPACITY_EXCEEDED, IoErrorKind::NoSpace),
        (Status::WRITE_PROTECTED, IoErrorKind::ReadOnly),
        (Status::OUT_OF_RANGE, IoErrorKind::OutOfRange),
        (Status::INVALID_FIELD, IoErrorKind::Misaligned),
        (Status::INVALID_OPCODE, IoErrorKind::Unsupported),
    ];
    let kind = known.iter().find(|(code, _)| status.is(*code)).map(|(_, kind)| *kind);
    Verdict::Failed(kind.unwrap_or(match status.code_type() {
        MEDIUM => IoErrorKind::Medium,
        PATH => IoErrorKind::Gone,
        _ => IoErrorKind::Device,
    }))
}
