//! The interface of the target for control threads.

use crate::audit::Rejection;
use crate::limits::{
    CANDIDATES_MAX, CANDIDATES_PER_ADDRESS_MAX, CONNECTIONS_MAX, CONNECTIONS_PER_EXPORT_MAX,
    DRAIN_SECONDS_MAX, FAILED_HANDSHAKE_TIME, HANDSHAKE_TIME_MAX, INPUT_BYTES, PAUSE_TIME_MAX,
    SOCKET_BYTES, STOCK, VISIT_SILENCE_MAX,
};
use crate::namespace::{Export, Leaving};
use crate::referral::Referral;
use crate::registry::{Registry, Withdrawn};
use crate::reservation::Reservations;
use crate::reservation_thread::ReservationThread;
use crate::stats::ControllerStats;
use crate::subsystem::Subsystem;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strake_export_net::limits::BACKLOG;
use strake_export_net::{
    ExportError, ExportErrorKind, ExportStats, Listener, PoolSizes, Removal, Service, Setup,
};
use strake_nvme_auth::{Keys, TlsKey};
use strake_reactor::CoreHandle;
use strake_units::Nanos;

/// Settings of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetConfig {
    /// Concurrent connections.
    pub connections_max: u32,
    /// Concurrent connections of one subsystem.
    pub connections_per_export_max: u32,
    /// The pool of each data core for I/O queues.
    pub stock: PoolSizes,
    /// Time limit from the start of a connection to the end of its Connect command.
    pub handshake_time_max: Nanos,
    /// Time for which a failed handshake still counts against its address.
    pub failed_handshake_time: Nanos,
    /// Keep-alive timeout of a discovery connection whose host requests none.
    pub visit_silence_max: Nanos,
    /// Time for which commands wait for the next device of a paused namespace.
    pub pause_time_max: Nanos,
    /// Time for which the removal of an export, or a stop, waits for I/O in flight.
    pub drain_time_max: Duration,
}

impl Default for TargetConfig {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            connections_per_export_max: CONNECTIONS_PER_EXPORT_MAX,
            stock: STOCK,
            handshake_time_max: HANDSHAKE_TIME_MAX,
            failed_handshake_time: FAILED_HANDSHAKE_TIME,
            visit_silence_max: VISIT_SILENCE_MAX,
            pause_time_max: PAUSE_TIME_MAX,
            drain_time_max: Duration::from_secs(DRAIN_SECONDS_MAX),
        }
    }
}

/// Listens; returns the address, with the port that the kernel chose if none was given.
fn listen(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), ExportError> {
    let failed = |source: io::Error| {
        let what = format!("cannot listen on {address}");
        ExportError::system(ExportErrorKind::Listen, what, source)
    };
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = || -> rustix::io::Result<(OwnedFd, SocketAddr)> {
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        // Hosts reconnect at once after a restart; old connections in TIME_WAIT must not block the port.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        // Accepted sockets inherit these sizes. The kernel may grant less, and any size works.
        let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
        let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES);
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let address = rustix::net::getsockname(&socket)?;
        let address = SocketAddr::try_from(address).map_err(|_| Errno::AFNOSUPPORT)?;
        Ok((socket, address))
    };
    open().map_err(|errno| failed(errno.into()))
}

/// Checks that a target can listen at an address now, by listening briefly.
///
/// # Errors
/// Returns the errors of [`Target::start`] about the address.
pub fn try_listen(address: SocketAddr) -> Result<(), ExportError> {
    listen(address).map(drop)
}

/// A listening socket.
struct Port(OwnedFd);

impl Listener for Port {
    fn socket(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn accept(&self) -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::accept_with(&self.0, flags)?;
        // A host may disable its keep-alive timer (KATO 0); the controller must then not expect commands (Base, section
        // 3.9). TCP detects that the machine of such a host failed.
        strake_export_net::prepare_accepted(&socket);
        let _ = strake_tls::skip_pacing_if_local(&socket);
        Ok(socket)
    }
}

fn too_late(nqn: &str) -> ExportError {
    let what = format!("subsystem {nqn:?}: the device did not complete what was in flight in time");
    ExportError::new(ExportErrorKind::DrainTimeout, what)
}

