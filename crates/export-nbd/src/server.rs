//! The server as control threads see it.

use crate::error::{NbdError, NbdErrorKind};
use crate::export::{Export, ExportStats, Registry, Served};
use crate::limits::{
    CONNECTIONS_MAX, CONNECTIONS_PER_EXPORT_MAX, DRAIN_SECONDS_MAX, HANDSHAKE_TIME_MAX,
};
use crate::listen::{Listen, Listener};
use crate::lobby::{Lobby, Stop};
use crate::station::{Order, Station};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use strake_reactor::{CoreHandle, PollerId};
use strake_units::Nanos;

/// What of the server can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Clients at a time, negotiating or served.
    pub connections_max: u32,
    /// Clients of one export at a time.
    pub connections_per_export_max: u32,
    /// How long a client may take from connecting to the end of its negotiation.
    pub handshake_time_max: Nanos,
    /// How long removing an export, or stopping, waits for the device.
    pub drain_time_max: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            connections_max: CONNECTIONS_MAX,
            connections_per_export_max: CONNECTIONS_PER_EXPORT_MAX,
            handshake_time_max: HANDSHAKE_TIME_MAX,
            drain_time_max: Duration::from_secs(DRAIN_SECONDS_MAX),
        }
    }
}

/// What to do about clients of an export that is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Refuse to remove it while there are any.
    IfUnused,
    /// Let what they have begun end, then disconnect them.
    Force,
}

/// One place among the clients of a server; given back by dropping it.
pub(crate) struct Ticket(Arc<AtomicU32>);

impl Ticket {
    /// Takes a place, unless there are `max` clients. Relaxed: the count orders nothing, and only the
    /// accepting thread counts up.
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

/// A data core the server runs on.
#[derive(Clone)]
pub(crate) struct Lane {
    pub(crate) core: CoreHandle,
    pub(crate) orders: mpsc::Sender<Order>,
    /// Clients handed to it and not gone yet.
    pub(crate) load: Arc<AtomicU32>,
    poller: PollerId,
}

impl Lane {
    fn open(core: CoreHandle, number: usize) -> Result<Self, NbdError> {
        let (sender, orders) = mpsc::channel();
        let load = Arc::new(AtomicU32::new(0));
        let theirs = Arc::clone(&load);
        let index = core.index();
        let added = core.call(move |core| {
            let station = Station::new(index, number, orders, theirs)?;
            Ok(core.add(Box::new(station)))
        });
        let poller = added.map_err(|gone| stopped(&gone.to_string()))?.map_err(|source| {
            let what = format!("cannot serve NBD clients on core {index}");
            NbdError::system(NbdErrorKind::System, what, source)
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
fn open_lanes(cores: Vec<CoreHandle>) -> Result<Vec<Lane>, NbdError> {
    let mut lanes = Vec::with_capacity(cores.len());
    for (number, core) in cores.into_iter().enumerate() {
        match Lane::open(core, number) {
            Ok(lane) => lanes.push(lane),
            Err(error) => {
                lanes.into_iter().for_each(Lane::close);
                return Err(error);
            }
        }
    }
    Ok(lanes)
}

fn no_thread(source: std::io::Error) -> NbdError {
    let what = "cannot start the thread that accepts NBD clients";
    NbdError::system(NbdErrorKind::System, what, source)
}

fn stopped(why: &str) -> NbdError {
    NbdError::new(NbdErrorKind::Stopped, format!("cannot serve NBD clients: {why}"))
}

/// A running NBD server. Dropping it stops it like [`stop`](Self::stop).
pub struct Server {
    registry: Arc<Registry>,
    lanes: Vec<Lane>,
    stop: Stop,
    /// `None` once joined.
    thread: Option<JoinHandle<()>>,
    address: Option<SocketAddr>,
    config: ServerConfig,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("cores", &self.lanes.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens on `listen` and serves clients on `cores`, of which there is at least one. Called on a control
    /// thread.
    ///
    /// # Errors
    /// When the address is not acceptable or taken, a core has stopped, or the machine lacks a resource.
    pub fn start(
        listen: Listen,
        cores: Vec<CoreHandle>,
        config: ServerConfig,
    ) -> Result<Self, NbdError> {
        if cores.is_empty() {
            return Err(stopped("there is no data core"));
        }
        let listener = Listener::open(listen)?;
        let address = listener.address();
        let registry = Arc::new(Registry::new(cores.len(), config.connections_per_export_max));
        let (stop, stopping) = Stop::pair().map_err(no_thread)?;
        let lanes = open_lanes(cores)?;
        let lobby = Lobby::new(listener, Arc::clone(&registry), lanes.clone(), config, stopping);
        match Builder::new().name("strake-nbd".into()).spawn(move || lobby.run()) {
            Ok(thread) => Ok(Self { registry, lanes, stop, thread: Some(thread), address, config }),
            Err(source) => {
                lanes.into_iter().for_each(Lane::close);
                Err(no_thread(source))
            }
        }
    }

    /// The TCP address it listens on, with the port the kernel chose if none was given; `None` for a unix
    /// socket.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Offers a device to clients.
    ///
    /// # Errors
    /// When the name is taken or not acceptable, or there are too many exports.
    pub fn add_export(&self, export: Export) -> Result<(), NbdError> {
        self.registry.add(export)
    }

    /// Withdraws an export. When this returns without an error, no I/O of it is in flight, its queues are
    /// closed and its clients disconnected. Called on a control thread, never on a data core.
    ///
    /// # Errors
    /// When there is no such export; when it has clients and [`Removal::IfUnused`] was asked for; when the
    /// device did not complete what was in flight within the configured time (the export then takes no more
    /// clients, and removing it can be tried again).
    pub fn remove_export(&self, name: &str, removal: Removal) -> Result<(), NbdError> {
        let export = self.registry.withdraw(name, removal)?;
        self.vacate(&export, Instant::now() + self.config.drain_time_max)?;
        self.registry.forget(&export);
        Ok(())
    }

    fn vacate(&self, export: &Arc<Served>, deadline: Instant) -> Result<(), NbdError> {
        loop {
            for lane in &self.lanes {
                lane.send(Order::Close(Arc::clone(export)));
            }
            // A client that took its seat before the export was withdrawn may still be on its way to a core,
            // so the order is repeated.
            let left = deadline.saturating_duration_since(Instant::now());
            if export.wait_empty(left.min(REPEAT_AFTER)) {
                return Ok(());
            }
            if left.is_zero() {
                let what = format!(
                    "export {:?}: the device did not complete what was in flight in time",
                    export.name
                );
                return Err(NbdError::new(NbdErrorKind::DrainTimeout, what));
            }
        }
    }

    /// What each export has done.
    #[must_use]
    pub fn exports(&self) -> Vec<ExportStats> {
        self.registry.stats()
    }

    /// Stops accepting, lets what clients have begun end, disconnects them, and leaves the cores. A client
    /// that does not read its replies is given up on after
    /// [`LINGER_TIME_MAX`](crate::limits::LINGER_TIME_MAX).
    ///
    /// # Errors
    /// When a device did not complete what was in flight within the configured time.
    pub fn stop(mut self) -> Result<(), NbdError> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), NbdError> {
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

/// How often a removal looks for clients that arrived on their core late.
const REPEAT_AFTER: Duration = Duration::from_millis(20);

impl Drop for Server {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`.
        let _ = self.shut_down();
    }
}
