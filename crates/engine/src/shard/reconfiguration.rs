//! Reconfigurations of a serving array: changes of the drive in a slot, and changes of the consistency mode.
//!
//! [`Reconfiguration::next`] is pure. The leader takes every step with [`reconfigure`], which executes the action of
//! the step immediately. The label task executes slow work, such as writes of labels and views.

use std::mem;

use strake_block::IoErrorKind;
use strake_ondisk::{AreaLayout, Bitmap, Bits, Consistency, MemberRecord};
use strake_units::{MemberIndex, RegionIndex};

use super::Shard;
use super::leader::{Leader, view_of};
use super::leader_tasks::show;
use crate::events::ArrayEventKind;
use crate::message::{Change, IncomingDrive, Pairing, Reconfigure, View};

/// A reconfiguration in progress. The leader has one state for each kind, because the kinds do not exclude each other.
/// A reshape would be another kind.
///
/// ```text
///  join, by replace, re-add, or at the end of a take-over:
///    Idle --Join--> Joining --Written, NotRecorded--> Idle
///
///  replacement of a member that serves:
///    Idle, Handed --Begin--> Filling --Prepare--> Prepared --Name--> Named --Recorded--> Swapped --Taken--> Handed
///                               |                    |                 |
///                               +----------+---------+                 | GiveUp
///                     MemberOut |          | GiveUp                    |
///                               v          v                           |
///             TakenOver <-- Orphaned --> Abandoned <-------------------+
///                 |    TakeOver   GiveUp     |
///                 +--Taken--> Handed         +--Applied--> Idle
///
///  mode of consistency:
///    Idle --Mode (stronger)--> Raising --Logged, Mode (not stronger)--> Idle
/// ```
///
/// The diagram omits events that do not change the state: `Copied` in Filling; `MemberOut` of another member;
/// `Written`, `Applied` and `Logged` if they end nothing; `Mode` with a stronger mode in Raising, and with a mode that
/// is not stronger in Idle.
#[derive(Debug, Default)]
pub(super) enum Reconfiguration {
    /// No reconfiguration.
    #[default]
    Idle,
    /// A drive has the slot of a member that was out. Some shards may not write to the drive yet.
    Joining(IncomingDrive),
    /// A drive replaces a member that serves, or that served at the start of the replacement.
    Replacing(Replacement, Stage),
    /// The replacement of the member was abandoned, because of `cause` or on request. Some shards may still write to
    /// the replacement.
    Abandoned { slot: MemberIndex, cause: Option<IoErrorKind> },
    /// No reconfiguration. The last replacement has the slot of this member.
    Handed { slot: MemberIndex },
    /// Shards already follow this mode. The label cannot record the mode yet.
    Raising { mode: Consistency },
}

/// The stage of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The replacement receives all writes of its member, and the rest is copied.
    Filling,
    /// The replacement has all data and receives bitmap pages.
    Prepared,
    /// The label of the replacement names it as the member. The data of the stage are the earlier record of the member.
    Named(Before),
    /// Every label names the replacement. Some shards may still read the old drive.
    Swapped,
    /// The member failed while the replacement was being filled.
    Orphaned,
    /// The replacement has the slot of its failed member. Some shards may not use the replacement yet.
    TakenOver,
}

/// The replacement of `drive.member`.
#[derive(Debug)]
pub(super) struct Replacement {
    pub(super) drive: IncomingDrive,
    pub(super) layout: AreaLayout,
    /// Regions that are not yet copied.
    pub(super) lacks: Bits,
}

/// The earlier record of a member, and the areas of its labels.
pub(super) type Before = (MemberRecord, Option<AreaLayout>);

