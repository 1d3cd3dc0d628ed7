//! `strake top`.

use clap::Args;

use super::iostat::seconds;

/// How often `strake top` updates the screen.
#[derive(Debug, Args)]
pub struct Top {
    /// Seconds between two updates.
    #[arg(value_name = "INTERVAL", default_value = "2", value_parser = seconds)]
    pub every: f64,
}
