//! The resources that this process uses, from procfs.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};

/// Returns the resident memory in bytes; 0 without procfs (proc_pid_statm(5)).
pub fn memory_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    pages * page_size() as u64
}

/// Returns the used processor time, user and system, in microseconds (proc_pid_stat(5), fields 14 and 15).
pub fn cpu_us() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    cpu_ticks(&stat).unwrap_or(0) * 1_000_000 / clock_ticks_per_second()
}

/// The command name, in parentheses, may contain any character, so fields are counted from its end.
pub fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}
