//! The write of a root, one piece in each turn: a root of a large pool has gigabytes.

use std::collections::BTreeMap;

use strake_block::{BufMut, IoError, IoErrorKind, Sg};
use strake_ondisk::{POOL_BLOCK_BYTES, RootHeader, encode_root_header};
use strake_volume_map::OperationId;

use super::steps::Running;
use super::{Driver, Transfer};
use crate::limits::{ROOT_PIECE_BYTES, ROOT_WRITE_BYTES, ROOT_WRITES_MAX};

/// A root in progress.
pub(super) struct RootWrite {
    operation: OperationId,
    /// The byte of the device at which the root begins.
    at: u64,
    sequence: u64,
    /// The block of the log from which a start replays.
    log_from: u64,
    /// Bytes of the image that were sent.
    sent: u64,
    /// Bytes of the image that were not sent yet.
    pending: Vec<u8>,
}

impl RootWrite {
    /// Begins a root at a byte of the device. The step counts as one I/O more, so that it does not end between two
    /// pieces.
    pub(super) const fn new(operation: OperationId, at: u64, sequence: u64, log_from: u64) -> Self {
        Self { operation, at, sequence, log_from, sent: 0, pending: Vec::new() }
    }

    /// True if the next piece may be written: few writes are in progress.
    pub(super) fn is_due(&self, operations: &BTreeMap<OperationId, Running>) -> bool {
        let running = operations.get(&self.operation);
        running.is_some_and(|running| running.parts() <= ROOT_WRITES_MAX)
    }
}

impl Driver {
    /// Writes the next piece of a root. The header comes last, because it has the CRC of the image. A torn root fails
    /// this CRC.
    pub(super) fn write_root(&mut self) -> usize {
        let operations = &self.operations;
        let Some(mut root) = self.root.take_if(|root| root.is_due(operations)) else { return 0 };
        let id = root.operation;
        if self.running(id).has_failed() {
            self.step_part_ended(id);
            return 1;
        }
        let is_last = self.map.root_piece(&mut root.pending, ROOT_PIECE_BYTES);
        let bytes = root.sent + root.pending.len() as u64;
        if bytes > self.layout.header.root_bytes - POOL_BLOCK_BYTES as u64 {
            self.running(id).fail(IoError::new(IoErrorKind::NoSpace));
            self.step_part_ended(id);
            return 1;
        }
        if is_last {
            // An image ends with its CRC-32C.
            let image_crc =
                root.pending.last_chunk::<4>().map_or(0, |crc| u32::from_le_bytes(*crc));
            let (sequence, log_from) = (root.sequence, root.log_from);
            let header = RootHeader { sequence, bytes, image_crc, log_from };
            let header = encode_root_header(self.layout.header.pool, &header);
            self.write_part(id, root.at, &header);
            root.pending.resize(root.pending.len().next_multiple_of(POOL_BLOCK_BYTES), 0);
        }
        let whole = root.pending.len() / POOL_BLOCK_BYTES * POOL_BLOCK_BYTES;
        if is_last || whole >= ROOT_WRITE_BYTES {
            let at = root.at + POOL_BLOCK_BYTES as u64 + root.sent;
            self.write_part(id, at, &root.pending[..whole]);
            root.sent += whole as u64;
            root.pending.drain(..whole);
        }
        if is_last {
            self.step_part_ended(id);
        } else {
            self.root = Some(root);
        }
        1
    }

    fn write_part(&mut self, id: OperationId, at: u64, bytes: &[u8]) {
        let mut buffer = BufMut::alone(bytes.len());
        buffer.as_mut_slice().copy_from_slice(bytes);
        let data = Sg::from(buffer.freeze());
        let count = self.send_writes(Transfer::Step { operation: id }, at, &data);
        self.running(id).begin_parts(count);
    }
}
