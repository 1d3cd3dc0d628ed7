//! A daemon on files, and clients of its exports: for what cannot be seen from inside this process.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use strake_dev_uring::create_sparse;

use crate::folder::Folder;
use crate::rig::pass;

const DRIVE_BYTES: u64 = 64 << 20;
/// How long a daemon may take to answer, or to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon on files of its own. Ended when dropped.
pub struct Daemon {
    child: Child,
    folder: Folder,
    strake: PathBuf,
}

impl Daemon {
    /// Starts one on `drives` files, in a folder called after `name`, with `arguments`.
    ///
    /// # Errors
    /// When its program is missing, or it does not answer.
    pub fn start(name: &str, drives: usize, arguments: &[&str]) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let [strake, straked] = ["strake", "straked"].map(|name| program.with_file_name(name));
        if let Some(missing) = [&strake, &straked].into_iter().find(|path| !path.exists()) {
            return Err(format!("there is no {}: build it, too", missing.display()));
        }
        let folder = Folder::new(name)?;
        for at in 0..drives {
            let path = folder.path().join(format!("drive{at}"));
            create_sparse(&path, DRIVE_BYTES).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let child = Command::new(&straked)
            .arg("--state-dir")
            .arg(folder.path().join("state"))
            .arg("--socket")
            .arg(folder.path().join("socket"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", straked.display()))?;
        let daemon = Self { child, folder, strake };
        let since = Instant::now();
        while let Err(why) = daemon.ask(&["drive", "list"]) {
            if since.elapsed() > PATIENCE {
                return Err(format!("the daemon does not answer: {why}"));
            }
            pass(Duration::from_millis(50));
        }
        Ok(daemon)
    }

    /// Runs a command of `strake` against the daemon.
    ///
    /// # Errors
    /// What it says.
    pub fn ask(&self, arguments: &[&str]) -> Result<(), String> {
        let output = Command::new(&self.strake)
            .args(arguments)
            .env("STRAKE_SOCKET", self.folder.path().join("socket"))
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("cannot run {}: {e}", self.strake.display()))?;
        // 1 and 2 are answers, of an array that is not as it should be.
        match output.status.code() {
            Some(0..=2) => Ok(()),
            _ => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        }
    }

    /// Exports the array called `name`, and connects a client.
    ///
    /// # Errors
    /// What the daemon says.
    pub fn export(&self, name: &str) -> Result<Client, String> {
        let socket = self.folder.path().join(format!("nbd-{name}"));
        let listen = format!("unix:{}", socket.display());
        self.ask(&["export", "create", name, "--via", "nbd", "--listen", &listen])?;
        Client::connect(&socket, name).map_err(|e| format!("{name}: {e}"))
    }

    fn text(&self, file: &str) -> Result<String, String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))
    }

    /// Seconds of processor time so far, of all its threads: the scheduler's own account, in nanoseconds (proc(5)).
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn cpu(&self) -> Result<f64, String> {
        let tasks = format!("/proc/{}/task", self.child.id());
        let entries = std::fs::read_dir(&tasks).map_err(|e| format!("{tasks}: {e}"))?;
        let mut ns = 0_u64;
        for entry in entries.flatten() {
            // A thread that has ended meanwhile used nothing since.
            let text = std::fs::read_to_string(entry.path().join("schedstat")).unwrap_or_default();
            ns += text.split(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(ns as f64 / 1e9)
    }

    /// Memory in use, in MiB.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn memory(&self) -> Result<f64, String> {
        let status = self.text("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        kib.map(|kib| kib / 1024.0)
            .ok_or_else(|| "the kernel does not say what memory is in use".to_owned())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It is ours alone and on files that go away: nothing is lost by ending it at once.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client of an NBD export: as much of the protocol (proto.md of NBD) as asking for a block takes.
pub struct Client(UnixStream);

impl Client {
    fn connect(socket: &Path, name: &str) -> std::io::Result<Self> {
        const GO: u32 = 7;
        const ACK: u32 = 1;
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.read_exact(&mut [0; 18])?;
        let mut request = 3_u32.to_be_bytes().to_vec();
        request.extend(b"IHAVEOPT");
        request.extend(GO.to_be_bytes());
        request.extend((name.len() as u32 + 6).to_be_bytes());
        request.extend((name.len() as u32).to_be_bytes());
        request.extend(name.as_bytes());
        request.extend(0_u16.to_be_bytes());
        stream.write_all(&request)?;
        loop {
            let mut head = [0; 20];
            stream.read_exact(&mut head)?;
            let word = |at: usize| {
                u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let (kind, bytes) = (word(12), word(16));
            stream.read_exact(&mut vec![0; bytes as usize])?;
            match kind {
                ACK => return Ok(Self(stream)),
                0x8000_0000.. => return Err(std::io::Error::other(format!("refused: {kind:#x}"))),
                _ => {}
            }
        }
    }

    /// Reads the first 4 KiB; the seconds that took.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn read(&mut self) -> Result<f64, String> {
        let since = Instant::now();
        self.exchange(&request(READ, 0), HEAD + BYTES as usize)?;
        Ok(since.elapsed().as_secs_f64())
    }

    /// Has `depth` writes of 4 KiB out, each elsewhere, and then as many reads.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn burst(&mut self, depth: usize) -> Result<(), String> {
        let places = 0..depth as u64;
        let write =
            |at: u64| [request(WRITE, at * u64::from(BYTES)), vec![7; BYTES as usize]].concat();
        let writes: Vec<u8> = places.clone().flat_map(write).collect();
        self.exchange(&writes, HEAD * depth)?;
        let reads: Vec<u8> = places.flat_map(|at| request(READ, at * u64::from(BYTES))).collect();
        self.exchange(&reads, (HEAD + BYTES as usize) * depth)
    }

    /// Sends `all` and takes `bytes` of answers.
    fn exchange(&mut self, all: &[u8], bytes: usize) -> Result<(), String> {
        let mut answer = vec![0; bytes];
        let asked = self.0.write_all(all).and_then(|()| self.0.read_exact(&mut answer));
        asked.map_err(|e| format!("a client was not answered: {e}"))
    }
}

/// Types of requests.
const READ: u16 = 0;
const WRITE: u16 = 1;
/// Bytes of every request's data, and of the head of an answer.
const BYTES: u32 = 4096;
const HEAD: usize = 16;

/// The head of a request. Flags and cookie are 0.
fn request(kind: u16, at: u64) -> Vec<u8> {
    let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
    request.extend([0; 2]);
    request.extend(kind.to_be_bytes());
    request.extend([0; 8]);
    request.extend(at.to_be_bytes());
    request.extend(BYTES.to_be_bytes());
    request
}
