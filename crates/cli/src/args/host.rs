//! `strake host ...`.

use super::parse;
use clap::{ArgGroup, Args, Subcommand};

/// Commands for hosts.
#[derive(Debug, Subcommand)]
pub enum HostVerb {
    /// Require that a host authenticates over NVMe/TCP (DH-HMAC-CHAP), uses TLS, or both. A new secret or key replaces
    /// the secret or key of the same kind. The command does not change the other secrets and keys.
    #[command(after_help = "Examples:
  strake host add nqn.2014-08.com.example:db1 --new-secret
  strake host add nqn.2014-08.com.example:db1 --secret-file host.key
  strake host add nqn.2014-08.com.example:db1 --new-tls-key
  strake host add nqn.2014-08.com.example:db1 --tls-key-file host.tls")]
    Add(Add),
    /// Change the secrets or the TLS key of a known host. The host stays connected. For the next connect, the host
    /// needs the new secrets or key. With --keep-old, the replaced ones are accepted for some more time.
    #[command(after_help = "Examples:
  strake host key nqn.2014-08.com.example:db1 --new-secret
  strake host key nqn.2014-08.com.example:db1 --new-secret --keep-old 24h
  strake host key nqn.2014-08.com.example:db1 --secret-file host.key
  strake host key nqn.2014-08.com.example:db1 --new-tls-key")]
    Key(Key),
    /// List the hosts that must authenticate or use TLS. The command prints no secrets or keys.
    #[command(after_help = "Examples:
  strake host list")]
    List,
    /// Disconnect a host from all exports. The host may connect again with its current secrets and key. To reject later
    /// connections, use strake export set --deny-host.
    #[command(after_help = "Examples:
  strake host disconnect nqn.2014-08.com.example:db1")]
    Disconnect {
        /// NQN of the host.
        #[arg(value_name = "NQN")]
        nqn: String,
    },
    /// Remove the secrets and the TLS key of a host that no export allows.
    #[command(after_help = "Examples:
  strake host remove nqn.2014-08.com.example:db1")]
    Remove {
        /// NQN of the host.
        #[arg(value_name = "NQN")]
        nqn: String,
    },
}

/// `strake host add`.
#[derive(Debug, Args)]
#[command(group = needed(&["no_secret", "no_controller_secret", "no_tls"]))]
pub struct Add {
    /// NQN of the host; on Linux, the NQN is in /etc/nvme/hostnqn.
    #[arg(value_name = "NQN")]
    pub nqn: String,
    /// Secrets and key of the host.
    #[command(flatten)]
    pub keys: HostKeys,
    /// Remove the host's secret. The host's TLS key changes only if a new key is given.
    #[arg(long, conflicts_with_all = ["secret_file", "new_secret"])]
    pub no_secret: bool,
    /// Remove the controller's secret.
    #[arg(long, conflicts_with_all = ["controller_secret_file", "new_controller_secret"])]
    pub no_controller_secret: bool,
    /// Remove the host's TLS key. The host's secret changes only if a new secret is given.
    #[arg(long, conflicts_with_all = ["tls_key_file", "new_tls_key", "no_secret"])]
    pub no_tls: bool,
}

/// `strake host key`.
#[derive(Debug, Args)]
#[command(group = needed(&[]))]
pub struct Key {
    /// NQN of the host, as in strake host list.
    #[arg(value_name = "NQN")]
    pub nqn: String,
    /// New secrets or a new key.
    #[command(flatten)]
    pub keys: HostKeys,
}

/// Secrets (DH-HMAC-CHAP) and TLS key of a host. The command reads secrets and keys from files, or generates and prints
/// new secrets and keys.
#[derive(Debug, Args)]
pub struct HostKeys {
    /// File with the host's secret (DH-HMAC-CHAP), in the format of `nvme gen-dhchap-key`. Only the owner of the file
    /// may have access. Use "-" for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "new_secret")]
    pub secret_file: Option<String>,
    /// Generate a host secret and print it once.
    #[arg(long)]
    pub new_secret: bool,
    /// File with the controller's secret, for mutual authentication. Mutual authentication also requires a secret of
    /// the host.
    #[arg(long, value_name = "FILE", conflicts_with = "new_controller_secret")]
    pub controller_secret_file: Option<String>,
    /// Generate a controller secret and print it once.
    #[arg(long)]
    pub new_controller_secret: bool,
    /// File with the host's TLS key, in the format of `nvme gen-tls-key`.
    #[arg(long, value_name = "FILE", conflicts_with = "new_tls_key")]
    pub tls_key_file: Option<String>,
    /// Generate a TLS key and print it once.
    #[arg(long)]
    pub new_tls_key: bool,
    /// Accept the replaced secrets or key for this time beside the new ones (at most 30d), so that the host can be
    /// changed later. A replacement without this option ends the time.
    #[arg(long, value_name = "TIME", value_parser = parse::span)]
    pub keep_old: Option<u64>,
}

/// The command requires at least one secret, key or option of this group.
fn needed(others: &[&'static str]) -> ArgGroup {
    ArgGroup::new("needed").required(true).multiple(true).args(others).args([
        "secret_file",
        "new_secret",
        "controller_secret_file",
        "new_controller_secret",
        "tls_key_file",
        "new_tls_key",
    ])
}
