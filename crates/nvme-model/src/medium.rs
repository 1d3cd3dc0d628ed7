//! The blocks of a namespace, with a volatile cache.

use crate::protection::Tuple;
use crate::spec::{NamespaceSpec, Protection};
use std::collections::BTreeMap;
use std::ops::Range;
use strake_nvme_wire::Status;

/// The content of a block, with its protection information.
type Kept = (Vec<u8>, Tuple);

/// A namespace and its blocks.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) spec: NamespaceSpec,
    bytes: Vec<u8>,
    tuples: Vec<Tuple>,
    /// What blocks were that only the cache has changed.
    stable: BTreeMap<u64, Kept>,
    /// Commands that touch these blocks fail.
    pub(crate) bad: BTreeMap<u64, Status>,
}

impl Namespace {
    pub(crate) fn new(spec: NamespaceSpec) -> Self {
        let mut namespace = Self {
            spec,
            bytes: vec![0; (spec.blocks << spec.block_log2) as usize],
            tuples: Vec::new(),
            stable: BTreeMap::new(),
            bad: BTreeMap::new(),
        };
        namespace.protect();
        namespace
    }

    fn protect(&mut self) {
        self.tuples.clear();
        if self.spec.protection == Protection::Type1 {
            let size = 1 << self.spec.block_log2;
            let of = |(at, bytes): (usize, &[u8])| Tuple::of(bytes, at as u64);
            self.tuples = self.bytes.chunks(size).enumerate().map(of).collect();
        }
    }

    fn range(&self, block: u64) -> Range<usize> {
        let at = (block << self.spec.block_log2) as usize;
        at..at + (1 << self.spec.block_log2)
    }

    pub(crate) fn block(&self, block: u64) -> &[u8] {
        &self.bytes[self.range(block)]
    }

    /// Whether the protection information of a block fits its content.
    pub(crate) fn check(&self, block: u64) -> Result<(), Status> {
        let Some(tuple) = self.tuples.get(block as usize) else { return Ok(()) };
        let expected = Tuple::of(self.block(block), block);
        match *tuple {
            tuple if tuple.guard != expected.guard => Err(crate::status::GUARD),
            tuple if tuple.reference != expected.reference => Err(crate::status::REFERENCE_TAG),
            _ => Ok(()),
        }
    }

    /// Changes a block.
    pub(crate) fn set(&mut self, block: u64, bytes: &[u8], cached: bool) {
        let range = self.range(block);
        let tuple = self.tuples.get(block as usize).copied().unwrap_or_default();
        if cached {
            let kept = &self.bytes[range.clone()];
            self.stable.entry(block).or_insert_with(|| (kept.to_vec(), tuple));
        } else {
            self.stable.remove(&block);
        }
        self.bytes[range].copy_from_slice(bytes);
        if let Some(tuple) = self.tuples.get_mut(block as usize) {
            *tuple = Tuple::of(bytes, block);
        }
    }

    /// Zeroes the protection information of a block.
    pub(crate) fn clear_protection(&mut self, block: u64) {
        if let Some(tuple) = self.tuples.get_mut(block as usize) {
            *tuple = Tuple::default();
        }
    }

    /// Damages the content of a block behind its protection information.
    pub(crate) fn damage(&mut self, block: u64) {
        let at = self.range(block).start;
        self.bytes[at] ^= 1;
    }

    /// Makes the cache stable.
    pub(crate) fn flush(&mut self) {
        self.stable.clear();
    }

    /// The cache is lost.
    pub(crate) fn lose_cache(&mut self) {
        for (block, (bytes, tuple)) in std::mem::take(&mut self.stable) {
            let range = self.range(block);
            self.bytes[range].copy_from_slice(&bytes);
            if let Some(place) = self.tuples.get_mut(block as usize) {
                *place = tuple;
            }
        }
    }

    /// Has so many blocks from now on.
    pub(crate) fn resize(&mut self, blocks: u64) {
        let spec = NamespaceSpec { blocks, ..self.spec };
        self.stable.retain(|block, _| *block < blocks);
        self.bytes.resize((blocks << spec.block_log2) as usize, 0);
        self.spec = spec;
        self.protect();
    }

    /// Erases everything, with other blocks.
    pub(crate) fn format(&mut self, spec: NamespaceSpec) {
        *self = Self::new(spec);
    }
}
