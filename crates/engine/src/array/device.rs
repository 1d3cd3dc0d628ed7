//! The array as a block device.

use std::sync::{Arc, mpsc};

use strake_block::{
    BlockDevice, DeallocateReads, DeviceError, DeviceInfo, IoErrorKind, IoQueue, VolatileCache,
};
use strake_reactor::mailbox;
use strake_units::{CoreIndex, Name};

use super::{Array, Waker};
use crate::limits::{IO_BYTES_MAX, PORT_DEPTH_MAX};
use crate::message::Control;
use crate::port;
use crate::queue::ArrayQueue;
use crate::shared_status::SharedStatus;

impl Array {
    pub(super) fn info(&self) -> DeviceInfo {
        let stripe = self.geometry.stripe_data_blocks() << self.geometry.block_size().shift();
        DeviceInfo {
            identity: format!("array:{}", self.uuid),
            blocks: self.geometry.capacity_blocks(),
            block_size: self.geometry.block_size(),
            io_bytes_max: IO_BYTES_MAX,
            io_bytes_optimal: u32::try_from(stripe).unwrap_or(IO_BYTES_MAX).min(IO_BYTES_MAX),
            cache: VolatileCache::Present,
            deallocate: DeallocateReads::Unspecified,
            fast_zeroes: true,
            read_only: false,
        }
    }
}

/// The array as a block device.
pub(super) struct ArrayDevice {
    pub(super) name: Name,
    pub(super) info: DeviceInfo,
    pub(super) shared: Arc<SharedStatus>,
    pub(super) ports: Vec<(mpsc::Sender<Control>, Waker)>,
}

impl BlockDevice for ArrayDevice {
    fn info(&self) -> DeviceInfo {
        self.info.clone()
    }

    fn open_queue(&self, core: CoreIndex, depth: u32) -> Result<Box<dyn IoQueue>, DeviceError> {
        let gone = |what: &str| DeviceError::new(IoErrorKind::Gone, self.name.as_str(), what);
        let (control, wake) =
            self.ports.get(core.at()).ok_or_else(|| gone("the array does not run on this core"))?;
        let depth = depth.clamp(1, PORT_DEPTH_MAX);
        if let Some(shard) = port::shard_here(&self.shared, core.at()) {
            return Ok(Box::new(shard.open_port(depth, wake.clone())));
        }
        let (request_send, requests) = mailbox(depth as usize);
        let (replies, reply_receive) = mailbox(depth as usize);
        control
            .send(Control::Connect { requests, replies })
            .map_err(|_| gone("the array was stopped"))?;
        wake.wake();
        Ok(Box::new(ArrayQueue::far(request_send, reply_receive, depth, wake.clone())))
    }
}
