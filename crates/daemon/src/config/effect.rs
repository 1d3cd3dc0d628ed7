//! The options in effect, as a configuration file with the origin of each.

use clap::parser::ValueSource;
use clap::{Arg, CommandFactory};
use serde_json::{Value, json};
use strake_parity::Kernel;

use super::{Given, id, options, source};
use crate::args::Args;

/// Returns the options in effect, as a configuration file with the same effect.
pub fn in_effect(given: &Given) -> String {
    let command = Args::command();
    let line = |(key, option)| {
        let (value, origin) = origin(given, key, option);
        match value {
            Ok(value) => format!("{}  # {origin}\n", super::example::line(key, &value)),
            Err(why) => format!("# {key}: {why}  # {origin}\n"),
        }
    };
    options(&command).map(line).collect()
}

/// Returns the options in effect as JSON. An option without a value has the value null and a reason.
pub fn in_effect_json(given: &Given) -> String {
    let command = Args::command();
    let one = |(key, option)| {
        let (value, origin) = origin(given, key, option);
        let (value, reason) = match value {
            Ok(value) => (Some(value), None),
            Err(why) => (None, Some(why)),
        };
        json!({ "name": key, "value": value, "reason": reason, "origin": origin })
    };
    let all: Vec<Value> = options(&command).map(one).collect();
    format!("{:#}\n", json!({ "options": all }))
}

/// Returns the value of an option, or the reason why it has none, and the origin of the value.
fn origin(given: &Given, key: &str, option: &Arg) -> (Result<String, String>, String) {
    let raw = given.matches.get_raw(&id(key)).and_then(|mut values| values.next_back());
    let text = || Ok(raw.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default());
    match source(&given.matches, key) {
        Some(ValueSource::CommandLine) => return (text(), "command line".to_owned()),
        Some(ValueSource::EnvVariable) => {
            let variable = option.get_env().unwrap_or_default().to_string_lossy();
            return (text(), format!("environment, {variable}"));
        }
        // The enum may have more variants in later versions of clap.
        _ => {}
    }
    let path = given.args.config.as_ref().map(|path| path.display().to_string());
    if let Some(entry) = given.entries.iter().find(|entry| entry.key == key) {
        return (
            Ok(entry.value.clone()),
            format!("{}, line {}", path.unwrap_or_default(), entry.line),
        );
    }
    let value = if raw.is_some() { text() } else { computed(&given.args, key) };
    (value, "default".to_owned())
}

/// Returns the default of an option whose default depends on the process.
fn computed(args: &Args, key: &str) -> Result<String, String> {
    let text = |path: std::path::PathBuf| path.display().to_string();
    match key {
        "state-dir" => args.state_dir().map(text),
        "socket" => args.socket().map(text),
        "write-dirs" => Ok(args.write_dirs().to_string()),
        "parity-kernel" => Ok(args.parity_kernel.unwrap_or(Kernel::fit()).name().to_owned()),
        _ => Err("off".to_owned()),
    }
}
