//! Serves block devices to hosts over NVMe/TCP.
//!
//! **What it is.** It is the controller side of NVMe over TCP, for hosts such as Linux and VMware. A [`Target`] listens
//! on a TCP address and offers subsystems with namespaces there, and a discovery subsystem that lists them. A control
//! thread processes a connection up to its Connect command. Then it passes the socket, which is one queue, to a data
//! core, where commands become [`strake_block::Io`]s.
//!
//! **What it must never do.** It must not trust a host: no length, offset, tag, order or timing of its bytes may panic,
//! hang, grow memory or disturb another host. It must not serve a host that is not on the subsystem's list, allocate,
//! lock or log per I/O command, or report an unsupported feature. It uses a device only through the traits of
//! `strake-block` and does not depend on arrays.
//!
//! **Where to start.** [`strake_nvme_tcp`] defines the bytes, [`handshake`] the first messages of a connection,
//! [`admit`] the checks of a command, `connection` a queue on a data core, [`reservation`] the rules of reservations,
//! `reservation_thread` the thread that applies them, and [`limits`] every limit. [`strake_export_net`] accepts
//! connections and passes them to data cores.

#![forbid(unsafe_code)]

mod admin;
pub mod admit;
pub mod audit;
mod beginning;
mod connect_handler;
mod connection;
mod controller;
mod discovery_connections;
mod discovery_log;
mod failures;
pub mod handshake;
mod kept;
pub mod limits;
pub mod namespace;
mod notices;
mod range_lock;
pub mod referral;
mod registry;
mod replies;
pub mod reservation;
mod reservation_thread;
mod slots;
mod stats;
mod subsystem;
pub mod target;
mod tls;
mod watch;

pub use strake_export_net::{ExportError, ExportErrorKind, ExportStats, PoolSizes, Removal};
pub use strake_nvme_auth::{Keys, Secret, SecretError, TlsKey, TlsKeyError};
pub use strake_nvme_tcp::pdu::Use;
pub use strake_nvme_tcp::{Digests, QueueCounts};
pub use strake_nvme_wire::nqn;

pub use strake_nvme_wire::reservation::{HostId, ReservationType};

pub use audit::{Reason, Rejection};
pub use kept::Ledger;
pub use namespace::{Export, Leaving};
pub use referral::Referral;
pub use reservation::{Held, Registrant, Reservations};
pub use stats::{ControllerStats, QueueFacts, QueueStats};
pub use target::{Dismissal, Target, TargetConfig, try_listen};
