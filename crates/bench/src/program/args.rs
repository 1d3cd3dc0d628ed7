//! The grammar of `strake-bench`. The command `strake bench` starts this program with the same arguments, therefore
//! help texts name `strake bench`.

use crate::net::Address;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use strake_terminal::output::Format;
use strake_units::ByteSize;

/// Measure the speed of Strake on this host, and compare it with other programs.
///
/// Exit codes: 0 measured, 3 the command cannot be executed as given, 4 a file or standard output cannot be used.
#[derive(Debug, Parser)]
#[command(name = "strake-bench", bin_name = "strake bench", version, arg_required_else_help = true)]
#[command(disable_help_subcommand = true, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Examples:
  strake bench list
  strake bench run G9 --output json")]
pub struct Cli {
    /// Print tables, or one JSON document.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = Format::Table,
        value_name = "FORMAT",
        help_heading = "Options of every command"
    )]
    pub output: Format,
    /// Command to execute.
    #[command(subcommand)]
    pub verb: BenchVerb,
}

/// Commands for measurements.
#[derive(Debug, Subcommand)]
pub enum BenchVerb {
    /// List every goal with its reference. The list shows which goals can be measured.
    #[command(after_help = "Examples:
  strake bench list")]
    List,
    /// Measure goals, and print goal, moonshot and result side by side. The command needs no daemon and uses no drive.
    ///
    /// Arrays of memory drives run inside this process, on CPU 0 (and on CPU 1 if a goal needs two). Samples of the
    /// compared programs alternate. Null drives complete requests without moving data, but arrays of null drives
    /// compute parity. G9 and G5 use up to a quarter of the free memory. G9 opens the library ISA-L. Without this
    /// library, the reference values of G9 are null, and the output explains how to install the library. The exit code
    /// does not depend on the results.
    ///
    /// With --output json, the output is one object for one goal, and an array of objects for several goals.
    #[command(after_help = "Examples:
  strake bench run G1 --repeats 3 --milliseconds 50
  strake bench run G1 G2 --filter raid6 --milliseconds 50 --output json
  strake bench run G9 --filter 4+1 --repeats 3 --kernel portable")]
    Run(BenchRun),
    /// Write the pages and plots of saved results again, without measurements.
    ///
    /// The command reads the JSON file of every goal in the folder, and the handwritten texts in the subfolder
    /// "floors". The command writes a page and a plot for each goal, and report.md with goal, moonshot and result of
    /// all goals.
    #[command(after_help = "Examples:
  strake bench report numbers")]
    Report {
        /// Folder with the saved results.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Measure a chosen load on memory drives, or on files and block devices.
    ///
    /// The load runs on the data cores (CPU 0 and up). The command measures and prints the cost of the load generator
    /// itself. A load with writes or with --level overwrites data. Therefore the command refuses a file or block device
    /// that has known content, or bytes other than zeroes at its start or end. After such a load, the command writes
    /// zeroes to the start and the end. The table shows percentiles of the latency.
    #[command(after_help = "Examples:
  strake bench load --drives null:8 --level 6 --rw randwrite --seconds 1
  strake bench load --drives ram:4 --level 5 --rw randrw --verify --seconds 1
  strake bench load --drives model:8 --level 10 --depth 1 --seconds 1
  strake bench load --drives nvme5n1,nvme6n1 --level 0 --bs 128KiB --seconds 1")]
    Load(Box<BenchLoad>),
    /// Print the built-in profile of a modelled drive, as a template for other profiles.
    #[command(after_help = "Examples:
  strake bench profile > drive.json
  strake bench profile 9650 > gen6.json")]
    Profile {
        /// The modelled drive.
        #[arg(value_enum, value_name = "DRIVE", default_value_t = BuiltIn::Sn861)]
        drive: BuiltIn,
    },
    /// Write the manual pages of these commands into a folder.
    #[command(after_help = "Examples:
  strake bench man /usr/local/share/man/man1")]
    Man {
        /// Folder for the pages. The command creates the folder if the folder does not exist.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

/// A drive with a built-in profile of its published figures.
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
    /// Goals and scenarios to measure: names from strake bench list, or "all".
    #[arg(required = true, value_name = "GOAL", value_parser = goal())]
    pub goals: Vec<String>,
    /// Measure only cases whose name contains this text, such as "raid6", "8+2" or "cold".
    #[arg(long, value_name = "TEXT")]
    pub filter: Option<String>,
    /// Number of samples for each median [default: 5; for G9: 21].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub repeats: Option<u16>,
    /// Duration of a sample. G9 chooses the duration of its samples.
    #[arg(long, value_name = "COUNT", default_value_t = 300)]
    #[arg(value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub milliseconds: u64,
    /// File with a profile of the modelled drives, in the format of strake bench profile [default: SN861].
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Library file of ISA-L [default: the library of the system].
    #[arg(long, env = "STRAKE_ISAL", value_name = "FILE", hide_env_values = true)]
    pub isal: Option<PathBuf>,
    /// Program to compare with Strake in G14 [default: fio].
    #[arg(long, value_enum, value_name = "PROGRAM")]
    pub compare: Option<Beside>,
    /// For the scenario net: address of a null drive of another NVMe/TCP controller that is compared with Strake, such
    /// as nvme-tcp://127.0.0.1:4420/NQN. The namespace with the next number must be a drive in memory.
    #[arg(long, value_name = "ADDRESS")]
    pub peer: Option<Address>,
    /// Process ID of the other controller. The command suspends this process during measurements of Strake. Use this
    /// option if the other controller polls on the same core.
    #[arg(long, value_name = "NUMBER", requires = "peer")]
    #[arg(value_parser = clap::value_parser!(i32).range(2..))]
    pub peer_process: Option<i32>,
    /// Parity kernel to measure in G9 [default: the best for this CPU].
    #[arg(long, env = "STRAKE_KERNEL", value_name = "NAME", hide_env_values = true)]
    pub kernel: Option<String>,
    /// Also write each report to this folder as JSON, table and plot. The command also writes report.md with all
    /// results in the folder.
    #[arg(long, value_name = "DIR")]
    pub save: Option<PathBuf>,
}

/// `strake bench load`.
#[derive(Clone, Debug, Args)]
pub struct BenchLoad {
    /// Drives: null:COUNT, ram:COUNT or model:COUNT, with an optional suffix :SIZE for the size of each drive; or
    /// paths, separated by commas.
    #[arg(long, value_name = "DRIVES")]
    pub drives: String,
    /// Level of an array on the drives [default: no array, only one drive].
    #[arg(long)]
    pub level: Option<String>,
    /// Strip size.
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = size_u32)]
    pub strip: u32,
    /// Number of members that the command puts out of use before the measurement.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub out: u8,
    /// Consistency mode; strake array set --help describes the modes.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = Consistency::Safe)]
    pub consistency: Consistency,
    /// Parts of the engine to disable, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    pub off: Vec<Part>,
    /// Kind of the requests.
    #[arg(long, value_enum, default_value_t = Rw::Randread)]
    pub rw: Rw,
    /// Percentage of writes, with --rw rw and randrw.
    #[arg(long, value_name = "PERCENT", default_value_t = 30, value_parser = clap::value_parser!(u8).range(1..=99))]
    pub writes: u8,
    /// Exponent of a Zipf distribution of the offsets, such as 0.99 [default: uniform distribution].
    #[arg(long, value_name = "EXPONENT", value_parser = exponent)]
    pub zipf: Option<f64>,
    /// Size of a request.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = size_u32)]
    pub bs: u32,
    /// Outstanding requests of each core.
    #[arg(long, value_name = "COUNT", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub depth: u32,
    /// Number of data cores. Each core has its own load.
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub cores: u16,
    /// Duration of the measurement.
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,
    /// Compare read data with written data. The results include the time for the comparison.
    #[arg(long)]
    pub verify: bool,
    /// File with a profile of the modelled drives, in the format of strake bench profile [default: SN861].
    #[arg(long, value_name = "FILE")]
    pub profile: Option<PathBuf>,
}

