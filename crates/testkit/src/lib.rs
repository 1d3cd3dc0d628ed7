//! Helpers that the tests of several crates share.
//!
//! **What it is.** A [`Folder`] is a folder that is removed when its test ends. A [`Chance`] makes the random decisions
//! of a test from a seed. A [`PciHost`] imitates the sysfs of NVMe controllers in a folder.
//!
//! **What it must never do.** Be part of a product. Depend on another crate of the project: the tests of that crate
//! could not use it.
//!
//! **Where to start.** [`Folder`].

#![forbid(unsafe_code)]

mod chance;
mod folder;
mod pci;

pub use chance::Chance;
pub use folder::Folder;
pub use pci::PciHost;
