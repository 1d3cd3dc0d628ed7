//! `strake bench ...`: the program `strake-bench`.

use crate::args::BenchArgs;
use crate::beside;
use crate::error::CliError;
use crate::output::Format;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Name of the measuring program.
const PROGRAM: &str = "strake-bench";

/// Replaces this process by `strake-bench` with `arguments` and output `format`; returns only after an error.
#[must_use]
pub fn become_bench(arguments: &BenchArgs, format: Format) -> CliError {
    let mut command = Command::new(beside::program(PROGRAM));
    match format {
        Format::Table => {}
        Format::Json => {
            command.args(["--output", "json"]);
        }
    }
    cannot_start(&command.args(&arguments.arguments).exec())
}

fn cannot_start(error: &io::Error) -> CliError {
    if error.kind() != io::ErrorKind::NotFound {
        return CliError::io(format_args!("cannot start {PROGRAM}"), error);
    }
    CliError::usage(format!(
        "{PROGRAM} is not installed: it is neither next to strake nor in PATH\n  in the source tree, `make bench` \
         builds it and measures everything, `cargo build --release -p strake-bench` only builds it; then \
         `make install` installs it"
    ))
}
