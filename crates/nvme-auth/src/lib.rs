//! DH-HMAC-CHAP, and the keys of TLS: how an NVMe host and a controller prove who they are.
//!
//! **What it is.** The authentication of *NVM Express Base Specification 2.0*, section 8.13, called Base in comments:
//! secrets and their interchange format, the messages as bytes, what each side has to compute, the controller's side of
//! the conversation as a state machine, and the host's as one step after the other. And what becomes of the keys that
//! both use for TLS. Messages go in and come out; commands that carry them are others' business.
//!
//! **What it must never do.** Panic on bytes, whatever they are. Read a socket, a clock or a source of randomness:
//! random bytes are arguments. Show a secret, in whatever form. Compare a response byte by byte.
//!
//! **Where to start.** [`Exchange`] and [`Claim`] for the conversation, [`Secret`] for what both sides know, [`TlsKey`]
//! for TLS.

#![forbid(unsafe_code)]

pub mod claim;
pub mod exchange;
pub mod group;
mod messages;
pub mod proof;
pub mod psk;
pub mod secret;

#[cfg(test)]
mod tests;

pub use claim::{Claim, Doubt};
pub use exchange::{Answer, Exchange, Failure, Fresh, Keys, MESSAGE_BYTES_MAX};
pub use group::{EXPONENT_BYTES, Group};
pub use proof::{Challenge, Hash, Names, Side, respond};
pub use psk::{Identity, Psk, PskHash, TlsKey, TlsKeyError};
pub use secret::{Secret, SecretError};
