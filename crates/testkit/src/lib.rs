//! What tests of several crates share.
//!
//! **What it is.** A [`Folder`] is removed with the test that made it. A [`Chance`] decides what a test does, from a
//! seed. A [`PciHost`] is the sysfs of NVMe controllers in a folder.
//!
//! **What it must never do.** Be part of a product. Know a crate of ours: then that crate's tests could not use it.
//!
//! **Where to start.** [`Folder`].

#![forbid(unsafe_code)]

mod chance;
mod folder;
mod pci;

pub use chance::Chance;
pub use folder::Folder;
pub use pci::PciHost;
