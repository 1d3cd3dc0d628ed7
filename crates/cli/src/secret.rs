//! Addresses that hold a password or are one: read from a file or standard input, because arguments are shown to every
//! user of the machine.

use crate::error::CliError;
use crate::limits::ADDRESS_BYTES_MAX;
use std::fs::File;
use std::io::Read;

/// Holds that `url`, given as the argument `--OPTION`, has no password in it.
///
/// # Errors
/// When it has. The message does not repeat it.
pub fn open(url: &str, option: &str) -> Result<(), CliError> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if !host.contains('@') {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "the address of --{option} has a user or a password in it, which every user of this machine can read in an \
         argument: put the address into a file and say --{option}-file FILE, or give it to standard input with \
         --{option}-file -"
    )))
}

/// The address that is the only line of `file`, or of standard input for `-`.
///
/// # Errors
/// When it cannot be read, or is no such line. The message does not repeat what was read.
pub fn address(file: &str) -> Result<String, CliError> {
    let fail = |e: std::io::Error| CliError::io(format_args!("cannot read {file}"), &e);
    let mut text = String::new();
    let read = match file {
        "-" => std::io::stdin().take(ADDRESS_BYTES_MAX + 1).read_to_string(&mut text),
        _ => File::open(file).map_err(fail)?.take(ADDRESS_BYTES_MAX + 1).read_to_string(&mut text),
    };
    let read = read.map_err(fail)? as u64;
    let line = text.trim();
    if line.is_empty() || line.contains(char::is_whitespace) || read > ADDRESS_BYTES_MAX {
        return Err(CliError::usage(format!(
            "{file} has to hold one line, with the address alone"
        )));
    }
    Ok(line.to_owned())
}
