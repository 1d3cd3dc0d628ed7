//! G12 and G13: what a daemon takes that has nothing to do: processor time, the first answer after a rest, and memory.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use strake_dev_uring::create_sparse;

use crate::folder::Folder;
use crate::measure::Samples;
use crate::report::{Drives, Metric, Report, Row, Target};
use crate::rig::pass;
use crate::scenario::Options;

const DRIVES: usize = 8;
const VOLUMES: usize = 4;
const DRIVE_BYTES: u64 = 64 << 20;
/// How long a daemon may take to answer, or to start.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long its silence is watched each time.
const REST: Duration = Duration::from_secs(2);
/// Reads of a client that is busy, after each rest.
const BUSY_READS: usize = 101;

/// What one round found.
struct Round {
    /// Processor time, in percent of a core.
    cpu: f64,
    /// By how much longer the first read took than those after it, in microseconds.
    wake: f64,
    /// Memory that the daemon has in use, in MiB.
    memory: f64,
}

/// Measures and adds the rows of `id`, G12 or G13.
pub fn answer(report: &mut Report, id: &str, options: &Options, mut progress: impl FnMut(&str)) {
    let wanted =
        |row: &Row| options.filter.as_ref().is_none_or(|part| row.case.contains(part.as_str()));
    if !rows(id, &Err(String::new())).iter().any(wanted) {
        return;
    }
    let rounds = measure(options, &mut progress);
    report.rows.extend(rows(id, &rounds).into_iter().filter(wanted));
}

type Line = (&'static str, Metric, Target, &'static str, fn(&Round) -> f64);

fn rows(id: &str, rounds: &Result<Vec<Round>, String>) -> Vec<Row> {
    let lines: &[Line] = match id {
        "G12" => &[
            (
                "idle daemon, 8 drives, 4 volumes, 4 silent clients: processor",
                Metric::Cpu,
                Target::new(100.0, 1.0, 0.2),
                "anchor: an SPDK target polls",
                |round| round.cpu,
            ),
            (
                "idle daemon: first read after 2 s of rest",
                Metric::Latency,
                Target { anchor: None, goal: Some(20.0), moonshot: None },
                "longer than the median of the 101 reads after it; over NBD and the page cache, the client's own \
                 waking in it",
                |round| round.wake,
            ),
        ],
        _ => &[(
            "daemon with 8 drives, 4 volumes, 4 clients: memory in use",
            Metric::Memory,
            Target::goals(256.0, 64.0),
            "resident set of the process with half of the CPUs as data cores; per-array and per-depth shares are not \
             told apart",
            |round| round.memory,
        )],
    };
    let row = |(case, metric, target, note, value): &Line| {
        let row = match rounds {
            Ok(rounds) => {
                Row::new(*case, *metric, &Samples::new(rounds.iter().map(value).collect()), *target)
            }
            Err(why) => Row::open(*case, *metric, *target, why.as_str()),
        };
        row.on(Drives::Real).protected("intent bitmap").note(note)
    };
    lines.iter().map(row).collect()
}

fn measure(options: &Options, progress: &mut impl FnMut(&str)) -> Result<Vec<Round>, String> {
    progress("starting a daemon");
    let daemon = Daemon::start()?;
    let mut clients = (0..VOLUMES).map(|at| daemon.volume(at)).collect::<Result<Vec<_>, _>>()?;
    let repeats = options.repeats();
    let mut rounds = Vec::new();
    for round in 0..repeats {
        progress(&format!("{} of {repeats}: watching the daemon rest", round + 1));
        let (before, since) = (daemon.cpu()?, Instant::now());
        pass(REST);
        let cpu = 100.0 * (daemon.cpu()? - before) / since.elapsed().as_secs_f64();
        let client = &mut clients[0];
        let first = client.read()?;
        let busy = (0..BUSY_READS).map(|_| client.read()).collect::<Result<Vec<_>, _>>()?;
        let wake = (first - Samples::new(busy).median()) * 1e6;
        rounds.push(Round { cpu, wake, memory: daemon.memory()? });
    }
    Ok(rounds)
}

/// A daemon on files of its own. Ended when dropped.
struct Daemon {
    child: Child,
    folder: Folder,
    strake: PathBuf,
}

impl Daemon {
    fn start() -> Result<Self, String> {
        let strake = std::env::current_exe().map_err(|e| e.to_string())?;
        let straked = strake.with_file_name("straked");
        if !straked.exists() {
            return Err(format!("there is no {}: build it, too", straked.display()));
        }
        let folder = Folder::new("idle")?;
        for at in 0..DRIVES {
            let path = folder.path().join(format!("drive{at}"));
            create_sparse(&path, DRIVE_BYTES).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let child = Command::new(&straked)
            .arg("--state-dir")
            .arg(folder.path().join("state"))
            .arg("--socket")
            .arg(folder.path().join("socket"))
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

    /// Runs a command of the program that this is, against the daemon.
    fn ask(&self, arguments: &[&str]) -> Result<(), String> {
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

    /// A volume of two drives with a client that is connected.
    fn volume(&self, at: usize) -> Result<Client, String> {
        let name = format!("volume{at}");
        let drives = format!("./drive{},./drive{}", 2 * at, 2 * at + 1);
        self.ask(&["array", "create", &name, "--level", "1", "--drives", &drives])?;
        let socket = self.folder.path().join(format!("nbd{at}"));
        let listen = format!("unix:{}", socket.display());
        self.ask(&["export", "create", &name, "--via", "nbd", "--listen", &listen])?;
        Client::connect(&socket, &name).map_err(|e| format!("{name}: {e}"))
    }

    fn text(&self, file: &str) -> Result<String, String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))
    }

    /// Seconds of processor time so far, of all its threads: the scheduler's own account, in nanoseconds (proc(5)).
    fn cpu(&self) -> Result<f64, String> {
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
    fn memory(&self) -> Result<f64, String> {
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
struct Client(UnixStream);

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
    fn read(&mut self) -> Result<f64, String> {
        const BYTES: u32 = 4096;
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        // Flags, type and cookie are 0, and so is the place.
        request.extend([0; 20]);
        request.extend(BYTES.to_be_bytes());
        let mut answer = [0; 16 + BYTES as usize];
        let since = Instant::now();
        let asked = self.0.write_all(&request).and_then(|()| self.0.read_exact(&mut answer));
        asked.map_err(|e| format!("a client was not answered: {e}"))?;
        Ok(since.elapsed().as_secs_f64())
    }
}
