//! From error numbers to kinds, and notices to the operator about what works less well than asked.

use rustix::io::Errno;
use std::fmt;
use strake_block::{IoError, IoErrorKind};

/// What was asked for and could not be had, while the device still works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// I/O goes through the page cache.
    Buffered,
    /// The device can only be read.
    ReadOnly,
    /// Nothing keeps another process from using the file at the same time.
    NotLocked,
    /// Completions are announced by interrupts.
    NotPolled,
    /// The last bytes of the file are less than a block and stay unused.
    TailUnused,
    /// The device cannot deallocate.
    NoDeallocate,
    /// Buffers are not registered with the kernel; each request pins its own.
    NotRegistered,
}

/// One notice for the caller that opened the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What to decide on.
    pub kind: NoticeKind,
    /// The device, as the person named it.
    pub device: String,
    /// What is different and why, in a sentence without a final stop.
    pub what: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.device, self.what)
    }
}

/// Which kind of request an error number belongs to: the kernel uses one number for different troubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum During {
    Read,
    Write,
}

/// The error behind a negative result. The numbers are those of the block layer's table (`blk_errors`,
/// block/blk-core.c) and of file systems (errno(3)).
pub(crate) fn io_error(errno: Errno, during: During) -> IoError {
    let kind = match errno {
        Errno::IO | Errno::NODATA | Errno::BADMSG | Errno::ILSEQ if during == During::Read => {
            IoErrorKind::Medium
        }
        Errno::NOSPC | Errno::DQUOT => IoErrorKind::NoSpace,
        Errno::NODEV | Errno::NXIO | Errno::STALE => IoErrorKind::Gone,
        Errno::TIMEDOUT | Errno::TIME => IoErrorKind::Timeout,
        Errno::INVAL => IoErrorKind::Misaligned,
        Errno::ROFS | Errno::PERM | Errno::BADF if during == During::Write => IoErrorKind::ReadOnly,
        Errno::OPNOTSUPP | Errno::NOSYS => IoErrorKind::Unsupported,
        Errno::FBIG => IoErrorKind::OutOfRange,
        Errno::CANCELED => IoErrorKind::Aborted,
        _ => IoErrorKind::Device,
    };
    IoError::from_os(kind, errno.raw_os_error())
}
