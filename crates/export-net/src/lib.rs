//! What exports over sockets have in common.
//!
//! **What it is.** The way of a connection from being accepted to being served, whatever is spoken on it. A [`Service`]
//! listens; its *lobby*, a control thread, accepts connections and lets a [`Protocol`] negotiate with them; one that
//! agreed with its peer is handed to the *station* of a data core, a poller that gives each [`Connection`] its turns.
//! Beside that are the parts that connections are made of: [`Peer`], [`Pools`], [`Supply`], [`Replies`],
//! [`DeviceQueue`] and [`Seats`].
//!
//! **What it must never do.** Know a protocol: no byte of a peer is looked at here. Allocate, lock or log once a
//! connection is served. Let a peer that waits, floods or vanishes hold up another.
//!
//! **Where to start.** [`protocol`] for what an export brings, `lobby` and `station` for who calls it, [`limits`] for
//! every bound.

#![forbid(unsafe_code)]

mod device;
mod doubts;
pub mod error;
mod input;
pub mod limits;
mod lobby;
mod peer;
mod place;
mod pools;
pub mod protocol;
mod replies;
mod seats;
mod service;
mod station;
mod stock;

pub use device::DeviceQueue;
pub use error::{ServiceError, ServiceErrorKind};
pub use input::{Input, Place, Received};
pub use peer::Peer;
pub use place::place_of;
pub use pools::{PoolSizes, Pools, freeze};
pub use protocol::{After, Berth, Connection, Listener, Newcomer, Next, Protocol, Step};
pub use replies::{Replies, Reply, Sent};
pub use seats::{Counters, Export, NoSeat, Seat, Seats, count};
pub use service::{Service, Setup, Ticket};
pub use stock::{Stock, Supply};
