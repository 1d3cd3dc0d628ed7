//! Writing labels, bitmap pages and lists of bad blocks to all members at once.

use strake_ondisk::{Bitmap, Copy, INCOMPAT_IN_DOUBT, PAGES_PER_BITMAP, Superblock};
use strake_raid::MemberState;

use super::{Assembled, bad, layout_of};
use crate::fleet::{Failed, Fleet, Writing};

impl Assembled {
    /// Writes this generation's label to every member that is here: heads and tails. On failure says whose.
    pub(crate) fn write_labels(&self, fleet: &mut Fleet<'_>) -> Result<(), Failed> {
        self.write_copy(Copy::Head, fleet)?;
        self.write_copy(Copy::Tail, fleet)
    }

    pub(crate) fn write_copy(&self, copy: Copy, fleet: &mut Fleet<'_>) -> Result<(), Failed> {
        let mut writings = Vec::new();
        for (member, drive) in self.live() {
            let mut label = self.superblock.clone();
            label.slot = member;
            label.member = label.members[member.at()].uuid;
            let offset = layout_of(member, drive)?.slot_offset(copy, label.generation);
            writings.push(Writing { member, offset, bytes: label.encode(copy, offset).to_vec() });
        }
        fleet.write(&writings, "writing its label")
    }

    /// Finishes the last update, which a crash may have cut short, before another begins: a member may be behind by one
    /// generation, never by two. `behind` is what members lack of it but for the label. The label is written as it was
    /// recorded: a write that is cut short then changes nothing on a member that has it.
    ///
    /// The tail rings say that every member has the label, and an absent one may not. They also say that the array
    /// served under it: a start that is `unserved` stays so.
    pub(super) fn finish_update(
        &self,
        behind: Vec<Writing>,
        unserved: bool,
        fleet: &mut Fleet<'_>,
    ) -> Result<(), Failed> {
        self.write_copy(Copy::Head, fleet)?;
        fleet.write(&behind, "completing an interrupted label update")?;
        if self.has_every_member() && !unserved {
            self.write_copy(Copy::Tail, fleet)?;
        }
        Ok(())
    }

    /// Makes `superblock`, which says who is not here, the label of this activation, before anything of the redo log is
    /// executed. A record of which a member lacks its part counts as one that no member acted on. Without this
    /// label that would be so for an absent member that is back after one more crash, when the others have theirs.
    pub(super) fn record_absent(
        &mut self,
        superblock: &mut Superblock,
        fleet: &mut Fleet<'_>,
    ) -> Result<(), Failed> {
        superblock.generation += 1;
        self.superblock = superblock.clone();
        self.write_bitmaps(fleet)?;
        self.write_labels(fleet)?;
        self.bitmaps.write_again();
        Ok(())
    }

    /// Writes every bitmap page, and the list of bad blocks, to every member that is here. On failure says whose.
    pub(crate) fn write_bitmaps(&self, fleet: &mut Fleet<'_>) -> Result<(), Failed> {
        // A member in sync lacks nothing; its bitmap is written when it goes out.
        let needed = |bitmap: &Bitmap| match bitmap {
            Bitmap::WriteIntent | Bitmap::Written => true,
            Bitmap::Member(member) => self.states[member.at()] != MemberState::InSync,
            Bitmap::InDoubt => self.superblock.incompat & INCOMPAT_IN_DOUBT != 0,
        };
        let array = self.superblock.array;
        let pages: Vec<_> = Bitmap::all(self.states.len())
            .filter(needed)
            .flat_map(|bitmap| (0..PAGES_PER_BITMAP).map(move |page| (bitmap, page)))
            .map(|(bitmap, page)| (bitmap, page, self.bitmaps.record(array, bitmap, page)))
            .collect();
        let mut writings = Vec::new();
        for (member, drive) in self.live() {
            let layout = layout_of(member, drive)?;
            writings.extend(pages.iter().map(|(bitmap, page, (sequence, record))| {
                let offset = layout.bitmap_page_offset(*bitmap, *page, *sequence);
                Writing { member, offset, bytes: record.to_vec() }
            }));
            writings.extend(bad::writing(&self.bad, array, member, &layout));
        }
        fleet.write(&writings, "writing its bitmap")
    }
}
