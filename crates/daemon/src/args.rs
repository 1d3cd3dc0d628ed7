//! The daemon's command line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use strake_control::{CoreChoice, IoLimits};
use strake_parity::Kernel;

use crate::contain::{Choices, CoreDumps, Folders, Places, Writes};
use crate::metrics::Place;

/// The option that names the socket, for messages about the socket.
pub const SOCKET: &str = "--socket";

/// The option that names the state directory.
pub const STATE_DIR: &str = "--state-dir";

/// The option that names the configuration file.
pub const CONFIG: &str = "--config";

/// The option that names the CPUs for data cores.
pub const CORES: &str = "--cores";

/// The option that names the address of the metrics.
pub const METRICS: &str = "--metrics";

/// The option with which a process becomes the program of a hook.
pub const RUN_HOOK: &str = "--run-hook";

/// The option with which a process formats a drive.
pub const RUN_FORMAT: &str = "--run-format";

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Serve Strake arrays.
///
/// Clients such as `strake` call the daemon by gRPC on a Unix socket. After SIGTERM or SIGINT, the daemon completes
/// requests in progress, marks its arrays clean, and ends.
#[derive(Clone, Debug, Parser)]
#[command(name = "straked", version)]
pub struct Args {
    /// State directory [default: the state directory of the systemd service; else /var/lib/strake for root,
    /// ~/.local/state/strake for other users]
    #[arg(long, env = "STRAKE_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Socket to listen on [default: straked.sock in the runtime directory of the service; else
    /// /run/strake/straked.sock for root, $XDG_RUNTIME_DIR/strake/straked.sock for other users]
    #[arg(long, env = "STRAKE_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Group whose users may operate arrays: replace and rebuild members, add spares, scrub arrays. Users in the group
    /// of the socket may do everything [default: none]
    #[arg(long, env = "STRAKE_OPERATOR_GROUP", value_name = "GROUP")]
    pub operator_group: Option<String>,
    /// Group whose users may view everything except secrets, but may change nothing [default: none]
    #[arg(long, env = "STRAKE_VIEWER_GROUP", value_name = "GROUP")]
    pub viewer_group: Option<String>,
    /// CPUs for data cores, such as 0,2,4-7; auto selects half of the CPUs
    #[arg(long, default_value = "auto", value_name = "CPUS")]
    pub cores: CoreChoice,
    /// Format of the log on stderr; the environment variable RUST_LOG selects the lines that are printed
    #[arg(long, value_enum, default_value = "text")]
    pub log: LogFormat,
    /// Seconds that an array waits for missing members before it starts degraded, or "never"
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = parse_timeout)]
    pub assemble_timeout: Timeout,
    /// Time limit, in seconds, for requests to each kind of drive: 6 to 300, and at least 30 for remote drives. If a
    /// drive does not complete a request within the limit, the daemon treats the drive as failed
    #[arg(long, default_value = "block=8,file=15,remote=30", value_name = "KIND=SECONDS,...")]
    pub io_timeout: IoLimits,
    /// Serve metrics over HTTP at this address: unix:/path, or a loopback address such as 127.0.0.1:9464 [default: off]
    #[arg(long, env = "STRAKE_METRICS", value_name = "ADDRESS")]
    pub metrics: Option<Place>,
    /// Parity kernel, such as avx2 or portable [default: chosen for this CPU]
    #[arg(long, env = "STRAKE_KERNEL", value_name = "NAME", value_parser = parse_kernel)]
    pub parity_kernel: Option<Kernel>,
    /// Whether the kernel may write core dumps, and debuggers of the same user may attach. A core dump contains keys,
    /// secrets of hosts, credentials of hooks and client data
    #[arg(long, value_enum, default_value = "forbid")]
    pub core_dumps: CoreDumps,
    /// Folders in which files may serve as drives, and exports may have sockets: /FOLDER,/FOLDER, none, or any (all
    /// except system folders). The daemon cannot write elsewhere, except in its own folders, /dev, /sys and /tmp.
    /// Named folders replace the default, and must exist [default: none for the systemd service; else any]
    #[arg(long, value_name = "FOLDERS")]
    pub write_dirs: Option<Writes>,
    /// Folders with programs of hooks: /FOLDER,/FOLDER or none. Programs elsewhere are refused, except those in system
    /// folders, such as /usr/local/bin and /opt. The folders must exist, and should not be writable for the daemon
    #[arg(long, default_value = "none", value_name = "FOLDERS")]
    pub hook_dirs: Folders,
    /// Configuration file with these options. The command line and the environment take precedence
    #[arg(long, env = "STRAKE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the options in effect with their origins, and exit
    #[arg(long)]
    pub check_config: bool,
    /// Print the options of --check-config as JSON
    #[arg(long, requires = "check_config")]
    pub json: bool,
    /// Print an example of the configuration file, and exit
    #[arg(long)]
    pub example_config: bool,
    /// Become the program of a hook, with the limits of hooks
    #[arg(long, hide = true, value_name = "PATH")]
    pub run_hook: Option<PathBuf>,
    /// Format the drive at the standard input: its namespace ID, and dword 10 of Format NVM
    #[arg(long, hide = true, num_args = 2, value_names = ["NSID", "DWORD"])]
    pub run_format: Option<Vec<u32>>,
    /// Print the manual page, and exit
    #[arg(long, hide = true)]
    pub manual: bool,
}

