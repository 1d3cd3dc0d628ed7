//! Manual pages, from the same definitions as the grammar.

use crate::args::Cli;
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use clap::CommandFactory as _;
use std::path::Path;
use strake_terminal::manual::{self, Sections};

/// Sections of every manual page.
const ALL: &str = include_str!("manual/all.man");

/// Sections of strake(1).
const PROGRAM: &str = include_str!("manual/strake.man");

/// Writes a page per command into `dir`, as `strake.1`, `strake-array-create.1` and so on.
///
/// # Errors
/// When the folder or a page cannot be written.
pub fn pages(dir: &Path, out: &Output) -> Result<Exit, CliError> {
    manual::write(Cli::command(), dir, Sections { all: ALL, program: PROGRAM })?;
    out.text(&format!(
        "manual pages are in {}: man -l {}",
        dir.display(),
        dir.join("strake.1").display()
    ))?;
    Ok(Exit::Fine)
}
