//! The daemon.

use super::{array::time, size, wrapped};
use std::fmt::Write as _;
use strake_api::v1::{Core, Daemon};

/// What is running.
#[must_use]
pub fn show(daemon: &Daemon, width: usize) -> String {
    let mut out = String::new();
    let uptime_s = daemon.uptime_us / 1_000_000;
    let _ = writeln!(out, "straked {}: {}", daemon.version, daemon.state);
    let _ = writeln!(out, "process    {}, up {}", daemon.pid, time(uptime_s));
    let _ = writeln!(out, "cores      {}", cores(&daemon.cores));
    let _ = writeln!(
        out,
        "uses       {} memory, {:.2} s processor time",
        size(daemon.memory_bytes),
        daemon.cpu_us as f64 / 1e6
    );
    let _ = writeln!(out, "state      {}", daemon.state_dir);
    let _ = writeln!(out, "socket     {}", daemon.socket);
    for core in daemon.cores.iter().filter(|c| !c.notice.is_empty()) {
        let _ = writeln!(
            out,
            "notice     {}",
            wrapped(&format!("core {}: {}", core.index, core.notice), width, 11)
        );
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
