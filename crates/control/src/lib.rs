//! Control plane: drives, arrays, exports and their recorded configuration.
//!
//! **What it is.** A [`Control`] accepts commands from any thread. It reserves what a command needs, does the slow
//! part outside of the lock, and lets the [`Manager`] carry out the rest. The manager owns the data cores, the open
//! drives, the running arrays and the servers of exports. A [`Config`] in a [`Store`] records what must outlast a
//! restart: which drives belong to which array, and what is exported where. The members record what an array consists
//! of.
//!
//! **What it must never do.** Take part in I/O. Acknowledge what is not recorded, or begin what could not be recorded.
//! Touch a drive before the whole request has been checked. Wait for a drive while it holds the lock.
//!
//! **Where to start.** `control.rs` for a command from check to answer and [`manager`] for what is owned, then
//! `create.rs` for one command, `upkeep.rs` for what happens without a command, and `starting.rs` for a start.

#![forbid(unsafe_code)]

mod actions;
mod appeared;
mod backup;
mod bounded;
mod clean;
mod control;
mod copies;
mod create;
mod crowds;
mod doctor;
pub mod drives;
mod error;
pub mod events;
mod exports;
mod files;
mod grow;
mod history;
mod hooks;
mod hosts;
mod import;
mod jobs;
mod label;
pub mod limits;
mod locate;
mod lost;
pub mod manager;
mod member_config;
mod members;
mod newest;
mod offline;
pub mod probe;
mod prospects;
mod queues;
mod readd;
mod referrals;
mod rejections;
mod remote;
mod remove;
mod replacement;
mod reserved;
mod returns;
pub mod scan;
mod scrub;
mod scrub_file;
mod search;
mod servers;
mod settings;
mod shutdown;
mod sick;
mod spares;
mod starting;
pub mod stats;
mod store;
mod undelete;
mod undo;
mod upgrade;
mod upkeep;
mod verdict;
mod view;
mod watch;

pub use control::Control;
pub use error::{ControlError, ControlErrorKind};
pub use history::{Actor, Command, Outcome};
pub use manager::{CoreChoice, Manager, Options};
pub use store::{ArrayRecord, Config, ExportRecord, Store};
pub use strake_engine::IoLimits;

#[cfg(test)]
mod tests;
