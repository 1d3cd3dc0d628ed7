//! Reasons why a controller cannot be used, and the meaning of a status for a request.

use std::fmt;
use strake_block::IoErrorKind;
use strake_nvme_wire::Status;

/// Why a controller is reset, refused or given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The controller has set CSTS.CFS.
    Fatal,
    /// The controller is not ready, although the driver did not disable it.
    NotReady,
    /// The controller does not become ready.
    NeverReady,
    /// The controller does not become not ready, and a reset of its function did not help.
    NeverDisabled,
    /// The registers read as ones, although the device is present.
    NoRegisters,
    /// A command has no answer.
    NoAnswer,
    /// An admin command failed.
    Admin(&'static str, Status),
    /// A completion names a command that was not sent, or that was answered before.
    UnknownCommand(u16),
    /// The capabilities cannot be used; the text names the field.
    Capabilities(&'static str),
    /// The identify data are impossible; the text names the field.
    Identify(&'static str),
    /// The namespace has a format that is not supported.
    Format {
        /// Bytes of a block as a power of two.
        block_log2: u8,
        /// Bytes of metadata of a block.
        metadata_bytes: u16,
    },
    /// There is no active namespace.
    NoNamespace,
    /// After the reset, another drive answers, or its namespace has changed.
    AnotherDrive,
    /// The controller grants no I/O queue.
    NoQueues,
    /// The controller was reset too often.
    ResetStorm,
    /// Memory cannot be mapped for the controller.
    Memory(String),
    /// The controller executes another maintenance command.
    Busy,
    /// The controller was reset or removed before it answered a maintenance command, for this reason.
    Interrupted(String),
}

impl Reason {
    /// Whether another try is useless.
    pub(crate) const fn is_final(&self) -> bool {
        match self {
            Self::Capabilities(_)
            | Self::Identify(_)
            | Self::Format { .. }
            | Self::NoNamespace
            | Self::AnotherDrive
            | Self::NoQueues
            | Self::ResetStorm
            | Self::Memory(_) => true,
            Self::Fatal
            | Self::NotReady
            | Self::NeverReady
            | Self::NeverDisabled
            | Self::NoRegisters
            | Self::NoAnswer
            | Self::Busy
            | Self::Interrupted(_)
            | Self::Admin(..)
            | Self::UnknownCommand(_) => false,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fatal => f.write_str("the controller reports a fatal error (CSTS.CFS)"),
            Self::NotReady => f.write_str("the controller was reset from outside"),
            Self::NeverReady => f.write_str("the controller does not become ready"),
            Self::NeverDisabled => f.write_str(
                "the controller cannot be reset; requests may still be executed until it is power-cycled",
            ),
            Self::NoRegisters => f.write_str("the registers of the controller cannot be read"),
            Self::NoAnswer => f.write_str("the controller does not answer"),
            Self::Admin(what, status) => write!(f, "{what} failed with {status}"),
            Self::UnknownCommand(cid) => {
                write!(f, "the controller completed command {cid:04x}h, which was not outstanding")
            }
            Self::Capabilities(field) => write!(f, "the controller cannot be used: CAP.{field}"),
            Self::Identify(field) => write!(f, "Identify returned an impossible value: {field}"),
            Self::Format { block_log2, metadata_bytes } => write!(
                f,
                "blocks of 2^{block_log2} bytes with {metadata_bytes} bytes of metadata are not supported; format \
                 the namespace with 512 or 4096 bytes, and no metadata or protection information of type 1"
            ),
            Self::NoNamespace => f.write_str("the controller has no active namespace"),
            Self::AnotherDrive => f.write_str("after the reset another drive or namespace answers"),
            Self::NoQueues => f.write_str("the controller grants no I/O queue"),
            Self::ResetStorm => f.write_str("the controller had to be reset too often"),
            Self::Busy => f.write_str("the controller executes another maintenance command"),
            Self::Interrupted(why) => {
                write!(f, "the controller was reset or removed before it answered: {why}")
            }
            Self::Memory(why) => write!(f, "memory cannot be mapped for the controller: {why}"),
        }
    }
}

impl std::error::Error for Reason {}

/// The meaning of the status of a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request fails.
    Fail(IoErrorKind),
    /// Sending the command again may help; otherwise the request fails.
    Retry(IoErrorKind),
}

/// Judges a status (Base, section 3.3.3.2.1; NVM, section 1.4).
pub(crate) fn verdict(status: Status) -> Verdict {
    let kind = match (status.code_type(), status.code()) {
        (0, 0x0b | 0x80) => IoErrorKind::Gone,
        (0, 0x20) => IoErrorKind::ReadOnly,
        (0, 0x81) => IoErrorKind::NoSpace,
        // Media and data integrity errors: write fault, unrecovered read, guard, application tag, reference tag.
        (2, 0x80..=0x84 | 0x87) => IoErrorKind::Medium,
        _ => IoErrorKind::Device,
    };
    let is_transient = match (status.code_type(), status.code()) {
        // Internal error, aborted, queue deleted, interrupted, transient transport error, not ready.
        (0, 0x06..=0x08 | 0x21 | 0x22 | 0x82) | (3, _) => !status.is_final(),
        _ => false,
    };
    if is_transient { Verdict::Retry(kind) } else { Verdict::Fail(kind) }
}
