//! Devices that several cores have open. The first core that notices an expired time limit informs every other core.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use strake_block::BlockDevice;

/// A flag that is set when some core has abandoned its I/Os at a device. Each core has a handle to the flag next to its
/// queue of the device, so the flag moves with the device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hung(Arc<AtomicBool>);

impl Hung {
    /// Sets the flag, after the member was reported. A core that sees the flag no longer counts its own I/Os at the
    /// device as stalled.
    pub(crate) fn set(&self) {
        // Pairs with the load in `is_set`, which then also sees the report.
        self.0.store(true, Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        // Pairs with the store in `set`.
        self.0.load(Acquire)
    }
}

/// A device that every core opens for the same index.
#[derive(Clone)]
pub(crate) struct SharedDevice {
    pub(crate) device: Arc<dyn BlockDevice>,
    hung: Hung,
}

impl SharedDevice {
    pub(crate) fn new(device: &Arc<dyn BlockDevice>) -> Self {
        Self { device: Arc::clone(device), hung: Hung::default() }
    }

    pub(crate) fn hung(&self) -> Hung {
        self.hung.clone()
    }
}
