//! `strake hook ...`.

use crate::args::event::Severity;
use clap::{ArgGroup, Args, Subcommand};

/// Commands for hooks.
#[derive(Debug, Subcommand)]
pub enum HookVerb {
    /// Add a notification hook: webhook, e-mail or program.
    #[command(after_help = "Examples:
  strake hook add pager --webhook https://example.com/raid --severity critical
  strake hook add chat --webhook-file chat.url
  strake hook add ops --email me@a.org --from raid@a.org --server smtp://mail:25
  strake hook add duty --email me@a.org --from raid@a.org --server-file mail.url
  strake hook add log --exec /usr/local/bin/strake-event --severity info")]
    Add(Add),
    /// List notification hooks with the results of their deliveries.
    #[command(after_help = "Examples:
  strake hook list")]
    List,
    /// Remove a notification hook.
    #[command(after_help = "Examples:
  strake hook remove pager")]
    Remove(Which),
    /// Send a test event to a notification hook, and print the result.
    #[command(after_help = "Examples:
  strake hook test pager")]
    Test(Which),
}

/// Name of the hook.
#[derive(Debug, Args)]
pub struct Which {
    /// Name of the hook.
    #[arg(value_name = "HOOK")]
    pub name: String,
}

/// `strake hook add`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("target").required(true).args(["webhook", "webhook_file", "email", "exec"]),
    group = ArgGroup::new("by").args(["server", "server_file"])
)]
pub struct Add {
    /// Name of the hook.
    #[arg(value_name = "HOOK")]
    pub name: String,
    /// Send each event as JSON to this address, by HTTP POST. The address must not contain a password, because every
    /// user of this host can see the address while the command runs.
    #[arg(long, value_name = "URL")]
    pub webhook: Option<String>,
    /// File with the address for --webhook, or "-" for standard input. Use this option if the address is secret
    /// or contains a password.
    #[arg(long, value_name = "FILE")]
    pub webhook_file: Option<String>,
    /// Send e-mail to this address. The option requires --from, and one of --server and --server-file.
    #[arg(long, value_name = "ADDRESS", requires_all = ["by", "from"])]
    pub email: Option<String>,
    /// Run this program with the event as JSON on its standard input.
    #[arg(long, value_name = "PROGRAM")]
    pub exec: Option<String>,
    /// Mail server: smtp://HOST:PORT or smtps://HOST:PORT.
    #[arg(long, value_name = "URL", requires = "email")]
    pub server: Option<String>,
    /// File with the address for --server, or "-" for standard input. Use this option if the server needs a password:
    /// smtps://USER:PASSWORD@HOST:PORT.
    #[arg(long, value_name = "FILE", requires = "email")]
    pub server_file: Option<String>,
    /// Sender of the e-mail.
    #[arg(long, value_name = "ADDRESS", requires = "email")]
    pub from: Option<String>,
    /// Send only events of this severity or higher.
    #[arg(long, value_enum, default_value_t = Severity::Warning, value_name = "SEVERITY")]
    pub severity: Severity,
}
