//! Memory that travels through queues by ownership.
//!
//! An [`Arena`] is one aligned allocation that drivers may register with the kernel or map for DMA. It is
//! carved into chunks; a [`BufMut`] owns a range of a chunk exclusively, a [`Buf`] shares it read-only.
//! Splitting, freezing and joining move ownership around without touching the bytes.
//!
//! Why not `Vec<u8>` or the `bytes` crate: drives want 4 KiB-aligned addresses inside registered memory, a
//! pool wants its chunks back, and a split read wants its pieces reunited.

mod announce;
mod arena;
mod list;
mod memory;
mod parts;
mod pool;

pub use announce::{Follower, follow};
pub use arena::{Arena, Buf, BufMut, CHUNK_ALIGN};
pub use list::{Reunion, SEGMENTS_MAX, Sg, SgMut};
pub use memory::Pages;
pub use pool::BufPool;

#[cfg(test)]
mod tests;
