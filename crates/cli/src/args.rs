//! The grammar: `strake <object> <verb> [NAME] --long-flags`. Help, completions and manual pages are generated from
//! these definitions.

pub mod array;
pub mod config;
pub mod drive;
pub mod event;
pub mod export;
pub mod hook;
pub mod host;
pub mod iostat;
pub mod job;
pub mod log;
pub mod mistakes;
pub mod parse;
pub mod pool;
pub mod qos;
pub mod spare;
pub mod top;
pub mod trace;
pub mod volume;

use crate::error::CliError;
use crate::output::{Color, Format, Output};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Software RAID for NVMe drives.
///
/// Exit codes: 0 success or healthy, 1 degraded, 2 failed, 3 the command cannot be executed as given, 4 unknown (for
/// example, the daemon cannot be reached). `status`, `array show`, `pool show`, `drive smart` and
/// `wait` report health with these codes.
#[derive(Debug, Parser)]
#[command(name = "strake", version, propagate_version = true, arg_required_else_help = true)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
#[command(after_help = "Examples:
  strake status
  strake demo
  strake array create tank --level 6 --drives nvme1n1,nvme2n1,nvme3n1,nvme4n1")]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// Command to execute.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub struct Global {
    /// Output format: tables, or one JSON document with the answer of the daemon.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = Format::Table,
        value_name = "FORMAT",
        help_heading = "Options of every command"
    )]
    pub output: Format,
    /// The same as --output json.
    #[arg(long, global = true, help_heading = "Options of every command")]
    pub json: bool,
    /// Do not print the answer. Errors and warnings are still printed, and the exit code does not change.
    #[arg(short, long, global = true, help_heading = "Options of every command")]
    pub quiet: bool,
    /// Print tables in color.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = Color::Auto,
        value_name = "WHEN",
        help_heading = "Options of every command"
    )]
    pub color: Color,
    /// Socket of the daemon [default: /run/strake/straked.sock for root, otherwise
    /// $XDG_RUNTIME_DIR/strake/straked.sock].
    #[arg(
        long,
        global = true,
        env = "STRAKE_SOCKET",
        value_name = "PATH",
        hide_env_values = true,
        help_heading = "Options of every command"
    )]
    pub socket: Option<PathBuf>,
}

impl Global {
    /// The output format.
    #[must_use]
    pub const fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output }
    }

    /// Where answers are printed.
    #[must_use]
    pub fn output(&self) -> Output {
        Output::with(self.format(), self.color, self.quiet)
    }

    /// The socket to use.
    ///
    /// # Errors
    /// The errors of [`crate::connect::default_socket`], if no socket was named.
    pub fn socket(&self) -> Result<PathBuf, CliError> {
        self.socket.clone().map_or_else(crate::connect::default_socket, Ok)
    }
}

