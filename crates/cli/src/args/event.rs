//! `strake event ...`.

use clap::{Args, Subcommand, ValueEnum};

/// Commands for events.
#[derive(Debug, Subcommand)]
pub enum EventVerb {
    /// List past events with reason, remedy and caller, from the oldest to the newest.
    #[command(after_help = "Examples:
  strake event list
  strake event list --last 500 --severity warning
  strake event list --object array/tank --utc
  strake event list --kind command")]
    List {
        /// Events to list.
        #[command(flatten)]
        which: Which,
        /// Number of latest events to list; 0 lists all recorded events.
        #[arg(long, default_value_t = 50, value_name = "COUNT")]
        last: u32,
    },
    /// Print each new event when it occurs, until the command is interrupted.
    #[command(after_help = "Examples:
  strake event follow
  strake event follow --from 1200 --severity warning --output json")]
    Follow {
        /// Events to print.
        #[command(flatten)]
        which: Which,
    },
}

/// Selection of events, and format of their time.
#[derive(Debug, Args)]
pub struct Which {
    /// Show only events from this number [default: all events for list, new events for follow].
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<u64>,
    /// Show only events of this object, such as array/tank, drive//dev/nvme3n1, export/tank or daemon.
    #[arg(long, value_name = "OBJECT")]
    pub object: Option<String>,
    /// Show only events of this kind, such as member_failed or command.
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
    /// Show only events of this severity or higher.
    #[arg(long, value_enum, value_name = "SEVERITY")]
    pub severity: Option<Severity>,
    /// Print times as UTC instead of the time of this host.
    #[arg(long)]
    pub utc: bool,
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Severity {
    /// No action is needed.
    Info,
    /// Action is needed.
    Warning,
    /// Action is needed at once.
    Critical,
}
