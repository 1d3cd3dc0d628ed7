//! The gRPC interface: messages and services.
//!
//! **What it is.** [`v1`] is generated from `proto/strake/v1/strake.proto` by `cargo xtask api`: one Rust type per
//! message, a client and a server per service. Every message is `serde` too, under its proto field names, so
//! `--output json` of the command line prints exactly the message. [`FILE_DESCRIPTOR_SET`] feeds the reflection
//! service.
//!
//! **What it must never do.** It contains no logic except [`limits`], and no handwritten message or service: the proto
//! file defines all of them.
//!
//! **Where to start.** `proto/strake/v1/strake.proto`, then `docs/api.md`.

#![forbid(unsafe_code)]

/// Version 1 of the interface.
#[allow(missing_docs, clippy::all, unused_qualifications)] // Generated; the proto file documents every message.
pub mod v1 {
    include!("../generated/strake.v1.rs");
}

pub mod limits;

/// The compiled proto file, for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("../generated/strake.v1.bin");

#[cfg(test)]
mod tests;
