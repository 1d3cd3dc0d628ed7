//! `straked`: the daemon.
//!
//! **What it is.** A process around one [`strake_control::Control`]. It serves gRPC on a Unix socket, decides who may
//! call, turns SIGTERM into an orderly stop, and serves metrics over HTTP if asked to.
//!
//! **What it must never do.** Carry client I/O: control threads and data cores meet only in the control plane.
//! Acknowledge what is not recorded. Start beside another daemon on the same state directory or socket.
//!
//! **Where to start.** [`run`] for the life of the process, [`services`] for the calls, [`socket`] for who may call,
//! [`metrics`] for what is served without authentication.

#![forbid(unsafe_code)]

mod again;
mod args;
mod files;
mod log;
mod metrics;
mod notify;
mod process;
mod run;
mod services;
mod shared;
mod socket;

#[cfg(test)]
mod tests;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no errors; everything else is wrong usage.
            let code = if error.use_stderr() { 3 } else { 0 };
            // It fails when the terminal is gone, which cannot be reported.
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    match run::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(ended) => {
            eprintln!("straked: {}", ended.why);
            // `strake daemon start` hands these on, so they mean the same there.
            ExitCode::from(match ended.when {
                run::When::Starting => 3,
                run::When::Serving => 2,
            })
        }
    }
}
