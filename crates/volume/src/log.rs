//! The log of a pool: records in blocks, which blocks are in use, and how a start reads them. No I/O.
//!
//! A *write* of the log is some consecutive blocks with whole records. One write is in progress at a time, so a stable
//! write implies that every earlier one is stable. A block in use is never written again: a torn write damages nothing
//! that was reported.

use std::collections::VecDeque;

use strake_ondisk::{
    LOG_PAYLOAD_MAX, LogBlock, LogStart, POOL_BLOCK_BYTES, decode_log_block, encode_log_block,
};
use strake_units::Uuid;
use strake_volume_map::{Number, Record, Ring, Shape, decode_record, encode_record};

use crate::limits::LOG_WRITE_BYTES;

/// Maximum blocks of one write.
pub(crate) const LOG_WRITE_BLOCKS: usize = LOG_WRITE_BYTES.div_ceil(LOG_PAYLOAD_MAX);

/// A write of the log that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    /// Sequence of its first block.
    sequence: u64,
    /// Number of its last record.
    last: Number,
}

/// A write to execute.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogWrite {
    /// Sequence of the first block.
    pub(crate) sequence: u64,
    /// The blocks.
    pub(crate) bytes: Vec<u8>,
    /// Number of the last record.
    pub(crate) last: Number,
}

/// The log while the pool is in use.
#[derive(Debug)]
pub(crate) struct Log {
    pool: Uuid,
    shape: Shape,
    start: LogStart,
    /// Blocks of the log.
    blocks: u64,
    /// Sequence of the next block.
    next: u64,
    /// Sequence of the first block in use.
    tail: u64,
    written: VecDeque<Written>,
}

impl Log {
    /// Returns the log with the start that writes to it.
    pub(crate) fn of_start(mut self, start: LogStart) -> Self {
        self.start = start;
        self
    }

    /// Blocks in use.
    pub(crate) fn used(&self) -> u64 {
        self.next - self.tail
    }

    /// Sequence of the next block.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// All blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the blocks that a write of these records needs at most.
    pub(crate) fn blocks_for<'a>(&self, records: impl Iterator<Item = &'a Record>) -> u64 {
        let bytes: usize = records.map(|record| encode_record(record, self.shape).len()).sum();
        // A write of the log may end before its limit, because a record does not fit.
        let writes = bytes.div_ceil(LOG_WRITE_BYTES / 2);
        (bytes.div_ceil(LOG_PAYLOAD_MAX) + writes) as u64
    }

    /// Blocks that are not in use.
    pub(crate) fn free(&self) -> u64 {
        self.blocks - self.used()
    }

    /// Returns the sequence of the block from which a root with this floor is replayed.
    pub(crate) fn position(&self, floor: Number) -> u64 {
        let at = self.written.iter().find(|written| written.last >= floor);
        at.map_or(self.next, |written| written.sequence)
    }

    /// Releases the blocks whose records are all below this number.
    pub(crate) fn trim(&mut self, keep_from: Number) {
        while self.written.front().is_some_and(|written| written.last < keep_from) {
            self.written.pop_front();
        }
        self.tail = self.written.front().map_or(self.next, |written| written.sequence);
    }

    /// Returns the next write: as many of the records as fit in one write and in the free blocks. `None` without a
    /// record or without room for the first one.
    pub(crate) fn write<'a>(
        &mut self,
        records: impl Iterator<Item = &'a Record>,
    ) -> Option<LogWrite> {
        let room = ((self.blocks - self.used()) as usize).saturating_mul(LOG_PAYLOAD_MAX);
        let most = room.min(LOG_WRITE_BYTES);
        let (mut stream, mut last) = (Vec::new(), None);
        for record in records {
            let bytes = encode_record(record, self.shape);
            if stream.len() + bytes.len() > most {
                break;
            }
            stream.extend_from_slice(&bytes);
            last = Some(record.number);
        }
        let last = last?;
        let count = stream.len().div_ceil(LOG_PAYLOAD_MAX);
        let mut bytes = vec![0; count * POOL_BLOCK_BYTES];
        let parts = bytes.chunks_exact_mut(POOL_BLOCK_BYTES).zip(stream.chunks(LOG_PAYLOAD_MAX));
        for ((out, payload), sequence) in parts.zip(self.next..) {
            let (start, is_first) = (self.start, sequence == self.next);
            let block = LogBlock { sequence, start, is_first, payload };
            encode_log_block(self.pool, &block, out);
        }
        let sequence = self.next;
        self.written.push_back(Written { sequence, last });
        self.next += count as u64;
        Some(LogWrite { sequence, bytes, last })
    }
}

