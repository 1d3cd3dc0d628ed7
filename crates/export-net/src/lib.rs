//! The shared part of exports over sockets.
//!
//! **What it is.** This crate implements the steps of a connection from accept to service, for any protocol. A
//! [`Service`] listens. Its acceptor (`acceptor`), a control thread, accepts connections and calls the [`Protocol`] for
//! the negotiation. A negotiated connection moves to the session poller (`session_poller`) of a data core, which gives
//! each [`Connection`] its turns. The rest are parts of connections: [`Peer`], [`Pools`], [`Supply`], [`DeviceQueue`]
//! and [`ConnectionSlots`].
//!
//! **What it must never do.** It must not interpret a byte of a peer: it does not depend on a protocol. It must not
//! allocate, lock or log for a served connection. A peer that waits, sends too much or disconnects must not delay
//! another peer.
//!
//! **Where to start.** [`protocol`] defines the traits of an export, `acceptor` and `session_poller` call them, and
//! [`limits`] has every limit.

#![forbid(unsafe_code)]

mod acceptor;
mod admission;
mod budget;
mod connection_slots;
mod device;
pub mod error;
mod failed_handshakes;
mod fair_queue;
mod gate;
mod limit_homes;
pub mod limits;
mod peer;
mod place;
mod pools;
pub mod protocol;
mod service;
mod session_poller;
mod step_worker;
mod stock;
mod tcp;

pub use admission::{Ability, Access, Removal, Rights, SharedRights};
pub use budget::{Budget, Budgets};
pub use connection_slots::{
    ConnectionSlot, ConnectionSlots, Counters, Export, ExportStats, NoConnectionSlot, count,
};
pub use device::DeviceQueue;
pub use error::{ExportError, ExportErrorKind};
pub use gate::{LimitGate, LimitedBy, SharedLimit};
pub use limit_homes::LimitHomes;
pub use peer::Peer;
pub use place::place_of;
pub use pools::{PoolSizes, Pools, freeze};
pub use protocol::{
    AcceptedConnection, After, Connection, CoreContext, Listener, Next, Protocol, Step,
};
pub use service::{Service, Setup, Ticket};
pub use stock::{Stock, Supply};
pub use tcp::prepare_accepted;

pub use strake_tls::{Input, Message, Place, Received, SendQueue, Sent};
