//! `strake bench ...`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum BenchVerb {
    /// Every benchmark.
    #[command(after_help = "Examples:
  strake bench list")]
    List,
    /// Measure, and say which goals are met. Uses up to a quarter of the free memory and needs no daemon.
    ///
    /// What is compared runs in the same process, in turns. ISA-L is opened at run time and may be missing: then
    /// anchors are null, and the answer says how to get it. The exit code is 0 whatever was measured.
    #[command(after_help = "Examples:
  strake bench run G9 --output json
  strake bench run G9 --filter 8+2 --repeats 5
  strake bench run G9 --filter 4+1 --repeats 3 --kernel portable")]
    Run(BenchRun),
}

/// `strake bench run`.
#[derive(Clone, Debug, Args)]
pub struct BenchRun {
    /// Which goal to measure.
    #[arg(value_enum, value_name = "BENCHMARK")]
    pub benchmark: Benchmark,
    /// Only cases whose name has this in it, such as "8+2" or "cold".
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Samples behind every median.
    #[arg(long, value_name = "COUNT", default_value_t = 21, value_parser = clap::value_parser!(u16).range(1..))]
    pub repeats: u16,
    /// The library file of ISA-L [default: the system's].
    #[arg(long, env = "STRAKE_ISAL", value_name = "FILE", hide_env_values = true)]
    pub isal: Option<PathBuf>,
    /// Measure this kernel [default: the best of this machine].
    #[arg(long, env = "STRAKE_KERNEL", value_name = "NAME", hide_env_values = true)]
    pub kernel: Option<String>,
    /// Also write the report to this folder: the JSON, a table and a plot.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
}

/// A line of the list of goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Benchmark {
    /// Parity kernels beside ISA-L: encode, update, recover.
    #[value(name = "G9")]
    G9,
}
