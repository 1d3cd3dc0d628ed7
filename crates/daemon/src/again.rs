//! How to start this daemon again, in a file beside its socket.
//!
//! A daemon that was killed cannot say where its state directory was, and one that is started with another directory
//! knows none of the arrays. So the command is written down while the daemon lives, and `strake` shows it when no
//! daemon answers on the socket.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use strake_api::limits::AGAIN_SUFFIX;

use crate::args::{CORES, SOCKET, STATE_DIR};

/// Variables that say what options could have said.
const VARIABLES: [&str; 4] = ["STRAKE_METRICS", "STRAKE_KERNEL", "STRAKE_CONFIG", "RUST_LOG"];

/// Writes beside `socket` how to start a daemon with `state_dir` that was given `arguments`, the name of the program
/// left out. A folder that cannot be written is logged: the daemon serves nevertheless.
pub fn write_down(socket: &Path, state_dir: &Path, arguments: &[OsString]) {
    let variables = VARIABLES.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let variables: Vec<(&str, OsString)> = variables.collect();
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
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

/// The unit of systemd that started this process itself, if one did (systemd.exec(5), cgroups(7)).
fn service() -> Option<String> {
    let id = std::env::var("SYSTEMD_EXEC_PID").ok()?;
    if id != std::process::id().to_string() {
        return None;
    }
    unit(&fs::read_to_string("/proc/self/cgroup").ok()?)
}

/// The service in the lines of `/proc/self/cgroup`.
pub(crate) fn unit(cgroups: &str) -> Option<String> {
    let mut units = cgroups.lines().filter_map(|line| line.rsplit('/').next());
    units.find(|unit| unit.ends_with(".service")).map(ToOwned::to_owned)
}

fn replace(path: &Path, line: &str) -> io::Result<()> {
    let mut next: PathBuf = path.to_owned();
    next.as_mut_os_string().push(".next");
    // What is left of an earlier write. A link there is removed, never followed: the folder may be open to others.
    match fs::remove_file(&next) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed?,
    }
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o644).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options.open(&next)?.write_all(format!("{line}\n").as_bytes())?;
    fs::rename(&next, path)
}

/// The command. Where `strake daemon start` takes all that was given it is that, else straked itself.
pub(crate) fn command(
    socket: &Path,
    state_dir: &Path,
    arguments: &[OsString],
    variables: &[(&str, OsString)],
) -> String {
    let mut rest: Vec<&OsStr> = Vec::new();
    let mut cores: Option<String> = None;
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
            _ => rest.push(argument),
        }
    }
    let plain = rest.is_empty() && variables.is_empty();
    let mut words: Vec<String> = variables
        .iter()
        .map(|(name, value)| format!("{name}={}", quoted(&value.to_string_lossy())))
        .collect();
    let program: &[&str] = if plain { &["strake", "daemon", "start"] } else { &["straked"] };
    words.extend(program.iter().map(ToString::to_string));
    words.extend([SOCKET.to_owned(), quoted(&socket.to_string_lossy())]);
    words.extend([STATE_DIR.to_owned(), quoted(&state_dir.to_string_lossy())]);
    words.extend(cores.iter().flat_map(|cores| [CORES.to_owned(), quoted(cores)]));
    words.extend(rest.iter().map(|argument| quoted(&argument.to_string_lossy())));
    words.join(" ")
}

/// A word as a shell takes it (POSIX.1-2017, 2.2.2).
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./,:=@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
