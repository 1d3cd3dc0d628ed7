//! Asking before something is lost.

use crate::error::CliError;
use crate::output::printable;
use std::io::{BufRead, IsTerminal, Write};
use strake_terminal::text::wrapped;

/// A question before something is done.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What would be done, and what it costs.
    pub what: &'a str,
    /// Step by step.
    pub plan: &'a [String],
    /// What has to be typed.
    pub answer: &'a str,
}

/// True when there is a person at a terminal to ask.
#[must_use]
pub fn person() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Checks that a person can be asked before `what`, whose loss is permanent. Without a person, a script has to say
/// `--yes`.
///
/// # Errors
/// When no person can be asked.
pub fn possible(what: &str) -> Result<(), CliError> {
    match person() {
        true => Ok(()),
        false => Err(CliError::usage(format!(
            "refused to {what}: no terminal to ask for confirmation; add --yes"
        ))),
    }
}

/// Asks the person at the terminal to type the answer.
///
/// # Errors
/// When it is not typed.
pub fn ask(question: &Question<'_>) -> Result<(), CliError> {
    typed(question, &mut std::io::stdin().lock(), &mut std::io::stderr())
}

/// The question and its answer, over any reader and writer.
///
/// # Errors
/// When what is read is not the answer.
pub fn typed(
    question: &Question<'_>,
    from: &mut impl BufRead,
    to: &mut impl Write,
) -> Result<(), CliError> {
    let Question { what, plan, answer: name } = *question;
    let (width, _) = crate::output::terminal();
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
