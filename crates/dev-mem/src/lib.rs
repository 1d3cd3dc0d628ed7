//! Drives for tests: without data, with data in memory, with the timing of a real drive, and with faults.
//!
//! **What it is.** [`NullDevice`] completes all requests and stores no data. [`RamDevice`] stores real bytes.
//! [`Modelled`] adds the latency and rate limits of a drive to any device, and [`Faulty`] adds faults. They can be
//! combined: a test can remove a `Faulty<Modelled<RamDevice>>`, make it slow or cut its power. Tests, the simulator and
//! benchmarks use these drives; the daemon offers RAM and null drives for trials.
//!
//! **What it must never do.** It must not read a clock, sleep, start a thread or use real randomness: the time is the
//! `now` of each call, and random decisions depend on a seed, so that a run can be repeated exactly. It must not keep
//! data after the end of the process.
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
