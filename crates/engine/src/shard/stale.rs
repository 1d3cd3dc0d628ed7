//! The per-member dirty bitmaps on the leader. A member that goes out lacks the regions of writes in progress and of
//! later writes. A rebuild clears regions. A re-added member lacks the regions that were written while it was out.
//!
//! ```text
//!  out of use:  bitmap |= write-intent, stable --> label --> views --> the first write it missed is acknowledged
//!  back in use: label --> views (counts as lacking everything, still marked by new writes) --> every shard
//!               writes it --> `Lacks`: this is all it lacks --> rebuild
//! ```

use std::sync::Arc;

use strake_ondisk::{Bitmap, Bits, Consistency};
use strake_raid::{MemberEvent, MemberState};
use strake_units::{MemberIndex, RegionIndex};

use super::Shard;
use super::leader::{Leader, view_of};
use crate::assemble::complete_below;
use crate::events::ArrayEventKind;
use crate::limits::CHECKPOINT_EVERY;
use crate::message::{Change, IncomingDrive, Peer, View};

impl Leader {
    /// Puts a live member out of use in memory, in the next label, and in its bitmap. Returns false if the member is
    /// already out.
    pub(super) fn take_out(&mut self, member: MemberIndex, event: MemberEvent) -> bool {
        if !self.transition(member, event) {
            return false;
        }
        self.state.bitmaps.leave(member);
        if self.state.superblock.consistency == Consistency::None {
            // Writes in progress are not recorded in this mode.
            self.state.bitmaps.change(Bitmap::Member(member), Bits::fill);
        }
        self.done[member.at()] = Bits::new(self.state.bitmaps.write_intent().regions());
        let joining = self.joining() == Some(member);
        let record = &mut self.state.superblock.members[member.at()];
        // If a joining member failed before it received writes, its content has not changed since it went out.
        if !joining || record.held_generation == 0 {
            record.held_generation = self.completed;
        }
        true
    }

    /// Marks all regions of members that are out, because writes are not recorded from now on.
    pub(super) fn lack_everything(&mut self) {
        for at in 0..self.state.states.len() {
            if view_of(self.state.states[at]) == View::Absent {
                let bitmap = Bitmap::Member(MemberIndex(at as u8));
                self.state.bitmaps.change(bitmap, Bits::fill);
            }
        }
    }

    /// Puts a drive in the slot of a member that is out, in memory and in the next label. Returns false if the member
    /// is in use.
    pub(super) fn put_in(&mut self, drive: &IncomingDrive) -> bool {
        let replaced = self.transition(drive.member, MemberEvent::Replaced);
        if replaced {
            let record = &mut self.state.superblock.members[drive.member.at()];
            (record.uuid, record.held_generation) = (drive.uuid, 0);
        }
        replaced
    }

    /// Puts a member in use that does not have the present bitmap pages yet.
    pub(super) fn take_in(&mut self, member: MemberIndex, bytes: u64) {
        self.unpaged.retain(|(failed, _)| *failed != member);
        self.bad_unwritten = self.state.bad.sequence > 0;
        self.state.layouts[member.at()] = strake_ondisk::AreaLayout::of(bytes);
        self.state.superblock.members[member.at()].bytes = bytes;
        for bitmap in [Bitmap::WriteIntent, Bitmap::Written] {
            self.state.bitmaps.rewrite(bitmap);
        }
        if self.state.bitmaps.in_doubt().count_ones() > 0 {
            self.state.bitmaps.rewrite(Bitmap::InDoubt);
        }
        for at in 0..self.state.states.len() {
            if self.state.states[at] != MemberState::InSync {
                self.state.bitmaps.rewrite(Bitmap::Member(MemberIndex(at as u8)));
            }
        }
    }

    /// True if the rebuild of `member` has filled all regions, stable or not.
    pub(super) fn is_rebuilt(&self, member: MemberIndex) -> bool {
        self.done[member.at()].count_ones() == self.state.bitmaps.stale(member).count_ones()
    }

    /// Removes and returns the regions that were rebuilt since the last call, by member.
    pub(super) fn take_done(&mut self) -> Vec<(MemberIndex, Bits)> {
        let nothing = Bits::new(self.state.bitmaps.write_intent().regions());
        let done = self.done.iter_mut().enumerate().filter(|(_, bits)| **bits != nothing);
        done.map(|(at, bits)| (MemberIndex(at as u8), std::mem::replace(bits, nothing.clone())))
            .collect()
    }
}

impl Shard {
    pub(super) fn lead_rebuilt(
        &self,
        leader: &mut Leader,
        member: MemberIndex,
        region: RegionIndex,
    ) {
        if member.at() >= leader.state.states.len() {
            self.lead_copied(leader, region);
            return;
        }
        let rebuilding = matches!(leader.state.states[member.at()], MemberState::Rebuilding { .. });
        if !rebuilding || !leader.state.bitmaps.stale(member).get(region.0) {
            return;
        }
        leader.done[member.at()].set(region.0);
        if leader.is_rebuilt(member) {
            self.change(leader, Change::Rebuilt { member });
        } else if self.now.get() >= leader.next_checkpoint {
            leader.next_checkpoint = self.now.get().plus(CHECKPOINT_EVERY);
            self.change(leader, Change::Checkpoint);
        }
    }

    /// Records that members have the regions in `done`, which have been flushed. Returns true if this changed a bitmap.
    pub(super) fn lead_stable(&self, leader: &mut Leader, done: Vec<(MemberIndex, Bits)>) -> bool {
        let mut moved = false;
        for (member, bits) in done {
            if !matches!(leader.state.states[member.at()], MemberState::Rebuilding { .. }) {
                continue;
            }
            for region in bits.iter_ones() {
                moved |= leader.state.bitmaps.clear(Bitmap::Member(member), RegionIndex(region));
            }
            let stale = leader.state.bitmaps.stale(member);
            let stripes = complete_below(stale, &self.geometry, &self.regions);
            leader.transition(member, MemberEvent::Progress { stripes });
        }
        moved
    }

    /// Finds members whose last region was completed while other regions were being recorded.
    pub(super) fn lead_finished(&self) {
        let mut leader = self.leader.as_ref().expect("leader tasks run on shard 0").borrow_mut();
        if leader.counts_older_records() {
            // The search repeats when the label says that older records do not count.
            return;
        }
        for member in (0..leader.state.states.len() as u8).map(MemberIndex) {
            let rebuilding =
                matches!(leader.state.states[member.at()], MemberState::Rebuilding { .. });
            if rebuilding && leader.is_rebuilt(member) && leader.joining() != Some(member) {
                self.change(&mut leader, Change::Rebuilt { member });
            }
        }
    }

    /// Reports the start of a rebuild of `member`.
    pub(super) fn tell_rebuild(&self, leader: &Leader, member: MemberIndex) {
        let regions = u64::from(leader.state.bitmaps.stale(member).count_ones());
        let stale_bytes = self.shared.member_bytes_of(regions);
        self.shared.tell(Some(member), ArrayEventKind::RebuildStarted { stale_bytes });
    }

    /// Starts the rebuild of `member` after every shard writes to it. Its bitmap is now complete.
    pub(super) fn begin_rebuild(&self, leader: &mut Leader, member: MemberIndex) {
        self.tell_rebuild(leader, member);
        let bitmap = Arc::new(leader.state.bitmaps.stale(member).clone());
        if bitmap.count_ones() == 0 {
            self.change(leader, Change::Rebuilt { member });
        }
        self.broadcast(|| Peer::Lacks { member, bitmap: Arc::clone(&bitmap) });
    }
}
