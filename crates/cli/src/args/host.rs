//! `strake host ...`.

use clap::{Args, Subcommand};

/// What can be done with hosts.
#[derive(Debug, Subcommand)]
pub enum HostVerb {
    /// Have a host prove who it is when it connects over NVMe/TCP (DH-HMAC-CHAP), use TLS, or both. What is given
    /// replaces what it had of the same kind; the other kind stays.
    #[command(after_help = "Examples:
  strake host add nqn.2014-08.com.example:db1 --secret-file host.key
  strake host add nqn.2014-08.com.example:db1 --new-tls-key
  strake host add nqn.2014-08.com.example:db1 --tls-key-file host.tls")]
    Add(Add),
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
pub struct Add {
    /// Its name; a Linux host has it in /etc/nvme/hostnqn.
    #[arg(value_name = "NQN")]
    pub nqn: String,
    /// What it proves itself with, as `nvme gen-dhchap-key` prints it: in this file, which only its owner may read, or
    /// "-" for standard input.
    #[arg(long, value_name = "FILE",
        required_unless_present_any = ["tls_key_file", "new_tls_key", "no_secret", "no_tls"])]
    pub secret_file: Option<String>,
    /// What the target proves itself with, to a host that asks for it.
    #[arg(long, value_name = "FILE", requires = "secret_file")]
    pub controller_secret_file: Option<String>,
    /// What it has to use TLS with, as `nvme gen-tls-key` prints it: in a file of the same kind.
    #[arg(long, value_name = "FILE", conflicts_with = "new_tls_key")]
    pub tls_key_file: Option<String>,
    /// Make a key that it has to use TLS with, and print it, this once.
    #[arg(long)]
    pub new_tls_key: bool,
    /// It need not prove itself any more; what it uses TLS with stays, or is given.
    #[arg(long, conflicts_with = "secret_file")]
    pub no_secret: bool,
    /// It need not use TLS any more; what it proves itself with stays, or is given.
    #[arg(long, conflicts_with_all = ["tls_key_file", "new_tls_key", "no_secret"])]
    pub no_tls: bool,
}
