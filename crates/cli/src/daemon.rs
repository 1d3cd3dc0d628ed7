//! Starting straked and seeing it go.

use crate::again::Former;
use crate::args::DaemonStart;
use crate::connect::Connection;
use crate::error::{CliError, ErrorKind};
use crate::exit::Exit;
use crate::limits::{
    CALL_TIMEOUT, KILL_TIMEOUT, LOG_TAIL_BYTES, PROBE_TIMEOUT, SETTLE_TIMEOUT, START_ATTEMPTS,
    START_RETRY, STOP_ATTEMPTS,
};
use crate::{beside, paths, service};
use rustix::process::{Pid, test_kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use strake_api::v1::ListArraysRequest;

/// Name of the daemon's program.
const PROGRAM: &str = "straked";

/// Beginning of the variables of the environment that set options of the daemon.
const VARIABLES: &[u8] = b"STRAKE_";

/// Variables that are options of the daemon, as it records them.
const OPTIONS: [&str; 4] = ["STRAKE_METRICS", "STRAKE_KERNEL", "STRAKE_CONFIG", "RUST_LOG"];

/// How to start a daemon.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its socket.
    pub socket: PathBuf,
    /// Where it remembers, or its own choice.
    pub state_dir: Option<PathBuf>,
    /// Its data CPUs, or its own choice.
    pub cores: Option<String>,
    /// Where its log goes when it is detached.
    pub log: PathBuf,
    /// The recorded command of the former daemon, which replaces the fields above except the socket.
    pub recorded: Option<String>,
}

impl Launch {
    /// How to start the daemon that `arguments` describe, listening on `socket`.
    ///
    /// # Errors
    /// When a path cannot be made absolute.
    pub fn new(arguments: &DaemonStart, socket: &Path) -> Result<Self, CliError> {
        let absolute = |p: &Path| paths::absolute(&p.display().to_string());
        let socket = absolute(socket)?;
        Ok(Self {
            program: beside::program(PROGRAM),
            log: socket.with_extension("log"),
            state_dir: arguments.state_dir.as_deref().map(absolute).transpose()?,
            cores: arguments.cores.clone(),
            recorded: None,
            socket,
        })
    }

    /// How to start the daemon that listened on `socket` last.
    ///
    /// # Errors
    /// When the path of the socket cannot be made absolute.
    pub fn again(former: &Former, socket: &Path) -> Result<Self, CliError> {
        // Both programs have these options, and straked is detached here.
        let line = former.line();
        let line = line.strip_prefix("strake daemon start").map(|rest| format!("{PROGRAM}{rest}"));
        let recorded = Some(line.unwrap_or_else(|| former.line().to_owned()));
        Ok(Self { recorded, ..Self::new(&DaemonStart::default(), socket)? })
    }

    fn command(&self) -> Command {
        if let Some(line) = &self.recorded {
            let mut command = Command::new("/bin/sh");
            // The line may begin with variables, which `exec` does not accept and `env` does. Those of the caller are
            // not options of the former daemon.
            let unset: String = OPTIONS.iter().map(|name| format!("-u {name} ")).collect();
            command.arg("-c").arg(format!("exec env {unset}{line}"));
            command.env("PATH", path_with(self.program.parent())).stdin(Stdio::null());
            return command;
        }
        let mut command = Command::new(&self.program);
        command.arg("--socket").arg(&self.socket);
        if let Some(dir) = &self.state_dir {
            command.arg("--state-dir").arg(dir);
        }
        if let Some(cores) = &self.cores {
            command.arg("--cores").arg(cores);
        }
        command.stdin(Stdio::null());
        command
    }
}

/// The search path for programs, with `folder` first.
fn path_with(folder: Option<&Path>) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first = folder.filter(|folder| folder.is_absolute()).map(Path::to_owned);
    let all: Vec<PathBuf> = first.into_iter().chain(std::env::split_paths(&path)).collect();
    std::env::join_paths(all).unwrap_or(path)
}

/// Becomes the daemon; returns only when it cannot.
#[must_use]
pub fn become_daemon(launch: &Launch) -> CliError {
    let error = launch.command().exec();
    cannot_start(&launch.program, &error)
}

/// Becomes the daemon that checks the configuration `file` as its service would read it; returns only when it cannot.
#[must_use]
pub fn become_check(file: &Path) -> CliError {
    let mut command = check_of(file);
    let error = command.exec();
    cannot_start(Path::new(command.get_program()), &error)
}

