//! Completion of commands in a shell. The script of the shell calls this program with the words of the line. The
//! program answers with verbs, options, and the names that the daemon knows.
//!
//! A completion changes nothing, prints no errors, and waits for the daemon for at most [`COMPLETION_TIMEOUT`].

mod names;

use crate::args::Cli;
use crate::error::CliError;
use crate::exit::Exit;
use clap::{Arg, Command, CommandFactory as _, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use names::{Line, Names};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::sync::Arc;

#[cfg(doc)]
use crate::limits::COMPLETION_TIMEOUT;

/// The variable with which the script of a shell asks for a completion.
const VARIABLE: &str = "_STRAKE_COMPLETE";

/// The script for bash. The script of the library does not complete names with colons.
const BASH: &str = include_str!("completion/strake.bash");

/// Prints the completion script of `shell`.
///
/// # Errors
/// If standard output is closed or full.
pub fn script(shell: Shell) -> Result<Exit, CliError> {
    let text = text_of(shell).map_err(|error| CliError::io("cannot write the script", &error))?;
    io::stdout().write_all(&text).map_err(strake_terminal::Error::answer)?;
    Ok(Exit::Fine)
}

fn text_of(shell: Shell) -> io::Result<Vec<u8>> {
    if shell == Shell::Bash {
        return Ok(BASH.as_bytes().to_vec());
    }
    let mut text = Vec::new();
    if shell == Shell::PowerShell {
        // The dynamic script of the library executes parts of the line. This one completes verbs and options.
        clap_complete::generate(shell, &mut Cli::command(), "strake", &mut text);
        return Ok(text);
    }
    if let Some(known) = Shells::builtins().completer(&shell.to_string()) {
        known.write_registration(VARIABLE, "strake", "strake", "strake", &mut text)?;
    }
    if shell != Shell::Zsh {
        return Ok(text);
    }
    // Zsh loads the file as a function at the first completion. This function must also complete.
    let text = String::from_utf8_lossy(&text).replace(
        "\ncompdef _clap_dynamic_completer_strake strake",
        "\nif [[ ${funcstack[1]} == _strake ]]; then\n    _clap_dynamic_completer_strake \"$@\"\nelse\n    \
            compdef _clap_dynamic_completer_strake strake\nfi",
    );
    Ok(text.into_bytes())
}

/// Answers the script of a shell. Returns `None` if no script called this program.
#[must_use]
pub fn answer(arguments: &[OsString]) -> Option<Exit> {
    std::env::var_os(VARIABLE)?;
    let words = arguments.iter().skip_while(|word| *word != "--").skip(1);
    let line = Arc::new(Line::new(words.map(|word| word.to_string_lossy().into_owned()).collect()));
    let factory = || {
        let mut command = Cli::command();
        command.build();
        with_names(command, "", &line)
    };
    let here = std::env::current_dir().ok();
    let completed = CompleteEnv::with_factory(factory)
        .var(VARIABLE)
        .try_complete(arguments.iter().cloned(), here.as_deref());
    match completed {
        Ok(true) => Some(Exit::Fine),
        // An empty variable, or "0", asks for nothing.
        Ok(false) => None,
        // An error would be printed into the line of the user.
        Err(_) => Some(Exit::Usage),
    }
}

/// Adds the completion of names to all arguments of `command`. `path` contains the words before the command.
fn with_names(command: Command, path: &str, line: &Arc<Line>) -> Command {
    let own = path.to_owned();
    let command = command.mut_args(|arg| of_arg(arg, &own, line));
    command.mut_subcommands(|verb| {
        let path = format!("{path} {}", verb.get_name());
        with_names(verb, path.trim_start(), line)
    })
}

fn of_arg(arg: Arg, path: &str, line: &Arc<Line>) -> Arg {
    // Names and verbs come before options that the user did not ask for.
    let arg = if line.is_open() && arg.get_long().is_some() { arg.hide(true) } else { arg };
    let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let value = value.unwrap_or_default();
    match value.as_str() {
        "FILE" => return arg.value_hint(ValueHint::FilePath),
        "DIR" => return arg.value_hint(ValueHint::DirPath),
        _ => {}
    }
    let Some(names) = Names::of(path, arg.get_id().as_str(), &value) else { return arg };
    let line = Arc::clone(line);
    arg.add(ArgValueCompleter::new(move |current: &OsStr| names.matching(current, &line)))
}

#[cfg(test)]
mod tests {
    use super::text_of;
    use clap::ValueEnum as _;
    use clap_complete::Shell;

    #[test]
    fn the_script_of_every_shell_calls_the_program() {
        for shell in Shell::value_variants() {
            let text = String::from_utf8(text_of(*shell).expect("it is written")).expect("text");
            let calls = text.contains("_STRAKE_COMPLETE");
            assert_eq!(calls, *shell != Shell::PowerShell, "{shell}: {text}");
            assert!(!text.contains("Invoke-Expression"), "{shell} executes the line");
        }
    }

    #[test]
    fn the_script_of_zsh_completes_at_its_first_call() {
        let text = String::from_utf8(text_of(Shell::Zsh).expect("it is written")).expect("text");
        assert!(text.starts_with("#compdef strake\n"), "{text}");
        assert!(text.contains("_clap_dynamic_completer_strake \"$@\"\n"), "{text}");
    }
}
