//! Control plane: drives, arrays, exports and their recorded configuration.
//!
//! **What it is.** A [`Control`] accepts commands from any thread. It reserves the objects of a command, does slow work
//! outside of the lock, and lets the [`Manager`] execute the rest. The manager owns the data cores, the open drives,
//! the running arrays and the servers of exports. A [`Config`] in a [`Store`] records what must outlast a restart:
//! arrays with their drives and settings, exports, spares, remote drives, hosts, hooks. The members record what an
//! array consists of.
//!
//! **What it must never do.** Take part in I/O of hosts. Acknowledge an unrecorded change, or start a change that could
//! not be recorded. Touch a drive before the whole request has been checked. Wait for a drive while it holds the lock.
//!
//! **Where to start.** `control.rs` for a command from check to answer and [`manager`] for the owned objects, then
//! `commands/create.rs` for one command, `upkeep.rs` for automatic work, and `upkeep/starting.rs` for a start.
//!
//! **How it is divided.** A module imports only modules of the rows above its own, or of its own row.
//!
//! | modules | what they hold |
//! |---|---|
//! | `record` | what outlasts the daemon: the state directory, and what members record |
//! | `drives`, `remote` | drives that are open: local ones, and connections to remote ones |
//! | `policy`, `state` | decisions, values in and values out; what is known of each array and slot |
//! | `exports`, `view` | servers and what they need; messages of the interface |
//! | `manager`, `control` | what is owned, behind its lock; what is reserved |
//! | `commands`, `upkeep` | what clients ask for; what happens by itself |
//!
//! The other modules serve all rows and import none of them, except `events`, `audit` and `hooks` (`record`) and
//! `history`, which runs a command and records it (`control`, `policy`).

#![forbid(unsafe_code)]

mod actions;
mod actor;
pub mod audit;
mod bounded;
mod commands;
mod control;
mod cores;
pub mod drives;
mod error;
pub mod events;
mod exports;
mod finding;
mod history;
mod hooks;
pub mod limits;
pub mod manager;
mod measures;
mod names;
mod policy;
mod record;
mod remedy;
mod remote;
mod state;
mod upkeep;
mod view;

pub use actor::{Actor, Role};
pub use commands::exports::create_export;
pub use commands::firmware::{firmware, update_firmware};
pub use commands::format::format_drive;
pub use commands::pools::{Pools, pools_of};
pub use commands::qos::Limits;
pub use commands::sanitize::sanitize_drive;
pub use commands::telemetry::{Telemetry, read_telemetry};
pub use control::Control;
pub use cores::CoreChoice;
pub use drives::maintenance::apart::{Formatter, format_apart};
pub use error::{ControlError, ControlErrorKind};
pub use history::Outcome;
pub use manager::{Manager, Options};
pub use measures::Measure;
pub use record::store::{ArrayRecord, Config, ExportRecord, Store};
pub use strake_alerts::{Programs, TRY_AGAIN};
pub use strake_engine::{ArrayLatencies, IoLimits, Latencies, LatencyCounts};

#[cfg(test)]
mod tests;
