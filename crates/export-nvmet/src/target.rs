//! The target as control threads see it.

use crate::error::{TargetError, TargetErrorKind};
use crate::limits::{
    BACKLOG, CONNECTIONS_MAX, CONNECTIONS_PER_EXPORT_MAX, DRAIN_SECONDS_MAX, HANDSHAKE_TIME_MAX,
};
use crate::lobby::{Lobby, Stop};
use crate::registry::Registry;
use crate::station::{Order, Station};
use crate::subsystem::{Export, ExportStats, Served};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use strake_reactor::{CoreHandle, PollerId};
use strake_units::Nanos;

/// What of a target can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetConfig {
    /// Connections at a time.
    pub connections_max: u32,
    /// Connections of one subsystem at a time.
    pub connections_per_export_max: u32,
    /// How long a host may take from connecting to the end of its Connect command.
    pub handshake_time_max: Nanos,
    /// How long removing an export, or stopping, waits for the device.
    pub drain_time_max: Duration,
}

impl Default for TargetConfig {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            connections_per_export_max: CONNECTIONS_PER_EXPORT_MAX,
            handshake_time_max: HANDSHAKE_TIME_MAX,
            drain_time_max: Duration::from_secs(DRAIN_SECONDS_MAX),
        }
    }
}

/// What to do about hosts of an export that is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Refuse to remove it while there are any.
    IfUnused,
    /// Let what they have begun end, then disconnect them.
    Force,
}

/// One place among the connections of a target; given back by dropping it.
pub(crate) struct Ticket(Arc<AtomicU32>);

