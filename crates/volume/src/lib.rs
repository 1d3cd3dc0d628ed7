//! Pools: volumes, snapshots and clones on a block device, usually an array.
//!
//! **What it is.** A [`Pool`] executes the steps of a [`VolumeMap`](strake_volume_map::VolumeMap) as I/O of the device
//! below, and writes its records to a log and its images to two places for roots. Each volume is a
//! [`BlockDevice`](strake_block::BlockDevice). One core, the *pool core*, has the map and executes operations; queues
//! send messages to it. Reads and writes in place need no record, no lock and no allocation of the map. Most of them do
//! not even pass the pool core: their queue finds the cluster in a *view* and sends the I/O to the device itself.
//!
//! **What it must never do.** It must not decide about the order of data, records and answers: the map does. It must
//! not report a step before all I/Os of the step have completed, nor reuse log records that `keep_from` names.
//!
//! **Where to start.** [`store`] for creating and opening a pool, [`pool`] for its interface, `driver.rs` for a turn,
//! `driver/steps.rs` for the execution of steps, `log.rs` for the log. Decision 47 has the choices.

#![forbid(unsafe_code)]

mod device;
mod direct_queue;
mod driver;
pub mod error;
mod grace;
pub mod layout;
pub mod limits;
mod log;
pub mod pool;
mod queue;
pub mod request;
mod slab;
pub mod store;
mod view;

pub use error::{PoolError, PoolErrorKind};
pub use layout::Layout;
pub use pool::{Pending, Pool};
pub use request::{Answer, Found, PoolStatus, Request, SpacePart, VolumeRow};
pub use store::{Opened, PoolSpec, create, erase, find, open};
pub use strake_ondisk::PoolHeader;
pub use strake_volume_map::{
    Error as MapError, ErrorKind as MapErrorKind, PoolSpace, SpacePolicy, Span, Tail, VolumeId,
    VolumeKind, VolumeSpace,
};

/// The atomics of `grace`; `tests/loom.rs` replaces them by the atomics of loom.
mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}

#[cfg(test)]
mod tests;
