//! The log: one write at a time, with as many records as it takes.

use strake_block::{BufMut, IoError, Sg};
use strake_ondisk::POOL_BLOCK_BYTES;
use strake_volume_map::{Number, Ring};

use super::{Driver, Transfer};

/// A write of the log in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    last: Number,
    /// I/Os in progress: several where the write continues at the start of the log.
    transfers: u32,
    is_failed: bool,
}

impl Driver {
    /// Writes records that are not stable.
    pub(super) fn write_log(&mut self) -> usize {
        if self.log_write.is_some() || self.map.is_read_only() {
            return 0;
        }
        let Some(write) = self.log.write(self.map.records(Ring::LEADER)) else { return 0 };
        let blocks = (write.bytes.len() / POOL_BLOCK_BYTES) as u64;
        let line = self.log.blocks() - write.sequence % self.log.blocks();
        let cut = blocks.min(line) as usize * POOL_BLOCK_BYTES;
        let mut buffer = BufMut::alone(write.bytes.len());
        buffer.as_mut_slice().copy_from_slice(&write.bytes);
        let data = Sg::from(buffer.freeze());
        let (sequence, rest) = (write.sequence, data.slice(cut, data.len() - cut));
        let mut transfers =
            self.send_writes(Transfer::Log, self.layout.log_block(sequence), &data.slice(0, cut));
        transfers += self.send_writes(Transfer::Log, self.layout.log_block(0), &rest);
        self.log_write = Some(Writing { last: write.last, transfers, is_failed: false });
        1
    }

    pub(super) fn log_io_completed(&mut self, result: Result<(), IoError>) {
        let Some(write) = &mut self.log_write else { return };
        write.is_failed |= result.is_err();
        write.transfers -= 1;
        if write.transfers > 0 {
            return;
        }
        let Writing { last, is_failed, .. } = *write;
        self.log_write = None;
        if is_failed {
            // Whether the records are on the device is unknown: only the next start shows it.
            self.map.log_failed();
        } else {
            self.map.stable(Ring::LEADER, last);
        }
    }
}