impl Ticket {
    /// Takes a place, unless there are `max` connections. Relaxed: the count orders nothing, and only the accepting
    /// thread counts up.
    pub(crate) fn take(count: &Arc<AtomicU32>, max: u32) -> Option<Self> {
        if count.load(Ordering::Relaxed) >= max {
            return None;
        }
        count.fetch_add(1, Ordering::Relaxed);
        Some(Self(Arc::clone(count)))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A data core the target runs on.
#[derive(Clone)]
pub(crate) struct Lane {
    core: CoreHandle,
    orders: mpsc::Sender<Order>,
    /// Connections handed to it and not gone yet.
    pub(crate) load: Arc<AtomicU32>,
    poller: PollerId,
}

impl Lane {
    fn open(
        core: CoreHandle,
        number: usize,
        registry: &Arc<Registry>,
    ) -> Result<Self, TargetError> {
        let (sender, orders) = mpsc::channel();
        let load = Arc::new(AtomicU32::new(0));
        let (theirs, registry) = (Arc::clone(&load), Arc::clone(registry));
        let index = core.index();
        let added = core.call(move |core| {
            let station = Station::new((index, number), orders, theirs, registry)?;
            Ok(core.add(Box::new(station)))
        });
        let poller = added.map_err(|gone| stopped(&gone.to_string()))?.map_err(|source| {
            let what = format!("cannot serve NVMe/TCP hosts on core {index}");
            TargetError::system(TargetErrorKind::System, what, source)
        })?;
        Ok(Self { core, orders: sender, load, poller })
    }

    /// Sends an order; one to a core that has stopped is dropped, with whatever it carries.
    pub(crate) fn send(&self, order: Order) {
        if self.orders.send(order).is_ok() {
            self.core.wake();
        }
    }

    fn close(self) {
        let poller = self.poller;
        // A core that has stopped has dropped its pollers.
        let _ = self.core.call(move |core| drop(core.remove(poller)));
    }
}

/// Opens a lane on every core, or on none.
fn open_lanes(cores: Vec<CoreHandle>, registry: &Arc<Registry>) -> Result<Vec<Lane>, TargetError> {
    let mut lanes = Vec::with_capacity(cores.len());
    for (number, core) in cores.into_iter().enumerate() {
        match Lane::open(core, number, registry) {
            Ok(lane) => lanes.push(lane),
            Err(error) => {
                lanes.into_iter().for_each(Lane::close);
                return Err(error);
            }
        }
    }
    Ok(lanes)
}

/// Listens, and says at which address, with the port the kernel chose if none was given.
fn listen(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), TargetError> {
    let failed = |source: io::Error| {
        let what = format!("cannot listen on {address}");
        TargetError::system(TargetErrorKind::Listen, what, source)
    };
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = || -> rustix::io::Result<(OwnedFd, SocketAddr)> {
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        // Hosts reconnect at once after a restart; what the kernel remembers of the old connections must not keep
        // the port from us.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &address)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let address = rustix::net::getsockname(&socket)?;
        let address = SocketAddr::try_from(address).map_err(|_| rustix::io::Errno::AFNOSUPPORT)?;
        Ok((socket, address))
    };
    open().map_err(|errno| failed(errno.into()))
}

/// Whether a target could listen at an address now: listens there for a moment.
///
/// # Errors
/// Those of [`Target::start`] about the address.
pub fn try_listen(address: SocketAddr) -> Result<(), TargetError> {
    listen(address).map(drop)
}

fn no_thread(source: io::Error) -> TargetError {
    let what = "cannot start the thread that accepts NVMe/TCP hosts";
    TargetError::system(TargetErrorKind::System, what, source)
}

fn stopped(why: &str) -> TargetError {
    TargetError::new(TargetErrorKind::Stopped, format!("cannot serve NVMe/TCP hosts: {why}"))
}

/// A running NVMe/TCP target. Dropping it stops it like [`stop`](Self::stop).
pub struct Target {
    registry: Arc<Registry>,
    lanes: Vec<Lane>,
    stop: Stop,
    /// `None` once joined.
    thread: Option<JoinHandle<()>>,
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
    /// # Errors
    /// When the address is taken, a core has stopped, or the machine lacks a resource.
    pub fn start(
        address: SocketAddr,
        cores: Vec<CoreHandle>,
        config: TargetConfig,
    ) -> Result<Self, TargetError> {
        if cores.is_empty() {
            return Err(stopped("there is no data core"));
        }
        let (socket, address) = listen(address)?;
        let registry = Arc::new(Registry::new(cores.clone(), config.connections_per_export_max));
        let (stop, stopping) = Stop::pair().map_err(no_thread)?;
        let lanes = open_lanes(cores, &registry)?;
        let lobby = Lobby::new(socket, Arc::clone(&registry), lanes.clone(), config, stopping);
        match Builder::new().name("strake-nvmet".into()).spawn(move || lobby.run()) {
            Ok(thread) => Ok(Self { registry, lanes, stop, thread: Some(thread), address, config }),
            Err(source) => {
                lanes.into_iter().for_each(Lane::close);
                Err(no_thread(source))
            }
        }
    }

    /// The address it listens on, with the port the kernel chose if none was given.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Offers a device to hosts.
    ///
    /// # Errors
    /// When the NQN is taken, something about the export is not acceptable, or there are too many.
    pub fn add_export(&self, export: Export) -> Result<(), TargetError> {
        self.registry.add(export)
    }

    /// Withdraws an export. When this returns without an error, no I/O of it is in flight, its queues are closed and
    /// its hosts disconnected. Called on a control thread, never on a data core.
    ///
    /// # Errors
    /// When there is no such export; when it has hosts and [`Removal::IfUnused`] was asked for; when the device did
    /// not complete what was in flight within the configured time (the export then takes no more connections, and
    /// removing it can be tried again).
    pub fn remove_export(&self, nqn: &str, removal: Removal) -> Result<(), TargetError> {
        let export = self.registry.withdraw(nqn, removal)?;
        self.vacate(&export, Instant::now() + self.config.drain_time_max)?;
        self.registry.forget(&export);
        Ok(())
    }

    fn vacate(&self, export: &Arc<Served>, deadline: Instant) -> Result<(), TargetError> {
        loop {
            for lane in &self.lanes {
                lane.send(Order::Close(Arc::clone(export)));
            }
            // A host that took its seat before the export was withdrawn may still be on its way to a core, so the
            // order is repeated.
            let left = deadline.saturating_duration_since(Instant::now());
            if export.wait_empty(left.min(REPEAT_AFTER)) {
                return Ok(());
            }
            if left.is_zero() {
                let what = format!(
                    "subsystem {:?}: the device did not complete what was in flight in time",
                    export.nqn
                );
                return Err(TargetError::new(TargetErrorKind::DrainTimeout, what));
            }
        }
    }

    /// What each export has done.
    #[must_use]
    pub fn exports(&self) -> Vec<ExportStats> {
        self.registry.stats()
    }

    /// Stops accepting, lets what hosts have begun end, disconnects them, and leaves the cores. A host that does not
    /// read what is due to it is given up on after [`LINGER_TIME_MAX`](crate::limits::LINGER_TIME_MAX).
    ///
    /// # Errors
    /// When a device did not complete what was in flight within the configured time.
    pub fn stop(mut self) -> Result<(), TargetError> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), TargetError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let exports = self.registry.close();
        self.stop.stop();
        // A panic there was reported by the panic hook; nothing of it is left to wait for.
        let _ = thread.join();
        for lane in &self.lanes {
            lane.send(Order::CloseAll);
        }
        let deadline = Instant::now() + self.config.drain_time_max;
        let mut result = Ok(());
        for export in &exports {
            export.close();
            if let Err(error) = self.vacate(export, deadline) {
                result = Err(error);
            }
        }
        // With I/O still at a device its buffers belong to the device: the poller then stays where it is.
        if result.is_ok() {
            self.lanes.drain(..).for_each(Lane::close);
        }
        result
    }
}

/// How often a removal looks for hosts that arrived on their core late.
const REPEAT_AFTER: Duration = Duration::from_millis(20);

impl Drop for Target {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`.
        let _ = self.shut_down();
    }
}
