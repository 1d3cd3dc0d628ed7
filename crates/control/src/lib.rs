//! Control plane: drives, arrays, exports and their recorded configuration.
//!
//! **What it is.** A [`Manager`] owns the data cores, the drives that are open, the running arrays and the NBD
//! servers, and does one command at a time to them. What has to outlast a restart (which drives belong to which
//! array, what is exported where) is a [`Config`] in a [`Store`]; what an array is made of stands on its members.
//!
//! **What it must never do.** It takes no part in I/O. It acknowledges nothing that is not recorded, and begins
//! nothing that could not be recorded. It never reads a request twice to mean two things: whatever is wrong with
//! one is said before the first drive is touched.
//!
//! **Where to start.** [`manager`] for what is owned, then `arrays.rs` for a command from check to answer.

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
mod reserved;
pub mod scan;
mod scrub;
mod scrub_file;
mod servers;
mod settings;
mod shutdown;
mod sick;
mod spares;
mod starting;
pub mod stats;
mod store;
mod successor;
mod undelete;
mod undo;
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
