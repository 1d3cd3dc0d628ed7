//! The Unix socket of the daemon.
//!
//! Without further groups, the socket has mode 0660, so the file system already refuses other users. The daemon also
//! identifies each client ([`Admission::identify`]).

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::fs::Access;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use strake_api::limits::CONNECTIONS_MAX;
use strake_control::Role;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::Connected;

use crate::access::{Admission, Groups, Visitor};
use crate::args::{METRICS, SOCKET};
use crate::budget::Budgets;

/// Number of attempts to connect to an answering socket before it counts as in use.
const KNOCKS: u32 = 20;

/// Maximum number of connections that wait to be accepted; the limit of the kernel may be lower.
const BACKLOG: i32 = 1024;

/// Maximum number of connections of users other than administrators. Administrators have [`CONNECTIONS_MAX`] more.
const OTHERS_MAX: usize = CONNECTIONS_MAX / 2;

/// Maximum number of connections of users without a role, whose calls are denied with a reason.
const STRANGERS_MAX: usize = 8;

/// Minimum time between two lines of the log about refused connections of a user.
const REFUSALS_EVERY: Duration = Duration::from_secs(60);

/// Time between two attempts.
const KNOCK_EVERY: Duration = Duration::from_millis(100);

/// A listening socket whose path is removed when this value is dropped.
pub struct Socket {
    path: PathBuf,
    identity: (u64, u64),
    /// The callers that the socket admits.
    admission: Admission,
}

/// Listens on `path`, which `option` names. The stale socket of an ended daemon is replaced; a socket that answers is
/// not.
pub fn listen(path: &Path, option: &str, groups: Groups) -> Result<(UnixListener, Socket), String> {
    make_folder(path, option)?;
    remove_stale(path, option)?;
    let bound = bind(path, groups.mode()).map_err(|e| cannot_listen(path, option, &e))?;
    let failed = |e: io::Error| format!("cannot prepare the socket {}: {e}", path.display());
    rustix::net::listen(&bound, BACKLOG).map_err(|e| failed(e.into()))?;
    let listener = UnixListener::from_std(StdListener::from(bound)).map_err(failed)?;
    let meta = fs::symlink_metadata(path).map_err(failed)?;
    let admission = Admission { admins: meta.gid(), others: groups };
    let socket = Socket { path: path.to_owned(), identity: (meta.dev(), meta.ino()), admission };
    Ok((listener, socket))
}

/// Creates a socket at `path` and sets its mode. No process can connect before the socket listens, so no user whom the
/// mode excludes can ever connect.
pub fn bind(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    Ok(socket)
}

/// Creates the directory of `path` if it does not exist, and refuses a directory in which no socket can be created.
fn make_folder(path: &Path, option: &str) -> Result<PathBuf, String> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    let made = fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
    made.map_err(|e| {
        format!("cannot create {}: {e}; choose another place with {option}", folder.display())
    })?;
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|e| cannot_listen(path, option, &e.into()))?;
    Ok(folder.to_owned())
}

/// Creates the directory of `path`, which `option` names, and refuses a path at which there is no socket but another
/// file.
pub fn prepare(path: &Path, option: &str) -> Result<(), String> {
    make_folder(path, option)?;
    is_socket(path, option).map(drop)
}

/// Refuses, before any other step of the start, a path on which [`listen`] would fail or another daemon answers, and
/// the path `taken` by another socket of this daemon. Creates the directory. A stale socket is replaced later, when the
/// state directory is locked.
pub fn refuse_unusable(path: &Path, taken: Option<&Path>) -> Result<(), String> {
    SocketAddrUnix::new(path).map_err(|e| cannot_listen(path, SOCKET, &e.into()))?;
    let folder = make_folder(path, SOCKET)?;
    if let Some(taken) = taken.filter(|taken| taken.file_name() == path.file_name())
        && fs::canonicalize(make_folder(taken, METRICS)?).ok() == fs::canonicalize(folder).ok()
    {
        let path = path.display();
        return Err(format!(
            "{SOCKET} and {METRICS} name the same socket, {path}; choose another {METRICS}"
        ));
    }
    if is_socket(path, SOCKET)? && knock(path).is_ok() {
        return Err(in_use(path, SOCKET));
    }
    Ok(())
}

fn cannot_listen(path: &Path, option: &str, error: &io::Error) -> String {
    format!("cannot listen on {}: {error}; choose another place with {option}", path.display())
}

