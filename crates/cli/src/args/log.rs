//! `strake log ...`.

use clap::{Args, Subcommand};

/// Commands for the audit log.
#[derive(Debug, Subcommand)]
pub enum LogVerb {
    /// List commands that changed something or were refused, with their callers. The oldest command is first.
    #[command(after_help = "Examples:
  strake log list
  strake log list --last 500 --uid 1000 --utc
  strake log list --object array/tank --json")]
    List {
        /// Number of latest entries to list, at most 500. A command has one entry when it begins and one when it ends.
        #[arg(long, default_value_t = 100, value_name = "COUNT")]
        last: u32,
        /// List only entries before this number.
        #[arg(long, value_name = "NUMBER")]
        before: Option<u64>,
        /// List only commands of this user, by number.
        #[arg(long, value_name = "UID")]
        uid: Option<u32>,
        /// List only commands for this object, such as array/tank, drive//dev/nvme3n1, export/tank or daemon.
        #[arg(long, value_name = "OBJECT")]
        object: Option<String>,
        /// Print times as UTC instead of local time.
        #[arg(long)]
        utc: bool,
    },
    /// Check that no entry was changed or removed. The exit code is 2 if one was.
    ///
    /// Keep the printed number and hash on another host: with them, a later check shows that no entry up to this one
    /// was changed, even by root.
    #[command(after_help = "Examples:
  strake log verify
  strake log verify --json")]
    Verify(Verify),
}

/// What is compared.
#[derive(Debug, Args)]
pub struct Verify {
    /// An entry, and its hash as an earlier check printed it.
    #[arg(long, value_name = "NUMBER:HASH", value_parser = kept)]
    pub entry: Option<(u64, String)>,
}

/// Parses `NUMBER:HASH`.
fn kept(text: &str) -> Result<(u64, String), String> {
    let parsed = text.split_once(':').and_then(|(number, hash)| {
        let number = number.parse().ok().filter(|number| *number > 0)?;
        (!hash.is_empty()).then(|| (number, hash.to_ascii_lowercase()))
    });
    parsed.ok_or_else(|| "write NUMBER:HASH, as strake log verify prints it".to_owned())
}