/// The queues of hosts that were disconnected, with their I/O in flight.
pub struct Dismissal {
    subsystems: Vec<Arc<Subsystem>>,
    time_max: Duration,
}

impl Dismissal {
    /// Waits until no I/O of the disconnected hosts is in flight, at most for
    /// [`drain_time_max`](TargetConfig::drain_time_max). Returns whether none is left.
    #[must_use]
    pub fn wait(&self) -> bool {
        let deadline = Instant::now() + self.time_max;
        self.subsystems.iter().all(|subsystem| subsystem.wait_dismissed(deadline))
    }
}

/// A running NVMe/TCP target. The drop stops it as [`stop`](Self::stop) does.
pub struct Target {
    registry: Arc<Registry>,
    service: Service<Registry>,
    /// The thread that changes reservations, until it has stopped.
    reservation_thread: Option<JoinHandle<()>>,
    address: SocketAddr,
    config: TargetConfig,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Target {
    /// Listens on `address` and serves hosts on `cores`, of which there is at least one. Called on a control thread.
    ///
    /// Returns an error if the address is in use, a core has stopped, or the operating system lacks a resource.
    pub fn start(
        address: SocketAddr,
        cores: Vec<CoreHandle>,
        config: TargetConfig,
    ) -> Result<Self, ExportError> {
        let (socket, address) = listen(address)?;
        let (reservation_thread, thread) =
            ReservationThread::start(cores.clone()).map_err(|source| {
                let what = format!("cannot serve NVMe/TCP on {address}: no thread");
                ExportError::system(ExportErrorKind::System, what, source)
            })?;
        let registry = Arc::new(Registry::new(cores.clone(), &config, reservation_thread));
        let setup = Setup {
            thread: "strake-nvmet",
            peers: "NVMe/TCP hosts",
            connections_max: config.connections_max,
            candidates_max: CANDIDATES_MAX,
            candidates_per_address_max: CANDIDATES_PER_ADDRESS_MAX,
            handshake_time_max: config.handshake_time_max,
            failed_handshake_time: config.failed_handshake_time,
            input_bytes: INPUT_BYTES,
            stock: Some(config.stock),
        };
        let service = Service::start(Box::new(Port(socket)), cores, Arc::clone(&registry), setup)
            .inspect_err(|_| registry.reservation_thread.close())?;
        Ok(Self { registry, service, reservation_thread: Some(thread), address, config })
    }

    /// The number of connections that were closed because the connection limit was reached.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.service.turned_away()
    }

