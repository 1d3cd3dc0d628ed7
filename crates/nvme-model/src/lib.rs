//! A model of an NVMe controller with a memory-based transport, for tests of the driver.
//!
//! **What it is.** A [`Controller`] is a value. Its registers and the memory of its host are behind the trait [`Bus`];
//! [`Controller::step`] reads the doorbells, fetches commands, executes them and posts completions. [`Fault`]s make it
//! misbehave. The model records each violation of the specification by the host as a [`Breach`]. The model implements
//! the specification independently (offsets, opcodes, pages) and shares with the driver only the codecs of
//! `strake-nvme-wire`, so that it detects an error of the driver. Specifications are cited as in that crate.
//!
//! **What it must never do.** Read a clock, start a thread or draw real randomness: time is an argument and chance is a
//! seed, so that a run can be repeated exactly. Touch memory of the host other than through [`Bus`], which checks
//! bounds.
//!
//! **Where to start.** [`Controller`] for the life of a controller, [`Spec`] for its properties, [`Fault`] for its
//! faults.

#![forbid(unsafe_code)]

mod admin;
mod bus;
mod controller;
mod fault;
mod identify;
mod io;
mod maintenance;
mod medium;
mod pace;
mod protection;
mod prp;
mod queues;
mod register;
mod spec;
mod status;

#[cfg(test)]
mod tests;

pub use bus::{Bus, Unmapped};
pub use controller::{Breach, Controller};
pub use fault::{Fault, PERMANENT};
pub use maintenance::{FIRMWARE_MAGIC, MaintenanceSpec};
pub use pace::Pace;
pub use register::{csts, offset};
pub use spec::{NamespaceSpec, Protection, Spec};