/// Events of a reconfiguration.
#[derive(Debug)]
pub(super) enum Event {
    /// A drive got the slot of a member that was out, in memory.
    Join(IncomingDrive),
    /// The label with the live member could not be recorded, because the array has failed.
    NotRecorded,
    /// Every shard writes to the member, if it is still live.
    Written,
    /// A replacement starts.
    Begin(Replacement),
    /// The region was copied to the replacement.
    Copied(RegionIndex),
    /// The replacement receives bitmap pages from now on.
    Prepare,
    /// The next label names the replacement.
    Name(Before),
    /// Every live member has the label that names the replacement.
    Recorded,
    /// The replacement gets the slot of its failed member.
    TakeOver,
    /// Every shard uses the replacement as the member.
    Taken,
    /// The replacement failed, or was cancelled.
    GiveUp(Option<IoErrorKind>),
    /// A member went out, in memory.
    MemberOut(MemberIndex),
    /// Every shard has applied the last views.
    Applied,
    /// The operator requested `mode`; the labels have `recorded`.
    Mode { mode: Consistency, recorded: Consistency },
    /// Every write in progress follows the mode.
    Logged,
}

/// The action of a step, which is executed immediately.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    /// Publishes the number of regions left to copy.
    CountLeft(u32),
    /// Records that the member, which is out, lacks these regions. Its replacement gets the slot next.
    Inherit(MemberIndex, Bits),
    /// Restores the earlier record of the member in the label.
    Restore(MemberIndex, Before),
    /// Reports that the replacement was abandoned, because no shard uses it any longer.
    ReportAbandoned(MemberIndex, Option<IoErrorKind>),
    /// Publishes the drive in its slot, and starts its rebuild if it is still live.
    BeginRebuild(IncomingDrive),
    /// Sets the mode for the next label.
    SetMode(Consistency),
}

/// The error for an event that cannot happen in a state.
#[derive(Debug)]
pub(super) struct Illegal(String);

impl Reconfiguration {
    /// Returns the state after `event`, and the action of the step.
    ///
    /// # Errors
    /// If the event cannot happen in this state, which is a bug.
    pub(super) fn next(self, event: Event) -> Result<(Self, Action), Illegal> {
        use Reconfiguration::{Abandoned, Handed, Idle, Joining, Raising, Replacing};
        use Stage::{Filling, Named, Orphaned, Prepared, Swapped, TakenOver};
        let quietly = |next| Ok((next, Action::None));
        match (self, event) {
            (Idle, Event::Join(drive)) => quietly(Joining(drive)),
            (Joining(drive), Event::Written) => Ok((Idle, Action::BeginRebuild(drive))),
            (Joining(_), Event::NotRecorded) | (Idle, Event::Written) => quietly(Idle),

            (Idle | Handed { .. }, Event::Begin(it)) => quietly(Replacing(it, Filling)),
            (Replacing(mut it, Filling), Event::Copied(region)) => {
                it.lacks.clear(region.0);
                let left = it.lacks.count_ones();
                Ok((Replacing(it, Filling), Action::CountLeft(left)))
            }
            (Replacing(it, Filling), Event::Prepare) => quietly(Replacing(it, Prepared)),
            (Replacing(it, Prepared), Event::Name(before)) => quietly(Replacing(it, Named(before))),
            (Replacing(it, Named(_)), Event::Recorded) => quietly(Replacing(it, Swapped)),
            (Replacing(it, Orphaned), Event::TakeOver) => quietly(Replacing(it, TakenOver)),
            (Replacing(it, Swapped | TakenOver), Event::Taken) => {
                quietly(Handed { slot: it.drive.member })
            }
            (Replacing(it, stage), Event::MemberOut(member)) if it.drive.member != member => {
                quietly(Replacing(it, stage))
            }
            (Replacing(it, Filling | Prepared), Event::MemberOut(member)) => {
                let lacks = it.lacks.clone();
                Ok((Replacing(it, Orphaned), Action::Inherit(member, lacks)))
            }
            (Replacing(it, Filling | Prepared | Orphaned), Event::GiveUp(cause)) => {
                quietly(Abandoned { slot: it.drive.member, cause })
            }
            (Replacing(it, Named(before)), Event::GiveUp(cause)) => {
                let slot = it.drive.member;
                Ok((Abandoned { slot, cause }, Action::Restore(slot, before)))
            }
            (Abandoned { slot, cause }, Event::Applied) => {
                Ok((Idle, Action::ReportAbandoned(slot, cause)))
            }
            (state @ (Idle | Replacing(..) | Handed { .. }), Event::Applied)
            | (state @ (Idle | Abandoned { .. } | Handed { .. }), Event::MemberOut(_)) => {
                quietly(state)
            }

            (Idle | Raising { .. }, Event::Mode { mode, recorded }) => {
                quietly(if mode > recorded { Raising { mode } } else { Idle })
            }
            (Raising { mode }, Event::Logged) => Ok((Idle, Action::SetMode(mode))),
            (Idle, Event::Logged) => quietly(Idle),
            // The test lists every pair.
            (state, event) => Err(Illegal(format!("{event:?} cannot happen in {state:?}"))),
        }
    }

