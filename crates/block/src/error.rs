//! How a device says no: [`IoError`] on the data path, [`DeviceError`] on the control path.

use std::fmt;

/// What kind of failure an I/O met. Callers match on this; the list is closed on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// The device cannot return these blocks, others are fine (NVMe "Unrecovered Read Error").
    Medium,
    /// The device failed the command without saying more.
    Device,
    /// The device was removed: pulled, closed, or its file shrank away.
    Gone,
    /// The device did not answer in time.
    Timeout,
    /// The backing store has no room left.
    NoSpace,
    /// The range lies outside the device.
    OutOfRange,
    /// Address, length or buffer does not fit the device's block size or limits.
    Misaligned,
    /// The device is read-only.
    ReadOnly,
    /// The device has no such operation.
    Unsupported,
    /// More strips are unreadable than the redundancy can make up for: the data cannot be returned.
    Lost,
    /// The queue or device was shut down with the I/O outstanding.
    Aborted,
}

impl IoErrorKind {
    /// The words a person reads.
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

/// Why an I/O failed: a kind to match and, where the kernel gave one, its error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoError {
    /// What to decide on.
    pub kind: IoErrorKind,
    /// The operating system's error number behind it, 0 when there is none.
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

/// What a device has to be opened with, when it refused without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceRemedy {
    /// The secret that its target knows of this host.
    Secret,
    /// A key for TLS.
    TlsKey,
    /// Consent to take it over from the host that uses it.
    TakeOver,
}

/// Why a device could not be opened or changed. Control plane only, so it carries words.
#[derive(Debug)]
pub struct DeviceError {
    /// What to decide on.
    pub kind: IoErrorKind,
    /// The device, as the person named it.
    pub device: String,
    /// What was tried, why it failed and what to do, in a sentence without a final stop.
    pub what: String,
    /// The operating system's error behind it.
    pub source: Option<std::io::Error>,
    /// What would let it be opened, if that is known.
    pub remedy: Option<DeviceRemedy>,
}

impl DeviceError {
    /// An error about `device`.
    pub fn new(kind: IoErrorKind, device: impl Into<String>, what: impl Into<String>) -> Self {
        Self { kind, device: device.into(), what: what.into(), source: None, remedy: None }
    }

    /// The same with the operating system's error behind it.
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
