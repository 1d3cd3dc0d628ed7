//! The interface between devices and their users.
//!
//! **What it is.** [`BlockDevice`] (control plane, any thread) describes a device and opens queues; [`IoQueue`] (data
//! plane, one core) takes [`Io`]s and returns [`Completion`]s. Everything from an in-memory drive to a RAID array
//! implements these two traits, so devices compose. [`buf`] contains the buffers. A request owns its buffers, and its
//! completion returns them.
//!
//! **What it must never do.** Nothing completes inside `submit`: completions, and the buffers with them, appear only
//! in `poll`. No implementation may block, allocate per I/O or log on the data path.
//!
//! **Where to start.** [`device`] for the traits, [`io`] for requests and completions, [`buf`] for memory.

pub mod blocking;
pub mod buf;
pub mod device;
pub mod error;
pub mod io;
pub mod patience;

pub use buf::{Arena, Buf, BufMut, BufPool, Follower, Pages, Reunion, Sg, SgMut, follow};
pub use device::{
    BlockDevice, CompletionBatch, DeallocateReads, DeviceInfo, DeviceKind, Extent, ExtentSource,
    IoQueue, Place, Readiness, SETTLE_TIME_MAX, VolatileCache,
};
pub use error::{DeviceError, DeviceRemedy, IoError, IoErrorKind};
pub use io::{Completion, Durability, Io, Op, Token};
pub use patience::{Attention, Patience, Silence};
