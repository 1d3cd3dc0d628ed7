//! Addresses that hold a password or are one, and keys: read from a file or standard input, because arguments are shown
//! to every user of the machine.

use crate::error::CliError;
use crate::limits::ADDRESS_BYTES_MAX;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

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
        "the address of --{option} has a user or a password, and every user of this host can read arguments: put the \
         address into a file and use --{option}-file FILE, or pass it to standard input with --{option}-file -"
    )))
}

/// The address that is the only line of `file`, or of standard input for `-`.
///
/// # Errors
/// When it cannot be read, or is no such line. The message does not repeat what was read.
pub fn address(file: &str) -> Result<String, CliError> {
    match file {
        "-" => line(std::io::stdin(), file, "the address"),
        _ => line(File::open(file).map_err(|e| unread(file, &e))?, file, "the address"),
    }
}

/// The key that is the only line of `file`, which only its owner may read, or of standard input for `-`. A pipe, such
/// as `/dev/fd/3`, has no readers but us.
///
/// # Errors
/// When it cannot be read, others may read it too, or it is no such line. The message does not repeat what was read.
pub fn key(file: &str) -> Result<String, CliError> {
    if file == "-" {
        return line(std::io::stdin(), file, "the key");
    }
    let open = File::open(file).map_err(|e| unread(file, &e))?;
    let about = open.metadata().map_err(|e| unread(file, &e))?;
    if about.is_file() && about.mode() & 0o077 != 0 {
        return Err(CliError::usage(format!(
            "users other than the owner may read or write {file}, which holds a key: chmod 600 {file}"
        )));
    }
    line(open, file, "the key")
}

/// The same of a file that need not be given: nothing without one.
///
/// # Errors
/// Those of [`key`].
pub fn key_or_none(file: Option<String>) -> Result<String, CliError> {
    file.map_or_else(|| Ok(String::new()), |file| key(&file))
}

fn unread(file: &str, error: &std::io::Error) -> CliError {
    CliError::io(format_args!("cannot read {file}"), error)
}

/// The only line of what `from` has.
fn line(from: impl Read, file: &str, what: &str) -> Result<String, CliError> {
    let mut text = String::new();
    let read = from.take(ADDRESS_BYTES_MAX + 1).read_to_string(&mut text);
    let read = read.map_err(|e| unread(file, &e))? as u64;
    let line = text.trim();
    if line.is_empty() || line.contains(char::is_whitespace) || read > ADDRESS_BYTES_MAX {
        return Err(CliError::usage(format!(
            "{file} must contain one line with {what}, and nothing else"
        )));
    }
    Ok(line.to_owned())
}
