//! `strake drive ...`.

use crate::args::Watch;
use clap::{Args, Subcommand};

/// What can be done with drives.
#[derive(Debug, Subcommand)]
pub enum DriveVerb {
    /// Every drive, what is on it and who uses it.
    #[command(after_help = "Examples:
  strake drive list
  strake drive list --watch")]
    List(Watch),
    /// One drive; for a remote drive also its connection and the statistics of each queue.
    #[command(after_help = "Examples:
  strake drive show nvme3n1")]
    Show {
        /// A path, or the name of a device such as nvme0n1.
        #[arg(value_name = "DRIVE")]
        name: String,
    },
    /// Blink the light of a drive's slot, so that the right one is pulled.
    #[command(after_help = "Examples:
  strake drive locate nvme3n1
  strake drive locate nvme3n1 --off")]
    Locate {
        /// A path, or the name of a device such as nvme0n1.
        #[arg(value_name = "DRIVE")]
        name: String,
        /// Stop blinking.
        #[arg(long)]
        off: bool,
    },
    /// Remove Strake's labels from a drive that no array uses, so that it counts as free.
    #[command(after_help = "Examples:
  strake drive clean nvme9n1 --dry-run
  strake drive clean nvme9n1
  strake drive clean nvme9n1 --accept-loss --yes")]
    Clean(Clean),
    /// Ask a remote discovery controller what it offers to this host over NVMe/TCP.
    #[command(after_help = "Examples:
  strake drive discover nvme-tcp://10.0.0.7:4420
  strake drive discover nvme-tcp://store --output json")]
    Discover(Discover),
    /// Connect a remote namespace as a drive, over NVMe/TCP. The connection is recorded and made again after a restart.
    /// The same subsystem and namespace at another address is another path to the same drive.
    #[command(after_help = "Examples:
  strake drive connect nvme-tcp://10.0.0.7:4420/nqn.2014-08.org.example.tank
  strake drive connect 'nvme-tcp://store/nqn.2014-08.org.example.a?nsid=2'")]
    Connect(Connect),
    /// Disconnect an unused remote drive, or one of its paths, and remove its record.
    #[command(after_help = "Examples:
  strake drive disconnect nvme-tcp://10.0.0.7:4420/nqn.2014-08.org.example.tank")]
    Disconnect {
        /// Its address, as strake drive list shows it, or that of a path that was added, as strake drive show does.
        #[arg(value_name = "ADDRESS")]
        address: String,
    },
    /// What went wrong with drives, by reason, and how fast they answer.
    #[command(after_help = "Examples:
  strake drive errors
  strake drive errors nvme3n1")]
    Errors {
        /// Only this one: a path, or the name of a device such as nvme0n1.
        #[arg(value_name = "DRIVE")]
        name: Option<String>,
    },
}

/// `strake drive discover`.
#[derive(Debug, Args)]
pub struct Discover {
    /// Its discovery service, nvme-tcp://HOST:PORT; the port is 8009 unless said otherwise.
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// Who asks.
    #[command(flatten)]
    pub identity: Identity,
}

/// The identity of this host towards a remote target.
#[derive(Debug, Args)]
pub struct Identity {
    /// Name by which the target knows this host; otherwise one that the daemon generates and keeps.
    #[arg(long, value_name = "NQN")]
    pub host_nqn: Option<String>,
    /// The host's secret (DH-HMAC-CHAP), as `nvme gen-dhchap-key` prints it: in this file, which only its owner may
    /// read, or "-" for standard input, or /dev/fd/N for a descriptor.
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<String>,
    /// The controller's secret, for mutual authentication.
    #[arg(long, value_name = "FILE", requires = "secret_file")]
    pub controller_secret_file: Option<String>,
    /// Use TLS, with the key in this file, as `nvme gen-tls-key` or `strake host add --new-tls-key` prints it.
    #[arg(long, value_name = "FILE")]
    pub tls_key_file: Option<String>,
}

/// `strake drive connect`.
#[derive(Debug, Args)]
pub struct Connect {
    /// nvme-tcp://HOST:PORT/NQN?nsid=NUMBER; the port is 4420 and the namespace 1 unless said otherwise.
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// Who connects.
    #[command(flatten)]
    pub identity: Identity,
    /// Seconds for which I/O is held while the connection is lost, 12 to 24. After that the I/O fails, and the array
    /// continues without the drive.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(12..=24))]
    pub hold: Option<u32>,
    /// Take over a drive that another host has reserved; that host can no longer write to it. For a host that will not
    /// return: an array that it still runs loses the drive.
    #[arg(long)]
    pub take_over: bool,
}

/// `strake drive clean`.
#[derive(Debug, Args)]
pub struct Clean {
    /// A path, or the name of a device such as nvme0n1.
    #[arg(value_name = "DRIVE")]
    pub name: String,
    /// Also when its label belongs to an array that is not here. THAT ARRAY THEN LACKS THIS MEMBER.
    #[arg(long)]
    pub accept_loss: bool,
    /// Do not ask.
    #[arg(long)]
    pub yes: bool,
    /// Print what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
}
