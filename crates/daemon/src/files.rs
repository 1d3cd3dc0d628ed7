//! The limit of open files of this process. Every connection of an export uses one file.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Minimum limit with which the daemon starts: an NVMe/TCP address has up to 1024 connections, and drives, other
/// addresses and the daemon itself also need files.
const FILES_MIN: u64 = 4096;

/// Raises the limit of open files to the maximum that the host permits. The initial limit is low for the sake of
/// `select`, which this process does not use.
///
/// # Errors
/// The maximum is too low for the promised number of clients.
pub fn allow_all() -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    check(limit.maximum)?;
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised)
        .map_err(|error| format!("cannot raise the limit of open files: {error}"))
}

/// Checks the maximum; `None` is no limit.
fn check(maximum: Option<u64>) -> Result<(), String> {
    match maximum {
        Some(most) if most < FILES_MIN => Err(format!(
            "at most {most} files may be open, and clients need {FILES_MIN}: raise the hard limit (ulimit -Hn, or \
             LimitNOFILE= of the service)"
        )),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{FILES_MIN, check};

    #[test]
    fn too_few_files_are_refused() {
        assert!(check(Some(FILES_MIN - 1)).is_err_and(|why| why.contains("LimitNOFILE=")));
        assert_eq!(check(Some(FILES_MIN)), Ok(()));
        assert_eq!(check(None), Ok(()));
    }
}
