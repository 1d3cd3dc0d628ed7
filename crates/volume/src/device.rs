//! A volume as a block device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use strake_block::{BlockDevice, DeallocateReads, DeviceError, DeviceInfo, IoErrorKind, IoQueue};
use strake_reactor::{CoreHandle, mailbox};
use strake_units::CoreIndex;
use strake_volume_map::{VolumeId, VolumeKind};

use crate::limits::PORT_DEPTH_MAX;
use crate::queue::VolumeQueue;
use crate::request::Control;

/// A volume, snapshot or clone as a block device.
pub(crate) struct VolumeDevice {
    pub(crate) volume: VolumeId,
    pub(crate) kind: VolumeKind,
    /// The size in blocks, which the pool core changes.
    pub(crate) blocks: Arc<AtomicU64>,
    /// The properties without the size.
    pub(crate) info: DeviceInfo,
    pub(crate) control: mpsc::Sender<Control>,
    /// The pool core. `None` if the user drives the pool.
    pub(crate) pool_core: Option<CoreHandle>,
    /// All data cores, by index.
    pub(crate) cores: Vec<CoreHandle>,
    /// True when users may no longer submit requests.
    pub(crate) is_closing: Arc<AtomicBool>,
}

impl BlockDevice for VolumeDevice {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            blocks: self.blocks.load(Ordering::Acquire),
            deallocate: DeallocateReads::Zeroes,
            fast_zeroes: true,
            read_only: self.kind == VolumeKind::Snapshot,
            ..self.info.clone()
        }
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let depth = depth.clamp(1, PORT_DEPTH_MAX);
        let (requests, accepted) = mailbox(depth as usize);
        let (answers, replies) = mailbox(depth as usize);
        let wake = self.cores.get(core.at()).cloned();
        let connect =
            Control::Connect { volume: self.volume, requests: accepted, replies: answers, wake };
        self.control.send(connect).map_err(|_| {
            DeviceError::new(IoErrorKind::Gone, &self.info.identity, "the pool was stopped")
        })?;
        if let Some(core) = &self.pool_core {
            core.wake();
        }
        Ok(Box::new(VolumeQueue::new(
            requests,
            replies,
            self.pool_core.clone(),
            Arc::clone(&self.is_closing),
            depth,
        )))
    }
}
