//! Making a file to be used as a drive.

use rustix::fs::{Mode, OFlags, ftruncate, open};
use std::path::Path;
use strake_block::{DeviceError, IoErrorKind};

/// Creates a file of `bytes` bytes that takes up no space until it is written. Refuses to touch a file that
/// exists, whatever is in it.
///
/// # Errors
/// When the file exists, its folder does not, `bytes` is 0 or more than the file system allows. Nothing is left
/// behind then.
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
        // The file is ours (it did not exist), so removing it again does no harm; if even that fails, the first
        // error says more.
        let _ = std::fs::remove_file(path);
        fail(IoErrorKind::NoSpace, "the file cannot be made that large").with_source(errno.into())
    })
}
