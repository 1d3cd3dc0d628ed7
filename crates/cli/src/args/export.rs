//! `strake export ...`.

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

/// Commands for exports.
#[derive(Debug, Subcommand)]
pub enum ExportVerb {
    /// Export an array or a volume to clients.
    #[command(after_help = "Examples:
  strake export create tank --via nbd --listen unix:/run/strake/tank.sock
  strake export create tank --via nbd --listen 127.0.0.1:10809 --read-only
  strake export create data/vm1 --via nbd --listen unix:/run/strake/vm1.sock")]
    Create(Create),
    /// List all exports with their statistics.
    #[command(after_help = "Examples:
  strake export list")]
    List,
    /// Show one export with its NVMe/TCP reservations, and the statistics of each queue.
    #[command(after_help = "Examples:
  strake export show tank")]
    Show {
        /// Name of the export.
        #[arg(value_name = "EXPORT")]
        name: String,
    },
    /// Change the list of hosts that may connect to an NVMe/TCP export. Hosts that remain in the list stay connected.
    /// The change applies to all exports of the same subsystem.
    #[command(after_help = "Examples:
  strake export set tank --allow-host nqn.2014-08.com.example:db3
  strake export set tank --deny-host nqn.2014-08.com.example:db1 --dry-run")]
    Set(Set),
    /// Release the NVMe/TCP reservations of an export. Use this command only if the hosts that hold reservations will
    /// not return. AFTERWARDS, EVERY ALLOWED HOST MAY WRITE.
    #[command(after_help = "Examples:
  strake export release tank
  strake export release tank --yes")]
    Release {
        /// Name of the export.
        #[arg(value_name = "EXPORT")]
        name: String,
        /// Do not ask for confirmation.
        #[arg(long)]
        yes: bool,
    },
    /// Remove an export.
    #[command(after_help = "Examples:
  strake export remove tank
  strake export remove tank --force")]
    Remove {
        /// Name of the export.
        #[arg(value_name = "EXPORT")]
        name: String,
        /// Disconnect the clients of the export.
        #[arg(long)]
        force: bool,
    },
    /// Manage referrals: the entries of the discovery log page that refer hosts to other discovery controllers.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake export referral add nvme-tcp://192.0.2.8:4420
  strake export referral list"
    )]
    Referral(ReferralVerb),
}

/// `strake export referral`.
#[derive(Debug, Subcommand)]
pub enum ReferralVerb {
    /// Add a referral to another discovery controller.
    #[command(after_help = "Examples:
  strake export referral add nvme-tcp://192.0.2.8:4420")]
    Add(ReferralAddress),
    /// List referrals.
    #[command(after_help = "Examples:
  strake export referral list")]
    List,
    /// Remove a referral.
    #[command(after_help = "Examples:
  strake export referral remove nvme-tcp://192.0.2.8:4420")]
    Remove(ReferralAddress),
}

/// The address of another discovery controller.
#[derive(Debug, Args)]
pub struct ReferralAddress {
    /// Address of the discovery controller, nvme-tcp://IP-ADDRESS:PORT; the default port is 8009.
    #[arg(value_name = "ADDRESS")]
    pub address: String,
}

/// `strake export create`.
#[derive(Debug, Args)]
pub struct Create {
    /// Array to export; or volume or snapshot, POOL/NAME. An export of a snapshot is read-only.
    #[arg(value_name = "ARRAY|VOLUME")]
    pub array: String,
    /// Protocol of the export.
    #[arg(long, value_enum, value_name = "PROTOCOL")]
    pub via: Via,
    /// Address to listen on: unix:/PATH or 127.0.0.1:PORT for NBD, ADDRESS:PORT for NVMe/TCP. The default port is 10809
    /// for NBD and 4420 for NVMe/TCP.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: String,
    /// Name of the export, which is also the export name for NBD clients [default: the name of the
    /// array or volume].
    #[arg(long)]
    pub name: Option<String>,
    /// Reject writes.
    #[arg(long)]
    pub read_only: bool,
    /// NQN of a host that may connect over NVMe/TCP (on Linux, the NQN is in /etc/nvme/hostnqn). The option can be
    /// repeated.
    #[arg(long, value_name = "NQN")]
    pub allow_host: Vec<String>,
    /// NQN of the NVMe subsystem [default: derived from the UUID of the array, or of the volume]. Exports with the same
    /// address and the same hosts can share a subsystem. Each export is a namespace of the subsystem.
    #[arg(long)]
    pub nqn: Option<String>,
    /// Namespace identifier in the subsystem [default: the lowest free number].
    #[arg(long, value_name = "NUMBER")]
    pub namespace: Option<u32>,
    /// Require TLS over NVMe/TCP. Every allowed host needs a TLS key (strake host add).
    #[arg(long)]
    pub secure: bool,
    /// Accept data without encryption over NVMe/TCP. On an address that is not loopback, every allowed host needs a TLS
    /// key. With this option, a secret is sufficient.
    #[arg(long, conflicts_with = "secure")]
    pub insecure: bool,
}

/// `strake export set`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("hosts").required(true).multiple(true).args(["allow_host", "deny_host", "insecure"]))]
pub struct Set {
    /// Name of the export.
    #[arg(value_name = "EXPORT")]
    pub name: String,
    /// Add this NQN to the list of allowed hosts. The option can be repeated.
    #[arg(long, value_name = "NQN")]
    pub allow_host: Vec<String>,
    /// Remove this NQN from the list of allowed hosts, and disconnect the host. The option can be repeated.
    #[arg(long, value_name = "NQN")]
    pub deny_host: Vec<String>,
    /// Accept data without encryption: allowed hosts need a secret, but no TLS key. The option applies to all exports
    /// of the subsystem.
    #[arg(long)]
    pub insecure: bool,
    /// Print the plan, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Protocols by which an array can be exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// Network block device.
    Nbd,
    /// NVMe over TCP.
    NvmeTcp,
}

impl Via {
    /// The port that the protocol uses by default (IANA service name and port number registry).
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Nbd => 10_809,
            Self::NvmeTcp => 4420,
        }
    }
}
