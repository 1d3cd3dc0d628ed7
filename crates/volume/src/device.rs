//! A volume as a block device.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use strake_block::{BlockDevice, DeallocateReads, DeviceError, DeviceInfo, IoErrorKind, IoQueue};
use strake_reactor::{CoreHandle, mailbox};
use strake_units::CoreIndex;
use strake_volume_map::{VolumeId, VolumeKind};

use crate::direct_queue::DirectQueue;
use crate::grace::{Grace, Section};
use crate::layout::Layout;
use crate::limits::PORT_DEPTH_MAX;
use crate::queue::{ByPool, VolumeQueue};
use crate::request::Control;
use crate::store::Opened;
use crate::view::View;

/// What the queues of all volumes of a pool use without the pool core.
#[derive(Clone)]
pub(crate) struct Below {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) layout: Arc<Layout>,
    pub(crate) grace: Arc<Grace>,
}

impl Below {
    pub(crate) fn of(opened: &Opened) -> Self {
        let device = Arc::clone(&opened.device);
        Self { device, layout: Arc::new(opened.layout.clone()), grace: Arc::new(Grace::new()) }
    }
}

/// A volume, snapshot or clone as a block device.
pub(crate) struct VolumeDevice {
    pub(crate) volume: VolumeId,
    pub(crate) kind: VolumeKind,
    /// The size and the clusters, which the pool core changes.
    pub(crate) view: Arc<View>,
    pub(crate) below: Below,
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
            blocks: self.view.blocks.load(Ordering::Acquire),
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
        let queue = self.below.device.open_queue(core, depth)?;
        let section = Arc::new(Section::new());
        let connect = Control::Connect {
            volume: self.volume,
            requests: accepted,
            replies: answers,
            wake,
            section: Arc::clone(&section),
        };
        self.control.send(connect).map_err(|_| {
            DeviceError::new(IoErrorKind::Gone, &self.info.identity, "the pool was stopped")
        })?;
        if let Some(core) = &self.pool_core {
            core.wake();
        }
        let by_pool = ByPool::new(requests, replies, self.pool_core.clone());
        let direct = DirectQueue::new(queue, &self.below, Arc::clone(&self.view), section, depth);
        Ok(Box::new(VolumeQueue::new(by_pool, direct, Arc::clone(&self.is_closing), depth)))
    }
}
