//! `strake-bench`: see [`strake_bench::program`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(strake_bench::program::main(std::env::args_os()))
}
