//! Manual pages, from the same definitions as the grammar.

use crate::error::{Error, ErrorKind};
use crate::examples;
use clap::Command;
use clap::builder::Resettable;
use clap_mangen::Man;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// Sections of manual pages (groff_man(7)) that the grammar does not contain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sections<'a> {
    /// Sections of every page.
    pub all: &'a str,
    /// Sections of the page of the program.
    pub program: &'a str,
}

/// Writes a page for `command` and each command below it into `folder`: for `strake`, `strake.1`,
/// `strake-array-create.1` and so on.
///
/// # Errors
/// When the folder or a page cannot be written.
pub fn write(command: Command, folder: &Path, sections: Sections<'_>) -> Result<(), Error> {
    let fail = |source| Error {
        kind: ErrorKind::Manual,
        what: format!("cannot write pages to {}", folder.display()),
        source,
    };
    std::fs::create_dir_all(folder).map_err(fail)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    page(&command, folder, sections).map_err(fail)
}

/// Writes the page of `command` and those of the commands below it.
fn page(command: &Command, folder: &Path, sections: Sections<'_>) -> io::Result<()> {
    for below in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        page(below, folder, Sections { program: "", ..sections })?;
    }
    // The page would fill the examples into a paragraph.
    let page = Man::new(command.clone().after_help(Resettable::Reset));
    let mut file = File::create(folder.join(page.get_filename()))?;
    page.render(&mut file)?;
    let examples = examples::of(command);
    if !examples.is_empty() {
        file.write_all(section(&examples).as_bytes())?;
    }
    file.write_all(sections.program.as_bytes())?;
    file.write_all(sections.all.as_bytes())?;
    file.flush()
}

/// A section of a manual page (groff_man(7)) that holds `examples` line by line.
fn section(examples: &[String]) -> String {
    let escaped = |line: &String| line.replace('\\', "\\e").replace('-', "\\-") + "\n";
    let lines: String = examples.iter().map(escaped).collect();
    format!(".SH EXAMPLES\n.nf\n{lines}.fi\n")
}