/// Objects, and commands without an object.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show problems with their remedies, and list all arrays and exports.
    #[command(after_help = "Examples:
  strake status
  strake status --watch
  strake status --output json")]
    Status(Watch),
    /// Check arrays, drives, exports and the host for faults and risks.
    #[command(after_help = "Examples:
  strake doctor
  strake doctor --output json")]
    Doctor,
    /// RAID arrays.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake array list
  strake array create tank --level 6 --drives nvme1n1,nvme2n1,nvme3n1,nvme4n1
  strake array show tank --watch"
    )]
    Array(array::ArrayVerb),
    /// Local and remote drives.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake drive list
  strake drive show nvme3n1"
    )]
    Drive(drive::DriveVerb),
    /// Spares: drives that replace failed members automatically.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake spare add nvme9n1
  strake spare list"
    )]
    Spare(spare::SpareVerb),
    /// Background jobs: rebuild, replace, resync and others.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake job list
  strake job set tank/rebuild --priority 90"
    )]
    Job(job::JobVerb),
    /// Pools: arrays whose space is divided into volumes.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake pool create data tank
  strake pool list"
    )]
    Pool(pool::PoolVerb),
    /// Volumes of pools.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake volume create data/vm1 10G
  strake volume list"
    )]
    Volume(volume::VolumeVerb),
    /// Snapshots of volumes.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake snapshot create data/vm1 now
  strake snapshot list"
    )]
    Snapshot(volume::SnapshotVerb),
    /// Limits of the I/O of volumes, exports and pools.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake qos set volume data/vm1 --iops 10k
  strake qos list"
    )]
    Qos(qos::QosVerb),
    /// Exports: access paths of clients to arrays and volumes.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake export create tank --via nbd --listen unix:/run/strake/tank.sock
  strake export list"
    )]
    Export(export::ExportVerb),
    /// Print the rates of arrays at intervals: requests per second, bytes per second, and mean latencies.
    #[command(after_help = "Examples:
  strake iostat 1 3
  strake iostat tank --members --count 1
  strake iostat --every 0.5 --count 2 --json")]
    Iostat(iostat::Iostat),
    /// Show rates, jobs and problems of all arrays on the whole screen, updated every two seconds. The key q ends the
    /// command.
    #[command(after_help = "Examples:
  strake top
  strake top 0.5")]
    Top(top::Top),
    /// Show where the time of requests went: one of 4096 requests, and the slowest request of every second.
    ///
    /// Each data core records requests. The table shows those that took longest, with the time in each stage:
    ///
    /// queued: waits for memory, for a message of another core, or for a queue of a drive.
    ///
    /// retried: attempts that failed, because a member failed or was too slow.
    ///
    /// band: waits for earlier requests, a rebuild or a scrub in the same part of a stripe, or for a free task of the
    /// core.
    ///
    /// intent: waits until the write-intent bitmap contains the region.
    ///
    /// read, log, write, flush: I/Os of members. The number in parentheses is the position of the member that
    /// answered last.
    #[command(after_help = "Examples:
  strake trace tank
  strake trace tank --slowest --count 5
  strake trace tank --follow
  strake trace tank --perfetto trace.json
  strake trace tank --follow --otlp http://localhost:4318")]
    Trace(trace::Trace),
    /// Events: failures, changes of state, and commands with their callers.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake event list
  strake event follow"
    )]
    Event(event::EventVerb),
    /// Audit log: commands with their callers and results, protected against changes.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake log list
  strake log verify"
    )]
    Log(log::LogVerb),
    /// Notification hooks: webhooks, e-mail, programs.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake hook add pager --webhook https://example.com/raid
  strake hook list"
    )]
    Hook(hook::HookVerb),
    /// Secrets and TLS keys of NVMe/TCP hosts.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake host add nqn.2014-08.com.example:db1 --secret-file host.key
  strake host list"
    )]
    Host(host::HostVerb),
    /// The recorded configuration.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake config show
  strake config backup strake.json"
    )]
    Config(config::ConfigVerb),
    /// The daemon, straked.
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  strake daemon start
  strake daemon status"
    )]
    Daemon(DaemonVerb),
    /// Wait until an array reaches a state, and show the progress.
    #[command(after_help = "Examples:
  strake wait tank --for rebuild
  strake wait tank --for healthy --timeout 2h
  strake wait tank --for online --timeout 5m && mount /dev/nbd0 /srv")]
    Wait(WaitArgs),
    /// Show how a RAID 6 array on eight sparse files survives failures. The demo needs neither root nor a running
    /// daemon.
    #[command(after_help = "Examples:
  strake demo
  strake demo --dir /var/tmp --keep")]
    Demo(DemoArgs),
    /// Measure the speed of Strake on this host, and compare it with other programs.
    ///
    /// The command starts the program strake-bench (from the folder of strake, or from PATH) with these arguments, and
    /// returns its exit code. `strake bench --help` prints the help of strake-bench. In the source tree, `make bench`
    /// builds strake-bench.
    #[command(
        disable_help_flag = true,
        disable_version_flag = true,
        after_help = "Examples:
  strake bench list"
    )]
    Bench(BenchArgs),
    /// Print a completion script for a shell. The script also completes the names of arrays, drives, exports, hosts,
    /// jobs, pools, volumes and snapshots, which the daemon knows.
    #[command(after_help = "Examples:
  strake completions bash > /etc/bash_completion.d/strake
  strake completions zsh > /usr/share/zsh/site-functions/_strake")]
    Completions {
        /// Shell for which to print the script.
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    #[command(after_help = "Examples:
  strake man /usr/local/share/man/man1")]
    Man {
        /// Folder for the pages. The command creates the folder if the folder does not exist.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

/// Option of commands that show a state.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Watch {
    /// Print the answer again after each change, until the command is interrupted.
    #[arg(long)]
    pub watch: bool,
}

/// Commands for the daemon.
#[derive(Debug, Subcommand)]
pub enum DaemonVerb {
    /// Start the daemon and wait until it answers. If the service of the package is installed, use systemctl start
    /// straked.
    #[command(after_help = "Examples:
  strake daemon start
  strake daemon start --cores 2,3
  strake daemon start --state-dir /srv/strake --foreground")]
    Start(DaemonStart),
    /// Stop the daemon. The daemon first completes the requests in progress and marks its arrays clean. If an array
    /// needs a drive whose path no longer exists, the array cannot start again. In this case, the command requires
    /// --accept data.
    #[command(after_help = "Examples:
  strake daemon stop
  strake daemon stop --accept data")]
    Stop(DaemonStop),
    /// Stop the daemon and start it again with the same options. If no daemon runs, the command starts the daemon with
    /// the options of the last start. If systemd started the daemon, use systemctl restart.
    #[command(after_help = "Examples:
  strake daemon restart")]
    Restart(DaemonStop),
    /// Show version, data cores and memory of the daemon.
    #[command(after_help = "Examples:
  strake daemon status
  strake daemon status --output json")]
    Status,
}

/// `strake daemon stop` and `strake daemon restart`.
#[derive(Debug, Args)]
pub struct DaemonStop {
    /// Losses to accept, separated by commas. The option can be repeated.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LOSS")]
    pub accept: Vec<StopLoss>,
}

/// A loss that a stop of the daemon may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StopLoss {
    /// The data of arrays that cannot start again.
    Data,
}

