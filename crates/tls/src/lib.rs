//! TLS 1.3 as NVMe/TCP uses it: with pre-shared keys that both sides know, and nothing else.
//!
//! **What it is.** The part of RFC 8446 that *NVM Express TCP Transport Specification 1.0*, section 3.6.1, called TCP
//! in comments, asks for: a handshake with an external key and a fresh Diffie-Hellman exchange (`psk_dhe_ke`), both
//! sides of it, and the records that carry data after it. No certificates, no resumption, no early data, no earlier
//! version; `docs/decisions/0021-tls.md` says why this is ours. [`Server`] and [`Client`] turn bytes into bytes;
//! [`Channel`] turns records into data and back, in buffers that it has from the beginning; [`Wire`] is a socket with
//! one or without.
//!
//! **What it must never do.** Panic on bytes, whatever they are, or let them grow anything beyond [`limits`]. Go on
//! after anything that is not as it must be. Show a key. Do the arithmetic of cryptography: that is ring's, and of
//! [`strake_nvme_auth::Group`] for the finite-field group that the specification demands.
//!
//! **Where to start.** [`server`] for a handshake, [`channel`] for what follows it, `schedule` for what keys are made
//! of.

#![forbid(unsafe_code)]

pub mod channel;
pub mod client;
pub mod error;
mod hello;
mod inbox;
pub mod limits;
mod reader;
mod record;
mod schedule;
pub mod server;
mod share;
pub mod wire;

#[cfg(test)]
mod tests;

pub use channel::Channel;
pub use client::Client;
pub use error::{Alert, TlsError};
pub use ring::rand::{SecureRandom, SystemRandom};
pub use server::{KnownKeys, Secured, Server};
pub use wire::{Wire, WireError};
