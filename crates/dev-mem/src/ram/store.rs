//! Sparse bytes for concurrent reads and writes of several threads.

use super::EXTENT_BYTES;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use strake_block::{BufMut, BufPool};

/// Number of extents of one directory entry: an entry covers 64 MiB, so that 1 TiB needs 16384 entries.
const EXTENTS_PER_LEAF: usize = 1024;
const LEAF_BYTES: u64 = (EXTENT_BYTES * EXTENTS_PER_LEAF) as u64;

/// One extent; an absent extent contains only zeroes.
type Slot = Mutex<Option<BufMut>>;

/// The table has two levels, because a flat table of locks for a large empty drive would itself be large.
pub(super) struct Store {
    bytes: u64,
    leaves: Box<[OnceLock<Box<[Slot]>>]>,
}

/// The part of an extent that a piece of a request covers.
struct Piece {
    leaf: usize,
    slot: usize,
    within: Range<usize>,
}

/// Divides `bytes` bytes from `byte` at the boundaries of extents.
fn pieces(byte: u64, bytes: u64) -> impl Iterator<Item = Piece> {
    let end = byte + bytes;
    let mut at = byte;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let start = (at % EXTENT_BYTES as u64) as usize;
        let take = (end - at).min((EXTENT_BYTES - start) as u64) as usize;
        let extent = (at / EXTENT_BYTES as u64) as usize;
        at += take as u64;
        Some(Piece {
            leaf: extent / EXTENTS_PER_LEAF,
            slot: extent % EXTENTS_PER_LEAF,
            within: start..start + take,
        })
    })
}

/// A panic of a thread with this lock can leave changed bytes, but not an invalid structure.
fn lock(slot: &Slot) -> MutexGuard<'_, Option<BufMut>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

fn zeroed_extent() -> BufMut {
    BufMut::alone(EXTENT_BYTES)
}

impl Store {
    pub(super) fn new(bytes: u64) -> Self {
        let leaves = bytes.div_ceil(LEAF_BYTES) as usize;
        Self { bytes, leaves: (0..leaves).map(|_| OnceLock::new()).collect() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn leaf(&self, index: usize) -> &[Slot] {
        self.leaves[index].get_or_init(|| (0..EXTENTS_PER_LEAF).map(|_| Mutex::new(None)).collect())
    }

    pub(super) fn read(&self, byte: u64, data: &mut [u8]) {
        let mut rest = data;
        for piece in pieces(byte, rest.len() as u64) {
            let (head, tail) = rest.split_at_mut(piece.within.len());
            match self.leaves[piece.leaf].get().map(|leaf| lock(&leaf[piece.slot])) {
                Some(guard) => match guard.as_ref() {
                    Some(extent) => head.copy_from_slice(&extent.as_slice()[piece.within]),
                    None => head.fill(0),
                },
                None => head.fill(0),
            }
            rest = tail;
        }
    }

    pub(super) fn write(&self, byte: u64, data: &[u8]) {
        let mut rest = data;
        for piece in pieces(byte, rest.len() as u64) {
            let (head, tail) = rest.split_at(piece.within.len());
            let mut guard = lock(&self.leaf(piece.leaf)[piece.slot]);
            let extent = guard.get_or_insert_with(zeroed_extent);
            extent.as_mut_slice()[piece.within].copy_from_slice(head);
            rest = tail;
        }
    }

    /// Zeroes bytes. Extents that are completely zeroed are freed.
    pub(super) fn zero(&self, byte: u64, bytes: u64) {
        let end = byte + bytes;
        let mut at = byte;
        while at < end {
            let leaf_end = (at / LEAF_BYTES + 1) * LEAF_BYTES;
            let take = end.min(leaf_end) - at;
            // A leaf that was never written already contains only zeroes. To skip it as a whole makes the erasure of a
            // large drive fast.
            if let Some(leaf) = self.leaves[(at / LEAF_BYTES) as usize].get() {
                for piece in pieces(at, take) {
                    zero_piece(&leaf[piece.slot], piece.within);
                }
            }
            at += take;
        }
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        let leaves = self.leaves.iter().filter_map(OnceLock::get);
        let extents = leaves.flatten().filter(|slot| lock(slot).is_some()).count();
        (extents * EXTENT_BYTES) as u64
    }

    /// Allocates one piece of memory, which therefore has huge pages. With small pages, most requests would cause a TLB
    /// miss. The memory is freed as a whole.
    pub(super) fn preallocate(&self) {
        let extents = self.bytes.div_ceil(EXTENT_BYTES as u64) as usize;
        let mut pool = BufPool::new(extents, EXTENT_BYTES);
        for piece in pieces(0, self.bytes) {
            let mut slot = lock(&self.leaf(piece.leaf)[piece.slot]);
            if slot.is_none() {
                *slot = pool.get(EXTENT_BYTES);
            }
        }
    }
}

fn zero_piece(slot: &Slot, within: Range<usize>) {
    let mut guard = lock(slot);
    if within.len() == EXTENT_BYTES {
        *guard = None;
    } else if let Some(extent) = guard.as_mut() {
        extent.as_mut_slice()[within].fill(0);
    }
}