    /// The number of panics while connections were negotiated. Each one is a defect; the affected peers were closed.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.service.panics()
    }

    /// The listening address, with the port that the kernel chose if none was given.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a namespace, or attaches the device of an existing one. Connected hosts that enabled the event are
    /// notified.
    ///
    /// Returns an error if the namespace already exists, if a property of the export is invalid, or if a limit is
    /// reached.
    pub fn add_export(&self, export: &Export) -> Result<(), ExportError> {
        self.registry.add(export)
    }

    /// Removes an export. After a return without an error, no I/O of the export is in flight, its device queues are
    /// closed, and its reservations are no longer recorded. Connected hosts are notified; with the last namespace of a
    /// subsystem they are disconnected. Called on a control thread, never on a data core.
    ///
    /// Returns an error if there is no such export; if it has hosts and the removal is [`Removal::IfUnused`]; or if the
    /// I/O in flight did not complete within the configured time (the export then accepts no more commands, and the
    /// removal can be repeated).
    pub fn remove_export(
        &self,
        nqn: &str,
        namespace: u32,
        removal: Removal,
    ) -> Result<(), ExportError> {
        let withdrawn = self.registry.withdraw(nqn, namespace, removal)?;
        let is_over = match &withdrawn {
            Withdrawn::Subsystem(subsystem) => self.service.vacate(subsystem, self.deadline()),
            Withdrawn::Namespace(_, served) => served.as_ref().is_none_or(|served| {
                served.connection_slots.wait_empty(self.config.drain_time_max)
            }),
        };
        if !is_over {
            return Err(too_late(nqn));
        }
        self.registry.forget(&withdrawn, namespace);
        Ok(())
    }

    /// Detaches the device of an export: the namespace remains, inaccessible, until [`add_export`](Self::add_export)
    /// attaches another device. This function does not wait, and I/O in flight completes normally. It has no effect if
    /// there is no such export, or if it has no device.
    pub fn detach_device(&self, nqn: &str, namespace: u32) -> Leaving {
        self.registry.detach(nqn, namespace)
    }

    /// Detaches the device of an export whose array is restarted: commands of hosts wait until
    /// [`add_export`](Self::add_export) attaches the next device, for at most
    /// [`pause_time_max`](TargetConfig::pause_time_max). After this time, or after
    /// [`forget_instance`](Self::forget_instance), the commands fail like those of a detached device. They continue
    /// only with a device for which [`keep_instance`](Self::keep_instance) was called. Otherwise this function is the
    /// same as [`detach_device`](Self::detach_device).
    pub fn pause_device(&self, nqn: &str, namespace: u32) -> Leaving {
        self.registry.pause(nqn, namespace)
    }

    /// States that the next device has all writes that the detached device acknowledged, flushed or not. Hosts then
    /// stay connected, and are notified of changes of the namespace, such as a new size. Without this call, or if the
    /// next device is smaller or has another block size, the hosts are disconnected. Call this only after
    /// [`Leaving::is_over`].
    pub fn keep_instance(&self, nqn: &str, namespace: u32) {
        self.registry.keep_instance(nqn, namespace);
    }

    /// Revokes [`keep_instance`](Self::keep_instance): the expected device was not attached, and it may change before
    /// another one is attached. This has no effect after the device was attached.
    pub fn forget_instance(&self, nqn: &str, namespace: u32) {
        self.registry.forget_instance(nqn, namespace);
    }

    /// Replaces the hosts that may connect to a subsystem. Hosts that are not in the new list are disconnected: their
    /// commands in flight complete without a reply. This function does not wait; the result does. `None` if there is no
    /// such subsystem. Reservations stay.
    #[must_use]
    pub fn set_hosts(&self, nqn: &str, hosts: &[String]) -> Option<Dismissal> {
        let subsystem = self.registry.set_hosts(nqn, hosts)?;
        Some(Dismissal { subsystems: vec![subsystem], time_max: self.config.drain_time_max })
    }

    /// Disconnects a host from all subsystems, as [`set_hosts`](Self::set_hosts) does. The host may connect again.
    /// `None` if it is not connected.
    #[must_use]
    pub fn disconnect_host(&self, host: &str) -> Option<Dismissal> {
        let subsystems = self.registry.dismiss(host);
        let time_max = self.config.drain_time_max;
        (!subsystems.is_empty()).then_some(Dismissal { subsystems, time_max })
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.drain_time_max
    }

    /// Requires a host to authenticate with these keys when it connects, except to the discovery controller. With
    /// `None`, the host needs no authentication. Existing connections stay.
    pub fn set_keys(&self, host: &str, keys: Option<Keys>) {
        self.set_proof_keys(host, keys.into_iter().collect());
    }

    /// As [`set_keys`](Self::set_keys). The host may use any of the keys, which are ordered newest first.
    pub fn set_proof_keys(&self, host: &str, keys: Vec<Keys>) {
        self.registry.set_keys(host, keys);
    }

    /// Requires a host to use TLS with this key for every connection, including discovery; with `None`, TLS is
    /// optional. Existing connections stay.
    pub fn set_tls_key(&self, host: &str, key: Option<TlsKey>) {
        self.set_tls_keys(host, key.into_iter().collect());
    }

    /// As [`set_tls_key`](Self::set_tls_key). The host may use any of the keys.
    pub fn set_tls_keys(&self, host: &str, keys: Vec<TlsKey>) {
        self.registry.tls.set(host, keys);
    }

    /// Replaces the referrals to other discovery services. Hosts that are connected to discovery and enabled the event
    /// are notified.
    ///
    /// Returns an error if there are too many, or if one has an unusable address or NQN.
    pub fn set_referrals(&self, referrals: Vec<Referral>) -> Result<(), ExportError> {
        self.registry.refer(referrals)
    }

    /// Rejections since the last call that are due for a report: the first of each address and reason at once, later
    /// ones as a number at intervals. `now` never decreases.
    #[must_use]
    pub fn take_rejections(&self, now: Nanos) -> Vec<Rejection> {
        self.registry.audit.take(now)
    }

    /// Stats of the exports whose device is served.
    #[must_use]
    pub fn exports(&self) -> Vec<ExportStats> {
        self.registry.stats()
    }

    /// The controllers of the hosts that are connected to a subsystem, with the stats of their queues. Empty if there
    /// is no such subsystem.
    #[must_use]
    pub fn controllers(&self, nqn: &str) -> Vec<ControllerStats> {
        self.registry.controllers(nqn)
    }

    /// True if this namespace exists here, with or without its device.
    #[must_use]
    pub fn offers(&self, nqn: &str, namespace: u32) -> bool {
        self.registry.offers(nqn, namespace)
    }

    /// True if there is no export, with or without a device.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.registry.is_empty()
    }

    /// The reservations of a namespace, also while its device is detached; `None` if there is no such namespace, or if
    /// it never had a device, so that its record has not been read.
    #[must_use]
    pub fn reservations(&self, nqn: &str, namespace: u32) -> Option<Reservations> {
        self.registry.reservations(nqn, namespace)
    }

    /// The reason why the last change of the reservations of a namespace was not recorded; the command of the host
    /// failed. `None` after a success.
    #[must_use]
    pub fn reservation_trouble(&self, nqn: &str, namespace: u32) -> Option<String> {
        self.registry.reservation_trouble(nqn, namespace)
    }

    /// Clears the reservation and the registrations of a namespace, including the record; connected hosts are notified.
    /// After a return without an error every queue applies the change.
    ///
    /// Returns an error if the namespace never had a device, or if the change cannot be recorded; nothing has changed
    /// then.
    pub fn clear_reservations(&self, nqn: &str, namespace: u32) -> Result<(), ExportError> {
        let refuse = |kind, why: &str| {
            let what =
                format!("cannot end the reservations of {nqn:?}, namespace {namespace}: {why}");
            Err(ExportError::new(kind, what))
        };
        match self.registry.clear_reservations(nqn, namespace) {
            Some(status) if status.is_success() => Ok(()),
            Some(_) => {
                let why = self.reservation_trouble(nqn, namespace);
                let why = why.unwrap_or_else(|| "the target is stopping".to_owned());
                refuse(ExportErrorKind::BadReservations, &format!("not recorded: {why}"))
            }
            None => refuse(ExportErrorKind::Unknown, "it never had a device"),
        }
    }

    /// Stops accepting connections, completes commands in flight, disconnects hosts, and leaves the cores. A host that
    /// does not read the completions is disconnected after [`LINGER_TIME_MAX`](crate::limits::LINGER_TIME_MAX).
    ///
    /// Returns an error if the I/O in flight did not complete within the configured time.
    pub fn stop(mut self) -> Result<(), ExportError> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), ExportError> {
        if self.service.is_over() {
            return Ok(());
        }
        let (subsystems, deadline) = (self.registry.close(), self.deadline());
        let late = self.service.shut_down(&subsystems, deadline);
        self.registry.reservation_thread.close();
        if let Some(thread) = self.reservation_thread.take() {
            // A panic of the thread ends the process.
            let _ = thread.join();
        }
        late.first().map_or(Ok(()), |subsystem| Err(too_late(&subsystem.nqn)))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // A caller that needs the result calls `stop`.
        let _ = self.shut_down();
    }
}

#[cfg(test)]
mod tests {
    use super::{Port, listen};
    use rustix::net::sockopt;
    use std::net::TcpStream;
    use strake_export_net::Listener as _;
    use strake_export_net::limits::DEAD_PEER_TIME_MAX;

    /// The connections of a failed machine without a keep-alive timer stayed for hours.
    #[test]
    fn tcp_limits_the_silence_of_every_host() {
        let (socket, address) = listen("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let _host = TcpStream::connect(address).expect("a host");
        let port = Port(socket);
        let accepted =
            std::iter::repeat_with(|| port.accept()).take(1_000_000).find_map(Result::ok);
        let timeout = sockopt::tcp_user_timeout(accepted.expect("the host"));
        assert_eq!(timeout, Ok(DEAD_PEER_TIME_MAX.as_millis() as u32));
    }
}