fn parse_kernel(name: &str) -> Result<Kernel, String> {
    Kernel::named(name).ok_or_else(|| {
        let names: Vec<&str> = Kernel::available().map(Kernel::name).collect();
        format!("this CPU supports {}", names.join(", "))
    })
}

/// Time limit, or no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout(pub Option<Duration>);

fn parse_timeout(text: &str) -> Result<Timeout, String> {
    if text == "never" {
        return Ok(Timeout(None));
    }
    let seconds =
        text.parse::<u32>().map_err(|_| "write a whole number of seconds, or never".to_owned())?;
    Ok(Timeout(Some(Duration::from_secs(u64::from(seconds)))))
}

/// File name of the socket.
const SOCKET_NAME: &str = "straked.sock";

/// Returns the first folder that systemd created for the service. The environment variable `variable` contains the
/// folders (systemd.exec(5)).
fn of_service(variable: &str) -> Option<PathBuf> {
    first_folder(&std::env::var_os(variable)?)
}

fn first_folder(list: &OsStr) -> Option<PathBuf> {
    let first = list.as_bytes().split(|byte| *byte == b':').next()?;
    first.starts_with(b"/").then(|| PathBuf::from(OsStr::from_bytes(first)))
}

impl Args {
    /// Returns the choices about the containment of the process.
    pub fn containment(&self) -> Result<Choices, String> {
        let folder = |path: &Path| {
            let path = std::path::absolute(path).map_err(|error| error.to_string())?;
            Ok::<_, String>(path.parent().map_or(path.clone(), Path::to_owned))
        };
        let state_dir =
            std::path::absolute(self.state_dir()?).map_err(|error| error.to_string())?;
        let mut own = vec![state_dir, folder(&self.socket()?)?];
        if let Some(path) = self.metrics.as_ref().and_then(Place::unix) {
            own.push(folder(path)?);
        }
        let places = Places { own, writes: self.write_dirs(), hooks: self.hook_dirs.clone() };
        Ok(Choices { core_dumps: self.core_dumps, places })
    }

    /// Returns the given folders for writes or the default.
    pub fn write_dirs(&self) -> Writes {
        let of_service = || of_service("STATE_DIRECTORY").map(|_| Writes::Only(Folders::default()));
        self.write_dirs.clone().or_else(of_service).unwrap_or(Writes::Any)
    }

    /// Returns the given state directory or the default.
    pub fn state_dir(&self) -> Result<PathBuf, String> {
        if let Some(dir) = &self.state_dir {
            return Ok(dir.clone());
        }
        if let Some(dir) = of_service("STATE_DIRECTORY") {
            return Ok(dir);
        }
        if rustix::process::geteuid().is_root() {
            return Ok(PathBuf::from("/var/lib/strake"));
        }
        let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
        let base = state
            .or_else(home)
            .ok_or_else(|| format!("neither XDG_STATE_HOME nor HOME is set; give {STATE_DIR}"))?;
        Ok(base.join("strake"))
    }

    /// Returns the given socket or the default.
    pub fn socket(&self) -> Result<PathBuf, String> {
        if let Some(socket) = &self.socket {
            return Ok(socket.clone());
        }
        if let Some(dir) = of_service("RUNTIME_DIRECTORY") {
            return Ok(dir.join(SOCKET_NAME));
        }
        if rustix::process::geteuid().is_root() {
            return Ok(PathBuf::from("/run/strake/straked.sock"));
        }
        let runtime = std::env::var_os("XDG_RUNTIME_DIR")
            .ok_or_else(|| format!("XDG_RUNTIME_DIR is not set; give {SOCKET}"))?;
        Ok(PathBuf::from(runtime).join("strake/straked.sock"))
    }
}

#[cfg(test)]
mod tests {
    use super::first_folder;
    use std::path::PathBuf;

    #[test]
    fn the_first_folder_of_the_service_is_used_if_it_is_absolute() {
        let check = |list: &str, want: Option<&str>| {
            assert_eq!(first_folder(list.as_ref()), want.map(PathBuf::from), "{list:?}");
        };
        check("/var/lib/strake", Some("/var/lib/strake"));
        check("/run/a:/run/b", Some("/run/a"));
        check("", None);
        check("relative", None);
        check(":/run/b", None);
    }
}
