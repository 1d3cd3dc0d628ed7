//! A drive that holds up a core.

use crate::common::BLOCKS;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use strake_block::{BlockDevice, CompletionBatch, DeviceError, DeviceInfo, Io, IoQueue, Readiness};
use strake_dev_mem::RamDevice;
use strake_units::{BlockSize, CoreIndex, Nanos};

/// A drive that blocks the submitting core for as long as a test holds the gate.
pub struct Gated {
    drive: RamDevice,
    pub gate: Arc<Mutex<()>>,
    /// How often a core came to the gate.
    pub knocks: Arc<AtomicU32>,
}

impl Gated {
    pub fn new() -> Self {
        let drive = RamDevice::new(BLOCKS, BlockSize::B4096);
        Self { drive, gate: Arc::default(), knocks: Arc::default() }
    }
}

struct GatedQueue {
    queue: Box<dyn IoQueue>,
    gate: Arc<Mutex<()>>,
    knocks: Arc<AtomicU32>,
}

impl BlockDevice for Gated {
    fn info(&self) -> DeviceInfo {
        self.drive.info()
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let queue = self.drive.open_queue(core, depth)?;
        let (gate, knocks) = (Arc::clone(&self.gate), Arc::clone(&self.knocks));
        Ok(Box::new(GatedQueue { queue, gate, knocks }))
    }
}

impl IoQueue for GatedQueue {
    fn submit(&mut self, io: Io) -> Result<(), Io> {
        self.knocks.fetch_add(1, Ordering::SeqCst);
        // A test that fails lets everybody through.
        let _open = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue.submit(io)
    }

    fn ring_doorbell(&mut self, now: Nanos) {
        self.queue.ring_doorbell(now);
    }

    fn poll(&mut self, now: Nanos, batch: &mut CompletionBatch) {
        self.queue.poll(now, batch);
    }

    fn readiness(&self) -> Readiness {
        self.queue.readiness()
    }
}
