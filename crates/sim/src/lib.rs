//! The simulator: the real engine over simulated drives, on one thread, replayed by seed.
//!
//! **What it is.** [`run`] creates a world from a seed: an array of random shape, drives with caches and faults,
//! clients with random requests, and an operator that fails and replaces members, and stops and crashes the array. An
//! oracle records the permitted content of every block and checks every answer. At the end, the parity is compared with
//! an independent encoder.
//!
//! **What it must never do.** It has no source of randomness except the seed, reads no clock, and depends on no
//! iteration order: the same seed gives exactly the same trace. It injects no more faults than the array tolerates,
//! unless it reports this, because otherwise a run could excuse lost data by the faults.
//!
//! **Where to start.** [`world`] runs a world, [`drive`] simulates drives, [`faults`] permits faults, [`oracle`]
//! defines the permitted results of reads, [`stage`] runs worlds that follow a script, and [`crash`] runs short
//! histories with a simulated crash at every write. [`model`] is the counterpart of the TLA+ specification in
//! docs/model. `strake-sim --seed S --seeds 1 --print` replays a run.

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
