//! Sockets with TLS 1.3 as NVMe/TCP uses it, by pre-shared keys that both sides know and nothing else, or without TLS.
//!
//! **What it is.** OpenSSL's TLS 1.3, as *NVM Express TCP Transport Specification 1.0*, section 3.6.1, called TCP in
//! comments, asks for it: a handshake with an external key and a fresh Diffie-Hellman exchange (`psk_dhe_ke`), both
//! sides of it, and the records that carry data after it. No certificates, no resumption, no early data, no earlier
//! version. [`Server`] and [`Client`] turn bytes into bytes; [`Channel`] turns records into data and back, in buffers
//! that it has from the beginning; [`Wire`] is a socket with one or without. `docs/decisions/0021-tls.md` says why.
//! [`Input`] is what was received from such a socket, [`SendQueue`] what waits to be sent, on either side and for any
//! protocol.
//!
//! **What it must never do.** Speak TLS itself: what is here chooses keys, counts bytes and moves them. Go on after
//! OpenSSL does not. Let a peer grow anything beyond [`limits`]. Show a key. Have unsafe code outside `ffi`, which
//! declares what the crate `openssl` lacks.
//!
//! **Where to start.** [`server`] for a handshake, [`channel`] for what follows it, `ffi` for how OpenSSL gets keys.

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
