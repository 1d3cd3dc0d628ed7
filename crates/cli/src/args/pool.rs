//! `strake pool ...`.

use super::Watch;
use clap::{Args, Subcommand};

/// Commands for pools.
#[derive(Debug, Subcommand)]
pub enum PoolVerb {
    /// Create a pool. The pool uses the whole array. The array must not be exported.
    #[command(after_help = "Examples:
  strake pool create data tank --dry-run
  strake pool create data tank
  strake pool create data tank --overwrite --yes")]
    Create(Create),
    /// List all pools with their space.
    #[command(after_help = "Examples:
  strake pool list
  strake pool list --watch")]
    List(Watch),
    /// Show one pool: its state, its space, and its numbers of volumes and snapshots.
    #[command(after_help = "Examples:
  strake pool show data
  strake pool show data --watch")]
    Show {
        /// Name of the pool.
        #[arg(value_name = "POOL")]
        name: String,
        /// Print the answer again after each change, until the command is interrupted.
        #[command(flatten)]
        watch: Watch,
    },
    /// Destroy a pool. Afterwards, the array is free. ALL DATA OF THE POOL ARE LOST. The command is refused while a
    /// volume is exported. A pool whose header cannot be read has no name: name its array, with --force.
    #[command(after_help = "Examples:
  strake pool destroy data --dry-run
  strake pool destroy data --force
  strake pool destroy data --force --yes")]
    Destroy(Destroy),
}

/// `strake pool create`.
#[derive(Debug, Args)]
pub struct Create {
    /// Name of the new pool.
    #[arg(value_name = "POOL")]
    pub name: String,
    /// Array for the pool.
    #[arg(value_name = "ARRAY")]
    pub array: String,
    /// Use an array that was written. ITS DATA ARE LOST.
    #[arg(long, alias = "force")]
    pub overwrite: bool,
    /// Do not ask for confirmation before the command overwrites the data of the array.
    #[arg(long)]
    pub yes: bool,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake pool destroy`.
#[derive(Debug, Args)]
pub struct Destroy {
    /// Name of the pool, or of the array of a pool whose header cannot be read.
    #[arg(value_name = "POOL")]
    pub name: String,
    /// Also destroy the volumes and snapshots of the pool. Needed for a pool that is offline.
    #[arg(long)]
    pub force: bool,
    /// Do not ask for confirmation.
    #[arg(long)]
    pub yes: bool,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}
