//! Identifies the process that wrote a record, and checks whether it still runs.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// A process, distinguished from a later process with the same ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    /// The boot of the host in which the process was started (`/proc/sys/kernel/random/boot_id`).
    pub(super) boot: String,
    /// The process ID.
    pub(super) pid: u32,
    /// The start time in kernel ticks since the boot of the host (field 22 of `/proc/PID/stat`, proc(5)).
    started: u64,
}

impl Process {
    /// Returns this process; `None` if the host does not report it.
    pub(super) fn this() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { boot: boot()?, pid, started: started(pid)? })
    }

    /// Whether the process may still run. Threads of an ended process that are blocked in the kernel count as running.
    pub(super) fn is_alive(&self) -> bool {
        let Some(this) = Self::this() else { return false };
        if *self == this || self.boot != this.boot || started(self.pid) != Some(self.started) {
            return false;
        }
        has_live_task(Path::new("/proc").join(self.pid.to_string()).join("task").as_path())
    }
}

fn boot() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    field(&stat, 22)?.parse().ok()
}

/// Returns the field `number` of the text of a `stat` file, counted from 1 as in proc(5). `number` is at least 3,
/// because the second field is a name, which may contain any character.
fn field(stat: &str, number: usize) -> Option<&str> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(number - 3)
}

/// Whether the directory `tasks` contains a thread that is neither a zombie nor dead.
fn has_live_task(tasks: &Path) -> bool {
    let Ok(tasks) = fs::read_dir(tasks) else { return false };
    tasks.flatten().any(|task| {
        let stat = fs::read_to_string(task.path().join("stat"));
        stat.is_ok_and(|stat| !matches!(field(&stat, 3), Some("Z" | "X" | "x") | None))
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Process, boot, field, started};

    #[test]
    fn fields_are_found_whatever_the_name_is() {
        let stat = "12 (a) b) (c) S 1 2 3";
        assert_eq!(field(stat, 3), Some("S"));
        assert_eq!(field(stat, 5), Some("2"));
        assert_eq!(field(stat, 22), None);
        assert_eq!(field("", 3), None);
    }

    #[test]
    fn another_process_is_alive_until_it_has_ended() {
        let mut child =
            Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("cat");
        let pid = child.id();
        let started = started(pid).expect("it runs");
        let process = Process { boot: boot().expect("a boot"), pid, started };
        assert!(process.is_alive());
        // Another process with the same ID.
        assert!(!Process { started: started + 1, ..process.clone() }.is_alive());
        assert!(!Process { boot: "another".to_owned(), ..process.clone() }.is_alive());
        drop(child.stdin.take());
        // The process is a zombie until its parent waits for it.
        while process.is_alive() {
            std::thread::yield_now();
        }
        child.wait().expect("it ends");
        assert!(!process.is_alive());
    }

    #[test]
    fn this_process_is_not_one_to_wait_for() {
        assert!(!Process::this().expect("proc").is_alive());
    }
}
