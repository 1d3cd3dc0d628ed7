//! What hosts and controllers of NVMe/TCP have in common.
//!
//! **What it is.** PDUs and their digests as bytes and as values, how they are framed when they are sent, and what a
//! queue counts. Numbers and layouts are from *NVMe over TCP Transport Specification 1.0*, called TCP in comments; what
//! PDUs carry is in `strake-nvme-wire`.
//!
//! **What it must never do.** Panic on bytes, whatever they are. Allocate on the data path. Read a socket, or decide
//! what a host or a controller does.
//!
//! **Where to start.** [`pdu`] for what is on the socket, [`framing`] for PDUs on their way out, [`stats`] for what
//! each queue counts.

#![forbid(unsafe_code)]

pub mod digest;
pub mod framing;
pub mod pdu;
pub mod stats;

#[cfg(test)]
mod tests;

pub use framing::Framing;
pub use pdu::{Common, Digests, FatalStatus, PduError, PduKind};
pub use stats::QueueCounts;