/// `strake daemon start`.
#[derive(Clone, Debug, Default, Args)]
pub struct DaemonStart {
    /// Run the daemon in the foreground. The daemon writes its log to standard error.
    #[arg(long)]
    pub foreground: bool,
    /// State directory of the daemon [default: see straked --help].
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// CPUs for the data path, such as 0,1 [default: chosen by the daemon].
    #[arg(long, value_name = "CPUS")]
    pub cores: Option<String>,
}

/// `strake wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The array.
    #[arg(value_name = "ARRAY")]
    pub name: String,
    /// The state to wait for.
    #[arg(long = "for", value_enum, value_name = "GOAL")]
    pub goal: Goal,
    /// Stop waiting after this time, such as 90s, 15m or 2h [default: never].
    #[arg(long, value_parser = parse::duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
}

/// States that `strake wait` can wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Goal {
    /// No member is being rebuilt.
    Rebuild,
    /// No member is being copied to another drive.
    Replace,
    /// The parity of the whole array is consistent after a crash or a creation.
    Resync,
    /// The initialization of a new array has finished.
    Initialize,
    /// No scrub is in progress.
    Scrub,
    /// The array has full redundancy, and no operation is in progress.
    Healthy,
    /// The array serves clients; it may be degraded.
    Online,
}

/// `strake bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchArgs {
    /// Arguments of strake-bench.
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// `strake demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// Keep the array running, keep its files, and print how to use the array.
    #[arg(long)]
    pub keep: bool,
    /// Folder in which the demo creates its own folder [default: the temporary folder].
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

#[cfg(test)]
mod tests;
