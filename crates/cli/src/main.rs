//! `strake`: see the library of this crate.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(strake_cli::main(std::env::args_os()).code())
}
