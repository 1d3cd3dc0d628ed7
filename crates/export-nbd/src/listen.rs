//! The address of the server, and its listening socket.

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use strake_export_net::limits::BACKLOG;
use strake_export_net::{ExportError, ExportErrorKind};

/// The address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A unix socket.
    Unix {
        /// The path of the socket. A stale socket of an ended server is replaced.
        path: PathBuf,
        /// Its permissions, within 0660.
        mode: u32,
    },
    /// A TCP port of the loopback interface of this host; the kernel chooses the port if it is 0.
    Tcp(SocketAddr),
}

impl Listen {
    /// Returns a Unix socket to which only this user can connect.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::Unix { path: path.into(), mode: 0o600 }
    }
}

/// Checks whether a server could listen on an address now, by listening on it briefly.
///
/// # Errors
/// As [`Server::start`](crate::Server::start), as far as they concern the address.
pub fn try_listen(listen: Listen) -> Result<(), ExportError> {
    Listener::open(listen).map(drop)
}

/// The address family, which determines the options of the socket of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Unix,
    Tcp,
}

/// A listening socket. Dropping it removes the path that it created.
pub(crate) struct Listener {
    socket: OwnedFd,
    family: Family,
    address: Option<SocketAddr>,
    path: Option<OwnPath>,
}

impl Listener {
    pub(crate) fn open(listen: Listen) -> Result<Self, ExportError> {
        match listen {
            Listen::Unix { path, mode } => Self::open_unix(path, mode),
            Listen::Tcp(address) => Self::open_tcp(address),
        }
    }

    pub(crate) const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    fn open_tcp(address: SocketAddr) -> Result<Self, ExportError> {
        if !address.ip().is_loopback() {
            let what = format!(
                "refusing to listen on {address}: NBD over a network needs TLS, which this server does not \
                 have; use a unix socket or a loopback address"
            );
            return Err(ExportError::new(ExportErrorKind::BadAddress, what));
        }
        let failed = |source| {
            let what = format!("cannot listen on {address}");
            ExportError::system(ExportErrorKind::Listen, what, source)
        };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            socket: listener.into(),
            family: Family::Tcp,
            address: Some(address),
            path: None,
        })
    }

    fn open_unix(path: PathBuf, mode: u32) -> Result<Self, ExportError> {
        if mode & !0o660 != 0 {
            let what = format!(
                "refusing mode {mode:o} for {}: every user who can connect can read and write the exports, so only \
                 owner and group may (at most 660)",
                path.display()
            );
            return Err(ExportError::new(ExportErrorKind::BadAddress, what));
        }
        let failed = |errno: Errno| {
            let what = format!("cannot listen on {}", path.display());
            ExportError::system(ExportErrorKind::Listen, what, errno.into())
        };
        let name = SocketAddrUnix::new(&path).map_err(failed)?;
        remove_stale(&path, &name)?;
        let socket = unix_socket().map_err(failed)?;
        rustix::net::bind(&socket, &name).map_err(failed)?;
        let own = OwnPath::of(path.clone());
        // No client can connect before `listen`, so the permissions are right from the first moment.
        rustix::fs::chmod(&path, Mode::from_raw_mode(mode)).map_err(failed)?;
        rustix::net::listen(&socket, BACKLOG).map_err(failed)?;
        Ok(Self { socket, family: Family::Unix, address: None, path: own })
    }
}

impl strake_export_net::Listener for Listener {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn accept(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::accept_with(&self.socket, flags)?;
        if self.family == Family::Tcp {
            strake_export_net::prepare_accepted(&socket);
        }
        Ok(socket)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            path.remove();
        }
    }
}

fn unix_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

/// Removes a socket on which no process listens. Any other file at the path is not changed, and `bind` then reports
/// that the address is in use.
fn remove_stale(path: &Path, name: &SocketAddrUnix) -> Result<(), ExportError> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    let failed = |source: io::Error| {
        let what = format!("cannot replace the socket {}", path.display());
        ExportError::system(ExportErrorKind::Listen, what, source)
    };
    let probe = unix_socket().map_err(|errno| failed(errno.into()))?;
    match rustix::net::connect(&probe, name) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path).map_err(failed),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A path that this process created, identified by device and inode, because another process may have replaced it.
struct OwnPath {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl OwnPath {
    fn of(path: PathBuf) -> Option<Self> {
        let meta = fs::symlink_metadata(&path).ok()?;
        Some(Self { device: meta.dev(), inode: meta.ino(), path })
    }

    fn remove(&self) {
        let Ok(meta) = fs::symlink_metadata(&self.path) else { return };
        if (meta.dev(), meta.ino()) == (self.device, self.inode) {
            // If the removal fails, the next server replaces the path.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Listen, Listener};
    use rustix::net::sockopt;
    use std::net::TcpStream;
    use strake_export_net::Listener as _;
    use strake_export_net::limits::DEAD_PEER_TIME_MAX;

    #[test]
    fn tcp_limits_the_silence_of_every_client() {
        let address = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::open(Listen::Tcp(address)).expect("a port");
        let _client = TcpStream::connect(listener.address.expect("its address")).expect("a client");
        let accepted = std::iter::repeat_with(|| listener.accept()).take(1_000_000);
        let accepted = accepted.filter_map(Result::ok).next().expect("the client");
        let timeout = sockopt::tcp_user_timeout(accepted);
        assert_eq!(timeout, Ok(DEAD_PEER_TIME_MAX.as_millis() as u32));
    }
}
