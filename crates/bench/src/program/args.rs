//! The grammar of `strake-bench`, which `strake bench` starts with its own arguments: help names that command.

use crate::net::Address;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use strake_terminal::output::Format;
use strake_units::ByteSize;

/// Measure how fast this machine does what Strake needs, beside what others offer.
///
/// Exit codes: 0 measured, 3 the command cannot be carried out as given, 4 a file or standard output cannot be used.
#[derive(Debug, Parser)]
#[command(name = "strake-bench", bin_name = "strake bench", version, arg_required_else_help = true)]
#[command(disable_help_subcommand = true, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Examples:
  strake bench list
  strake bench run G9 --output json")]
pub struct Cli {
    /// Print tables for people, or one JSON document.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = Format::Table,
        value_name = "FORMAT",
        help_heading = "Options of every command"
    )]
    pub output: Format,
    /// What to do.
    #[command(subcommand)]
    pub verb: BenchVerb,
}

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
    /// Write the pages and plots of saved numbers again, without measuring: what --save of strake bench run does last.
    ///
    /// Reads the JSON of every goal in the folder, and the texts by hand in its folder "floors"; writes a page and a
    /// plot for each, and report.md, which has all of them with goal, moonshot and result side by side.
    #[command(after_help = "Examples:
  strake bench report numbers")]
    Report {
        /// Folder with the saved results.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Put any load on any drives: made of memory, or files and block devices that are empty.
    ///
    /// The load runs on the data cores (CPU 0 and up); its own cost is measured and
    /// printed. Real drives are refused unless nothing is known to be on them and both ends are zeros; their ends are
    /// zeros again afterwards. On a terminal a line shows what is being done; the table has percentiles.
    #[command(after_help = "Examples:
  strake bench load --drives null:8 --level 6 --rw randwrite --seconds 1
  strake bench load --drives ram:4 --level 5 --rw randrw --verify --seconds 1
  strake bench load --drives model:8 --level 10 --depth 1 --seconds 1
  strake bench load --drives nvme5n1,nvme6n1 --level 0 --bs 128KiB --seconds 1")]
    Load(Box<BenchLoad>),
    /// Print a built-in profile of a modelled drive, as a start for a profile of your own.
    #[command(after_help = "Examples:
  strake bench profile > drive.json
  strake bench profile 9650 > gen6.json")]
    Profile {
        /// Which drive.
        #[arg(value_enum, value_name = "DRIVE", default_value_t = BuiltIn::Sn861)]
        drive: BuiltIn,
    },
    /// Write the manual pages of these commands into a folder.
    #[command(after_help = "Examples:
  strake bench man /usr/local/share/man/man1")]
    Man {
        /// The folder; made if it does not exist.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// A drive whose published figures are built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BuiltIn {
    /// WD SN861, PCIe 5.
    Sn861,
    /// Micron 9650, PCIe 6.
    #[value(name = "9650")]
    M9650,
}

/// `strake bench run`.
#[derive(Clone, Debug, Args)]
pub struct BenchRun {
    /// Which goals and scenarios to measure: their names as in strake bench list, or "all".
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
    /// What stands beside ours in G14 [default: fio].
    #[arg(long, value_enum, value_name = "PROGRAM")]
    pub compare: Option<Beside>,
    /// A target of others to measure beside ours in net, in turns: its null drive, such as
    /// nvme-tcp://127.0.0.1:4420/NQN. The namespace with the next number has to be one in memory.
    #[arg(long, value_name = "ADDRESS")]
    pub peer: Option<Address>,
    /// Its process, which is stopped while ours is measured: for one that polls on our core.
    #[arg(long, value_name = "NUMBER", requires = "peer")]
    #[arg(value_parser = clap::value_parser!(i32).range(2..))]
    pub peer_process: Option<i32>,
    /// Measure this kernel in G9 [default: the best of this machine].
    #[arg(long, env = "STRAKE_KERNEL", value_name = "NAME", hide_env_values = true)]
    pub kernel: Option<String>,
    /// Also write each report to this folder: the JSON, a table and a plot, and report.md with all of the folder.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
}

/// `strake bench load`.
#[derive(Clone, Debug, Args)]
pub struct BenchLoad {
    /// null:COUNT, ram:COUNT or model:COUNT, with :SIZE behind it if a drive shall have another size than usual; or
    /// paths with commas between.
    #[arg(long, value_name = "DRIVES")]
    pub drives: String,
    /// The level of an array over the drives [default: none; one drive by itself].
    #[arg(long)]
    pub level: Option<String>,
    /// Bytes of a strip.
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = size_u32)]
    pub strip: u32,
    /// Members that are taken out of use before.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub out: u8,
    /// How writes are made safe against crashes; see strake array set --help.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Consistency::Safe)]
    pub consistency: Consistency,
    /// What of the engine is turned off, with commas between.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    pub off: Vec<Part>,
    /// What requests do.
    #[arg(long, value_enum, default_value_t = Rw::Randread)]
    pub rw: Rw,
    /// Writes among 100 requests, with --rw rw and randrw.
    #[arg(long, value_name = "PERCENT", default_value_t = 30, value_parser = clap::value_parser!(u8).range(1..=99))]
    pub writes: u8,
    /// Popularity of places by Zipf's law with this exponent, such as 0.99 [default: all alike].
    #[arg(long, value_name = "EXPONENT", value_parser = exponent)]
    pub zipf: Option<f64>,
    /// Bytes of a request.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = size_u32)]
    pub bs: u32,
    /// Requests that each core has out.
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
    /// Data cores, each with load of its own.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub cores: u16,
    /// How long.
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Compare what is read with what was written. Costs time, which is in the numbers.
    #[arg(long)]
    pub verify: bool,
    /// What modelled drives are like: a file like the output of strake bench profile [default: a published SN861].
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
}

/// How writes are protected against crashes, as in strake array set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Consistency {
    /// Regions that are written are marked.
    Resync,
    /// The same, and writes to degraded stripes go through a redo log.
    Safe,
    /// Every write is logged first.
    Strict,
    /// Nothing is marked.
    None,
}

/// What of the engine can be turned off, to see what it is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Merging of waiting writes, and doing waiting reads of a degraded stripe together.
    Merge,
    /// Reading around slow members.
    Steer,
    /// Keeping what small writes leave behind.
    Cache,
}

/// What stands beside ours where files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Beside {
    /// fio with io_uring on the same files, in turns with ours.
    Fio,
    /// Nothing: no goal then.
    Nothing,
}

/// What requests do and where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rw {
    /// Read, one place after the other.
    Read,
    /// Write, one place after the other.
    Write,
    /// Both, one place after the other.
    Rw,
    /// Read anywhere.
    Randread,
    /// Write anywhere.
    Randwrite,
    /// Both anywhere.
    Randrw,
}

/// A size that fits in 32 bits, such as `128KiB`.
fn size_u32(text: &str) -> Result<u32, String> {
    let ByteSize(bytes) = text.parse::<ByteSize>().map_err(|e| e.to_string())?;
    u32::try_from(bytes).map_err(|_| format!("{} is too large here", ByteSize(bytes)))
}

fn exponent(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.parse().ok().filter(|value| (0.01..=4.0).contains(value));
    value.ok_or_else(|| "an exponent is a number from 0.01 to 4, such as 0.99".to_owned())
}

fn goal() -> clap::builder::PossibleValuesParser {
    let names = crate::run::RUNS.into_iter().chain(["all"]);
    clap::builder::PossibleValuesParser::new(names)
}
