//! The simulator: the real engine over simulated drives, on one thread, replayed by seed.
//!
//! **What it is.** [`run`] makes a world out of a seed: an array of random shape, drives with caches and faults,
//! clients with random requests, an operator who fails, replaces, stops and crashes things. An oracle knows what
//! every block may hold and compares every answer; at the end parity is compared with a textbook encoder.
//!
//! **What it must never do.** It draws no chance but from the seed, reads no clock, and depends on no iteration
//! order: the same seed gives the same trace, to the last event. It never goes beyond what an array promises to
//! survive without saying so, because a run that may excuse itself proves nothing.
//!
//! **Where to start.** [`world`] for the life of a world, [`drive`] for what drives do, [`faults`] for what is
//! allowed to happen, [`oracle`] for what may be read, [`stage`] for
//! worlds that follow a script instead of chance, [`crash`] for small histories that are cut at every write.
//! [`model`] is the counterpart of the TLA+ specification in docs/model.
//! `strake-sim --seed S --seeds 1 --print` replays a run.

#![forbid(unsafe_code)]

pub mod content;
pub mod crash;
pub mod drive;
pub mod faults;
pub mod kept;
pub mod load;
pub mod medium;
pub mod model;
pub mod oracle;
pub mod placement;
pub mod rng;
pub mod shape;
pub mod shrink;
pub mod textbook;
pub mod trace;
pub mod world;

pub use faults::{Kind, Kinds, Mutant};
pub use world::{Limits, Report, Settings, run, stage};