    /// Returns the drives of a member that shards use.
    pub(super) fn pairing(&self) -> Pairing {
        let Self::Replacing(Replacement { drive, .. }, stage) = self else {
            return Pairing::None;
        };
        match stage {
            Stage::Filling | Stage::Prepared | Stage::Named(_) => Pairing::Copying(drive.member),
            Stage::Swapped => Pairing::Swapped(drive.member),
            Stage::Orphaned => Pairing::Orphaned(drive.member),
            Stage::TakenOver => Pairing::TakenOver(drive.member),
        }
    }
}

impl Leader {
    /// Returns the reconfiguration that an event concerns.
    fn reconfiguration(&mut self, event: &Event) -> &mut Reconfiguration {
        match event {
            Event::Join(_) | Event::NotRecorded | Event::Written => &mut self.join,
            Event::Mode { .. } | Event::Logged => &mut self.mode,
            Event::Begin(_)
            | Event::Copied(_)
            | Event::Prepare
            | Event::Name(_)
            | Event::Recorded
            | Event::TakeOver
            | Event::Taken
            | Event::GiveUp(_)
            | Event::MemberOut(_)
            | Event::Applied => &mut self.replacement,
        }
    }

    /// Returns the live member that some shard may not write yet.
    pub(super) fn joining(&self) -> Option<MemberIndex> {
        if let Reconfiguration::Joining(drive) = &self.join { Some(drive.member) } else { None }
    }

    /// Returns the replacement of a member, and its stage.
    pub(super) fn replacing(&self) -> Option<(&Replacement, Stage)> {
        let Reconfiguration::Replacing(it, stage) = &self.replacement else { return None };
        Some((it, *stage))
    }

    /// Returns the consistency mode that writes follow. This mode is never weaker than the mode in the label.
    pub(super) fn consistency(&self) -> Consistency {
        let recorded = self.state.superblock.consistency;
        if let Reconfiguration::Raising { mode } = self.mode { mode } else { recorded }
    }
}

/// Takes a step of the reconfiguration that `event` concerns.
pub(super) fn reconfigure(shard: &Shard, leader: &mut Leader, event: Event) {
    let under_way = leader.reconfiguration(&event);
    let (next, action) = match mem::take(under_way).next(event) {
        Ok(step) => step,
        Err(Illegal(what)) => unreachable!("{what}"),
    };
    *under_way = next;
    match action {
        Action::None => {}
        Action::CountLeft(left) => {
            shard.shared.set_uncopied_regions(u64::from(left));
            if left == 0 {
                shard.change(leader, Change::Reconfigure(Reconfigure::Filled));
            }
        }
        Action::Inherit(member, lacks) => {
            leader.state.bitmaps.change(Bitmap::Member(member), |stale| stale.join(&lacks));
            shard.change(leader, Change::Reconfigure(Reconfigure::TakeOver));
        }
        Action::Restore(slot, (record, layout)) => {
            leader.state.superblock.members[slot.at()] = record;
            leader.state.layouts[slot.at()] = layout;
        }
        Action::ReportAbandoned(slot, cause) => {
            shard.shared.update_member(slot, |m| m.replacement.clear());
            shard.shared.tell(Some(slot), ArrayEventKind::ReplaceAbandoned { cause });
        }
        Action::BeginRebuild(drive) => {
            if view_of(leader.state.states[drive.member.at()]) != View::Absent {
                shard.begin_rebuild(leader, drive.member);
            }
            show(shard, leader, Some(drive));
        }
        Action::SetMode(mode) => leader.state.superblock.consistency = mode,
    }
}

#[cfg(test)]
mod tests;
