//! The list of bad blocks as the leader keeps it: one list, written to every live member like a label.

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
    /// Changes the list. `Ok(false)` when it says so already.
    ///
    /// # Errors
    /// When it is full; it is then as it was.
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

    /// The records of the list that have to be written to live members, by member and byte offset; none when they have
    /// it. Sets the feature bit that keeps programs away that would read what is bad.
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
    /// Shows the list, and tells when more is lost.
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
