//! Files and kernel block devices as drives, through io_uring.
//!
//! **What it is.** [`UringDevice`] opens a regular file or a block device, without the page cache if the file system
//! permits it. A [`Notice`] reports each requested property that the device lacks. Each queue is one io_uring: requests
//! collect in the submission ring, one system call per turn submits them, and completions are read from shared memory.
//!
//! [`Machine`] lists the drives of the host from sysfs without opening them, with their slots and LEDs.
//!
//! **What it must never do.** It must not copy data, wait on the data path (also not when a queue is dropped), open a
//! drive that another program uses, open a queue while requests of an earlier use are outstanding, or release a buffer
//! that the kernel may still access. If a requested property is not available, a notice reports this.
//!
//! **Where to start.** [`device`] opens drives, [`queue`] processes requests, and `ring` contains the only code that
//! accesses the kernel's rings (and most of the unsafe code).

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
pub use health::{
    NvmeAnswer, NvmeCommand, NvmeData, nvme_command, nvme_controller_page, nvme_log_page,
    nvme_namespace,
};
pub use inherit::inherit_nothing;
pub use light::{Light, Pattern};
pub use machine::{KernelDrive, Machine, Named};
pub use served::{served_at, served_by};
pub use slots::Slot;
pub use sparse::create_sparse;
pub use wait::{control_wait, control_wait_for};

#[cfg(test)]
mod tests;
