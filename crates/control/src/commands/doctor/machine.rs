//! Checks of the resources of the host for this process.

use std::fs;
use std::path::Path;

use rustix::fs::statvfs;
use rustix::process::{Resource, geteuid, getrlimit};
use strake_api::v1::DoctorCheck;
use strake_dev_uring::Machine;
use strake_units::ByteSize;

use super::{Finding, check, fine};

/// Sufficient free space of a state directory, for many copies of the events and of two states.
const SPACE_ENOUGH: u64 = 64 << 20;

/// Memory that io_uring may have to pin for an unprivileged process.
const MEMLOCK_ENOUGH: u64 = 8 << 20;

/// Number of open files for a moderate number of drives, cores and clients.
const FILES_ENOUGH: u64 = 1024;

/// Returns all checks of the host.
pub(super) fn checks(machine: &Machine) -> Vec<(Finding, DoctorCheck)> {
    let open = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let root = geteuid().is_root();
    vec![
        io_uring(fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok().as_deref(), root),
        files(getrlimit(Resource::Nofile).current, open),
        memlock(getrlimit(Resource::Memlock).current, root),
        lights(machine.runs("ledmon"), machine.slot_names_trouble()),
        fine("daemon version", env!("CARGO_PKG_VERSION")),
    ]
}

/// Checks that no other program switches the LEDs of slots, and that the slot file of the operator is valid.
fn lights(has_ledmon: bool, trouble: Option<String>) -> (Finding, DoctorCheck) {
    let name = "machine slot LEDs";
    match trouble {
        _ if has_ledmon => {
            let what = "ledmon is running and switches the same LEDs, but does not know the states of the arrays";
            check(name, Finding::Warning, what, "systemctl disable --now ledmon")
        }
        Some(why) => check(
            name,
            Finding::Warning,
            why,
            "correct the line; until then, slots have their usual names",
        ),
        None => fine(name, "no other program switches the LEDs"),
    }
}

/// Checks the free space of the file system of `dir`.
pub(super) fn space(name: &str, dir: &Path) -> (Finding, DoctorCheck) {
    match statvfs(dir) {
        Ok(stat) => of_space(name, dir, stat.f_bavail.saturating_mul(stat.f_frsize)),
        Err(error) => {
            let what = format!("the file system of the state directory cannot be queried: {error}");
            check(name, Finding::Warning, what, format!("look at {}", dir.display()))
        }
    }
}

fn of_space(name: &str, dir: &Path, free: u64) -> (Finding, DoctorCheck) {
    let what = format!("writable, {} free", ByteSize(free));
    if free < SPACE_ENOUGH {
        return check(name, Finding::Warning, what, format!("free space in {}", dir.display()));
    }
    fine(name, what)
}

/// Checks that the kernel allows io_uring (proc_sys_kernel(5), `io_uring_disabled`). Older kernels have no such setting
/// and always allow it.
fn io_uring(setting: Option<&str>, root: bool) -> (Finding, DoctorCheck) {
    let name = "machine io_uring";
    let next = "sysctl kernel.io_uring_disabled=0";
    match setting.map(str::trim) {
        Some("2") => {
            check(name, Finding::Failed, "the kernel refuses io_uring to every process", next)
        }
        Some("1") if !root => {
            let what =
                "the kernel refuses io_uring to users outside of the group kernel.io_uring_group";
            check(name, Finding::Failed, what, next)
        }
        Some(_) | None => fine(name, "the kernel allows io_uring"),
    }
}

fn files(limit: Option<u64>, open: u64) -> (Finding, DoctorCheck) {
    let name = "daemon open files";
    let Some(limit) = limit else { return fine(name, format!("{open} open, no limit")) };
    let what = format!("{open} of {limit} open");
    if limit < FILES_ENOUGH || open > limit / 5 * 4 {
        return check(name, Finding::Warning, what, "raise the limit: ulimit -n, or LimitNOFILE=");
    }
    fine(name, what)
}

fn memlock(limit: Option<u64>, root: bool) -> (Finding, DoctorCheck) {
    let name = "daemon locked memory";
    match limit {
        Some(limit) if limit < MEMLOCK_ENOUGH && !root => {
            let what = format!("at most {} may be locked", ByteSize(limit));
            check(name, Finding::Warning, what, "raise the limit: ulimit -l, or LimitMEMLOCK=")
        }
        Some(limit) => fine(name, format!("up to {}", ByteSize(limit))),
        None => fine(name, "no limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Finding, files, io_uring, lights, memlock, of_space};
    use std::path::Path;

    fn is(finding: Finding, made: (Finding, strake_api::v1::DoctorCheck)) {
        let (found, check) = made;
        assert_eq!(found, finding, "{check:?}");
        assert_eq!(check.next_action.is_empty(), finding == Finding::Ok, "{check:?}");
    }

    #[test]
    fn what_the_machine_grants_is_judged() {
        is(Finding::Ok, io_uring(None, false));
        is(Finding::Ok, io_uring(Some("0\n"), false));
        is(Finding::Ok, io_uring(Some("1\n"), true));
        is(Finding::Failed, io_uring(Some("1\n"), false));
        is(Finding::Failed, io_uring(Some("2\n"), true));
        is(Finding::Ok, files(None, 10));
        is(Finding::Ok, files(Some(4096), 100));
        is(Finding::Warning, files(Some(256), 100));
        is(Finding::Warning, files(Some(4096), 4000));
        is(Finding::Ok, memlock(Some(64 << 10), true));
        is(Finding::Warning, memlock(Some(64 << 10), false));
        is(Finding::Ok, lights(false, None));
        is(Finding::Warning, lights(true, None));
        is(Finding::Warning, lights(false, Some("slots.toml: line 2".to_owned())));
        is(Finding::Ok, of_space("x", Path::new("/x"), 1 << 30));
        is(Finding::Warning, of_space("x", Path::new("/x"), 1 << 20));
    }
}
