//! Views: the clusters of a volume that its queues use without the pool core.
//!
//! A view is a cache. The pool core adds a part after a request for it, and removes it when the map revokes the part.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use strake_volume_map::{ClusterId, Direct};

/// Parts of a leaf of a view.
const LEAF: usize = 1024;

/// A part without a cluster in the view.
const NONE: u32 = u32::MAX;

/// The bit of a part that may be written in place. The numbers of clusters are smaller.
const WRITABLE: u32 = 1 << 31;

/// Consecutive parts of a volume.
#[derive(Debug)]
struct Leaf {
    /// The generation of the view to which the parts belong.
    generation: AtomicU32,
    parts: Box<[AtomicU32]>,
}

/// What the queues of a volume know of it.
#[derive(Debug)]
pub(crate) struct View {
    /// The size of the volume in blocks.
    pub(crate) blocks: AtomicU64,
    /// The number of changes of the whole volume.
    generation: AtomicU32,
    leaves: Box<[OnceLock<Leaf>]>,
}

impl View {
    /// Returns the view of a volume with this number of blocks and parts. Parts that a later growth adds are not in the
    /// view.
    pub(crate) fn new(blocks: u64, parts: u64) -> Self {
        let leaves = (parts as usize).div_ceil(LEAF);
        Self {
            blocks: AtomicU64::new(blocks),
            generation: AtomicU32::new(0),
            leaves: (0..leaves).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Returns the cluster of a part, for an I/O that is in a section.
    pub(crate) fn get(&self, part: u32) -> Option<Direct> {
        let generation = self.generation.load(Ordering::Acquire);
        let leaf = self.leaves.get(part as usize / LEAF)?.get()?;
        if leaf.generation.load(Ordering::Acquire) != generation {
            return None;
        }
        let found = leaf.parts[part as usize % LEAF].load(Ordering::Acquire);
        let is_writable = found & WRITABLE != 0;
        (found != NONE).then_some(Direct { cluster: ClusterId(found & !WRITABLE), is_writable })
    }

    /// Adds a part. Only the pool core changes a view.
    pub(crate) fn add(&self, part: u32, direct: Direct) {
        let Some(leaf) = self.leaves.get(part as usize / LEAF) else { return };
        let generation = self.generation.load(Ordering::Relaxed);
        let leaf = leaf.get_or_init(|| Leaf {
            generation: AtomicU32::new(generation),
            parts: (0..LEAF).map(|_| AtomicU32::new(NONE)).collect(),
        });
        if leaf.generation.load(Ordering::Relaxed) != generation {
            leaf.parts.iter().for_each(|part| part.store(NONE, Ordering::Release));
            leaf.generation.store(generation, Ordering::Release);
        }
        let writable = if direct.is_writable { WRITABLE } else { 0 };
        leaf.parts[part as usize % LEAF].store(direct.cluster.0 | writable, Ordering::Release);
    }

    /// Removes a part.
    pub(crate) fn remove(&self, part: u32) {
        let leaf = self.leaves.get(part as usize / LEAF).and_then(OnceLock::get);
        if let Some(leaf) = leaf {
            leaf.parts[part as usize % LEAF].store(NONE, Ordering::Release);
        }
    }

    /// Removes all parts.
    pub(crate) fn clear(&self) {
        let generation = self.generation.load(Ordering::Relaxed);
        self.generation.store(generation.wrapping_add(1), Ordering::Release);
    }
}
