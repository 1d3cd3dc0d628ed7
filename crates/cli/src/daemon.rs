//! Starting straked and seeing it go.

use crate::args::DaemonStart;
use crate::connect::Connection;
use crate::error::{CliError, ErrorKind};
use crate::exit::Exit;
use crate::limits::{LOG_TAIL_BYTES, START_ATTEMPTS, START_RETRY, STOP_ATTEMPTS};
use crate::paths;
use rustix::process::{Pid, test_kill_process};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

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
            program: program(),
            log: socket.with_extension("log"),
            state_dir: arguments.state_dir.as_deref().map(absolute).transpose()?,
            cores: arguments.cores.clone(),
            socket,
        })
    }

    fn command(&self) -> Command {
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

    fn cannot_start(&self, error: &std::io::Error) -> CliError {
        let what = format!(
            "cannot start {} (it is looked for next to strake, then in PATH)",
            self.program.display()
        );
        CliError::io(what, error)
    }
}

/// `straked` next to this program, or whichever the search path has.
fn program() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|me| Some(me.parent()?.join("straked")));
    beside.filter(|p| p.is_file()).unwrap_or_else(|| PathBuf::from("straked"))
}

/// Becomes the daemon; returns only when it cannot.
#[must_use]
pub fn become_daemon(launch: &Launch) -> CliError {
    let error = launch.command().exec();
    launch.cannot_start(&error)
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
        .map_err(|e| launch.cannot_start(&e))?;
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
    // It is ours, and nobody else knows that it is there.
    let _ = child.kill();
    let _ = child.wait();
    let seconds = (START_RETRY * START_ATTEMPTS).as_secs();
    Err((ErrorKind::NoDaemon, format!("it did not answer within {seconds} s")))
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

/// Waits until process `pid` is gone.
///
/// # Errors
/// When it is still there after [`STOP_ATTEMPTS`].
pub async fn gone(pid: u32) -> Result<(), CliError> {
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
            "straked (process {pid}) was told to stop and is still there after {seconds} s"
        ),
    })
}
