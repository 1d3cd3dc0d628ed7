//! `strake array ...`.

use crate::args::parse;
use clap::{Args, Subcommand};

/// What can be done with arrays.
#[derive(Debug, Subcommand)]
pub enum ArrayVerb {
    /// Create an array on drives that hold nothing. It serves at once.
    Create(Create),
    /// Every array.
    List,
    /// One array: its state, its members by position, and what is being done.
    Show {
        /// Name or UUID.
        #[arg(value_name = "ARRAY")]
        name: String,
        /// Print it again whenever it changes, until interrupted.
        #[arg(long)]
        watch: bool,
    },
    /// Take a member out of use.
    Fail(Fail),
    /// Put a drive in the place of a failed or missing member, and rebuild onto it.
    Replace(Replace),
    /// Give a drive to the first failed or missing member.
    Add(Add),
    /// Scan drives for arrays and start those that are found.
    Import(Import),
    /// Stop an array and forget its drives. The data stays on them.
    Unload(Stop),
    /// Stop an array and mark its drives as free. THE DATA IS LOST.
    Destroy(Stop),
}

/// `strake array create`.
#[derive(Debug, Args)]
pub struct Create {
    /// Name of the new array.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// 0, 1, 10, 5, 6, 7.3, n+M (such as n+4), 50, 60 or 70.
    #[arg(long)]
    pub level: String,
    /// Drives, separated by commas or repeated: paths, device names, or ram:SIZE and null:SIZE.
    #[arg(long, required = true, value_delimiter = ',', value_name = "DRIVES")]
    pub drives: Vec<String>,
    /// Strip size, a power of two from 4KiB to 1MiB [default: 128KiB].
    #[arg(long, value_parser = parse::size_u32, value_name = "SIZE")]
    pub strip: Option<u32>,
    /// Members per group of levels 50, 60 and 70.
    #[arg(long, value_name = "MEMBERS")]
    pub group_size: Option<u32>,
    /// Size of a logical block, 512 or 4096 [default: the largest among the drives].
    #[arg(long, value_parser = parse::size_u32, value_name = "SIZE")]
    pub block_size: Option<u32>,
    /// Print what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Use the drives although they hold something. WHAT THEY HOLD IS LOST.
    #[arg(long)]
    pub overwrite: bool,
}

/// `strake array fail`.
#[derive(Debug, Args)]
pub struct Fail {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Position of the member, from 0.
    #[arg(long, value_name = "POSITION")]
    pub member: u32,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    /// Print what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `strake array replace`.
#[derive(Debug, Args)]
pub struct Replace {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Position of the member, from 0.
    #[arg(long, value_name = "POSITION")]
    pub member: u32,
    /// The drive to put there.
    #[arg(long = "with", value_name = "DRIVE")]
    pub drive: String,
    /// Print what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Use the drive although it holds something. WHAT IT HOLDS IS LOST.
    #[arg(long)]
    pub overwrite: bool,
}

/// `strake array add`.
#[derive(Debug, Args)]
pub struct Add {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// The drive to give.
    #[arg(long)]
    pub drive: String,
    /// Print what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Use the drive although it holds something. WHAT IT HOLDS IS LOST.
    #[arg(long)]
    pub overwrite: bool,
}

/// `strake array import`.
#[derive(Debug, Args)]
pub struct Import {
    /// Only this array [default: every one that is found].
    #[arg(value_name = "ARRAY")]
    pub name: Option<String>,
    /// Drives to scan beyond those that the daemon remembers, separated by commas or repeated.
    #[arg(long, value_delimiter = ',', value_name = "DRIVES")]
    pub drives: Vec<String>,
    /// Start although members that were last seen in sync are not here.
    #[arg(long)]
    pub degraded: bool,
    /// Start although a crash while degraded may have damaged blocks.
    #[arg(long)]
    pub accept_loss: bool,
}

/// `strake array unload` and `strake array destroy`.
#[derive(Debug, Args)]
pub struct Stop {
    /// Name or UUID.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// Remove its exports, disconnecting their clients.
    #[arg(long)]
    pub force: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    /// Print what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
}
