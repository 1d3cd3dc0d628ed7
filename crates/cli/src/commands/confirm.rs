//! Asking before something is lost.

use crate::error::CliError;
use std::io::{BufRead, IsTerminal, Write};

/// What a command may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Danger {
    /// Redundancy, which a rebuild brings back.
    Redundancy,
    /// Data, which nothing brings back.
    Data,
}

/// Asks the person at the terminal to type `name` before `what` is done. Where nobody can be asked, a script has
/// to say `--yes` for what costs data, and nothing for what a rebuild brings back.
///
/// # Errors
/// When the name is not typed, or nobody can be asked and `danger` is to data.
pub fn ask(what: &str, name: &str, danger: Danger) -> Result<(), CliError> {
    let stdin = std::io::stdin();
    let person = stdin.is_terminal() && std::io::stderr().is_terminal();
    match (person, danger) {
        (true, _) => typed(what, name, &mut stdin.lock(), &mut std::io::stderr()),
        (false, Danger::Redundancy) => Ok(()),
        (false, Danger::Data) => Err(CliError::usage(format!(
            "refused to {what}: without a terminal to ask on, add --yes"
        ))),
    }
}

/// The question and its answer, over any reader and writer.
///
/// # Errors
/// When what is read is not `name`.
pub fn typed(
    what: &str,
    name: &str,
    from: &mut impl BufRead,
    to: &mut impl Write,
) -> Result<(), CliError> {
    let mut answer = String::new();
    write!(to, "About to {what}.\nType {name} to go on: ")
        .and_then(|()| to.flush())
        .and_then(|()| from.read_line(&mut answer))
        .map_err(|e| CliError::io("cannot ask", &e))?;
    if answer.trim() == name {
        Ok(())
    } else {
        Err(CliError::usage(format!("not confirmed, nothing was done: {name} was not typed")))
    }
}