/// Returns whether a socket is at `path`; false if the path does not exist.
fn is_socket(path: &Path, option: &str) -> Result<bool, String> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(format!("cannot examine {shown}: {error}")),
        Ok(meta) if meta.file_type().is_socket() => Ok(true),
        Ok(_) => Err(format!(
            "{shown} is there already and is not a socket; remove it or choose another {option}"
        )),
    }
}

fn in_use(path: &Path, option: &str) -> String {
    format!("a daemon answers on {} already; stop it or choose another {option}", path.display())
}

fn remove_stale(path: &Path, option: &str) -> Result<(), String> {
    if !is_socket(path, option)? {
        return Ok(());
    }
    match knock(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|e| format!("cannot replace the stale socket {}: {e}", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(()) => Err(in_use(path, option)),
        Err(error) => Err(format!(
            "cannot tell who is on {}: {error}; choose another {option}",
            path.display()
        )),
    }
}

/// Connects several times, because the socket of a daemon that was just killed accepts connections until the kernel has
/// removed the process.
fn knock(path: &Path) -> io::Result<()> {
    for _ in 1..KNOCKS {
        StdStream::connect(path)?;
        std::thread::sleep(KNOCK_EVERY);
    }
    StdStream::connect(path).map(drop)
}

impl Socket {
    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the callers that the socket admits.
    pub const fn admission(&self) -> Admission {
        self.admission
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.identity);
        if ours {
            // The next daemon recognizes a remaining path as stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A connection that counts against the limit until it ends.
pub struct Caller {
    stream: UnixStream,
    visitor: Visitor,
    _counts: OwnedSemaphorePermit,
}

impl Connected for Caller {
    type ConnectInfo = Visitor;

    fn connect_info(&self) -> Visitor {
        self.visitor
    }
}

impl AsyncRead for Caller {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Caller {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Returns the connections of clients: at most [`CONNECTIONS_MAX`] of administrators at a time, at most [`OTHERS_MAX`]
/// of operators and viewers, and at most [`STRANGERS_MAX`] of users without a role. Other connections are closed
/// immediately.
pub fn callers(
    listener: UnixListener,
    admission: Admission,
) -> impl Stream<Item = io::Result<Caller>> {
    let places = Places::default();
    UnixListenerStream::new(listener).filter_map(move |stream| match stream {
        Ok(stream) => admit(stream, admission, &places).map(Ok),
        // The failure to accept one connection must not end the listener (RUSTSEC-2024-0376).
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            None
        }
    })
}

/// The connections that may still be accepted.
struct Places {
    admins: Arc<Semaphore>,
    /// Of all operators and viewers together, so that they leave those of administrators.
    others: Arc<Semaphore>,
    /// Of all users without a role together.
    strangers: Arc<Semaphore>,
    /// Lines of the log about refused connections.
    refusals: Budgets,
}

impl Default for Places {
    fn default() -> Self {
        let [admins, others, strangers] =
            [CONNECTIONS_MAX, OTHERS_MAX, STRANGERS_MAX].map(|n| Arc::new(Semaphore::new(n)));
        Self { admins, others, strangers, refusals: Budgets::new(1, REFUSALS_EVERY) }
    }
}

fn admit(stream: UnixStream, admission: Admission, places: &Places) -> Option<Caller> {
    let visitor = match admission.identify(&stream) {
        Ok(visitor) => visitor,
        Err(why) => {
            if places.refusals.take(u32::MAX, Instant::now()) {
                tracing::warn!(%why, "refused a connection; further ones are not logged for a minute");
            }
            return None;
        }
    };
    let (uid, free) = match &visitor {
        Visitor::Known(peer) if peer.role == Role::Admin => (peer.uid, &places.admins),
        Visitor::Known(peer) => (peer.uid, &places.others),
        Visitor::Stranger(who) => {
            // Every local user may be able to connect, and must not fill the log.
            if places.refusals.take(who.uid, Instant::now()) {
                tracing::warn!(
                    uid = who.uid,
                    "denying the calls of a user without a role; this user is not logged for a minute"
                );
            }
            (who.uid, &places.strangers)
        }
    };
    match Arc::clone(free).try_acquire_owned() {
        Ok(counts) => Some(Caller { stream, visitor, _counts: counts }),
        Err(_) => {
            if places.refusals.take(uid, Instant::now()) {
                tracing::warn!(uid, "refused a connection: there are too many already");
            }
            None
        }
    }
}
