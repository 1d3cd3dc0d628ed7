//! Namespaces of other machines as drives, over NVMe/TCP.
//!
//! **What it is.** [`FabricsDevice`] connects to a controller and describes its namespace; a thread keeps the
//! association alive and makes it anew when it is lost. Where there are several paths to the namespace, each has such
//! a thread, and another one chooses which of them carries I/O. A queue of the device is one connection, used by one
//! core; it holds requests while there is no association, and sends again what was not answered.
//!
//! **What it must never do.** Wait on a data core: whatever may take its time is done by the thread. Believe a target:
//! what it says is checked, and a broken rule ends the association with a reason that people can read. Send a change
//! again while the one before may still be carried out.
//!
//! **Where to start.** [`discovery`] for what a machine offers, [`device`] for connecting, [`keeper`] for what becomes
//! of associations, [`queue`] for the life of a request. Specifications are cited as in `strake-nvme-wire`.

#![forbid(unsafe_code)]

pub mod address;
mod cache;
pub mod device;
mod dialog;
pub mod discovery;
pub mod error;
mod figures;
mod guard;
mod inbox;
mod input;
pub mod keeper;
pub mod limits;
mod link;
mod look;
mod names;
mod path;
mod proof;
pub mod queue;
mod session;
mod shared;
mod stream;
mod ways;

pub use address::{Address, AddressError, HostName, Service};
pub use device::{FabricsDevice, LinkState, Options, PathState, PathStatus};
pub use error::Reason;
pub use figures::{LinkFacts, QueueStats};
pub use guard::Guard;
pub use strake_nvme_wire::Digests;
pub use strake_nvme_wire::log::Access;
pub use strake_nvme_wire::pdu::Use;
