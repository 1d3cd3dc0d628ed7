//! Memory that travels through queues by ownership.
//!
//! An [`Arena`] is one aligned allocation that drivers may register with the kernel or map for DMA. An arena is divided
//! into chunks. A [`BufMut`] owns a range of a chunk exclusively; a [`Buf`] shares it read-only. Splitting, freezing
//! and joining move ownership without access to the bytes.
//!
//! `Vec<u8>` and the `bytes` crate do not suffice: drives need 4 KiB-aligned addresses inside registered memory, a pool
//! needs its chunks back, and the pieces of a split read must be joined again.

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
