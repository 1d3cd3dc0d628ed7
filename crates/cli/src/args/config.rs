//! `strake config ...`.

use clap::Subcommand;
use std::path::PathBuf;

/// Show, back up and restore the recorded configuration, and check the configuration file of the daemon.
#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Show recorded exports, spares, hooks and settings, and the drives of each array.
    #[command(after_help = "Examples:
  strake config show")]
    Show,
    /// Write the configuration to a file that only its owner can read, or to standard output.
    #[command(after_help = "Examples:
  strake config backup strake.json
  strake config backup strake.json --overwrite
  strake config backup - > strake.json")]
    Backup {
        /// File for the backup; `-` for standard output. The command replaces an earlier backup.
        #[arg(value_name = "FILE")]
        file: String,
        /// Also replace a file that is not an earlier backup. The command never replaces a spare or a drive of an
        /// array.
        #[arg(long)]
        overwrite: bool,
    },
    /// Restore a backup: import its arrays, and create its exports, spares, hooks and settings. The command deletes
    /// nothing on a drive.
    #[command(after_help = "Examples:
  strake config restore strake.json --dry-run
  strake config restore strake.json
  strake config restore - < strake.json")]
    Restore {
        /// File with the backup; `-` for standard input.
        #[arg(value_name = "FILE")]
        file: String,
        /// Print the plan, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Check the configuration file of the daemon, and print the options in effect with their origin.
    #[command(after_help = "Examples:
  strake config check
  strake config check ./straked.toml")]
    Check {
        /// Configuration file of the daemon.
        #[arg(value_name = "FILE", default_value = "/etc/strake/straked.toml")]
        file: PathBuf,
    },
}
