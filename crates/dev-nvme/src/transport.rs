//! The interface between the driver and its transport: a function of the PCI bus, and the memory that it may reach.
//!
//! [`vfio`] has the implementation for hardware, and [`memory`] the implementation for models in this process.

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
    /// Maximum number of mappings.
    pub mappings_max: usize,
}

/// The memory that devices reach: an address space of an IOMMU. Several functions may share it.
pub trait Space: Send + Sync {
    /// The range and the limits of mappings.
    fn reach(&self) -> Reach;

    /// Makes `bytes` bytes at `address` of this process visible to devices at `iova`. All three are multiples of a
    /// page. The memory must outlive the mapping.
    ///
    /// # Errors
    /// The kernel refuses, for example because of the limit on locked memory.
    fn map(&self, address: usize, bytes: usize, iova: u64) -> io::Result<()>;

    /// Removes a mapping.
    ///
    /// # Errors
    /// The range is not mapped.
    fn unmap(&self, iova: u64, bytes: usize) -> io::Result<()>;
}

/// Signals of the platform about a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// The platform requests the function back (`VFIO_PCI_REQ_IRQ`).
    pub is_requested: bool,
    /// The function had an uncorrectable error (`VFIO_PCI_ERR_IRQ`).
    pub has_failed: bool,
}

/// A controller's function of the PCI bus. Dropping it gives it back.
pub trait Function: Send {
    /// Its registers.
    fn registers(&self) -> &Arc<Registers>;

    /// Resets the function, and turns memory decoding and bus mastering on. This may take a second.
    ///
    /// # Errors
    /// The function cannot be reset, or is gone.
    fn reset(&self) -> io::Result<()>;

    /// Whether the function is on the bus, according to its configuration space.
    fn is_present(&self) -> bool;

    /// Returns the signals since the last call.
    fn signals(&self) -> Signals;
}
