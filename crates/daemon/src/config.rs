//! The configuration file, and the options in effect.
//!
//! The file is TOML. Its keys are the long names of the options, its values their texts. There is no second table of
//! options: keys, permitted values, defaults and descriptions are those of [`Args`]. The value of an option comes from
//! the command line, else from the environment, else from the file, else from the default.

mod effect;
mod example;
mod file;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::args::Args;
use file::Entry;

pub use effect::{in_effect, in_effect_json};
pub use example::example;

/// Options that a file cannot set: they select the file, or what the process does instead of serving.
const NOT_IN_FILES: [&str; 7] =
    ["config", "check-config", "json", "example-config", "run-hook", "run-format", "manual"];

/// Options that are paths. The working directory of a service differs from that of the operator.
const PATHS: [&str; 2] = ["state-dir", "socket"];

/// The options of a process.
#[derive(Debug)]
pub struct Given {
    /// The values of the options.
    pub args: Args,
    /// The options of the command line and of the environment, and the defaults.
    matches: ArgMatches,
    /// The options of the file.
    entries: Vec<Entry>,
}

/// The reason why there are no options.
#[derive(Debug)]
pub enum Refused {
    /// The command line or the environment is wrong, or the answer is a text such as the help.
    CommandLine(clap::Error),
    /// The file is wrong.
    File(String),
}

/// Returns the options from `arguments`, whose first element is the name of the program, from the environment and from
/// the file.
///
/// # Errors
/// One of the options is invalid.
pub fn read(arguments: &[OsString]) -> Result<Given, Refused> {
    let matches = Args::command().try_get_matches_from(arguments).map_err(Refused::CommandLine)?;
    let args = Args::from_arg_matches(&matches).map_err(Refused::CommandLine)?;
    let entries = match &args.config {
        Some(path) => entries_of(path).map_err(Refused::File)?,
        None => Vec::new(),
    };
    let mut all = arguments.to_vec();
    all.extend(entries.iter().filter(|entry| !is_given(&matches, &entry.key)).map(argument));
    let args = Args::try_parse_all(&all).map_err(Refused::CommandLine)?;
    Ok(Given { args, matches, entries })
}

impl Args {
    fn try_parse_all(arguments: &[OsString]) -> Result<Self, clap::Error> {
        Self::from_arg_matches(&Self::command().try_get_matches_from(arguments)?)
    }
}

/// Returns the options that a file may set, in the order of the help.
fn options(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let named = command.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg)));
    named.filter(|(name, _)| !NOT_IN_FILES.contains(name))
}

/// Returns whether the command line or the environment sets the option `key`.
fn is_given(matches: &ArgMatches, key: &str) -> bool {
    matches!(source(matches, key), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
}

fn source(matches: &ArgMatches, key: &str) -> Option<ValueSource> {
    matches.value_source(&id(key))
}

/// The identifier of an option is the name of its field.
fn id(key: &str) -> String {
    key.replace('-', "_")
}

fn argument(entry: &Entry) -> OsString {
    format!("--{}={}", entry.key, entry.value).into()
}

/// Returns the options in the file `path`, after a check of their names and values.
fn entries_of(path: &Path) -> Result<Vec<Entry>, String> {
    let shown = path.display();
    let text = file::read(path).map_err(|why| format!("cannot read {shown}: {why}"))?;
    let refused = |(line, why): (usize, String)| format!("{shown}: line {line}: {why}");
    let entries = file::parse(&text).map_err(refused)?;
    for entry in &entries {
        check(entry).map_err(|why| refused((entry.line, why)))?;
    }
    Ok(entries)
}

/// Checks that the option exists and can have this value.
fn check(entry: &Entry) -> Result<(), String> {
    let command = Args::command();
    let Some((_, option)) = options(&command).find(|(name, _)| *name == entry.key) else {
        let names: Vec<&str> = options(&command).map(|(name, _)| name).collect();
        return Err(format!("unknown key {}; the keys are {}", entry.key, names.join(", ")));
    };
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    let wrong =
        |why: &str| format!("{} = {:?}: {why}. {}: {help}", entry.key, entry.value, entry.key);
    if PATHS.contains(&entry.key.as_str()) && !entry.value.starts_with('/') {
        return Err(wrong("an absolute path is needed"));
    }
    let alone = ["straked".into(), argument(entry)];
    match Args::try_parse_all(&alone) {
        Ok(_) => Ok(()),
        Err(error) => Err(wrong(&reason(&error))),
    }
}

/// Returns the reason of an error of one value, without the text about the command line.
fn reason(error: &clap::Error) -> String {
    if let Some(source) = std::error::Error::source(error) {
        return source.to_string();
    }
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) => format!("write {}", values.join(" or ")),
        _ => "this value is not possible".to_owned(),
    }
}