/// Runs the daemon that checks the configuration `file`, and returns the options in effect as JSON.
///
/// # Errors
/// If the program cannot be run, or the file is wrong.
pub fn checked_options(file: &Path) -> Result<String, CliError> {
    let mut command = check_of(file);
    let output = command.arg("--json").stdin(Stdio::null()).output();
    let program = Path::new(command.get_program());
    let output = output.map_err(|error| cannot_start(program, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let text = said.trim().trim_start_matches(PROGRAM).trim_start_matches(": ").to_owned();
    Err(CliError { kind: ending(output.status), text })
}

/// Returns the command of the daemon that checks the configuration `file`.
fn check_of(file: &Path) -> Command {
    let mut command = Command::new(beside::program(PROGRAM));
    command.arg("--check-config").arg("--config").arg(file);
    // The service has the folders that its unit names, and no variables of the caller.
    for (variable, _) in std::env::vars_os() {
        if variable.as_bytes().starts_with(VARIABLES) {
            command.env_remove(variable);
        }
    }
    command.env("STATE_DIRECTORY", service::STATE).env("RUNTIME_DIRECTORY", service::RUNTIME);
    command
}

fn cannot_start(program: &Path, error: &std::io::Error) -> CliError {
    let what = format!(
        "cannot start {} (searched in the folder of strake, then in PATH)",
        program.display()
    );
    CliError::io(what, error)
}

/// Starts the daemon in a session of its own, its log in [`Launch::log`], and waits until it answers.
///
/// # Errors
/// When a daemon answers on that socket already, the program cannot be run, or it ends or stays silent, with
/// the end of its log.
pub async fn start_detached(launch: &Launch) -> Result<Child, CliError> {
    if Connection::try_open(&launch.socket).await.is_ok() {
        let text =
            format!("a daemon already answers at {}: nothing to start", launch.socket.display());
        return Err(CliError::usage(text));
    }
    if let Some(folder) = launch.socket.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|e| CliError::io(format_args!("cannot make {}", folder.display()), &e))?;
    }
    let mut log = File::options()
        .create(true)
        .append(true)
        .read(true)
        .open(&launch.log)
        .map_err(|e| CliError::io(format_args!("cannot write {}", launch.log.display()), &e))?;
    let begin = log.seek(SeekFrom::End(0)).unwrap_or(0);
    let errors = log.try_clone().map_err(|e| CliError::io("cannot start the daemon", &e))?;
    // A group of its own: Ctrl-C at this terminal is not meant for the daemon.
    let mut child = launch
        .command()
        .process_group(0)
        .stdout(Stdio::null())
        .stderr(errors)
        .spawn()
        .map_err(|e| cannot_start(&launch.program, &e))?;
    match answers(launch, &mut child).await {
        Ok(()) => Ok(child),
        Err((kind, why)) => {
            Err(CliError { kind, text: not_started(launch, &why, &mut log, begin) })
        }
    }
}

/// What it means that the daemon ended with `status`. straked has the same exit codes: what it refuses came from our
/// arguments.
fn ending(status: ExitStatus) -> ErrorKind {
    match status.code() == Some(i32::from(Exit::Usage.code())) {
        true => ErrorKind::Usage,
        false => ErrorKind::Ended,
    }
}

/// Waits until the socket answers; says why not. A daemon that neither ends nor answers leaves the outcome open.
async fn answers(launch: &Launch, child: &mut Child) -> Result<(), (ErrorKind, String)> {
    for _ in 0..START_ATTEMPTS {
        if Connection::try_open(&launch.socket).await.is_ok() {
            return Ok(());
        }
        match child.try_wait() {
            Ok(Some(status)) => return Err((ending(status), format!("it ended with {status}"))),
            Ok(None) => {}
            Err(error) => return Err((ErrorKind::NoDaemon, error.to_string())),
        }
        tokio::time::sleep(START_RETRY).await;
    }
    // It is ours, and no other process knows that it is there.
    let _ = child.kill();
    let seconds = (START_RETRY * START_ATTEMPTS).as_secs();
    let why = format!("it did not answer within {seconds} s");
    Err((ErrorKind::NoDaemon, if ends(child).await { why } else { stays(child.id(), &why) }))
}

/// Whether a process that was killed is gone soon. One that waits for a drive in the kernel stays for as long as the
/// drive is silent.
async fn ends(child: &mut Child) -> bool {
    let mut waited = Duration::ZERO;
    while waited < KILL_TIMEOUT {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        tokio::time::sleep(START_RETRY).await;
        waited += START_RETRY;
    }
    false
}

fn stays(pid: u32, why: &str) -> String {
    format!(
        "{why}. Process {pid} was killed, but remains: it waits in the kernel for a drive or a state directory that \
            does not answer. The process ends when that drive or directory answers or is removed"
    )
}

