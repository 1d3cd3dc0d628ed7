//! Blocks of clients that look like a header of a record. A record contains them with their first byte changed.

use strake_block::{Buf, BufMut};
use strake_ondisk::REDO_BLOCK_BYTES;
use strake_ondisk::redo::{escape, must_escape};

/// Returns the blocks of a payload that look like a header, as a mask.
pub(super) fn marks(payload: &[(usize, Buf)]) -> u64 {
    let mut marks = 0;
    let mut at = 0;
    for (_, buf) in payload {
        let mut start = usize::next_multiple_of(at, REDO_BLOCK_BYTES) - at;
        while start < buf.len() {
            if must_escape(&buf.as_slice()[start..]) {
                marks |= 1 << ((at + start) / REDO_BLOCK_BYTES);
            }
            start += REDO_BLOCK_BYTES;
        }
        at += buf.len();
    }
    marks
}

/// Escapes the blocks of the payload that `marks` names. Clients almost never write such blocks, so a copy is made.
pub(super) fn escape_marked(payload: &mut [(usize, Buf)], marks: u64) {
    if marks == 0 {
        return;
    }
    let mut at = 0;
    for (_, buf) in payload {
        let mut changed = copied(buf);
        let mut start = usize::next_multiple_of(at, REDO_BLOCK_BYTES) - at;
        while start < changed.len() {
            if marks & 1 << ((at + start) / REDO_BLOCK_BYTES) != 0 {
                escape(&mut changed.as_mut_slice()[start..]);
            }
            start += REDO_BLOCK_BYTES;
        }
        at += changed.len();
        *buf = changed.freeze();
    }
}

/// Returns a copy of the bytes in new memory.
pub(super) fn copied(buf: &Buf) -> BufMut {
    let mut copy = BufMut::alone(buf.len());
    copy.as_mut_slice().copy_from_slice(buf.as_slice());
    copy
}