/// Consistency mode, as in strake array set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Consistency {
    /// The write-intent bitmap marks written regions.
    Resync,
    /// In addition to mode resync, a redo log records writes to degraded stripes.
    Safe,
    /// The redo log records every write before the write changes data.
    Strict,
    /// No protection.
    None,
}

/// A part of the engine that can be disabled, to measure its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Merging of waiting writes. Waiting reads of a degraded stripe also share the reads of its members.
    Merge,
    /// Selection of members for reads, which avoids slow members.
    Steer,
    /// The parity cache.
    Cache,
}

/// The program that is compared with Strake on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Beside {
    /// fio with io_uring on the same files. Samples of fio and Strake alternate.
    Fio,
    /// No program. The result is then not compared with a goal.
    Nothing,
}

/// Kind of the requests: reads, writes or both, at sequential or random offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Rw {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Sequential reads and writes.
    Rw,
    /// Random reads.
    Randread,
    /// Random writes.
    Randwrite,
    /// Random reads and writes.
    Randrw,
}

/// Parses a size that fits in 32 bits, such as `128KiB`.
fn size_u32(text: &str) -> Result<u32, String> {
    let ByteSize(bytes) = text.parse::<ByteSize>().map_err(|e| e.to_string())?;
    u32::try_from(bytes)
        .map_err(|_| format!("{} is too large; the size must be less than 4GiB", ByteSize(bytes)))
}

fn exponent(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.parse().ok().filter(|value| (0.01..=4.0).contains(value));
    value.ok_or_else(|| "an exponent is a number from 0.01 to 4, such as 0.99".to_owned())
}

fn goal() -> clap::builder::PossibleValuesParser {
    let names = crate::run::RUNS.into_iter().chain(["all"]);
    clap::builder::PossibleValuesParser::new(names)
}
