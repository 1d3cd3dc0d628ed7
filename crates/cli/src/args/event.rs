//! `strake event ...`.

use clap::{Args, Subcommand, ValueEnum};

/// What can be done with events.
#[derive(Debug, Subcommand)]
pub enum EventVerb {
    /// Events of the past, oldest first: what happened, why, what to do, and who did what.
    #[command(after_help = "Examples:
  strake event list
  strake event list --last 500 --severity warning
  strake event list --object array/tank --utc
  strake event list --kind command")]
    List {
        /// Which events.
        #[command(flatten)]
        which: Which,
        /// So many at most, the latest; 0 for all that are kept.
        #[arg(long, default_value_t = 50, value_name = "COUNT")]
        last: u32,
    },
    /// New events as they happen, until interrupted.
    #[command(after_help = "Examples:
  strake event follow
  strake event follow --from 1200 --severity warning --output json")]
    Follow {
        /// Which events.
        #[command(flatten)]
        which: Which,
    },
}

/// Which events are meant, and how their time is printed.
#[derive(Debug, Args)]
pub struct Which {
    /// From this number on [default: all of the past with list, only new ones with follow].
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<u64>,
    /// Only about this, such as array/tank, drive//dev/nvme3n1, export/tank or daemon.
    #[arg(long, value_name = "OBJECT")]
    pub object: Option<String>,
    /// Only of this kind, such as member_failed or command.
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// Only events of this severity or higher.
    #[arg(long, value_enum, value_name = "SEVERITY")]
    pub severity: Option<Severity>,
    /// Print times as UTC instead of this machine's time.
    #[arg(long)]
    pub utc: bool,
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Severity {
    /// Nothing to worry about.
    Info,
    /// Something should be done.
    Warning,
    /// Something has to be done now.
    Critical,
}

impl Severity {
    /// What the interface calls it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}
