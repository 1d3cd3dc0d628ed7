//! Writes of labels, bitmap pages and lists of bad blocks to all members concurrently.

use strake_ondisk::{Bitmap, Copy, INCOMPAT_IN_DOUBT, PAGES_PER_BITMAP, Superblock};
use strake_raid::MemberState;

use super::{Assembled, bad, layout_of};
use crate::fleet::{Failed, Fleet, Writing};

impl Assembled {
    /// Writes the label of this generation to the head and tail rings of every present member. An error names the
    /// members.
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

    /// Finishes the last update, which a crash may have interrupted, before another update starts: a member may be
    /// behind by one generation, never by two. `behind` contains the records that members lack, except for the label.
    /// The label is written as it was recorded, so an interrupted write changes nothing on a member that has it.
    ///
    /// A label in the tail rings means that every member has the label, although an absent member may not have it. It
    /// also means that the array served under the label: a start that is `unserved` stays unserved.
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

    /// Makes `superblock`, which records the absent members, the label of this activation, before the redo log is
    /// replayed. A record of which a member lacks its part counts as a record of a write that no member executed.
    /// Without this label, this would apply to an absent member that returns after one more crash, when the other
    /// members have already executed the write.
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

    /// Writes every bitmap page and the list of bad blocks to every present member. An error names the members.
    pub(crate) fn write_bitmaps(&self, fleet: &mut Fleet<'_>) -> Result<(), Failed> {
        // A member in sync lacks nothing. Its dirty bitmap is written when the member goes out.
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
