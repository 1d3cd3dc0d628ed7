//! `strake export ...`.

use clap::{Args, Subcommand, ValueEnum};

/// What can be done with exports.
#[derive(Debug, Subcommand)]
pub enum ExportVerb {
    /// Offer an array to clients.
    #[command(after_help = "Examples:
  strake export create tank --via nbd --listen unix:/run/strake/tank.sock
  strake export create tank --via nbd --listen 127.0.0.1:10809 --read-only")]
    Create(Create),
    /// Every export, with what it has done.
    #[command(after_help = "Examples:
  strake export list")]
    List,
    /// Withdraw an export.
    #[command(after_help = "Examples:
  strake export remove tank
  strake export remove tank --force")]
    Remove {
        /// Name of the export.
        #[arg(value_name = "EXPORT")]
        name: String,
        /// Disconnect its clients.
        #[arg(long)]
        force: bool,
    },
}

/// `strake export create`.
#[derive(Debug, Args)]
pub struct Create {
    /// Array to offer.
    #[arg(value_name = "ARRAY")]
    pub array: String,
    /// Protocol.
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    pub via: Via,
    /// Where to listen: unix:/path, or 127.0.0.1:port.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: String,
    /// What clients ask for [default: the array's name].
    #[arg(long)]
    pub name: Option<String>,
    /// Refuse writes.
    #[arg(long)]
    pub read_only: bool,
}

/// Protocols that an array can be offered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// Network block device.
    Nbd,
}

impl Via {
    /// What the interface calls it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nbd => "nbd",
        }
    }
}
