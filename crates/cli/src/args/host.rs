//! `strake host ...`.

use clap::{ArgGroup, Args, Subcommand};

/// What can be done with hosts.
#[derive(Debug, Subcommand)]
pub enum HostVerb {
    /// Have a host prove who it is when it connects over NVMe/TCP (DH-HMAC-CHAP), use TLS, or both. What is given
    /// replaces what it had of the same kind, and the rest stays.
    #[command(after_help = "Examples:
  strake host add nqn.2014-08.com.example:db1 --new-secret
  strake host add nqn.2014-08.com.example:db1 --secret-file host.key
  strake host add nqn.2014-08.com.example:db1 --new-tls-key
  strake host add nqn.2014-08.com.example:db1 --tls-key-file host.tls")]
    Add(Add),
    /// Give a host that is known other secrets or another key. What is given or made takes the place of what it had; it
    /// stays connected, and needs the new ones when it connects again.
    #[command(after_help = "Examples:
  strake host key nqn.2014-08.com.example:db1 --new-secret
  strake host key nqn.2014-08.com.example:db1 --secret-file host.key
  strake host key nqn.2014-08.com.example:db1 --new-tls-key")]
    Key(Key),
    /// The hosts that have to, without their secrets and keys.
    #[command(after_help = "Examples:
  strake host list")]
    List,
    /// Forget the secrets and the key of a host that no export lets connect.
    #[command(after_help = "Examples:
  strake host remove nqn.2014-08.com.example:db1")]
    Remove {
        /// Its name.
        #[arg(value_name = "NQN")]
        nqn: String,
    },
}

/// `strake host add`.
#[derive(Debug, Args)]
#[command(group = needed(&["no_secret", "no_controller_secret", "no_tls"]))]
pub struct Add {
    /// Its name; a Linux host has it in /etc/nvme/hostnqn.
    #[arg(value_name = "NQN")]
    pub nqn: String,
    /// What it has.
    #[command(flatten)]
    pub keys: HostKeys,
    /// Remove its secret; its TLS key stays unless a new one is given.
    #[arg(long, conflicts_with_all = ["secret_file", "new_secret"])]
    pub no_secret: bool,
    /// Remove the secret with which the target authenticates to it.
    #[arg(long, conflicts_with_all = ["controller_secret_file", "new_controller_secret"])]
    pub no_controller_secret: bool,
    /// Remove its TLS key; its secret stays unless a new one is given.
    #[arg(long, conflicts_with_all = ["tls_key_file", "new_tls_key", "no_secret"])]
    pub no_tls: bool,
}

/// `strake host key`.
#[derive(Debug, Args)]
#[command(group = needed(&[]))]
pub struct Key {
    /// Its name; see them with: strake host list.
    #[arg(value_name = "NQN")]
    pub nqn: String,
    /// New secrets or key.
    #[command(flatten)]
    pub keys: HostKeys,
}

/// Secrets (DH-HMAC-CHAP) and TLS key of a host: from files, or generated and printed.
#[derive(Debug, Args)]
pub struct HostKeys {
    /// The host's secret (DH-HMAC-CHAP), as `nvme gen-dhchap-key` prints it: in this file, which only its owner may
    /// read, or "-" for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "new_secret")]
    pub secret_file: Option<String>,
    /// Make a secret that it proves itself with, and print it, this once.
    #[arg(long)]
    pub new_secret: bool,
    /// What the target proves itself with, to a host that asks for it and has a secret itself.
    #[arg(long, value_name = "FILE", conflicts_with = "new_controller_secret")]
    pub controller_secret_file: Option<String>,
    /// Generate a controller secret and print it once.
    #[arg(long)]
    pub new_controller_secret: bool,
    /// What it has to use TLS with, as `nvme gen-tls-key` prints it: in a file of the same kind.
    #[arg(long, value_name = "FILE", conflicts_with = "new_tls_key")]
    pub tls_key_file: Option<String>,
    /// Make a key that it has to use TLS with, and print it, this once.
    #[arg(long)]
    pub new_tls_key: bool,
}

/// One of what a host may have, or of these, is to be said.
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
