//! Pools: volumes, snapshots and clones on a block device, usually an array.
//!
//! **What it is.** A [`Pool`] executes the steps of a [`VolumeMap`](strake_volume_map::VolumeMap) as I/O of the device
//! below, and writes its records to a log and its images to two places for roots. Each volume is a
//! [`BlockDevice`](strake_block::BlockDevice). One core, the *pool core*, has the map and executes all requests; queues
//! on other cores send messages to it. Reads and writes in place need no record, no lock and no allocation of the map.
//!
//! **What it must never do.** It must not decide about the order of data, records and answers: the map does. It must
//! not report a step before all I/Os of the step have completed, nor reuse log records that `keep_from` names.
//!
//! **Where to start.** [`store`] for creating and opening a pool, [`pool`] for its interface, `driver.rs` for a turn,
//! `driver/steps.rs` for the execution of steps, `log.rs` for the log. Decision 47 has the choices.

#![forbid(unsafe_code)]

mod device;
mod driver;
pub mod error;
pub mod layout;
pub mod limits;
mod log;
pub mod pool;
mod queue;
pub mod request;
mod slab;
pub mod store;

pub use error::{PoolError, PoolErrorKind};
pub use layout::Layout;
pub use pool::{Pending, Pool};
pub use request::{Answer, Found, PoolStatus, Request, VolumeRow};
pub use store::{Opened, PoolSpec, create, erase, find, open};
pub use strake_ondisk::PoolHeader;
pub use strake_volume_map::{
    Error as MapError, ErrorKind as MapErrorKind, PoolSpace, SpacePolicy, Span, Tail, VolumeId,
    VolumeKind, VolumeSpace,
};

#[cfg(test)]
mod tests;
