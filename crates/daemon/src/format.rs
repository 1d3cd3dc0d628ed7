//! A format of a drive of the kernel, in a process of its own, which the daemon starts with a hidden option.

use std::path::PathBuf;
use std::process::ExitCode;

use rustix::process::setsid;
use strake_control::{Formatter, format_apart};

use crate::args::RUN_FORMAT;

/// This program, also if an upgrade has replaced its file.
const OWN: &str = "/proc/self/exe";

/// Returns the program that formats drives.
pub fn formatter() -> Formatter {
    Formatter { program: PathBuf::from(OWN), option: RUN_FORMAT.to_owned() }
}

/// Formats the drive at the standard input, and prints the result.
pub fn run(words: &[u32]) -> ExitCode {
    // A signal to the group of the daemon, such as of a terminal, does not concern the format. Fails only for the first
    // process of a group, which has its own group already.
    let _ = setsid();
    match format_apart(words) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("cannot format: {why}");
            ExitCode::FAILURE
        }
    }
}
