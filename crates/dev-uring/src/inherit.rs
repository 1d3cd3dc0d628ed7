//! Descriptors that child processes do not inherit.

use std::io;

/// Child processes inherit the descriptors 0, 1 and 2.
const FIRST: u32 = 3;

/// Marks every descriptor of this process except the three standard ones as closed on exec.
///
/// This crate opens every descriptor with close-on-exec. This function is for descriptors that the process itself
/// inherited: a drive or a lock that a stray child process keeps open cannot be given to another process.
///
/// Returns an error if the kernel does not support this (before Linux 5.11).
pub fn inherit_nothing() -> io::Result<()> {
    // SAFETY: close_range(2) with this flag reads no memory and closes nothing. It sets a flag of existing descriptors,
    // which their owners can use as before.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::inherit_nothing;
    use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

    #[test]
    fn what_was_inherited_is_not_passed_on() {
        let file = std::fs::File::open("/dev/null").expect("it is always there");
        fcntl_setfd(&file, FdFlags::empty()).expect("the file is open");
        inherit_nothing().expect("the kernel is recent enough");
        assert_eq!(fcntl_getfd(&file).expect("the file is still open"), FdFlags::CLOEXEC);
    }
}
