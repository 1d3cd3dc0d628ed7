//! What the label says of the redo log: from when on, and for which stripes, every write is in it.
//!
//! A shard logs as soon as it goes by the views that ask for it, and writes that it began before go on without. So the
//! label may say that all are logged only when those are done and stable; and it says that not all are before a shard
//! stops.
//!
//! ```text
//!  more is logged:  views --> every shard: older writes done (`Drained`) --> flush --> label
//!  less is logged:  label --> views
//! ```

use strake_ondisk::{Bitmap, Bits, Consistency};
use strake_raid::Geometry;
use strake_units::{MemberIndex, MemberSet};

use super::{flush_all, publish, record};
use crate::error::ArrayError;
use crate::message::Answer;
use crate::shard::Shard;
use crate::shard::leader::Leader;
use crate::shard::members::Group;
use crate::shard::reconfiguration::{Event, reconfigure};
use crate::shard::redo::Roll;

impl Leader {
    /// What shards have to know about the array.
    pub(super) fn roll(&self) -> Roll {
        let label = &self.state.superblock;
        // The stronger mode is in force while one takes the other's place.
        let consistency = self.consistency();
        Roll { consistency, replacement: self.pending_replacement(), ..Roll::of(label) }
    }

    /// What the label may say once no write is under way that is older than the last views: who is logged, and since
    /// when.
    fn all_logged(&self, geometry: &Geometry) -> (MemberSet, u64) {
        if geometry.parity_strips() == 0 {
            // Copies have no log.
            return (MemberSet::EMPTY, 0);
        }
        let logged = match self.consistency() {
            Consistency::None | Consistency::Resync => MemberSet::EMPTY,
            Consistency::Safe => self.impaired(),
            Consistency::Strict => geometry.all_members(),
        };
        let label = &self.state.superblock;
        let lasts = label.logged == logged && label.logged_since >= self.joined;
        match logged {
            MemberSet::EMPTY => (logged, 0),
            _ if lasts => (logged, label.logged_since),
            // Records from before are done, and of members that came back since they may be out of date.
            _ => (logged, self.reported),
        }
    }

    /// Has the label say that writes to the stripes of `member`, which is in sync, are logged no longer than it takes
    /// the shards to hear of this. False when it says so, or when all are logged.
    pub(super) fn log_less(&mut self, member: MemberIndex) -> bool {
        let label = &mut self.state.superblock;
        let logged = label.logged.without(member);
        if label.consistency == Consistency::Strict || logged == label.logged {
            return false;
        }
        label.note_logged(logged, if logged.is_empty() { 0 } else { label.logged_since });
        true
    }

    /// True while records count that a member which came back meanwhile must not be given: it cannot be called in sync.
    pub(in crate::shard) fn counts_older_records(&self) -> bool {
        let label = &self.state.superblock;
        !label.logged.is_empty() && label.logged_since < self.joined
    }
}

/// Every write that is under way began under the views of `version`.
pub(super) async fn drained(shard: &Shard, group: Group, version: u64) {
    let current = |leader: &Leader| leader.version == version && !shard.shared.is_lost();
    let due = |leader: &Leader| {
        let label = &leader.state.superblock;
        (label.logged, label.logged_since) != leader.all_logged(&shard.geometry)
            || label.consistency != leader.consistency()
    };
    {
        let leader = shard.leader_mut();
        if !current(&leader) || !due(&leader) {
            return;
        }
    }
    if !flush_all(shard, group).await {
        return;
    }
    {
        let mut leader = shard.leader_mut();
        if !current(&leader) {
            // The views have changed, and another report follows, or the array is lost.
            return;
        }
        let (logged, since) = leader.all_logged(&shard.geometry);
        reconfigure(shard, &mut leader, Event::Logged);
        leader.state.superblock.note_logged(logged, since);
    }
    if record(shard, group).await {
        // Writing the label may have cost members.
        publish(shard).await;
    }
    // Who is rebuilt may have waited for this.
    shard.lead_finished();
}

/// Makes writes safe against crashes in another way.
pub(super) async fn change_consistency(shard: &Shard, group: Group, mode: Consistency) -> Answer {
    let lost = || ArrayError::refused("the array has lost too many members to be changed");
    if shard.shared.is_lost() {
        return Err(lost());
    }
    let weaker = {
        let mut leader = shard.leader_mut();
        let recorded = leader.state.superblock.consistency;
        reconfigure(shard, &mut leader, Event::Mode { mode, recorded });
        let weaker = mode < recorded;
        if weaker {
            leader.state.superblock.consistency = mode;
            // Records of writes in progress count only while all is logged: they may be partial-write records, or may
            // not name a member that has gone out since.
            leader.state.superblock.note_logged(MemberSet::EMPTY, 0);
            if mode == Consistency::None {
                // Writes are not recorded from now on.
                leader.state.bitmaps.change(Bitmap::Written, Bits::fill);
                leader.lack_everything();
                shard.shared.written.mark_all();
            }
        }
        shard.shared.set_consistency_wanted(mode);
        weaker
    };
    if weaker && !record(shard, group).await {
        return Err(lost());
    }
    publish(shard).await;
    // Who is rebuilt may have waited for records that count no longer.
    shard.lead_finished();
    Ok(())
}
