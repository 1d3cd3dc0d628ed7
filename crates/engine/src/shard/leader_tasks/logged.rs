//! The fields of the label about the redo log: the stripes whose writes are all in the log, and the generation from
//! which this holds.
//!
//! A shard logs as soon as it applies views that require logging, but older writes complete without logging. Therefore
//! the label may say that all writes are logged only after the older writes are complete and stable. Before shards stop
//! logging, the label must say that not all writes are logged.
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
use crate::roll::Roll;
use crate::shard::Shard;
use crate::shard::leader::Leader;
use crate::shard::members::Group;
use crate::shard::reconfiguration::{Event, reconfigure};

impl Leader {
    /// Returns the properties of the array that shards need.
    pub(super) fn roll(&self) -> Roll {
        let label = &self.state.superblock;
        // During a change of the mode, the stronger mode is in force.
        let consistency = self.consistency();
        Roll { consistency, replacement: self.pending_replacement(), ..Roll::of(label) }
    }

    /// Returns what the label may say when no write is older than the last views: the members whose stripes are logged,
    /// and the generation from which this holds.
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
            // Older records are complete, and may be out of date for members that returned since.
            _ => (logged, self.reported),
        }
    }

    /// Changes the label so that writes to the stripes of `member`, which is in sync, no longer count as logged; the
    /// shards stop logging later. Returns false if the label already says so, or if all writes are logged.
    pub(super) fn log_less(&mut self, member: MemberIndex) -> bool {
        let label = &mut self.state.superblock;
        let logged = label.logged.without(member);
        if label.consistency == Consistency::Strict || logged == label.logged {
            return false;
        }
        label.note_logged(logged, if logged.is_empty() { 0 } else { label.logged_since });
        true
    }

    /// True while records count that must not be replayed on a member that returned meanwhile. The member cannot be
    /// called in sync then.
    pub(in crate::shard) fn counts_older_records(&self) -> bool {
        let label = &self.state.superblock;
        !label.logged.is_empty() && label.logged_since < self.joined
    }
}

/// Handles the report that every write in progress started under the views of `version`.
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
            // The views have changed and another report follows, or the array has failed.
            return;
        }
        let (logged, since) = leader.all_logged(&shard.geometry);
        reconfigure(shard, &mut leader, Event::Logged);
        leader.state.superblock.note_logged(logged, since);
    }
    if record(shard, group).await {
        // Members may have failed during the write of the label.
        publish(shard).await;
    }
    // Members whose rebuild is complete may have waited for this.
    shard.lead_finished();
}

/// Changes the consistency mode.
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
            // Records of writes in progress count only while all writes are logged: such records may be partial-write
            // records, or may not name a member that has gone out since.
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
    // Members whose rebuild is complete may have waited for records that no longer count.
    shard.lead_finished();
    Ok(())
}
