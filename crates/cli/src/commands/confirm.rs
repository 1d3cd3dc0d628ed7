//! Confirmations before a loss.

use crate::error::CliError;
use crate::fold::wrapped;
use crate::output::{error_columns, printable};
use std::io::{BufRead, IsTerminal, Write};

/// A question before a command is executed.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The operation and what it loses.
    pub what: &'a str,
    /// The steps of the operation.
    pub plan: &'a [String],
    /// The text that the operator has to type.
    pub answer: &'a str,
}

/// Whether standard input and standard error are a terminal.
#[must_use]
pub fn person() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Checks that a terminal for the confirmation of `what` exists. Scripts use `--yes` instead.
///
/// # Errors
/// When there is no terminal.
pub fn possible(what: &str) -> Result<(), CliError> {
    match person() {
        true => Ok(()),
        false => Err(CliError::usage(format!(
            "refused to {what}: no terminal to ask for confirmation; add --yes"
        ))),
    }
}

/// Asks the operator to type the answer.
///
/// # Errors
/// When the operator types another text.
pub fn ask(question: &Question<'_>) -> Result<(), CliError> {
    typed(question, &mut std::io::stdin().lock(), &mut std::io::stderr())
}

/// Asks with the given reader and writer.
///
/// # Errors
/// When the text from the reader is not the answer.
pub fn typed(
    question: &Question<'_>,
    from: &mut impl BufRead,
    to: &mut impl Write,
) -> Result<(), CliError> {
    let Question { what, plan, answer: name } = *question;
    let width = error_columns();
    let fold = |text: &str, indent| wrapped(&printable(text), width, indent);
    let steps: String = plan.iter().map(|step| format!("  - {}\n", fold(step, 4))).collect();
    let what = fold(&format!("About to {what}."), 2);
    let mut answer = String::new();
    write!(to, "{what}\n{steps}Type {name} to continue: ")
        .and_then(|()| to.flush())
        .and_then(|()| from.read_line(&mut answer))
        .map_err(|e| CliError::io("cannot ask", &e))?;
    if answer.trim() == name {
        Ok(())
    } else {
        Err(CliError::usage(format!("not confirmed, nothing was done: {name} was not typed")))
    }
}
