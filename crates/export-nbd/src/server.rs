//! The interface of the server for control threads.

use crate::export::{Export, Registry, Served};
use crate::limits::{
    CONNECTIONS_MAX, CONNECTIONS_PER_EXPORT_MAX, DRAIN_SECONDS_MAX, HANDSHAKE_TIME_MAX, INPUT_BYTES,
};
use crate::listen::{Listen, Listener};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use strake_export_net::{ExportError, ExportErrorKind, ExportStats, Removal, Service, Setup};
use strake_reactor::CoreHandle;
use strake_units::Nanos;

/// The settings of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Maximum number of clients at a time, negotiating or served.
    pub connections_max: u32,
    /// Maximum number of clients of one export at a time.
    pub connections_per_export_max: u32,
    /// Time limit of a client from its connection to the end of its negotiation.
    pub handshake_time_max: Nanos,
    /// Time limit of the wait for the device when an export is removed or the server stops.
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

fn too_late(export: &Served) -> ExportError {
    let what =
        format!("export {:?}: the device did not complete what was in flight in time", export.name);
    ExportError::new(ExportErrorKind::DrainTimeout, what)
}

/// A running NBD server. Dropping it stops it like [`stop`](Self::stop).
pub struct Server {
    registry: Arc<Registry>,
    service: Service<Registry>,
    address: Option<SocketAddr>,
    config: ServerConfig,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens on `listen` and serves clients on `cores`, of which there is at least one. Called on a control
    /// thread.
    ///
    /// # Errors
    /// The address is not acceptable or in use, a core has stopped, or the host lacks a resource.
    pub fn start(
        listen: Listen,
        cores: Vec<CoreHandle>,
        config: ServerConfig,
    ) -> Result<Self, ExportError> {
        let listener = Listener::open(listen)?;
        let address = listener.address();
        let registry = Arc::new(Registry::new(cores.len(), config.connections_per_export_max));
        let setup = Setup {
            thread: "strake-nbd",
            peers: "NBD clients",
            connections_max: config.connections_max,
            // The limit of connections suffices.
            candidates_max: usize::MAX,
            candidates_per_address_max: usize::MAX,
            failed_handshake_time: Nanos(0),
            handshake_time_max: config.handshake_time_max,
            input_bytes: INPUT_BYTES,
            stock: None,
        };
        let service = Service::start(Box::new(listener), cores, Arc::clone(&registry), setup)?;
        Ok(Self { registry, service, address, config })
    }

    /// Returns the number of connections that were closed immediately because the limit was reached.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.service.turned_away()
    }

    /// The number of panics while connections were negotiated. Each one is a defect; the affected peers were closed.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.service.panics()
    }

    /// Returns the TCP address of the server, with the port that the kernel chose if none was given; `None` for a Unix
    /// socket.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Offers a device to clients.
    ///
    /// # Errors
    /// The name is in use or not acceptable, or the limit of exports is reached.
    pub fn add_export(&self, export: Export) -> Result<(), ExportError> {
        self.registry.add(export)
    }

    /// Withdraws an export. When this returns without an error, no I/O of it is in flight, its queues are
    /// closed and its clients disconnected. Called on a control thread, never on a data core.
    ///
    /// # Errors
    /// The export does not exist. The export has clients and [`Removal::IfUnused`] was requested. The device did not
    /// complete the I/O in flight within the configured time; the export then accepts no more clients, and its removal
    /// can be tried again.
    pub fn remove_export(&self, name: &str, removal: Removal) -> Result<(), ExportError> {
        let export = self.registry.withdraw(name, removal)?;
        if !self.service.vacate(&export, self.deadline()) {
            return Err(too_late(&export));
        }
        self.registry.forget(&export);
        Ok(())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.drain_time_max
    }

    /// Returns the counters of each export.
    #[must_use]
    pub fn exports(&self) -> Vec<ExportStats> {
        self.registry.stats()
    }

    /// Stops accepting clients, completes the started requests, disconnects the clients, and leaves the cores. A client
    /// that does not read its replies is disconnected after [`LINGER_TIME_MAX`](crate::limits::LINGER_TIME_MAX).
    ///
    /// # Errors
    /// When a device did not complete what was in flight within the configured time.
    pub fn stop(mut self) -> Result<(), ExportError> {
        self.shut_down()
    }

    fn shut_down(&mut self) -> Result<(), ExportError> {
        if self.service.is_over() {
            return Ok(());
        }
        let (exports, deadline) = (self.registry.close(), self.deadline());
        let late = self.service.shut_down(&exports, deadline);
        late.first().map_or(Ok(()), |export| Err(too_late(export)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A caller that needs the result calls `stop`.
        let _ = self.shut_down();
    }
}
