//! The value types that all other crates use.
//!
//! **What it is.** Block addresses, sizes, indices and sets of them, times, names and identifiers: small `Copy`
//! values whose types keep an address from being used as a count and a member from being used as a stripe.
//!
//! **What it must never do.** No I/O, clock, threads, randomness, allocation on construction paths used by
//! the data path, or `unsafe`. It depends on nothing.
//!
//! **Where to start.** [`lba`] for addresses, [`size`] for byte sizes as an operator types them, [`name`] for names and
//! identifiers, [`set`] for sets of members, positions and strips, [`list`] for the fixed-capacity list that plans are
//! made of.

#![forbid(unsafe_code)]

pub mod index;
pub mod lba;
pub mod list;
pub mod name;
pub mod set;
pub mod size;
pub mod time;

pub use index::{CoreIndex, MemberIndex, RegionIndex, StripeIndex};
pub use lba::{BlockSize, Lba, LbaRange};
pub use list::FixedList;
pub use name::{Name, NameError, Uuid};
pub use set::{CoreSet, MemberSet, PositionSet, Set, StripSet};
pub use size::{ByteSize, SizeError};
pub use time::Nanos;

#[cfg(test)]
mod tests;
