//! The part of NVMe/TCP that hosts and controllers share.
//!
//! **What it is.** Conversions of PDUs and their digests between bytes and values, the framing of sent PDUs, and the
//! counters of a queue. Numbers and layouts are from *NVMe over TCP Transport Specification 1.0*, called TCP in
//! comments. Commands and other content of PDUs are in `strake-nvme-wire`.
//!
//! **What it must never do.** Panic on any input bytes. Allocate on the data path. Read a socket, or decide what a host
//! or a controller does.
//!
//! **Where to start.** [`pdu`] for the bytes on the socket, [`framing`] for PDUs that are sent, [`stats`] for the
//! counters of each queue.

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
