//! A folder and a daemon of the demo's own, and their end.

use crate::connect::Connection;
use crate::daemon::{self, Launch};
use crate::error::CliError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::sleep;

use crate::limits::{START_RETRY, STOP_ATTEMPTS};

/// Size of a file that stands in for a drive.
pub const DRIVE_BYTES: u64 = 512 << 20;

/// Free space asked for: what the demo writes, twice, so that the machine is not left full.
const FREE_BYTES_MIN: u64 = 4 << 30;

/// Longest path of a folder whose sockets still fit into an address (`sun_path` in unix(7) has 108 bytes).
const DIR_BYTES_MAX: usize = 85;

/// The folder, the files in it, and the daemon.
pub struct Sandbox {
    dir: PathBuf,
    launch: Launch,
    daemon: Option<Child>,
}

impl Sandbox {
    /// A new folder in `parent`, or in the temporary folder; no other user may look into it.
    ///
    /// # Errors
    /// When it cannot be made, its path is too long for a socket, or there is too little space.
    pub fn new(parent: Option<&Path>) -> Result<Self, CliError> {
        let parent = std::path::absolute(parent.unwrap_or(&std::env::temp_dir()))
            .map_err(|e| CliError::io("cannot find the working folder", &e))?;
        std::fs::create_dir_all(&parent)
            .map_err(|e| CliError::io(format_args!("cannot make {}", parent.display()), &e))?;
        enough_space(&parent)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.subsec_micros());
        let dir = parent.join(format!("strake-demo-{}-{since}", std::process::id()));
        if dir.as_os_str().len() > DIR_BYTES_MAX {
            let text =
                format!("{} is too long a path for sockets: choose a shorter --dir", dir.display());
            return Err(CliError::usage(text));
        }
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(|e| CliError::io(format_args!("cannot make {}", dir.display()), &e))?;
        let launch = Launch {
            state_dir: Some(dir.join("state")),
            log: dir.join("straked.log"),
            ..Launch::new(&crate::args::DaemonStart::default(), &dir.join("straked.sock"))?
        };
        Ok(Self { dir, launch, daemon: None })
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The daemon's socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.launch.socket
    }

    /// Where the export listens.
    #[must_use]
    pub fn export_socket(&self) -> PathBuf {
        self.dir.join("nbd.sock")
    }

    /// Makes a sparse file that stands in for a drive; gives its path.
    ///
    /// # Errors
    /// When it cannot be made, or is there already.
    pub fn drive(&self, name: &str) -> Result<String, CliError> {
        let path = self.dir.join(name);
        File::create_new(&path)
            .and_then(|file| file.set_len(DRIVE_BYTES))
            .map_err(|e| CliError::io(format_args!("cannot make {}", path.display()), &e))?;
        Ok(path.display().to_string())
    }

    /// Takes a file away, as a thief would a drive.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn lose(&self, name: &str) -> Result<(), CliError> {
        let path = self.dir.join(name);
        std::fs::remove_file(&path)
            .map_err(|e| CliError::io(format_args!("cannot remove {}", path.display()), &e))
    }

    /// Starts the daemon, and connects to it.
    ///
    /// # Errors
    /// As [`daemon::start_detached`].
    pub async fn start(&mut self) -> Result<Connection, CliError> {
        self.daemon = Some(daemon::start_detached(&self.launch).await?);
        Connection::open(&self.launch.socket).await
    }

    /// Sends `signal` to the daemon and waits until it is gone. No daemon is as good as gone.
    ///
    /// # Errors
    /// When it is still there after [`STOP_ATTEMPTS`].
    pub async fn stop(&mut self, signal: Signal) -> Result<(), CliError> {
        let Some(child) = &mut self.daemon else { return Ok(()) };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // Not yet waited for, so the number is still the daemon's; a daemon that is gone already is no error.
            let _ = kill_process(pid, signal);
        }
        for _ in 0..STOP_ATTEMPTS {
            match child.try_wait() {
                Ok(None) => sleep(START_RETRY).await,
                Ok(Some(_)) | Err(_) => {
                    self.daemon = None;
                    return Ok(());
                }
            }
        }
        Err(CliError::mismatch("the daemon did not stop when asked to"))
    }

    /// Stops the daemon, by force if need be, and removes the folder.
    ///
    /// # Errors
    /// When something of it cannot be removed.
    pub async fn clean_up(mut self) -> Result<(), CliError> {
        if self.stop(Signal::TERM).await.is_err() {
            self.stop(Signal::KILL).await?;
        }
        std::fs::remove_dir_all(&self.dir)
            .map_err(|e| CliError::io(format_args!("cannot remove {}", self.dir.display()), &e))
    }
}

fn enough_space(dir: &Path) -> Result<(), CliError> {
    let Ok(space) = rustix::fs::statvfs(dir) else { return Ok(()) };
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free >= FREE_BYTES_MIN {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "{} has {} free and the demo wants {}: choose another folder with --dir",
        dir.display(),
        strake_units::ByteSize(free),
        strake_units::ByteSize(FREE_BYTES_MIN)
    )))
}
