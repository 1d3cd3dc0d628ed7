//! Files and kernel block devices as drives, through io_uring.
//!
//! **What it is.** [`UringDevice`] opens a regular file or a block device, bypassing the page cache where the
//! file system allows, and says in [`Notice`]s whatever it could not have. Its queues are one io_uring each:
//! requests gather in the submission ring, one system call per turn hands them over, completions are read from
//! shared memory.
//!
//! [`Machine`] lists the machine's drives from sysfs without opening them, with their slots and lights.
//!
//! **What it must never do.** Copy data, wait on the data path (also not where a queue is dropped), open a drive that
//! is in use elsewhere, go around requests that a drive still owes, or let a buffer go while the kernel may still touch
//! it. It never falls back from what was asked without saying so.
//!
//! **Where to start.** [`device`] for opening, [`queue`] for the life of a request, `ring` for the only part
//! that talks to the kernel's rings (and most of the unsafe code).

pub mod device;
pub mod error;
mod health;
mod inherit;
mod light;
mod limits;
mod machine;
mod open;
mod opening;
pub mod queue;
mod reaper;
mod ring;
mod served;
mod size;
mod slot;
mod slot_names;
mod slots;
mod sparse;
mod sysfs;
mod wait;

pub use device::{Access, Direct, OpenOptions, Polling, UringDevice};
pub use error::{Notice, NoticeKind};
pub use health::{nvme_controller_page, nvme_log_page};
pub use inherit::inherit_nothing;
pub use light::{Light, Pattern};
pub use machine::{KernelDrive, Machine, Named};
pub use served::{served_at, served_by};
pub use slots::Slot;
pub use sparse::create_sparse;
pub use wait::{control_wait, control_wait_for};

#[cfg(test)]
mod tests;
