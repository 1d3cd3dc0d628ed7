//! Members that go out of use while parity is not trusted.
//!
//! After a crash, parity may be inconsistent in the regions with writes in progress, until they are resynchronized. If
//! a member goes out before, its blocks can only be reconstructed from this parity. These regions are recorded on every
//! survivor, before the label that calls the member out: pages precede labels (`records.rs`). Every next start is
//! refused until the operator accepts the regions, regardless of how the array stopped.

use strake_ondisk::{Bitmap, COMPAT_AFTER_CRASH, INCOMPAT_IN_DOUBT};
use strake_units::{MemberIndex, RegionIndex};

use super::Shard;
use super::leader::Leader;
use crate::events::ArrayEventKind;

impl Shard {
    /// Returns the regions in which blocks of `member`, which is about to go out, can only be reconstructed from parity
    /// that is not trusted after a crash. Regions that the member already lacks are left out.
    pub(super) fn doubt_without(&self, leader: &Leader, member: MemberIndex) -> Vec<RegionIndex> {
        if leader.state.superblock.compat & COMPAT_AFTER_CRASH == 0 {
            return Vec::new();
        }
        let stale = leader.state.bitmaps.stale(member);
        let untrusted = self.shared.untrusted_regions().into_iter();
        untrusted.filter(|region| !stale.get(*region)).map(RegionIndex).collect()
    }

    /// Adds regions to the regions in doubt, which are recorded with the next label, and reports an event.
    pub(super) fn put_in_doubt(&self, leader: &mut Leader, regions: &[RegionIndex]) {
        if leader.state.superblock.incompat & INCOMPAT_IN_DOUBT == 0 {
            // The members may have an outdated bitmap of regions in doubt, or none.
            leader.state.bitmaps.rewrite(Bitmap::InDoubt);
        }
        let mut added = 0;
        for region in regions {
            added += u64::from(leader.state.bitmaps.set(Bitmap::InDoubt, *region));
        }
        if added == 0 {
            return;
        }
        leader.state.superblock.incompat |= INCOMPAT_IN_DOUBT;
        self.shared.set_in_doubt(leader.state.bitmaps.in_doubt().iter_ones().collect());
        self.shared.tell(None, ArrayEventKind::InDoubt { regions: added });
    }
}
