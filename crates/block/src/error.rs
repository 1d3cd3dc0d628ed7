//! Errors of devices: [`IoError`] on the data path, [`DeviceError`] on the control path.

use std::fmt;

/// The kind of an I/O error. Callers match this enum, so it is exhaustive on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// The device cannot read these blocks, but other blocks are intact (NVMe "Unrecovered Read Error").
    Medium,
    /// The device failed the command without further information.
    Device,
    /// The device was removed: it was pulled or closed, or its file was truncated.
    Gone,
    /// The device did not answer in time.
    Timeout,
    /// The backing store has no room left.
    NoSpace,
    /// The range is outside the device.
    OutOfRange,
    /// Address, length or buffer do not match the block size or the limits of the device.
    Misaligned,
    /// The device is read-only.
    ReadOnly,
    /// The device does not support the operation.
    Unsupported,
    /// More strips are unreadable than redundancy can reconstruct, so the data are lost.
    Lost,
    /// The queue or device was shut down with the I/O outstanding.
    Aborted,
}

impl IoErrorKind {
    /// Returns the text for the operator.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Medium => "unreadable blocks on the medium",
            Self::Device => "the device failed the command",
            Self::Gone => "the device is gone",
            Self::Timeout => "the device did not answer in time",
            Self::NoSpace => "no space left on the device",
            Self::OutOfRange => "beyond the end of the device",
            Self::Misaligned => "address, length or buffer not aligned to the device",
            Self::ReadOnly => "the device is read-only",
            Self::Unsupported => "operation not supported by the device",
            Self::Lost => "more strips unreadable than redundancy covers",
            Self::Aborted => "the device was shut down",
        }
    }
}

/// The error of an I/O: a kind to match and, if available, the error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoError {
    /// The kind of the error.
    pub kind: IoErrorKind,
    /// The error number of the operating system; 0 without one.
    pub os: i32,
}

impl IoError {
    /// An error that did not come from the operating system.
    #[must_use]
    pub const fn new(kind: IoErrorKind) -> Self {
        Self { kind, os: 0 }
    }

    /// An error with the operating system's number.
    #[must_use]
    pub const fn from_os(kind: IoErrorKind, os: i32) -> Self {
        Self { kind, os }
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.text())?;
        if self.os != 0 {
            write!(f, " ({})", std::io::Error::from_raw_os_error(self.os))?;
        }
        Ok(())
    }
}

impl std::error::Error for IoError {}

/// The missing requirement for opening a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceRemedy {
    /// The secret of this host at the remote controller.
    Secret,
    /// A key for TLS.
    TlsKey,
    /// Permission to take the device over from the host that uses it.
    TakeOver,
}

/// The error of opening or changing a device. Only the control plane uses this type, so it contains text.
#[derive(Debug)]
pub struct DeviceError {
    /// The kind of the error.
    pub kind: IoErrorKind,
    /// The device, as the operator named it.
    pub device: String,
    /// The operation, the reason and the remedy, in a sentence without a final period.
    pub what: String,
    /// The error of the operating system, if any.
    pub source: Option<std::io::Error>,
    /// The missing requirement, if known.
    pub remedy: Option<DeviceRemedy>,
}

impl DeviceError {
    /// Creates an error about `device`.
    pub fn new(kind: IoErrorKind, device: impl Into<String>, what: impl Into<String>) -> Self {
        Self { kind, device: device.into(), what: what.into(), source: None, remedy: None }
    }

    /// Adds the error of the operating system.
    #[must_use]
    pub fn with_source(mut self, source: std::io::Error) -> Self {
        self.source = Some(source);
        self
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.device, self.what)?;
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        Ok(())
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e as _)
    }
}
