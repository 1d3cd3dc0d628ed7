//! The mapping of error numbers to kinds, and notices to the operator about unavailable properties.

use rustix::io::Errno;
use std::fmt;
use strake_block::{IoError, IoErrorKind};

/// A requested property that is not available, while the device works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeKind {
    /// I/O uses the page cache.
    Buffered,
    /// The device is read-only.
    ReadOnly,
    /// Another process can use the file at the same time.
    NotLocked,
    /// Completions are reported by interrupts.
    NotPolled,
    /// The file size is not a multiple of the block size, and the last bytes are not used.
    TailUnused,
    /// The device cannot deallocate.
    NoDeallocate,
    /// Buffers are not registered with the kernel; each request pins its own buffer.
    NotRegistered,
}

/// A notice for the caller that opened the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The kind, for decisions of the caller.
    pub kind: NoticeKind,
    /// The device, as the operator named it.
    pub device: String,
    /// The difference and its reason, in a sentence without a final stop.
    pub what: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.device, self.what)
    }
}

/// The kind of request that failed: the kernel uses one error number for different causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum During {
    Read,
    Write,
}

/// The error of a negative result. The numbers are those of the table of the block layer (`blk_errors`,
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
