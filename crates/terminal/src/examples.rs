//! The examples at the end of every command's help: manual pages print them, and tests run them.

use clap::Command;

/// What introduces them.
const HEADING: &str = "Examples:";

/// The command lines of the examples of `command`, in order. None when it has no examples.
#[must_use]
pub fn of(command: &Command) -> Vec<String> {
    let Some(help) = command.get_after_help() else {
        return Vec::new();
    };
    let help = help.to_string();
    let lines = help.lines().skip_while(|line| *line != HEADING).skip(1);
    lines.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}
