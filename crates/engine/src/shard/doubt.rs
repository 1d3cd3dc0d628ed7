//! Members that go out while parity is not trusted.
//!
//! After a crash parity may be wrong in the regions that were being written, until they are resynchronized. A member
//! that goes out before that leaves its blocks to be recovered from such parity. It is recorded which regions that is
//! about, on every survivor and before the label that calls the member out: pages go before labels (`records.rs`). The
//! next start is refused until the operator accepts it, however the array stopped.

use strake_ondisk::{Bitmap, COMPAT_AFTER_CRASH, INCOMPAT_IN_DOUBT};
use strake_units::{MemberIndex, RegionIndex};

use super::Shard;
use super::leader::Leader;
use crate::events::ArrayEventKind;

impl Shard {
    /// Regions in which blocks of `member`, which is about to go out, can only be recovered from parity that is not
    /// trusted after a crash. None where it lacks the region already.
    pub(super) fn doubt_without(&self, leader: &Leader, member: MemberIndex) -> Vec<RegionIndex> {
        if leader.state.superblock.compat & COMPAT_AFTER_CRASH == 0 {
            return Vec::new();
        }
        let stale = leader.state.bitmaps.stale(member);
        let untrusted = self.shared.untrusted_regions().into_iter();
        untrusted.filter(|region| !stale.get(*region)).map(RegionIndex).collect()
    }

    /// Puts regions on the list of those in doubt, to be recorded with the next label, and tells.
    pub(super) fn put_in_doubt(&self, leader: &mut Leader, regions: &[RegionIndex]) {
        if leader.state.superblock.incompat & INCOMPAT_IN_DOUBT == 0 {
            // What the members hold of the list may be of an earlier time, or nothing.
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
