//! NVMe drives without the kernel: a polled driver for controllers on the PCI bus.
//!
//! **What it is.** [`NvmeDevice`] takes over a [`Function`](transport::Function), which VFIO or a model provides, and
//! describes its namespace. A *keeper* per controller resets it, asks what it is, and creates its queues; a pure state
//! machine (`lifecycle`) decides all of that. A queue belongs to one core: commands are written into the ring where the
//! controller reads them, their data stays where it is, and completions are found by polling memory.
//!
//! **What it must never do.** Answer a change as failed while the controller may still execute it. Wait, allocate or
//! lock on a data core. Let a buffer go that the controller may still read or write. Trust a controller: what it says
//! about itself is judged, and a wrong completion ends the session. Touch registers while the function is reset.
//!
//! **Where to start.** `lifecycle` for the life of a controller and the rule about failures, [`queue`] for the life of
//! a request, [`transport`] for the seam, `memory`, `sigbus` and `transport` for all unsafe code. Specifications are
//! cited as in `strake-nvme-wire`.

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

pub use device::{LogReader, NvmeDevice, Stats};
pub use error::Reason;
pub use facts::Facts;
pub use host::Host;
pub use host::bind::{Binder, Claims, Identity, Kernel, Picture, Untaken, Write};
pub use keeper::{Keeper, Turn};
pub use memory::Registers;
pub use window::Window;

#[cfg(test)]
mod tests;
