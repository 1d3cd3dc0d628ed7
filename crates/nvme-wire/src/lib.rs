//! The encoding of NVMe commands, completions and data structures, for any transport.
//!
//! **What it is.** This crate converts between bytes and values for all messages between a host and a controller:
//! submission and completion queue entries, fabrics commands, identify and log pages. Numbers and layouts are from *NVM
//! Express Base Specification 2.0*, *NVM Command Set Specification 1.0* and, for discovery, *NVMe over TCP Transport
//! Specification 1.0*, called Base, NVM and TCP in comments.
//!
//! **What it must never do.** It must not panic on any input bytes, and must not allocate for a command. It must not
//! keep state, decide on the actions of a controller, or depend on a transport: PDUs are in `strake-nvme-tcp`.
//!
//! **Where to start.** [`command`] defines the queue entries, [`nvm`] reads and writes, and [`fabrics`] the first
//! commands of a connection.

#![forbid(unsafe_code)]

pub mod bytes;
pub mod command;
pub mod discovered;
pub mod fabrics;
pub mod feature;
pub mod health;
pub mod identified;
pub mod identify;
pub mod log;
pub mod maintenance;
pub mod nqn;
pub mod nvm;
pub mod reservation;
pub mod status;

#[cfg(test)]
mod tests;

pub use command::{Cqe, Sgl, SglError, Sqe};
pub use status::Status;
