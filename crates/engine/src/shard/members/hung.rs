//! Devices that let an I/O run into its time limit, as every core learns it from the first that finds out.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};

use strake_block::BlockDevice;

/// Whether some core has given up the I/Os that it had at a device. Each core has a copy of it beside its queue of the
/// device, so it stays with the device when that changes its place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hung(Arc<AtomicBool>);

impl Hung {
    /// After the member was reported: a core that learns this no longer counts its own I/Os there as stalled.
    pub(super) fn set(&self) {
        // Partner is the load in `is_set`: what was reported is seen with it.
        self.0.store(true, Release);
    }

    pub(super) fn is_set(&self) -> bool {
        // Partner is the store in `set`.
        self.0.load(Acquire)
    }
}

/// A device that every core opens for the same place.
#[derive(Clone)]
pub(crate) struct SharedDevice {
    pub(crate) device: Arc<dyn BlockDevice>,
    hung: Hung,
}

impl SharedDevice {
    pub(crate) fn new(device: &Arc<dyn BlockDevice>) -> Self {
        Self { device: Arc::clone(device), hung: Hung::default() }
    }

    pub(super) fn hung(&self) -> Hung {
        self.hung.clone()
    }
}

#[cfg(test)]
mod tests;