/// Reads the log block by block, in the order of their sequences.
#[derive(Debug)]
pub(crate) struct LogReader {
    pool: Uuid,
    shape: Shape,
    next: u64,
    /// The start of the last block.
    start: Option<LogStart>,
    /// The end of the log, and the start that wrote the last whole record. A block without the end of a record does not
    /// count: the next start may have the same number as the start that wrote the block, and writes over it.
    end: (u64, Option<LogStart>),
    /// Bytes of a record that continues in the next block.
    rest: Vec<u8>,
    records: Vec<Record>,
    written: VecDeque<Written>,
    /// Sequence of the first block of the present write.
    write: u64,
}

impl LogReader {
    /// Starts at the block with this sequence.
    pub(crate) fn new(pool: Uuid, shape: Shape, from: u64) -> Self {
        let (start, rest, records) = (None, Vec::new(), Vec::new());
        let written = VecDeque::new();
        let end = (from, None);
        Self { pool, shape, next: from, start, end, rest, records, written, write: from }
    }

    /// Sequence of the next block to take.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Sequence of the first block after the log.
    pub(crate) fn end(&self) -> u64 {
        self.end.0
    }

    /// True if the bytes at the place of a block after the end show that the log goes on there. A write begins only
    /// after the write before it is stable, so a torn write is never followed by the first block of another.
    pub(crate) fn is_continued_at(&self, sequence: u64, bytes: &[u8]) -> bool {
        let block = decode_log_block(bytes, self.pool);
        let start = self.end.1.unwrap_or_default();
        block.is_some_and(|block| {
            let is_new = block.start == start || block.start.number > start.number;
            block.sequence == sequence && block.is_first && is_new
        })
    }

    /// Takes the bytes at the place of the next block. False if the log ends before this block.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> bool {
        let Some(block) = decode_log_block(bytes, self.pool) else { return false };
        let follows = match self.start {
            None => block.is_first,
            Some(start) => {
                let is_later = block.start.number > start.number;
                if block.is_first { is_later || block.start == start } else { block.start == start }
            }
        };
        if block.sequence != self.next || !follows {
            return false;
        }
        if block.is_first {
            // The end of a record that is missing here was never written: its write is torn.
            self.rest.clear();
            self.write = block.sequence;
        }
        self.rest.extend_from_slice(block.payload);
        let Some(records) = self.take_records() else { return false };
        if let Some(last) = records.last() {
            let last = last.number;
            match self.written.back_mut() {
                Some(written) if written.sequence == self.write => written.last = last,
                Some(_) | None => self.written.push_back(Written { sequence: self.write, last }),
            }
        }
        self.start = Some(block.start);
        self.next += 1;
        if !records.is_empty() {
            self.end = (self.next, self.start);
        }
        self.records.extend(records);
        true
    }

    /// Returns all whole records of the bytes so far. `None` if one does not continue the log: the next start writes
    /// over the block, so none of its records may count.
    fn take_records(&mut self) -> Option<Vec<Record>> {
        let (mut records, mut used) = (Vec::new(), 0);
        while let Ok((record, bytes)) = decode_record(&self.rest[used..], self.shape) {
            let last = records.last().or(self.records.last());
            if record.ring != Ring::LEADER || !strake_volume_map::follows(last, &record) {
                return None;
            }
            records.push(record);
            used += bytes;
        }
        self.rest.drain(..used);
        Some(records)
    }

    /// Returns the records, and the log after them for a start.
    pub(crate) fn finish(self, blocks: u64, start: LogStart, tail: u64) -> (Vec<Record>, Log) {
        let Self { pool, shape, end: (next, _), records, written, .. } = self;
        (records, Log { pool, shape, start, blocks, next, tail, written })
    }
}
