//! `strake spare ...`.

use clap::{Args, Subcommand};

/// Commands for spares.
#[derive(Debug, Subcommand)]
pub enum SpareVerb {
    /// Add an empty drive as a spare for one array, or for all arrays.
    #[command(after_help = "Examples:
  strake spare add nvme9n1
  strake spare add nvme9n1 --array tank
  strake spare add nvme9n1 --dry-run")]
    Add(Add),
    /// List all spares.
    #[command(after_help = "Examples:
  strake spare list")]
    List,
    /// Remove a spare. Afterwards, the drive is free.
    #[command(after_help = "Examples:
  strake spare remove nvme9n1")]
    Remove {
        /// A path, or the name of a device such as nvme0n1.
        #[arg(value_name = "DRIVE")]
        name: String,
    },
}

/// `strake spare add`.
#[derive(Debug, Args)]
pub struct Add {
    /// A path, or the name of a device such as nvme0n1.
    #[arg(value_name = "DRIVE")]
    pub drive: String,
    /// Array that may use the spare [default: all arrays].
    #[arg(long, value_name = "ARRAY")]
    pub array: Option<String>,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Use a drive that has content. ITS CONTENT IS LOST.
    #[arg(long)]
    pub overwrite: bool,
    /// Do not ask for confirmation before the command erases the drive's content.
    #[arg(long)]
    pub yes: bool,
}
