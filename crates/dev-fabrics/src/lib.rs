//! Remote drives: NVMe-oF namespaces over NVMe/TCP.
//!
//! **What it is.** A [`FabricsDevice`] connects to a controller and describes its namespace. A thread per path keeps
//! the association alive and reconnects when it is lost; with several paths, another thread selects the path that
//! carries I/O. A queue of the device is one connection, used by one core. It holds requests while no association
//! exists, and sends unanswered requests again.
//!
//! **What it must never do.** It must not wait on a data core: operations that wait run on the threads. It must not
//! trust a target: every response is checked, and a violation ends the association with a readable reason. It must not
//! repeat a change while the target may still execute the previous attempt.
//!
//! **Where to start.** [`discovery`] reads the offers of a target, [`device`] connects, [`path_manager`] manages
//! associations, and [`queue`] processes requests. Specifications are cited as in `strake-nvme-wire` and
//! `strake-nvme-tcp`.

#![forbid(unsafe_code)]

pub mod address;
mod cache;
pub mod device;
mod dialog;
pub mod discovery;
pub mod error;
mod identify;
mod inbox;
pub mod limits;
mod link;
mod names;
mod path;
pub mod path_manager;
mod path_selection;
mod proof;
pub mod queue;
mod reservation;
mod session;
mod shared;
mod stats;
mod stream;

/// The atomics of `cache`; `tests/loom.rs` replaces them with those of loom.
mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
}

// The tests are not inside `cache`, because `tests/loom.rs` also compiles that source.
#[cfg(test)]
#[path = "cache/tests.rs"]
mod cache_tests;

pub use address::{Address, AddressError, HostName, Service};
pub use device::{FabricsDevice, LinkState, Options, PathState, PathStatus};
pub use error::Reason;
pub use reservation::ReservationMode;
pub use stats::{LinkFacts, QueueStats};
pub use strake_nvme_tcp::pdu::Use;
pub use strake_nvme_tcp::{Digests, QueueCounts};
pub use strake_nvme_wire::log::Access;
