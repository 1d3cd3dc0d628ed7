//! Reconfigurations of an array that serves: which drive has a member's place, and how writes are made safe against
//! crashes.
//!
//! [`Reconfiguration::next`] is pure. The leader takes every step with [`reconfigure`], which does at once what
//! the step requires. What takes time, such as labels and views, is up to the label task.

use std::mem;

use strake_block::IoErrorKind;
use strake_ondisk::{AreaLayout, Bitmap, Bits, Consistency, MemberRecord};
use strake_units::{MemberIndex, RegionIndex};

use super::Shard;
use super::leader::{Leader, view_of};
use super::leader_tasks::show;
use super::members::Pairing;
use crate::events::ArrayEventKind;
use crate::message::{Change, IncomingDrive, Reconfigure, View};

/// What is under way. The leader has one of each kind, as they do not exclude each other; a reshape would be another.
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
/// Not drawn, because the state stays: `Copied` in Filling; `MemberOut` of another member; `Written`, `Applied` and
/// `Logged` where they end nothing; `Mode` where it is stronger in Raising and where it is not in Idle.
#[derive(Debug, Default)]
pub(super) enum Reconfiguration {
    /// Nothing.
    #[default]
    Idle,
    /// A drive has the place of a member that was out; some shards may not write it yet.
    Joining(IncomingDrive),
    /// A drive is to take the place of a member that serves, or served when this began.
    Replacing(Replacement, Stage),
    /// The replacement of the member was given up, because of `cause` or on request; some shards may still write it.
    Abandoned { slot: MemberIndex, cause: Option<IoErrorKind> },
    /// Nothing; the last replacement has the place of this member.
    Handed { slot: MemberIndex },
    /// Shards make writes safe as this mode requires; the label cannot say so yet.
    Raising { mode: Consistency },
}

/// How far a replacement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It gets what its member gets, and the rest is copied to it.
    Filling,
    /// It holds everything and gets bitmap pages.
    Prepared,
    /// Its own label names it as the member, of which labels said this before.
    Named(Before),
    /// Every label names it; some shards may still read the old drive.
    Swapped,
    /// Its member failed while it was being filled.
    Orphaned,
    /// It has the place of its member, which has failed; some shards may not use it yet.
    TakenOver,
}

/// The drive that is to take the place of `drive.member`.
#[derive(Debug)]
pub(super) struct Replacement {
    pub(super) drive: IncomingDrive,
    pub(super) layout: AreaLayout,
    /// Regions that were not copied yet.
    pub(super) lacks: Bits,
}

/// What labels said of a member, and where its own labels were.
pub(super) type Before = (MemberRecord, Option<AreaLayout>);

/// What happens to a reconfiguration.
#[derive(Debug)]
pub(super) enum Event {
    /// A drive has got the place of a member that was out, in memory.
    Join(IncomingDrive),
    /// The label that calls the member live could not be recorded: the array has failed.
    NotRecorded,
    /// Every shard writes the member if it is still live.
    Written,
    /// A replacement is to be filled.
    Begin(Replacement),
    /// The replacement holds the region.
    Copied(RegionIndex),
    /// The replacement gets bitmap pages from now on.
    Prepare,
    /// The next label names the replacement.
    Name(Before),
    /// Every live member has the label that names the replacement.
    Recorded,
    /// The replacement gets the place of its member, which has failed.
    TakeOver,
    /// Every shard uses the replacement in the member's place.
    Taken,
    /// The replacement failed, or was cancelled.
    GiveUp(Option<IoErrorKind>),
    /// A member has gone out, in memory.
    MemberOut(MemberIndex),
    /// Every shard has the last views.
    Applied,
    /// The mode is to be this one; labels have the other one.
    Mode { mode: Consistency, recorded: Consistency },
    /// Every write is as safe as the mode requires.
    Logged,
}

/// What a step requires at once.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    None,
    /// So many regions are left to copy.
    CountLeft(u32),
    /// The member, which is out, lacks these regions, and its replacement takes its place next.
    Inherit(MemberIndex, Bits),
    /// The label says of the member again what it said before.
    Restore(MemberIndex, Before),
    /// No shard uses the replacement that was given up.
    ReportAbandoned(MemberIndex, Option<IoErrorKind>),
    /// The status shows the drive in its place, and its rebuild begins if it is still live.
    BeginRebuild(IncomingDrive),
    /// The next label has this mode.
    SetMode(Consistency),
}

/// An event that cannot happen in a state, and both.
#[derive(Debug)]
pub(super) struct Illegal(String);

impl Reconfiguration {
    /// The state after `event`, and what the step requires.
    ///
    /// # Errors
    /// When the event cannot happen in this state, which is an error in the program.
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

    /// Which drives of a member shards are to use.
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
    /// The reconfiguration that an event is about.
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

    /// The member that some shard may not write yet although it is live.
    pub(super) fn joining(&self) -> Option<MemberIndex> {
        if let Reconfiguration::Joining(drive) = &self.join { Some(drive.member) } else { None }
    }

    /// The replacement of a member, and how far it is.
    pub(super) fn replacing(&self) -> Option<(&Replacement, Stage)> {
        let Reconfiguration::Replacing(it, stage) = &self.replacement else { return None };
        Some((it, *stage))
    }

    /// The mode of consistency that writes follow. It is never weaker than the one in the label.
    pub(super) fn consistency(&self) -> Consistency {
        let recorded = self.state.superblock.consistency;
        if let Reconfiguration::Raising { mode } = self.mode { mode } else { recorded }
    }
}

/// Takes a step of the reconfiguration that `event` is about.
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
