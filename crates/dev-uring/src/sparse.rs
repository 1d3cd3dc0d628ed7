//! Creation of a file that is used as a drive.

use rustix::fs::{Mode, OFlags, ftruncate, open};
use std::path::Path;
use strake_block::{DeviceError, IoErrorKind};

/// Creates a file of `bytes` bytes that occupies no space until it is written. An existing file is never changed.
///
/// Returns an error if the file exists, if its folder does not exist, if `bytes` is 0, or if the file system does not
/// support the size. No file remains then.
pub fn create_sparse(path: &Path, bytes: u64) -> Result<(), DeviceError> {
    let fail = |kind, what: &str| DeviceError::new(kind, path.display().to_string(), what);
    if bytes == 0 {
        return Err(fail(IoErrorKind::OutOfRange, "a drive needs a size above 0"));
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| {
        let error = match errno {
            rustix::io::Errno::EXIST => fail(
                IoErrorKind::Device,
                "the file exists and is not overwritten; choose another name",
            ),
            _ => fail(IoErrorKind::Device, "the file cannot be created"),
        };
        error.with_source(errno.into())
    })?;
    ftruncate(&file, bytes).map_err(|errno| {
        // The file was created here (it did not exist), so its removal does no harm; if the removal fails, the first
        // error is more useful.
        let _ = std::fs::remove_file(path);
        fail(IoErrorKind::NoSpace, "the file cannot be made that large").with_source(errno.into())
    })
}