/// Waits until no array is being started, for as long as drives usually take. What is still waited for then is
/// returned in words.
///
/// # Errors
/// When the daemon cannot be asked.
pub async fn settled(socket: &Path) -> Result<Vec<String>, CliError> {
    let mut waited = Duration::ZERO;
    loop {
        let mut client = Connection::open(socket).await?.arrays();
        let arrays = client.list_arrays(ListArraysRequest {}).await?.into_inner().arrays;
        let starting = arrays.iter().filter(|a| a.states.iter().any(|state| state == "starting"));
        let starting: Vec<String> =
            starting.map(|a| format!("array {}: {}", a.name, a.reason)).collect();
        if starting.is_empty() || waited >= SETTLE_TIMEOUT {
            return Ok(starting);
        }
        tokio::time::sleep(START_RETRY).await;
        waited += START_RETRY;
    }
}

/// Paths of the drives of all arrays, to name one that does not answer later. None where the daemon does not say so
/// soon.
pub async fn drives_in_use(connection: &Connection) -> Vec<String> {
    let mut client = connection.arrays();
    let asked = tokio::time::timeout(CALL_TIMEOUT, client.list_arrays(ListArraysRequest {})).await;
    let Ok(Ok(answer)) = asked else { return Vec::new() };
    let arrays = answer.into_inner().arrays;
    let waits = arrays.iter().flat_map(|a| a.waits.iter().map(|wait| wait.object.clone()));
    let members = arrays.iter().flat_map(|a| a.members.iter().map(|m| m.path.clone()));
    let mut paths: Vec<String> = members.chain(waits).filter(|p| p.starts_with('/')).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Those of `drives` that do not show their first block. Each is asked by a process of its own, which is left behind
/// when its drive hangs: a thread in its place would keep this program from ending.
fn silent_among(drives: &[String]) -> Vec<String> {
    fn ask(path: &String) -> Option<(&String, Child)> {
        let mut command = Command::new("dd");
        command.arg(format!("if={path}")).args(["of=/dev/null", "bs=4096", "count=1"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // One that cannot be asked is not blamed.
        Some((path, command.spawn().ok()?))
    }
    let mut asked: Vec<(&String, Child)> = drives.iter().filter_map(ask).collect();
    let begun = Instant::now();
    while !asked.is_empty() && begun.elapsed() < PROBE_TIMEOUT {
        // Whatever it says is an answer.
        asked.retain_mut(|(_, child)| matches!(child.try_wait(), Ok(None)));
        std::thread::sleep(START_RETRY);
    }
    asked.into_iter().map(|(path, _)| path.clone()).collect()
}

/// What to say of a daemon that does not go, which used `drives`.
pub(crate) fn hangs(drives: &[String]) -> String {
    let silent = silent_among(drives);
    match (silent.as_slice(), drives) {
        ([], []) => {
            "it waits in the kernel for a device or file system that does not answer".to_owned()
        }
        ([], drives) => {
            format!("one of its drives does not complete its I/O ({})", drives.join(", "))
        }
        (silent, _) => format!("{} does not answer", silent.join(", ")),
    }
}

fn not_started(launch: &Launch, why: &str, log: &mut File, begin: u64) -> String {
    let mut said = Vec::new();
    // A log that cannot be read back leaves the message shorter, nothing worse.
    let _ = log.seek(SeekFrom::Start(begin)).and_then(|_| log.read_to_end(&mut said));
    let from = said.len().saturating_sub(LOG_TAIL_BYTES);
    let said = String::from_utf8_lossy(&said[from..]).trim_end().replace('\n', "\n  ");
    let said = if said.is_empty() { "nothing".to_owned() } else { format!("\n  {said}") };
    format!("the daemon did not start: {why}. In its log, {}: {said}", launch.log.display())
}

/// Waits until process `pid` is gone, which used `drives`.
///
/// # Errors
/// When it is still there after [`STOP_ATTEMPTS`], with the drive that it waits for as far as that is known.
pub async fn gone(pid: u32, drives: &[String]) -> Result<(), CliError> {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Ok(());
    };
    for _ in 0..STOP_ATTEMPTS {
        if test_kill_process(id).is_err_and(|e| e == rustix::io::Errno::SRCH) {
            return Ok(());
        }
        tokio::time::sleep(START_RETRY).await;
    }
    let seconds = (START_RETRY * STOP_ATTEMPTS).as_secs();
    Err(CliError {
        kind: ErrorKind::NoDaemon,
        text: format!(
            "straked (process {pid}) was asked to stop and still runs after {seconds} s: {}. Its other arrays are \
                stopped, and no data are lost. Find out why the drive does not answer, or remove the drive: then the \
                process ends. Until then, another daemon can be started, which serves the arrays that do not need \
                that drive",
            hangs(drives)
        ),
    })
}
