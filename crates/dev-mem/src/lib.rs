//! Drives made of memory: nothing, bytes, bytes with a drive's timing, and a wrapper that breaks things.
//!
//! **What it is.** [`NullDevice`] completes everything and touches no data, [`RamDevice`] keeps real bytes,
//! [`Modelled`] gives any device the latency and rate limits of a drive, [`Faulty`] gives any device the faults
//! of one. They stack: `Faulty<Modelled<RamDevice>>` is a drive one can pull out, slow down or cut the power of.
//! Tests, the simulator and benchmarks run on them; the daemon offers RAM and null drives for trying things out.
//!
//! **What it must never do.** Read a clock, sleep, start a thread or draw real randomness: time arrives as the
//! `now` of each call, chance as a seed, so that a run can be repeated exactly. Never hold data worth keeping.
//!
//! **Where to start.** [`ram`] for the plainest complete device, `queue` for the checks all of them share,
//! [`faulty`] for the list of faults.

#![forbid(unsafe_code)]

pub mod device;
pub mod error;
pub mod faulty;
pub mod intercept;
pub mod model;
pub mod null;
mod queue;
pub mod ram;
pub mod record;

pub use device::MemSpec;
pub use error::ProfileError;
pub use faulty::{
    Effect, Fate, FaultPlan, Faulty, Flush, Ops, Rule, RuleId, TearEnd, TearUnit, When,
};
pub use intercept::Intercept;
pub use model::{Modelled, Profile};
pub use null::NullDevice;
pub use ram::RamDevice;
pub use record::{Record, Recorder, Seen};
