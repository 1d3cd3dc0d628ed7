//! The loop of a data core, a pinned thread that runs the data path.
//!
//! **What it is.** A [`CoreThread`] runs a [`Core`]: a loop of bounded turns over [`Poller`]s that polls while
//! there is work and sleeps when there is none. Inside a poller, [`Tasks`] steps `async fn`s in a fixed slab
//! without allocating; [`Scheduler`], the types of [`sync`] and [`Timers`] wake them. [`mailbox()`] carries
//! values between two cores, [`CoreHandle`] carries closures from control threads to a core.
//!
//! **What it must never do.** Nothing here allocates, locks or waits on the data path after start; the one lock (around
//! a core's inbox of closures) is only ever *tried* by the core. No wake-up is lost: `bell.rs` explains why. The crate
//! does not depend on arrays or devices, except for [`Readiness`](strake_block::Readiness).
//!
//! **Where to start.** [`core`] for the loop, [`tasks`] for the executor, [`handle`] for sleeping and waking.

// There are two exceptions: in `sleep.rs`, a poller names its file descriptors by number, and the conversion of a
// number for `ppoll` is unsafe; in `node.rs`, a system call that rustix lacks.
#![deny(unsafe_code)]

mod bell;
pub mod beside;
pub mod core;
pub mod handle;
pub mod mailbox;
mod node;
pub mod sleep;
pub mod sync;
pub mod tasks;
pub mod thread;
pub mod timers;

/// The atomics of `bell`; `tests/loom.rs` replaces them by the atomics of loom.
mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};
    pub(crate) use std::sync::{Mutex, MutexGuard};
}

pub use crate::beside::{BESIDE_THREAD, beside};
pub use crate::core::{Core, Poller, PollerId, Turn};
pub use crate::handle::{CoreGone, CoreHandle, CoreStats, Pinning};
pub use crate::mailbox::{Receiver, Sender, mailbox};
pub use crate::sleep::Sleep;
pub use crate::sync::{Gate, Permit, Semaphore, WaitQueue, yield_now};
pub use crate::tasks::{Scheduler, TaskId, Tasks};
pub use crate::thread::{CoreConfig, CoreThread, monotonic};
pub use crate::timers::{TimerId, Timers, alarm};
