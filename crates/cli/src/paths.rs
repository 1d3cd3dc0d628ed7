//! Drives and sockets as people type them, made into what the daemon needs: it has another working directory.

use crate::args::parse::Drives;
use crate::error::CliError;
use std::path::{Path, PathBuf};

/// What a drive looks like that is no path: memory, PCI devices, and those of other machines.
const SCHEMES: [&str; 4] = ["ram:", "null:", "pci:", "nvme-tcp://"];

/// The drive that `text` means: `ram:SIZE`, `null:SIZE`, `pci:ADDRESS` and `nvme-tcp://...` as they are, a path made
/// absolute, and a bare word such as `nvme0n1` the device of that name unless it names a file here. A word that is
/// neither is left to the daemon, which knows drives by serial number, worldwide name (`wwid:eui.00...`) and PCI
/// address as well.
///
/// # Errors
/// When the bare word names both, or the path is empty or cannot be made absolute.
pub fn drive(text: &str) -> Result<String, CliError> {
    if SCHEMES.iter().any(|s| text.starts_with(s)) {
        return Ok(text.to_owned());
    }
    if !text.is_empty() && !text.contains('/') {
        let device = Path::new("/dev").join(text);
        match (device.exists(), Path::new(text).exists()) {
            (true, true) => {
                return Err(CliError::usage(format!(
                    "drive {text:?} names both /dev/{text} and a file in this folder: \
                     say /dev/{text} or ./{text}"
                )));
            }
            (true, false) => return Ok(device.display().to_string()),
            (false, true) => {}
            // A serial number, `wwid:` and a worldwide name, or an address, which the daemon knows. What has a dot
            // and no colon is the name of a file that is not here.
            (false, false) if text.contains(':') || !text.contains('.') => {
                return Ok(text.to_owned());
            }
            (false, false) => {}
        }
    }
    absolute(text).map(|p| p.display().to_string())
}

/// All drives of `lists` through [`drive`].
///
/// # Errors
/// The first one's.
pub fn drives(lists: &[Drives]) -> Result<Vec<String>, CliError> {
    lists.iter().flat_map(|list| &list.0).map(|text| drive(text)).collect()
}

/// The address that `text` means: `unix:PATH` with an absolute path, anything else as it is.
///
/// # Errors
/// When the path is empty or cannot be made absolute.
pub fn listen(text: &str) -> Result<String, CliError> {
    match text.strip_prefix("unix:") {
        Some(path) => absolute(path).map(|p| format!("unix:{}", p.display())),
        None => Ok(text.to_owned()),
    }
}

/// `text` as an absolute path.
///
/// # Errors
/// When it is empty, or the working directory is gone.
pub fn absolute(text: &str) -> Result<PathBuf, CliError> {
    if text.is_empty() {
        return Err(CliError::usage("a path cannot be empty"));
    }
    std::path::absolute(text)
        .map_err(|e| CliError::io(format_args!("cannot make {text:?} an absolute path"), &e))
}
