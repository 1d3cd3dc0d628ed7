//! `strake bench ...`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What can be measured.
#[derive(Debug, Subcommand)]
pub enum BenchVerb {
    /// Every goal with what it is compared with, and which of them can be run.
    #[command(after_help = "Examples:
  strake bench list")]
    List,
    /// Measure, and print goal, moonshot and result side by side. Needs no daemon and touches no drive.
    ///
    /// Arrays of memory drives run inside this process, on CPU 0 (and CPU 1 where a goal asks for two), and what is
    /// compared takes turns. "Null drives" complete requests without moving data; parity is computed all the same.
    /// G9 and G5 use up to a quarter of the free memory. G9 opens ISA-L, which may be missing: then its anchors are
    /// null, and the answer says how to get it. The exit code is 0 whatever was measured.
    ///
    /// With --output json, one goal is an object and several are an array of them.
    #[command(after_help = "Examples:
  strake bench run G1 --repeats 3 --milliseconds 50
  strake bench run G1 G2 --filter raid6 --milliseconds 50 --output json
  strake bench run G9 --filter 4+1 --repeats 3 --kernel portable")]
    Run(BenchRun),
    /// Print the built-in profile of a modelled drive (an SN861 as published), to begin one's own with.
    #[command(after_help = "Examples:
  strake bench profile > drive.json")]
    Profile,
}

/// `strake bench run`.
#[derive(Clone, Debug, Args)]
pub struct BenchRun {
    /// Which goals to measure: their names as in strake bench list, or "all".
    #[arg(required = true, value_name = "GOAL", value_parser = goal())]
    pub goals: Vec<String>,
    /// Only cases whose name has this in it, such as "raid6", "8+2" or "cold".
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Samples behind every median [default: 5, and 21 for G9].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub repeats: Option<u16>,
    /// How long a sample takes, except for G9, whose samples are as long as they need to be.
    #[arg(long, value_name = "COUNT", default_value_t = 300)]
    #[arg(value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub milliseconds: u64,
    /// What modelled drives are like: a file like the output of strake bench profile [default: a published SN861].
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// The library file of ISA-L [default: the system's].
    #[arg(long, env = "STRAKE_ISAL", value_name = "FILE", hide_env_values = true)]
    pub isal: Option<PathBuf>,
    /// Measure this kernel in G9 [default: the best of this machine].
    #[arg(long, env = "STRAKE_KERNEL", value_name = "NAME", hide_env_values = true)]
    pub kernel: Option<String>,
    /// Also write each report to this folder: the JSON, a table and a plot.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
}

fn goal() -> clap::builder::PossibleValuesParser {
    let names = strake_bench::run::GOALS.into_iter().chain(["all"]);
    clap::builder::PossibleValuesParser::new(names)
}
