//! DH-HMAC-CHAP and the keys of TLS: authentication of NVMe hosts and controllers.
//!
//! **What it is.** The authentication of *NVM Express Base Specification 2.0*, section 8.13, called Base in comments:
//! secrets and their interchange format, the encoding of messages, the computations of each side, the controller's side
//! of the authentication transaction as a state machine, and the host's side as a sequence of steps. The crate also
//! derives the keys for TLS. It reads and returns messages; the callers put them into commands.
//!
//! **What it must never do.** Panic on any input bytes. Read a socket, a clock or a source of randomness: random bytes
//! are arguments. Show a secret in any form. Compare a response in a time that depends on its bytes.
//!
//! **Where to start.** [`Exchange`] and [`Claim`] for the authentication transaction, [`Secret`] for the shared secret,
//! [`TlsKey`] for TLS.

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
pub use group::{EXPONENT_BYTES, Group, Groups};
pub use proof::{Challenge, Hash, Names, Side, respond};
pub use psk::{Identity, Psk, PskHash, TlsKey, TlsKeyError};
pub use secret::{Secret, SecretError};
