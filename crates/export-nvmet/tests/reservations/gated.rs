//! A drive that blocks a core.

use crate::common::BLOCKS;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use strake_block::{BlockDevice, DeviceError, DeviceInfo, IoQueue};
use strake_dev_mem::{Intercept, RamDevice};
use strake_units::{BlockSize, CoreIndex};

/// A drive that blocks the submitting core for as long as a test holds the gate.
pub struct Gated {
    drive: RamDevice,
    pub gate: Arc<Mutex<()>>,
    /// The number of calls that reached the gate.
    pub knocks: Arc<AtomicU32>,
}

impl Gated {
    pub fn new() -> Self {
        let drive = RamDevice::new(BLOCKS, BlockSize::B4096);
        Self { drive, gate: Arc::default(), knocks: Arc::default() }
    }
}

impl BlockDevice for Gated {
    fn info(&self) -> DeviceInfo {
        self.drive.info()
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let queue = self.drive.open_queue(core, depth)?;
        let (gate, knocks) = (Arc::clone(&self.gate), Arc::clone(&self.knocks));
        Ok(Box::new(Intercept::new(queue, move |queue, io| {
            knocks.fetch_add(1, Ordering::SeqCst);
            // A failed test lets every request pass.
            let _open = gate.lock().unwrap_or_else(PoisonError::into_inner);
            queue.submit(io)
        })))
    }
}
