//! Sockets without TLS, or with TLS 1.3 as NVMe/TCP uses it: with pre-shared keys only.
//!
//! **What it is.** OpenSSL's TLS 1.3, as *NVM Express TCP Transport Specification 1.0*, section 3.6.1, called TCP in
//! comments, asks for it: a handshake with an external key and a fresh Diffie-Hellman exchange (`psk_dhe_ke`), both
//! sides of it, and the records that carry data after it. No certificates, no resumption, no early data, no earlier
//! version. [`Server`] and [`Client`] turn bytes into bytes; [`Channel`] encrypts and decrypts records, in preallocated
//! buffers; [`Wire`] is a socket with or without a channel. `docs/decisions/0021-tls.md` gives the reasons. [`Input`]
//! holds the bytes received from such a socket, and [`SendQueue`] holds the bytes to send, on either side and for any
//! protocol.
//!
//! **What it must never do.** Implement TLS: this crate only selects keys, and counts and moves bytes. Continue after
//! an error of OpenSSL. Let a peer make a buffer grow, or a turn take longer, than [`limits`] permit. Show a key. Have
//! unsafe code outside `ffi`, which declares what the crate `openssl` lacks.
//!
//! **Where to start.** [`server`] for a handshake, [`channel`] for the records after it, `ffi` for the callbacks that
//! give keys to OpenSSL.

#![deny(unsafe_code)]

mod agreement;
pub mod channel;
pub mod client;
pub mod error;
#[allow(unsafe_code)]
mod ffi;
mod input;
pub mod limits;
pub mod local;
mod pipe;
mod record_meter;
mod send_queue;
pub mod server;
pub mod wire;

#[cfg(test)]
mod tests;

pub use channel::Channel;
pub use client::Client;
pub use error::{Alert, TlsError};
pub use input::{Input, Place, Received};
pub use local::skip_pacing_if_local;
pub use send_queue::{Message, Messages, Owned, SendQueue, Sent};
pub use server::{KnownKeys, Secured, Server};
pub use wire::{Wire, WireError};
