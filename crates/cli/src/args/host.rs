//! `strake host ...`.

use clap::{Args, Subcommand};

/// What can be done with hosts.
#[derive(Debug, Subcommand)]
pub enum HostVerb {
    /// Have a host prove who it is when it connects over NVMe/TCP (DH-HMAC-CHAP). Other secrets replace those it had.
    #[command(after_help = "Examples:
  strake host add nqn.2014-08.com.example:db1 --secret-file host.key")]
    Add(Add),
    /// The hosts that have to, without their secrets.
    #[command(after_help = "Examples:
  strake host list")]
    List,
    /// Forget the secrets of a host that no export lets connect.
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
    #[arg(long, value_name = "FILE")]
    pub secret_file: String,
    /// What the target proves itself with, to a host that asks for it.
    #[arg(long, value_name = "FILE")]
    pub controller_secret_file: Option<String>,
}
