//! How many files this process may have open: every connection of an export is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Fewest that the daemon starts with: an address of NVMe/TCP has 1024 connections, and there are drives, other
/// addresses, and the daemon's own.
const FILES_MIN: u64 = 4096;

/// Allows this process as many as the machine lets it have. Nothing here waits with `select`, for which a process
/// is allowed few at first.
///
/// # Errors
/// When that is too few to keep what is promised to clients.
pub fn allow_all() -> Result<(), String> {
    let limit = getrlimit(Resource::Nofile);
    check(limit.maximum)?;
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised)
        .map_err(|error| format!("cannot raise the limit of open files: {error}"))
}

/// `None` is without a limit.
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
