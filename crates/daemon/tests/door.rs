//! Access to the socket and the state directory of `straked`, tested with a separate process.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use rustix::process::{Gid, Pid, Signal, Uid, geteuid, kill_process};
use strake_api::v1::GetDaemonRequest;
use strake_api::v1::daemon_service_client::DaemonServiceClient;
use strake_testkit::Folder;
use tonic::Code;
use tonic::transport::Endpoint;

/// A user and a group that own no file of these tests.
const STRANGER: u32 = 65_534;

/// The time limit of a test for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The exit code of a daemon that never served, because of wrong usage.
const REFUSED: i32 = 3;

/// A directory that every user may read.
struct Open(Folder);

impl Open {
    fn new() -> Self {
        let folder = Folder::new("straked-door");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns the command of a daemon with an empty umask, so that only the daemon itself restricts access.
    fn command(&self, state: &str, socket: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_straked")]);
        command.arg("--state-dir").arg(self.path(state)).arg("--socket").arg(self.path(socket));
        command.env_remove("STRAKE_METRICS").env("RUST_LOG", "info");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Runs a daemon that is refused, and returns its message.
    fn refused(&self, state: &str, socket: &str, more: &[&str]) -> String {
        let child = self.command(state, socket).args(more).spawn();
        let mut daemon = Daemon(child.expect("the program is there"));
        let said = daemon.serves().expect_err("it does not serve");
        let status = daemon.0.wait().expect("it ends");
        assert_eq!(status.code(), Some(REFUSED), "{said}");
        said
    }
}

/// A running daemon. It ends with the test.
struct Daemon(Child);

impl Daemon {
    fn start(folder: &Open, state: &str, socket: &str, more: &[&str]) -> Self {
        let mut command = folder.command(state, socket);
        let mut daemon = Self(command.args(more).spawn().expect("the program is there"));
        daemon.serves().unwrap_or_else(|said| panic!("it ended before it served: {said}"));
        daemon
    }

    /// Waits until the daemon serves.
    ///
    /// # Errors
    /// The daemon ended before it served. The error contains its message.
    fn serves(&mut self) -> Result<(), String> {
        let mut log = BufReader::new(self.0.stderr.take().expect("it is piped")).lines();
        let mut said = String::new();
        while !said.contains("serving") {
            let Some(line) = log.next() else { return Err(said) };
            said += &line.expect("it is text");
        }
        // An unread log would block the daemon after some time.
        thread::spawn(move || log.for_each(drop));
        Ok(())
    }

    fn kill(mut self) {
        self.0.kill().expect("it is our child");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // The daemon may already have ended.
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// Returns whether a connection from this thread is served: in HTTP/2, the server sends first.
fn answers(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else { return false };
    stream.set_read_timeout(Some(PATIENCE)).expect("a time can be set");
    matches!(stream.read(&mut [0; 1]), Ok(1))
}

/// Calls the daemon from this thread, and returns the code and the message of the answer.
fn call(socket: &Path) -> (Code, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let socket = format!("unix:{}", socket.display());
    let answer = runtime.expect("a runtime starts").block_on(async {
        let endpoint = Endpoint::try_from(socket).expect("it is a path");
        let mut daemon = DaemonServiceClient::connect(endpoint).await.expect("it connects");
        daemon.get_daemon(GetDaemonRequest {}).await
    });
    answer.map_or_else(|s| (s.code(), s.message().to_owned()), |_| (Code::Ok, String::new()))
}

/// Runs `what`, which checks `property`, on a thread with another user and group. Returns `None` and prints the reason
/// if this process lacks the required rights. The reason is written directly to standard error, because the test
/// harness does not show the output of a passing test.
fn as_stranger<T: Send>(property: &str, what: impl FnOnce() -> T + Send) -> Option<T> {
    if !geteuid().is_root() {
        let why = "only root can take another user's place";
        writeln!(std::io::stderr(), "skipped: {property}: {why}").expect("there is an output");
        return None;
    }
    let alien = || {
        let (group, user) = (Gid::from_raw(STRANGER), Uid::from_raw(STRANGER));
        rustix::thread::set_thread_groups(&[]).expect("root may");
        rustix::thread::set_thread_res_gid(group, group, group).expect("root may");
        rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
        what()
    };
    Some(thread::scope(|scope| scope.spawn(alien).join()).expect("it ends well"))
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[test]
fn the_socket_and_the_state_are_for_their_owner_whatever_the_mask() {
    let folder = Open::new();
    let metrics = format!("unix:{}", folder.path("metrics").display());
    let daemon = Daemon::start(&folder, "state", "socket", &["--metrics", &metrics]);
    for name in ["socket", "metrics"] {
        assert_eq!(mode(&folder.path(name)), 0o660, "{name}");
        let meta = fs::symlink_metadata(folder.path(name)).expect("it is there");
        assert!(meta.file_type().is_socket() && meta.uid() == geteuid().as_raw(), "{name}");
    }
    assert_eq!(mode(&folder.path("state")), 0o700);
    for entry in fs::read_dir(folder.path("state")).expect("it is ours") {
        let path = entry.expect("it can be read").path();
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
    }
    let socket = folder.path("socket");
    let kind = |socket: &Path| UnixStream::connect(socket).err().map(|error| error.kind());
    let property = "the kernel refuses a stranger's connection to the socket";
    if let Some(refused) = as_stranger(property, || kind(&socket)) {
        assert_eq!(refused, Some(std::io::ErrorKind::PermissionDenied));
    }
    // The mode is not the only check: the kernel also reports the identity of each peer.
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("it is ours");
    let property = "straked denies the calls of a stranger with a reason";
    if let Some((code, message)) = as_stranger(property, || call(&socket)) {
        assert_eq!(code, Code::PermissionDenied, "{message}");
        assert!(message.contains(&format!("user {STRANGER} has no role")), "{message}");
    }
    assert_eq!(call(&socket).0, Code::Ok, "its owner may call");
    assert!(answers(&socket), "its owner is served");
    drop(daemon);
    assert!(!socket.exists() && !folder.path("metrics").exists(), "the paths go with it");
}

#[test]
fn a_signal_stops_the_daemon_in_order_as_soon_as_its_socket_is_there() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let folder = Open::new();
        let socket = folder.path("socket");
        let mut daemon = folder.command("state", "socket");
        let mut daemon =
            Daemon(daemon.stderr(Stdio::null()).spawn().expect("the program is there"));
        while !socket.exists() {
            assert!(daemon.0.try_wait().expect("it is our child").is_none(), "it ended");
            thread::yield_now();
        }
        let pid =
            i32::try_from(daemon.0.id()).ok().and_then(Pid::from_raw).expect("it is a process");
        kill_process(pid, signal).expect("it is our child");
        let status = daemon.0.wait().expect("it ends");
        assert!(status.success(), "{status}");
        assert!(!socket.exists(), "the path goes with it");
    }
}

#[test]
fn a_place_that_cannot_be_listened_on_is_found_before_anything_is_begun() {
    let folder = Open::new();
    fs::write(folder.path("file"), "kept").expect("it is ours");
    symlink("nowhere", folder.path("link")).expect("it is ours");
    let long = "s".repeat(120);
    for socket in ["file", "link", ".", long.as_str(), "file/socket", "/proc/none/socket"] {
        let said = folder.refused("state", socket, &[]);
        assert!(said.contains("choose another"), "{said}");
        assert!(!folder.path("state").exists(), "{socket}: nothing was begun");
    }
    let file = format!("unix:{}", folder.path("file").display());
    let in_use = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let in_use = in_use.local_addr().expect("it is bound").to_string();
    for metrics in [file, in_use] {
        let said = folder.refused("state", "socket", &["--metrics", &metrics]);
        assert!(said.contains("--metrics"), "{said}");
        assert!(!folder.path("state").exists(), "{metrics}: nothing was begun");
    }
    let same = format!("unix:{}", folder.path("new/../new/socket").display());
    let said = folder.refused("state", "new/socket", &["--metrics", &same]);
    assert!(said.contains("name the same socket"), "{said}");
    assert!(!folder.path("state").exists(), "nothing was begun");
    assert_eq!(fs::read(folder.path("file")).expect("it is ours"), b"kept");
}

#[test]
fn a_second_daemon_is_refused_by_the_lock_and_by_the_socket() {
    let folder = Open::new();
    let daemon = Daemon::start(&folder, "state", "socket", &[]);
    let said = folder.refused("state", "other", &[]);
    assert!(said.contains(&format!("in use by process {}", daemon.0.id())), "{said}");
    assert!(!folder.path("other").exists());
    let said = folder.refused("another", "socket", &[]);
    assert!(said.contains("a daemon answers on"), "{said}");
    assert!(!folder.path("another").exists(), "nothing was begun");
    assert!(answers(&folder.path("socket")), "the first goes on");
    daemon.kill();
    // No process holds the lock, and no process answers on the stale socket.
    assert!(folder.path("socket").exists(), "it was killed");
    let next = Daemon::start(&folder, "state", "socket", &[]);
    assert_eq!(mode(&folder.path("socket")), 0o660);
    drop(next);
}

/// A link is not followed, a file is not removed, and a socket that answers is not replaced.
#[test]
fn what_is_no_stale_socket_is_left_alone() {
    let folder = Open::new();
    fs::write(folder.path("file"), b"precious").expect("it can be written");
    fs::create_dir(folder.path("folder")).expect("it can be made");
    drop(UnixListener::bind(folder.path("stale")).expect("the path is free"));
    let links = [("to-file", "file"), ("to-nothing", "nothing"), ("to-stale", "stale")];
    for (link, to) in links {
        symlink(folder.path(to), folder.path(link)).expect("a link can be made");
    }
    for name in ["file", "folder", "to-file", "to-nothing", "to-stale"] {
        let said = folder.refused("state", name, &[]);
        assert!(said.contains("is not a socket"), "{name}: {said}");
    }
    assert_eq!(fs::read(folder.path("file")).expect("it is there"), b"precious");
    for (link, to) in links {
        assert_eq!(fs::read_link(folder.path(link)).expect("it is there"), folder.path(to));
    }
    assert!(!folder.path("nothing").exists(), "no link was followed");
    // A socket on which another program answers is not replaced.
    let theirs = UnixListener::bind(folder.path("theirs")).expect("the path is free");
    let said = folder.refused("state", "theirs", &[]);
    assert!(said.contains("a daemon answers on"), "{said}");
    drop(theirs);
    let daemon = Daemon::start(&folder, "state", "theirs", &[]);
    drop(daemon);
}

/// The command that starts the daemon again is in a file beside the socket. History: it was written through links of
/// other users, with a mode that depended on the umask.
#[test]
fn the_command_beside_the_socket_is_written_through_no_link() {
    let folder = Open::new();
    fs::write(folder.path("precious"), b"precious").expect("it can be written");
    for link in ["socket.again", "socket.again.next"] {
        symlink(folder.path("precious"), folder.path(link)).expect("a link can be made");
    }
    let daemon = Daemon::start(&folder, "state", "socket", &[]);
    let again = folder.path("socket.again");
    assert!(fs::symlink_metadata(&again).expect("it is there").is_file(), "the link is replaced");
    assert_eq!(mode(&again), 0o644);
    let command = fs::read_to_string(&again).expect("it can be read");
    assert!(command.contains("--state-dir"), "{command}");
    assert_eq!(fs::read(folder.path("precious")).expect("it is there"), b"precious");
    drop(daemon);
}

#[test]
fn metrics_are_given_to_this_machine_alone() {
    let folder = Open::new();
    for place in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9464", "[::ffff:192.0.2.1]:9464"] {
        let said = folder.refused("state", "socket", &["--metrics", place]);
        assert!(said.contains("other hosts"), "{place}: {said}");
    }
    let said = folder.refused("state", "socket", &["--metrics", "unix:relative"]);
    assert!(said.contains("unix:/absolute/path"), "{said}");
    assert!(!folder.path("state").exists(), "nothing was begun");
}
