//! Drives for tests: without data, with data in memory, with the timing of a real drive, and with faults.
//!
//! **What it is.** [`NullDevice`] completes everything and touches no data, [`RamDevice`] keeps real bytes,
//! [`Modelled`] gives any device the latency and rate limits of a drive, [`Faulty`] gives any device the faults of one.
//! They can be combined: a test can remove a `Faulty<Modelled<RamDevice>>`, make it slow or cut its power. Tests, the
//! simulator and benchmarks use these drives; the daemon offers RAM and null drives for trials.
//!
//! **What it must never do.** Read a clock, sleep, start a thread or draw real randomness: time arrives as the `now` of
//! each call, chance as a seed, so that a run can be repeated exactly. Keep data beyond the life of the process.
//!
//! **Where to start.** [`ram`] for the simplest complete device, `queue` for the checks that all devices share,
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
