//! NVMe and NVMe/TCP as bytes.
//!
//! **What it is.** Conversions between bytes and values for everything that travels between a host and a
//! controller over TCP: PDUs and their digests, submission and completion queue entries, fabrics commands,
//! identify and log pages. Numbers and layouts are from *NVM Express Base Specification 2.0*, *NVM Command Set
//! Specification 1.0* and *NVMe over TCP Transport Specification 1.0*, called Base, NVM and TCP in comments.
//!
//! **What it must never do.** Panic on bytes, whatever they are. Allocate for a command. Keep state, read a
//! socket, or decide what a controller does.
//!
//! **Where to start.** [`pdu`] for what is on the socket, [`command`] for what is in a capsule, [`fabrics`] for how
//! a connection begins.

#![forbid(unsafe_code)]

mod bytes;
pub mod command;
pub mod digest;
pub mod discovered;
pub mod fabrics;
pub mod feature;
pub mod identified;
pub mod identify;
pub mod log;
pub mod nqn;
pub mod nvm;
pub mod pdu;
pub mod reservation;
pub mod status;

#[cfg(test)]
mod tests;

pub use command::{Cqe, Sgl, SglError, Sqe};
pub use pdu::{Common, Digests, FatalStatus, PduError, PduKind};
pub use status::Status;
