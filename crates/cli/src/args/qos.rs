//! `strake qos ...`.

use super::Watch;
use super::parse::{IoRate, Quota};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};

/// Commands for limits of I/O.
#[derive(Debug, Subcommand)]
pub enum QosVerb {
    /// Limit the I/O of a volume, an export or a pool. The limits apply at once, also to connected clients. Limits that
    /// the command does not name stay.
    ///
    /// A request waits until all limits permit it: those of its export, of its volume and of its pool. One I/O is each
    /// started 256 KiB of a request of a client. Flushes are not counted.
    #[command(after_help = "Examples:
  strake qos set volume data/vm1 --iops 10k
  strake qos set volume data/vm1 --bandwidth 200MiB --write-bandwidth 50MiB
  strake qos set pool data --iops 50k --burst-ms 500 --dry-run
  strake qos set export vm1 --read-iops 500
  strake qos set volume data/vm1 --bandwidth none")]
    Set(Set),
    /// List the objects with limits, and how many requests waited for each limit.
    #[command(after_help = "Examples:
  strake qos list
  strake qos list --watch")]
    List {
        /// Print the answer again after each change, until the command is interrupted.
        #[command(flatten)]
        watch: Watch,
    },
    /// Show the limits of one object.
    #[command(after_help = "Examples:
  strake qos show volume data/vm1")]
    Show(Object),
    /// Remove all limits of an object.
    #[command(after_help = "Examples:
  strake qos clear volume data/vm1
  strake qos clear pool data --dry-run")]
    Clear {
        /// The object.
        #[command(flatten)]
        object: Object,
        /// Print the plan, and change nothing.
        #[arg(long)]
        dry_run: bool,
    },
}

/// The kinds of objects that can have limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// All exports of a volume together.
    Volume,
    /// All clients of an export together.
    Export,
    /// All volumes of a pool together.
    Pool,
}

impl Kind {
    /// The name of the kind in the interface.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Volume => "volume",
            Self::Export => "export",
            Self::Pool => "pool",
        }
    }
}

/// An object that can have limits.
#[derive(Debug, Args)]
pub struct Object {
    /// The kind of the object.
    #[arg(value_name = "KIND", value_enum)]
    pub kind: Kind,
    /// The volume as POOL/NAME, or the name of the export or pool.
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// `strake qos set`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("rates").required(true).multiple(true).args([
    "iops", "read_iops", "write_iops", "bandwidth", "read_bandwidth", "write_bandwidth", "burst_ms",
]))]
pub struct Set {
    /// The object.
    #[command(flatten)]
    pub object: Object,
    /// I/Os per second, such as 500 or 10k, or none.
    #[arg(long, value_name = "RATE")]
    pub iops: Option<IoRate>,
    /// I/Os of reads per second, or none.
    #[arg(long, value_name = "RATE")]
    pub read_iops: Option<IoRate>,
    /// I/Os of writes per second, or none.
    #[arg(long, value_name = "RATE")]
    pub write_iops: Option<IoRate>,
    /// Bytes per second, such as 200MiB, or none.
    #[arg(long, value_name = "SIZE")]
    pub bandwidth: Option<Quota>,
    /// Bytes of reads per second, or none.
    #[arg(long, value_name = "SIZE")]
    pub read_bandwidth: Option<Quota>,
    /// Bytes of writes per second, or none.
    #[arg(long, value_name = "SIZE")]
    pub write_bandwidth: Option<Quota>,
    /// Milliseconds whose unused rate can be used later at once, from 10 to 60000, for all limits of the object
    /// [default: 100, or the present value].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(10..=60_000))]
    pub burst_ms: Option<u32>,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}
