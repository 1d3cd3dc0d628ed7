//! Creates the example of a configuration file from the descriptions of the options.

use clap::{Arg, CommandFactory};

use super::options;
use crate::args::Args;

/// Maximum number of columns of a comment line.
const COLUMNS: usize = 100;

const HEAD: &str = "\
# Configuration of straked, the daemon of Strake: straked(8).
#
# Each key is an option of straked. The command line and the environment take precedence over this file. Lines that
# start with # are comments; the values shown there are defaults or examples. The command `config check` of strake
# checks the file. Changes take effect at the next start of the daemon.
";

/// Returns a file with comments and every option.
pub fn example() -> String {
    let command = Args::command();
    let mut text = HEAD.to_owned();
    for (key, option) in options(&command) {
        text += "\n";
        let help = option.get_help().map(ToString::to_string).unwrap_or_default();
        for line in wrapped(&help) {
            text += &format!("# {line}\n");
        }
        text += &format!("#{}\n", line(key, &value(key, option)));
    }
    text
}

/// Returns the default of an option, or an example of its value.
fn value(key: &str, option: &Arg) -> String {
    if let Some(value) = option.get_default_values().first() {
        return value.to_string_lossy().into_owned();
    }
    match key {
        "state-dir" => "/var/lib/strake",
        "socket" => "/run/strake/straked.sock",
        "write-dirs" => "/srv/drives",
        "metrics" => "127.0.0.1:9464",
        "operator-group" => "strake-operator",
        "viewer-group" => "strake-viewer",
        _ => "portable",
    }
    .to_owned()
}

/// Returns `key` with `value` as a line of TOML.
pub fn line(key: &str, value: &str) -> String {
    let plain = value.len() < 10 && value.bytes().all(|byte| byte.is_ascii_digit());
    // A number with a leading zero is not valid TOML.
    if plain && (value == "0" || !value.starts_with('0')) && !value.is_empty() {
        return format!("{key} = {value}");
    }
    let mut quoted = String::new();
    for c in value.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    format!("{key} = \"{quoted}\"")
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last().map_or(0, String::len);
        if last > 0 && last + 1 + word.len() > COLUMNS {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
