//! The start of a hook's program, in a process of its own.
//!
//! The daemon starts its own program with a hidden option. That process takes a new session and lower limits, and then
//! becomes the program of the hook. A process cannot do this between fork and exec without unsafe code.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit, setsid};
use strake_control::{Programs, TRY_AGAIN};

use crate::args::RUN_HOOK;
use crate::contain::Places;

/// This program, also if an upgrade has replaced its file.
const OWN: &str = "/proc/self/exe";

/// The exit code if the program cannot be started, as of a shell (POSIX.1-2017, 2.8.2).
const NOT_STARTED: u8 = 126;

/// The limits of a hook, each lower than that of the daemon: no core dumps; few open files, because some programs walk
/// through all possible numbers; little locked memory; and processor time, so that a program that left its group and
/// loops has an end (seconds; a hook may run for 30).
const LIMITS: [(Resource, u64); 4] = [
    (Resource::Core, 0),
    (Resource::Nofile, 1024),
    (Resource::Memlock, 8 << 20),
    (Resource::Cpu, 60),
];

/// Returns the programs that hooks may start.
pub fn programs(places: &Places) -> Programs {
    let launcher = Some((PathBuf::from(OWN), RUN_HOOK.to_owned()));
    Programs { folders: Some(places.programs()), launcher }
}

/// Becomes the program at `path`. Returns only after a failure, which is the output of the hook.
pub fn run(path: &Path) -> ExitCode {
    let why = match prepare() {
        Ok(()) => Command::new(path).exec(),
        Err(error) => error,
    };
    let next = match why.kind() {
        ErrorKind::PermissionDenied => {
            "; its interpreter must be in a system folder or in a folder of the option hook-dirs"
        }
        _ => "",
    };
    eprintln!("cannot start {}: {why}{next}", path.display());
    ExitCode::from(if is_passing(why.kind()) { TRY_AGAIN } else { NOT_STARTED })
}

/// Whether the error ends without a change by the operator: the file is still open for writing after an installation,
/// or memory is short (execve(2)).
const fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ExecutableFileBusy | ErrorKind::OutOfMemory)
}

fn prepare() -> std::io::Result<()> {
    setsid()?;
    for (resource, most) in LIMITS {
        let lowered = lowered(getrlimit(resource), most);
        setrlimit(resource, lowered)?;
    }
    Ok(())
}

/// Returns the limit lowered to `most`. A limit is never raised; `None` is no limit.
fn lowered(limit: Rlimit, most: u64) -> Rlimit {
    let lower = |value: Option<u64>| Some(value.map_or(most, |value| value.min(most)));
    Rlimit { current: lower(limit.current), maximum: lower(limit.maximum) }
}

#[cfg(test)]
mod tests {
    use super::{ErrorKind, is_passing, lowered};
    use rustix::process::Rlimit;

    #[test]
    fn a_busy_file_and_short_memory_pass() {
        assert!(
            [ErrorKind::ExecutableFileBusy, ErrorKind::OutOfMemory].into_iter().all(is_passing)
        );
        assert!(![ErrorKind::PermissionDenied, ErrorKind::NotFound].into_iter().any(is_passing));
    }

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let check = |current, maximum, want| {
            let limit = lowered(Rlimit { current, maximum }, 10);
            assert_eq!((limit.current, limit.maximum), want);
        };
        check(None, None, (Some(10), Some(10)));
        check(Some(20), None, (Some(10), Some(10)));
        check(Some(5), Some(7), (Some(5), Some(7)));
    }
}
