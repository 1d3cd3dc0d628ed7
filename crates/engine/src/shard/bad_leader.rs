//! The leader's list of bad blocks, which is written to every live member like a label.

use std::sync::Arc;

use strake_block::IoErrorKind;
use strake_ondisk::{BadList, INCOMPAT_BAD_BLOCKS};
use strake_units::MemberIndex;

use super::Shard;
use super::leader::Leader;
use crate::bad_blocks::array_ranges;
use crate::events::ArrayEventKind;
use crate::message::BadNote;

impl Leader {
    /// Changes the list. Returns `Ok(false)` if the list already contains the change.
    ///
    /// # Errors
    /// If the list is full. The list is then unchanged.
    pub(super) fn note_bad(&mut self, notes: &[BadNote]) -> Result<bool, IoErrorKind> {
        let mut list = BadList::clone(&self.state.bad.list);
        let mut changed = false;
        for BadNote { member, range, event } in notes {
            changed |= list.note(*member, *range, *event).map_err(|_| IoErrorKind::NoSpace)?;
        }
        if changed {
            self.state.bad.list = Arc::new(list);
            self.bad_unwritten = true;
        }
        Ok(changed)
    }

    /// Returns the records of the list to write to live members, by member and byte offset; none if the members have
    /// the list. Sets the feature bit that prevents a start by programs that do not support the list.
    pub(super) fn bad_records(&mut self) -> Vec<(MemberIndex, u64, [u8; 4096])> {
        let bit = if self.state.bad.list.is_empty() { 0 } else { INCOMPAT_BAD_BLOCKS };
        let superblock = &mut self.state.superblock;
        superblock.incompat = superblock.incompat & !INCOMPAT_BAD_BLOCKS | bit;
        if !self.bad_unwritten {
            return Vec::new();
        }
        let bad = &mut self.state.bad;
        bad.sequence += 1;
        let (sequence, pages) = (bad.sequence, bad.list.encode(superblock.array, bad.sequence));
        let mut records = Vec::new();
        for (device, layout) in self.homes() {
            let places = (layout.bad_blocks_offset(sequence)..).step_by(pages[0].len());
            records.extend(places.zip(&pages).map(|(offset, page)| (device, offset, *page)));
        }
        records
    }
}

impl Shard {
    /// Publishes the list, and reports an event if more blocks are lost.
    pub(super) fn show_bad(&self, leader: &Leader) {
        let before = self.shared.bad_blocks();
        let list = Arc::clone(&leader.state.bad.list);
        let lost = |list: &BadList| {
            let ranges = array_ranges(list, &self.geometry, &leader.state.states);
            ranges.iter().map(|range| range.blocks).sum::<u64>()
        };
        let more = lost(&list).saturating_sub(lost(&before));
        self.shared.set_bad_blocks(list);
        if more > 0 {
            let bytes = more << self.geometry.block_size().shift();
            self.shared.tell(None, ArrayEventKind::BlocksLost { bytes });
        }
    }
}
