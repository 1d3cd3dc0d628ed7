//! NVMe drives without the kernel: a polled driver for controllers on the PCI bus.
//!
//! **What it is.** [`NvmeDevice`] takes over a [`Function`](transport::Function), which VFIO or a model provides, and
//! describes its namespace. A *keeper* per controller resets it, identifies it, and creates its queues; a pure state
//! machine (`lifecycle`) makes the decisions. A queue belongs to one core: the core writes commands into the submission
//! queue, the controller transfers the data directly from and to the buffers, and the core polls the completion queue.
//!
//! **What it must never do.** Answer a change as failed while the controller may still execute it. Wait, allocate or
//! lock on a data core. Release a buffer that the controller may still read or write. Trust a controller: the driver
//! checks the identify data, and a wrong completion ends the session. Touch registers while the function is reset.
//!
//! **Where to start.** `lifecycle` for the life of a controller and the rule about failures, [`queue`] for the life of
//! a request, [`transport`] for the interface to VFIO or a model, `memory`, `sigbus` and `transport` for all unsafe
//! code. Specifications are cited as in `strake-nvme-wire`.

mod admin;
pub mod device;
pub mod error;
pub mod facts;
pub mod host;
pub mod keeper;
mod lifecycle;
mod limits;
mod memory;
pub mod queue;
mod shared;
mod sigbus;
pub mod transport;
pub mod window;
mod wire;

pub use device::{Footprint, LogReader, NvmeDevice, Stats};
pub use error::Reason;
pub use facts::Facts;
pub use host::Host;
pub use host::bind::{Binder, Claims, Identity, Kernel, Picture, Untaken, Write};
pub use keeper::{Keeper, Turn};
pub use memory::Registers;
pub use window::Window;

#[cfg(test)]
mod tests;
