//! Completions and manual pages, from the same definitions as the grammar.

use crate::args::Cli;
use crate::error::CliError;
use crate::examples;
use crate::exit::Exit;
use crate::output::Output;
use clap::builder::Resettable;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// Prints the completion script of `shell`.
///
/// # Errors
/// When standard output is gone or full.
pub fn completions(shell: Shell) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "strake", &mut script);
    io::stdout()
        .write_all(&script)
        .map_err(|e| CliError::io("cannot write the completion script", &e))?;
    Ok(Exit::Fine)
}

/// Writes a page per command into `dir`, as `strake.1`, `strake-array-create.1` and so on.
///
/// # Errors
/// When the folder or a page cannot be written.
pub fn pages(dir: &Path, out: &Output) -> Result<Exit, CliError> {
    let fail =
        |e: io::Error| CliError::io(format_args!("cannot write pages to {}", dir.display()), &e);
    std::fs::create_dir_all(dir).map_err(fail)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    page(&command, dir).map_err(fail)?;
    out.text(&format!(
        "manual pages are in {}: man -l {}",
        dir.display(),
        dir.join("strake.1").display()
    ))?;
    Ok(Exit::Fine)
}

/// Writes the page of `command` and those of what is below it.
fn page(command: &Command, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        page(below, dir)?;
    }
    // The page would fill the examples into a paragraph.
    let page = Man::new(command.clone().after_help(Resettable::Reset));
    let mut file = File::create(dir.join(page.get_filename()))?;
    page.render(&mut file)?;
    let examples = examples::of(command);
    if !examples.is_empty() {
        file.write_all(section(&examples).as_bytes())?;
    }
    file.flush()
}

/// A section of a manual page (groff_man(7)) that holds `examples` line by line.
fn section(examples: &[String]) -> String {
    let escaped = |line: &String| line.replace('\\', "\\e").replace('-', "\\-") + "\n";
    let lines: String = examples.iter().map(escaped).collect();
    format!(".SH EXAMPLES\n.nf\n{lines}.fi\n")
}
