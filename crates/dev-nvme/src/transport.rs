//! The seam between the driver and what carries it: a function of the PCI bus, and the memory that it may reach.
//!
//! [`vfio`] has the implementation for hardware, [`memory`] the one for models of controllers in this process.

pub mod memory;
pub mod vfio;

use crate::memory::Registers;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Addresses that a device can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// I/O virtual addresses that can be mapped.
    pub addresses: Range<u64>,
    /// Mappings at a time.
    pub mappings_max: usize,
}

/// The memory that devices reach: an address space of an IOMMU. Several functions may have one in common.
pub trait Space: Send + Sync {
    /// What can be mapped.
    fn reach(&self) -> Reach;

    /// Makes `bytes` bytes at `address` of this process visible to devices at `iova`. All three are multiples of a
    /// page. The memory outlives the mapping.
    ///
    /// # Errors
    /// When the kernel refuses, for example because of the limit on locked memory.
    fn map(&self, address: usize, bytes: usize, iova: u64) -> io::Result<()>;

    /// Undoes that.
    ///
    /// # Errors
    /// When it is not mapped.
    fn unmap(&self, iova: u64, bytes: usize) -> io::Result<()>;
}

/// What the platform says about a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// It is asked to be given back (`VFIO_PCI_REQ_IRQ`).
    pub is_requested: bool,
    /// It had an error that could not be corrected (`VFIO_PCI_ERR_IRQ`).
    pub has_failed: bool,
}

/// A controller's function of the PCI bus. Dropping it gives it back.
pub trait Function: Send {
    /// Its registers.
    fn registers(&self) -> &Arc<Registers>;

    /// Resets it, and turns memory decoding and bus mastering on. May take a second.
    ///
    /// # Errors
    /// When it cannot be reset, or is gone.
    fn reset(&self) -> io::Result<()>;

    /// Whether it is on the bus, by its configuration space.
    fn is_present(&self) -> bool;

    /// What happened since the last call.
    fn signals(&self) -> Signals;
}
