//! The writes of every block, shared between copies until one of them changes.

use std::sync::Arc;

use super::Write;

/// Blocks of a chunk.
const CHUNK_BLOCKS: usize = 64;

/// The relevant writes of one block, oldest first; `None` for an unwritten block.
type Block = Option<Arc<Vec<Write>>>;

/// The writes of all blocks. A clone costs a pointer for each chunk with a written block.
#[derive(Clone)]
pub(super) struct Blocks {
    chunks: Vec<Option<Arc<[Block; CHUNK_BLOCKS]>>>,
    count: usize,
}

impl Blocks {
    /// Creates this number of unwritten blocks.
    pub(super) fn new(count: usize) -> Self {
        Self { chunks: vec![None; count.div_ceil(CHUNK_BLOCKS)], count }
    }

    /// The writes of a block; empty for an unwritten block.
    pub(super) fn get(&self, lba: u64) -> &[Write] {
        let at = self.place(lba);
        let block = self.chunks[at / CHUNK_BLOCKS].as_ref();
        block.and_then(|chunk| chunk[at % CHUNK_BLOCKS].as_deref()).map_or(&[], Vec::as_slice)
    }

    /// The writes of a block, for changes.
    pub(super) fn get_mut(&mut self, lba: u64) -> &mut Vec<Write> {
        let at = self.place(lba);
        let chunk = self.chunks[at / CHUNK_BLOCKS]
            .get_or_insert_with(|| Arc::new([const { None }; CHUNK_BLOCKS]));
        let block = &mut Arc::make_mut(chunk)[at % CHUNK_BLOCKS];
        Arc::make_mut(block.get_or_insert_default())
    }

    /// The writes of every written block, for changes.
    pub(super) fn written_mut(&mut self) -> impl Iterator<Item = &mut Vec<Write>> {
        let blocks = self.chunks.iter_mut().flatten().flat_map(Arc::make_mut);
        blocks.flatten().map(Arc::make_mut)
    }

    /// The written blocks.
    pub(super) fn written(&self) -> impl Iterator<Item = u64> {
        let chunks = (0..).step_by(CHUNK_BLOCKS).zip(&self.chunks);
        let blocks =
            chunks.flat_map(|(first, chunk)| (first..).zip(chunk.iter().flat_map(|c| &**c)));
        blocks.filter_map(|(lba, block)| block.as_ref().map(|_| lba))
    }

    fn place(&self, lba: u64) -> usize {
        let at = lba as usize;
        assert!(at < self.count, "block {lba} is beyond the end");
        at
    }
}

#[cfg(test)]
mod tests {
    use super::{Blocks, CHUNK_BLOCKS};
    use crate::oracle::{Content, NEVER, Write};

    fn write(id: u64) -> Write {
        let content = Content::Pattern(id);
        let (ended, seen, gone) = (NEVER, NEVER, NEVER);
        Write { id, content, begun: id, ended, seen, gone, weak: false, fua: false }
    }

    /// The numbers of the writes of each block in `blocks`.
    fn check(blocks: &Blocks, expected: &[(u64, &[u64])]) {
        let written: Vec<u64> = expected.iter().map(|(lba, _)| *lba).collect();
        assert_eq!(blocks.written().collect::<Vec<u64>>(), written);
        for (lba, ids) in expected {
            let found: Vec<u64> = blocks.get(*lba).iter().map(|write| write.id).collect();
            assert_eq!(found, *ids, "block {lba}");
        }
    }

    #[test]
    fn a_picture_keeps_what_it_held_when_the_other_changes() {
        let far = CHUNK_BLOCKS as u64 * 3 + 1;
        let mut blocks = Blocks::new(CHUNK_BLOCKS * 4);
        blocks.get_mut(2).push(write(1));
        let picture = blocks.clone();
        blocks.get_mut(2).push(write(2));
        blocks.get_mut(far).push(write(3));
        check(&picture, &[(2, &[1])]);
        check(&blocks, &[(2, &[1, 2]), (far, &[3])]);
        let mut other = blocks.clone();
        other.written_mut().for_each(|block| block.truncate(1));
        check(&other, &[(2, &[1]), (far, &[3])]);
        check(&blocks, &[(2, &[1, 2]), (far, &[3])]);
        assert!(blocks.get(3).is_empty());
    }
}
