//! What the demo needs around it: a directory, drives, a daemon, a client; and their end.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::load::fill;
use crate::args::DemoArgs;
use crate::client::Client;
use crate::error::CliError;
use crate::nbd::NbdClient;

/// How long the daemon may take to start or to stop.
const DAEMON_MAX: Duration = Duration::from_secs(30);

/// Bytes compared at a time.
const STEP: usize = 1 << 20;

/// Where `straked` is: next to this program, else wherever the shell would find it.
#[must_use]
pub fn daemon_path() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|exe| exe.with_file_name("straked"));
    beside.filter(|path| path.exists()).unwrap_or_else(|| PathBuf::from("straked"))
}

/// A directory with everything in it, which goes away when it is dropped.
pub struct Stage {
    pub dir: PathBuf,
    pub drive_bytes: u64,
    daemon: Option<Child>,
    keep: bool,
}

fn failed(what: &str, path: &Path, error: &std::io::Error) -> CliError {
    CliError::failed(format!("cannot {what} {}: {error}", path.display()))
}

impl Stage {
    pub fn new(args: &DemoArgs) -> Result<Self, CliError> {
        let usual = || std::env::temp_dir().join(format!("strake-demo-{}", std::process::id()));
        let given = args.dir.clone().unwrap_or_else(usual);
        let dir = std::path::absolute(&given).map_err(|e| failed("use", &given, &e))?;
        // Never one that exists: it is removed at the end, with all there is in it.
        fs::create_dir(&dir).map_err(|e| failed("create", &dir, &e))?;
        Ok(Self { dir, drive_bytes: args.drive_size.0, daemon: None, keep: false })
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("straked.sock")
    }

    pub fn nbd(&self) -> PathBuf {
        self.dir.join("nbd.sock")
    }

    pub fn pattern(&self) -> PathBuf {
        self.dir.join("pattern")
    }

    pub fn keep(&mut self) {
        self.keep = true;
    }

    pub fn make_drives(&self, numbers: Range<u32>) -> Result<Vec<String>, CliError> {
        let make = |number| {
            let path = self.dir.join(format!("drive{number}"));
            let made = File::create(&path).and_then(|file| file.set_len(self.drive_bytes));
            made.map_err(|e| failed("create", &path, &e))?;
            Ok(path.display().to_string())
        };
        numbers.map(make).collect()
    }

