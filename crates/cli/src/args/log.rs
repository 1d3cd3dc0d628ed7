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
        /// Number of latest entries to list, at most 500. For each command, the log has one entry for its start and one
        /// entry for its end.
        #[arg(long, default_value_t = 100, value_name = "COUNT")]
        last: u32,
        /// List only entries with numbers below this number.
        #[arg(long, value_name = "NUMBER")]
        before: Option<u64>,
        /// List only commands of the user with this UID.
        #[arg(long, value_name = "UID")]
        uid: Option<u32>,
        /// List only commands for this object, such as array/tank, drive//dev/nvme3n1, export/tank or daemon.
        #[arg(long, value_name = "OBJECT")]
        object: Option<String>,
        /// Print times as UTC instead of the time of this host.
        #[arg(long)]
        utc: bool,
    },
    /// Check that no entry of the audit log was changed or removed. If entries were changed or removed, the exit code
    /// is 2.
    ///
    /// Store the printed number and hash on another host, and pass both values to a later check with --entry. This
    /// check detects every change of the entries up to this number, including changes by root.
    #[command(after_help = "Examples:
  strake log verify
  strake log verify --json")]
    Verify(Verify),
}

/// The entry with which the audit log is compared.
#[derive(Debug, Args)]
pub struct Verify {
    /// Number and hash of an entry, as an earlier check printed them.
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
