//! `straked`: the daemon.
//!
//! **What it is.** A process around one [`strake_control::Control`]. It serves gRPC on a Unix socket, decides which
//! clients may call, stops cleanly at SIGTERM, and serves metrics over HTTP if an option requests them.
//!
//! **What it must never do.** Carry client I/O: control threads and data cores meet only in the control plane.
//! Acknowledge a change before it is recorded. Start while another daemon uses the same state directory or socket.
//!
//! **Where to start.** [`mod@run`] for the life of the process, [`services`] for the calls, [`access`] for the
//! permitted clients, [`roles`] for what they may call, [`metrics`] for the data that is served without authentication,
//! [`contain`] for the rights that the process gives up.

#![forbid(unsafe_code)]

mod access;
mod again;
mod args;
mod budget;
mod config;
mod contain;
mod files;
mod format;
mod hook;
mod log;
mod manual;
mod metrics;
mod notify;
mod process;
mod roles;
mod run;
mod services;
mod shared;
mod socket;

#[cfg(test)]
mod tests;

use args::Args;
use config::{Given, Refused};
use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

/// Exit code of a process that refuses its options.
const REFUSED: u8 = 3;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match config::read(&arguments) {
        Ok(Given { args: Args { run_hook: Some(path), .. }, .. }) => hook::run(&path),
        Ok(Given { args: Args { run_format: Some(words), .. }, .. }) => format::run(&words),
        Ok(given) => printed(&given).unwrap_or_else(|| run(&given.args)),
        Err(Refused::CommandLine(error)) => {
            // Help and version are no errors; everything else is wrong usage.
            let code = if error.use_stderr() { REFUSED } else { 0 };
            // Printing fails if the terminal is closed, which cannot be reported.
            let _ = error.print();
            ExitCode::from(code)
        }
        Err(Refused::File(why)) => {
            eprintln!("straked: {why}");
            ExitCode::from(REFUSED)
        }
    }
}

/// Prints what the options request; `None` if they request the daemon.
fn printed(given: &Given) -> Option<ExitCode> {
    let mut text = Vec::new();
    let made = match &given.args {
        Args { manual: true, .. } => manual::write(&mut text),
        Args { example_config: true, .. } => text.write_all(config::example().as_bytes()),
        Args { check_config: true, json: true, .. } => {
            text.write_all(config::in_effect_json(given).as_bytes())
        }
        Args { check_config: true, .. } => text.write_all(config::in_effect(given).as_bytes()),
        _ => return None,
    };
    Some(match made.and_then(|()| std::io::stdout().write_all(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the pipe, or the file system is full.
        Err(_) => ExitCode::FAILURE,
    })
}

fn run(args: &Args) -> ExitCode {
    match run::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(ended) => {
            eprintln!("straked: {}", ended.why);
            // `strake daemon start` returns the same exit codes with the same meaning.
            ExitCode::from(match ended.when {
                run::When::Starting => REFUSED,
                run::When::Serving => 2,
            })
        }
    }
}
