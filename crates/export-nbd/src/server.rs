//! The server as control threads see it.

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
    /// When the address is not acceptable or taken, a core has stopped, or the machine lacks a resource.
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
            // The connections are few enough.
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

    /// How many connections were closed at once because there were as many as there can be.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.service.turned_away()
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
    pub fn add_export(&self, export: Export) -> Result<(), ExportError> {
        self.registry.add(export)
    }

    /// Withdraws an export. When this returns without an error, no I/O of it is in flight, its queues are
    /// closed and its clients disconnected. Called on a control thread, never on a data core.
    ///
    /// # Errors
    /// When there is no such export; when it has clients and [`Removal::IfUnused`] was asked for; when the
    /// device did not complete what was in flight within the configured time (the export then takes no more
    /// clients, and removing it can be tried again).
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
