//! `strake job ...`.

use crate::args::Watch;
use clap::{Args, Subcommand};

/// Commands for jobs.
#[derive(Debug, Subcommand)]
pub enum JobVerb {
    /// List unfinished jobs: running, paused, halted and waiting.
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
    /// Cancel a job, such as the copy of a serving member; a rebuild, resync or initialization cannot be cancelled. No
    /// data are lost.
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
        /// New priority. At 0, the job is slowest while clients are active; at 100, its effect on clients is not
        /// limited.
        #[arg(long, value_parser = clap::value_parser!(u32).range(0..=100), value_name = "0-100")]
        priority: u32,
    },
}

/// Name of the job.
#[derive(Debug, Args)]
pub struct Which {
    /// Name of the job in `strake job list`, such as tank/rebuild.
    #[arg(value_name = "JOB")]
    pub id: String,
}
