//! The command that starts this daemon again, in a file beside its socket.
//!
//! A killed daemon cannot report its state directory, and a daemon with another directory knows none of the arrays.
//! Therefore the daemon writes the command to a file when it starts, and `strake` shows the command when no daemon
//! answers on the socket.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use strake_api::limits::AGAIN_SUFFIX;

use crate::args::{CONFIG, CORES, SOCKET, STATE_DIR};

/// Environment variables that have the effect of options.
const VARIABLES: [&str; 4] = ["STRAKE_METRICS", "STRAKE_KERNEL", "STRAKE_CONFIG", "RUST_LOG"];

/// Writes beside `socket` the command that starts a daemon with `state_dir` and `arguments`, which do not contain the
/// name of the program. If the directory cannot be written, this is logged, and the daemon serves nevertheless.
pub fn write_down(socket: &Path, state_dir: &Path, arguments: &[OsString]) {
    let variables = VARIABLES.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let mut variables: Vec<(&str, OsString)> = variables.collect();
    for (_, path) in variables.iter_mut().filter(|(name, _)| *name == "STRAKE_CONFIG") {
        *path = absolute(Path::new(&*path)).into_os_string();
    }
    let socket = absolute(socket);
    let line = match service() {
        Some(unit) => format!("systemctl start {}", quoted(&unit)),
        None => command(&socket, &absolute(state_dir), arguments, &variables),
    };
    let mut path = socket.clone();
    path.as_mut_os_string().push(AGAIN_SUFFIX);
    if let Err(error) = replace(&path, &line) {
        tracing::warn!(path = %path.display(), %error, "how to start the daemon again is not written down");
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns the systemd unit that started this process directly, if any (systemd.exec(5), cgroups(7)).
fn service() -> Option<String> {
    let id = std::env::var("SYSTEMD_EXEC_PID").ok()?;
    if id != std::process::id().to_string() {
        return None;
    }
    unit(&fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// Returns the service in the lines of `/proc/self/cgroup`.
pub(crate) fn unit(cgroups: &str) -> Option<String> {
    let mut units = cgroups.lines().filter_map(|line| line.rsplit('/').next());
    units.find(|unit| unit.ends_with(".service")).map(ToOwned::to_owned)
}

fn replace(path: &Path, line: &str) -> io::Result<()> {
    let mut next: PathBuf = path.to_owned();
    next.as_mut_os_string().push(".next");
    // The file may remain from an earlier write. A link at the path is removed and never followed, because other users
    // may be able to write to the directory.
    match fs::remove_file(&next) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed?,
    }
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o644).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options.open(&next)?.write_all(format!("{line}\n").as_bytes())?;
    fs::rename(&next, path)
}

/// Returns the command: `strake daemon start` if it accepts all arguments, otherwise `straked`.
pub(crate) fn command(
    socket: &Path,
    state_dir: &Path,
    arguments: &[OsString],
    variables: &[(&str, OsString)],
) -> String {
    let mut rest: Vec<&OsStr> = Vec::new();
    let mut cores: Option<String> = None;
    let mut config: Option<PathBuf> = None;
    let mut at = arguments.iter();
    while let Some(argument) = at.next() {
        let text = argument.to_string_lossy();
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (text.into_owned(), None),
        };
        match name.as_str() {
            SOCKET | STATE_DIR | CORES => {
                let value =
                    value.or_else(|| at.next().map(|next| next.to_string_lossy().into_owned()));
                if name == CORES {
                    cores = value;
                }
            }
            // The command may be executed in another folder.
            CONFIG => {
                let value =
                    value.or_else(|| at.next().map(|next| next.to_string_lossy().into_owned()));
                config = value.map(|path| absolute(Path::new(&path)));
            }
            _ => rest.push(argument),
        }
    }
    let plain = rest.is_empty() && config.is_none() && variables.is_empty();
    let mut words: Vec<String> = variables
        .iter()
        .map(|(name, value)| format!("{name}={}", quoted(&value.to_string_lossy())))
        .collect();
    let program: &[&str] = if plain { &["strake", "daemon", "start"] } else { &["straked"] };
    words.extend(program.iter().map(ToString::to_string));
    words.extend([SOCKET.to_owned(), quoted(&socket.to_string_lossy())]);
    words.extend([STATE_DIR.to_owned(), quoted(&state_dir.to_string_lossy())]);
    words.extend(cores.iter().flat_map(|cores| [CORES.to_owned(), quoted(cores)]));
    let config = config.iter().map(|path| quoted(&path.to_string_lossy()));
    words.extend(config.flat_map(|path| [CONFIG.to_owned(), path]));
    words.extend(rest.iter().map(|argument| quoted(&argument.to_string_lossy())));
    words.join(" ")
}

/// Quotes a word for a shell (POSIX.1-2017, 2.2.2).
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./,:=@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
