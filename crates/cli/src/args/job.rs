//! `strake job ...`.

use crate::args::Watch;
use clap::{Args, Subcommand};

/// Commands for jobs.
#[derive(Debug, Subcommand)]
pub enum JobVerb {
    /// List unfinished jobs. An unfinished job is running, paused, halted or waiting.
    #[command(after_help = "Examples:
  strake job list
  strake job list --watch")]
    List(Watch),
    /// Pause a job. A resumed job continues from the same position.
    #[command(after_help = "Examples:
  strake job pause tank/rebuild")]
    Pause(Which),
    /// Resume a paused or halted job.
    #[command(after_help = "Examples:
  strake job resume tank/rebuild")]
    Resume(Which),
    /// Cancel a job, such as the copy of a serving member. The command cannot cancel a rebuild, resync or
    /// initialization. No data are lost.
    #[command(after_help = "Examples:
  strake job cancel tank/replace")]
    Cancel(Which),
    /// Change the priority of a job relative to client I/O.
    #[command(after_help = "Examples:
  strake job set tank/rebuild --priority 90")]
    Set {
        /// Name of the job.
        #[command(flatten)]
        which: Which,
        /// New priority. At 0, the job is slowest while clients are active. At 100, the job can slow down clients
        /// without a limit.
        #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100), value_name = "0-100")]
        priority: u32,
    },
}

/// Name of the job.
#[derive(Debug, Args)]
pub struct Which {
    /// Name of the job, as in `strake job list`, such as tank/rebuild.
    #[arg(value_name = "JOB")]
    pub id: String,
}