    pub async fn start_daemon(&mut self) -> Result<Client, CliError> {
        let log = self.dir.join("straked.log");
        let log = File::options().create(true).append(true).open(&log).map_err(|e| failed("create", &log, &e))?;
        let program = daemon_path();
        let child = Command::new(&program)
            .arg("--state-dir")
            .arg(self.dir.join("state"))
            .arg("--socket")
            .arg(self.socket())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| failed("start", &program, &e))?;
        let child = self.daemon.insert(child);
        let begun = Instant::now();
        let socket = self.dir.join("straked.sock");
        loop {
            if let Ok(client) = Client::connect(&socket).await {
                return Ok(client);
            }
            if begun.elapsed() > DAEMON_MAX || child.try_wait().is_ok_and(|ended| ended.is_some()) {
                let log = fs::read_to_string(self.dir.join("straked.log")).unwrap_or_default();
                return Err(CliError::failed(format!("straked does not answer; its log:\n{log}")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops the daemon by SIGTERM and waits for its end; by SIGKILL when it does not come.
    pub fn stop_daemon(&mut self) -> Result<(), CliError> {
        let Some(mut child) = self.daemon.take() else { return Ok(()) };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // A daemon that has ended already is what is wanted.
            let _ = kill_process(pid, Signal::TERM);
        }
        let begun = Instant::now();
        while begun.elapsed() < DAEMON_MAX {
            match child.try_wait() {
                Ok(Some(ended)) if ended.success() => return Ok(()),
                Ok(Some(ended)) => return Err(CliError::failed(format!("straked ended with {ended}"))),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(CliError::failed(format!("cannot wait for straked: {error}"))),
            }
        }
        let _ = child.kill();
        let _ = child.wait();
        Err(CliError::failed("straked did not stop in time and was killed"))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        // Whatever these two say, there is nothing left to do about it here.
        let _ = self.stop_daemon();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Writes `bytes` of data that does not compress to `path`.
pub fn make_pattern(path: &Path, bytes: u64) -> Result<(), CliError> {
    let mut file = File::create(path).map_err(|e| failed("create", path, &e))?;
    let mut data = vec![0; STEP];
    for step in 0..bytes / STEP as u64 {
        fill(step.wrapping_mul(0x5851_f42d_4c95_7f2d), &mut data);
        file.write_all(&data).map_err(|e| failed("write", path, &e))?;
    }
    Ok(())
}

/// The client that moves the pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// libnbd's copy program.
    Nbdcopy,
    /// Ours, when nothing else is installed.
    BuiltIn,
}

impl Tool {
    /// The best one installed.
    pub fn find() -> Self {
        let there = Command::new("nbdcopy").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if there.is_ok_and(|status| status.success()) { Self::Nbdcopy } else { Self::BuiltIn }
    }

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nbdcopy => "nbdcopy",
            Self::BuiltIn => "the built-in client",
        }
    }

    /// Copies `pattern` to the start of the export.
    pub fn write(self, pattern: &Path, nbd: &Path) -> Result<(), CliError> {
        match self {
            Self::Nbdcopy => nbdcopy(&["--flush".as_ref(), pattern.as_os_str(), uri(nbd).as_ref()]),
            Self::BuiltIn => {
                let broken = |e: std::io::Error| CliError::failed(format!("writing the pattern failed: {e}"));
                let mut file = File::open(pattern).map_err(broken)?;
                let mut client = NbdClient::connect(nbd, "demo").map_err(broken)?;
                let mut data = vec![0; STEP];
                let mut at = 0;
                while file.read_exact(&mut data).is_ok() {
                    client.write(at, &data).map_err(broken)?;
                    at += STEP as u64;
                }
                client.flush().map_err(broken)
            }
        }
    }

    /// Reads the export back and counts the bytes that are not the pattern's.
    pub fn compare(self, pattern: &Path, nbd: &Path, copy: &Path, bytes: u64) -> Result<u64, CliError> {
        let broken = |e: std::io::Error| CliError::failed(format!("reading back failed: {e}"));
        let mut expected = File::open(pattern).map_err(broken)?;
        let mut wanted = vec![0; STEP];
        let mut found = vec![0; STEP];
        let mut differing = 0;
        let mut source = self.source(nbd, copy)?;
        for step in 0..bytes / STEP as u64 {
            expected.read_exact(&mut wanted).map_err(broken)?;
            source.read(step * STEP as u64, &mut found).map_err(broken)?;
            if wanted != found {
                differing += wanted.iter().zip(&found).filter(|(a, b)| a != b).count() as u64;
            }
        }
        drop(source);
        if self == Self::Nbdcopy {
            fs::remove_file(copy).map_err(broken)?;
        }
        Ok(differing)
    }

    fn source(self, nbd: &Path, copy: &Path) -> Result<Source, CliError> {
        match self {
            Self::Nbdcopy => {
                nbdcopy(&[uri(nbd).as_ref(), copy.as_os_str()])?;
                File::open(copy).map(Source::File).map_err(|e| failed("open", copy, &e))
            }
            Self::BuiltIn => NbdClient::connect(nbd, "demo").map(Source::Export).map_err(|e| failed("reach", nbd, &e)),
        }
    }
}

enum Source {
    File(File),
    Export(NbdClient),
}

impl Source {
    fn read(&mut self, at: u64, data: &mut [u8]) -> std::io::Result<()> {
        match self {
            Self::File(file) => {
                file.seek(SeekFrom::Start(at))?;
                file.read_exact(data)
            }
            Self::Export(client) => client.read(at, data),
        }
    }
}

fn uri(nbd: &Path) -> String {
    format!("nbd+unix:///demo?socket={}", nbd.display())
}

fn nbdcopy(args: &[&std::ffi::OsStr]) -> Result<(), CliError> {
    let output = Command::new("nbdcopy").args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|e| CliError::failed(format!("cannot run nbdcopy: {e}")))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(CliError::failed(format!("nbdcopy ended with {}: {why}", output.status)))
}
