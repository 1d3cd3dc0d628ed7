//! The daemon.

use super::{field, job::time, size};
use std::fmt::Write as _;
use strake_api::v1::{Core, Daemon};

/// What is running.
#[must_use]
pub fn show(daemon: &Daemon, width: usize) -> String {
    let mut out = String::new();
    let uptime_s = daemon.uptime_us / 1_000_000;
    let _ = writeln!(out, "straked {}: {}", daemon.version, daemon.state);
    let mut say = |name: &str, value: &str| field(&mut out, name, value, width);
    say("process", &format!("{}, up {}", daemon.pid, time(uptime_s)));
    say("cores", &cores(&daemon.cores));
    let (memory, cpu) = (size(daemon.memory_bytes), daemon.cpu_us as f64 / 1e6);
    say("uses", &format!("{memory} memory, {cpu:.2} s processor time"));
    say("state", &daemon.state_dir);
    say("socket", &daemon.socket);
    if !daemon.role.is_empty() {
        say("your role", &daemon.role);
    }
    for core in daemon.cores.iter().filter(|c| !c.notice.is_empty()) {
        say("notice", &format!("core {}: {}", core.index, core.notice));
    }
    out
}

/// The cores as `2 (on CPU 0, 1)`.
fn cores(cores: &[Core]) -> String {
    let cpus: Vec<String> =
        cores.iter().map(|c| c.cpu.map_or("any".to_owned(), |cpu| cpu.to_string())).collect();
    match cpus.is_empty() {
        true => "none".to_owned(),
        false => format!("{} (on CPU {})", cores.len(), cpus.join(", ")),
    }
}
