//! Replacement of a member in use: the replacement is filled while the member serves, and then gets the slot.
//!
//! ```text
//!  begin:    views (the replacement is written) --> every shard --> `Lacks`: copy begins
//!  copied:   flush --> pages on the replacement --> label of the next generation on the replacement, then on all
//!            --> views (devices swapped, both written) --> every shard --> views (the old device is out)
//!  member fails first:  it goes out, lacking what the replacement lacks --> views (the replacement has its place)
//!                       --> label (rebuilding) --> rebuild of what was not copied
//! ```
//!
//! The old device is the member until a label names the replacement, so a crash before that leaves the array unchanged.

use strake_block::{IoError, IoErrorKind, Op, Sg, SgMut};
use strake_ondisk::{AreaLayout, Bitmap, Bits, Copy, MemberRecord};
use strake_raid::{Band, MemberEvent, MemberState, Window};
use strake_units::{MemberIndex, RegionIndex, Uuid};

use super::Shard;
use super::bad::Columns;
use super::leader::Leader;
use super::leader_tasks as tasks;
use super::maintain::recover_column;
use super::members::{Failure, Group, settled};
use super::reconfiguration::{Event, Reconfiguration, Replacement, Stage, reconfigure};
use super::scratch;
use crate::error::ArrayError;
use crate::events::ArrayEventKind;
use crate::message::{Answer, IncomingDrive, Peer, View};

impl Leader {
    fn replacement_place(&self) -> MemberIndex {
        MemberIndex(self.state.states.len() as u8)
    }

    /// Returns the replacement that is written together with a member, and the slot of the member.
    pub(super) fn pending_replacement(&self) -> Option<(MemberIndex, Uuid)> {
        let (Replacement { drive, .. }, stage) = self.replacing()?;
        (!matches!(stage, Stage::Orphaned | Stage::TakenOver)).then_some((drive.member, drive.uuid))
    }

    /// Returns the member that failed, according to the present state of the leader. The devices of a pair may have
    /// been swapped since the failure.
    pub(super) fn blamed(&self, member: MemberIndex, copied: bool) -> Option<MemberIndex> {
        if !copied || self.replacing().is_some() {
            return Some(member);
        }
        let replacement = member == self.replacement_place();
        let Reconfiguration::Handed { slot } = self.replacement else {
            return (!replacement).then_some(member);
        };
        if replacement { Some(slot) } else { Some(member).filter(|member| *member != slot) }
    }

    /// Returns the replacement that the label names while shards may still read the old drive.
    fn named_replacement(&self) -> Option<&Replacement> {
        let (replacement, stage) = self.replacing()?;
        matches!(stage, Stage::Named(_) | Stage::Swapped).then_some(replacement)
    }

    /// True if the label already names the replacement of `member`.
    pub(super) fn is_swapping(&self, member: MemberIndex) -> bool {
        self.named_replacement().is_some_and(|replacement| replacement.drive.member == member)
    }

    /// Returns the devices that have records of the array, and the areas of the records: the members, and a replacement
    /// that receives records.
    pub(super) fn homes(&self) -> Vec<(MemberIndex, AreaLayout)> {
        let prepared = self.replacing().filter(|(_, stage)| *stage == Stage::Prepared);
        let replacement =
            prepared.map(|(replacement, _)| (self.replacement_place(), replacement.layout));
        self.live().map(|member| self.label_home(member)).chain(replacement).collect()
    }

    /// Returns the device and the areas for the label of `member`.
    pub(super) fn label_home(&self, member: MemberIndex) -> (MemberIndex, AreaLayout) {
        match self.named_replacement() {
            Some(replacement) if replacement.drive.member == member => {
                (self.replacement_place(), replacement.layout)
            }
            Some(_) | None => {
                (member, self.state.layouts[member.at()].expect("a live member has a device"))
            }
        }
    }
}

/// Starts to fill the installed device.
pub(super) async fn begin(shard: &Shard, drive: IncomingDrive) -> Answer {
    let (member, path) = (drive.member, drive.path.clone());
    {
        let mut leader = shard.leader_mut();
        let free =
            matches!(leader.replacement, Reconfiguration::Idle | Reconfiguration::Handed { .. });
        let state = leader.state.states[member.at()];
        if shard.shared.is_lost() || state != MemberState::InSync || !free {
            return Err(ArrayError::state(format!(
                "member {member} cannot be replaced now: it has just failed, or another member is being replaced"
            )));
        }
        let Some(layout) = AreaLayout::of(drive.bytes) else {
            return Err(ArrayError::usage(format!("{path} is too small")));
        };
        let mut lacks = Bits::new(leader.state.bitmaps.write_intent().regions());
        lacks.fill();
        let replacement = Replacement { drive, layout, lacks };
        reconfigure(shard, &mut leader, Event::Begin(replacement));
    }
    shard.shared.update_member(member, |m| m.replacement = path);
    shard.shared.set_uncopied_regions(u64::from(shard.regions.count()));
    tasks::publish(shard).await;
    shard.shared.tell(Some(member), ArrayEventKind::ReplaceStarted);
    let leader = shard.leader_mut();
    if let Some((replacement, _)) = leader.replacing() {
        let bitmap = std::sync::Arc::new(replacement.lacks.clone());
        let place = leader.replacement_place();
        shard.broadcast(|| Peer::Lacks { member: place, bitmap: std::sync::Arc::clone(&bitmap) });
    }
    Ok(())
}

/// Abandons the replacement, if any, in memory. The member keeps its slot, also in the next label. The event follows
/// when no shard uses the replacement.
pub(super) fn give_up(shard: &Shard, leader: &mut Leader, cause: Option<IoErrorKind>) {
    if leader.replacing().is_some() {
        reconfigure(shard, leader, Event::GiveUp(cause));
    }
}

/// Ends a replacement that failed or was cancelled.
pub(super) async fn fail(shard: &Shard, group: Group, cause: Option<IoErrorKind>) {
    {
        let mut leader = shard.leader_mut();
        if shard.shared.is_lost() || leader.replacing().is_none() {
            return;
        }
        give_up(shard, &mut leader, cause);
    }
    // The replacement may already have a label. A newer label on the members invalidates it.
    if tasks::record(shard, group).await {
        tasks::publish(shard).await;
    }
}

pub(super) async fn cancel(shard: &Shard, group: Group, member: MemberIndex) -> Answer {
    if shard.leader_mut().pending_replacement().is_none_or(|(slot, _)| slot != member) {
        return Err(ArrayError::state(format!("member {member} is not being replaced")));
    }
    fail(shard, group, None).await;
    Ok(())
}

/// The copy is complete: the replacement gets the slot.
pub(super) async fn filled(shard: &Shard, group: Group) {
    if !tasks::flush_all(shard, group).await || !prepare(shard, group).await {
        return;
    }
    if stands_still(shard) {
        // The replacement is stalled and will not complete the swap, so the serving member keeps the slot.
        fail(shard, group, Some(IoErrorKind::Timeout)).await;
        return;
    }
    let slot = {
        let mut leader = shard.leader_mut();
        let generation = leader.state.superblock.generation;
        let Some((Replacement { drive, layout, .. }, _)) = leader.replacing() else { return };
        let (slot, uuid, bytes, layout) = (drive.member, drive.uuid, drive.bytes, *layout);
        let layout = leader.state.layouts[slot.at()].replace(layout);
        let record = &mut leader.state.superblock.members[slot.at()];
        // If the replacement still fails, the old device must not count as live by the label that names the
        // replacement.
        let kept = MemberRecord { in_sync_generation: generation + 2, ..*record };
        record.uuid = uuid;
        record.bytes = bytes;
        record.in_sync_generation = generation + 1;
        reconfigure(shard, &mut leader, Event::Name((kept, layout)));
        slot
    };
    // The replacement gets the label first. Then a start that finds a label with the replacement finds the replacement
    // as well.
    let failed = own_label(shard, group, slot).await;
    if failed.is_none() {
        retire_old(shard, group, slot).await;
    }
    // All other members get the same generation, because no member may be two generations behind after a crash.
    shard.leader_mut().state.superblock.generation -= 1;
    if let Some(cause) = failed {
        // The replacement may have its label nevertheless. A label with another generation then invalidates it.
        give_up(shard, &mut shard.leader_mut(), Some(cause));
        if shard.shared.is_lost() {
            return;
        }
        if tasks::record(shard, group).await && tasks::record(shard, group).await {
            tasks::publish(shard).await;
        }
        return;
    }
    if !tasks::record_as_begun(shard, group).await {
        return;
    }
    let swapped = {
        let mut leader = shard.leader_mut();
        let swaps = leader.is_swapping(slot);
        if swaps {
            reconfigure(shard, &mut leader, Event::Recorded);
        }
        swaps
    };
    tasks::publish(shard).await;
    if swapped {
        finish(shard, slot).await;
    }
}

/// True if the replacement is stalled on some core.
fn stands_still(shard: &Shard) -> bool {
    shard.shared.standing().contains(shard.leader_mut().replacement_place())
}

/// Every shard reads the replacement, so the old device is released.
async fn finish(shard: &Shard, slot: MemberIndex) {
    let IncomingDrive { uuid, path, .. } = {
        let mut leader = shard.leader_mut();
        let (replacement, _) = leader.replacing().expect("only the label task ends a swap");
        let drive = replacement.drive.clone();
        reconfigure(shard, &mut leader, Event::Taken);
        // The old drive contained its redo log, and possibly the only headers that show which records are done.
        leader.joined = leader.state.superblock.generation;
        drive
    };
    tasks::publish(shard).await;
    shard.shared.errors.forget(slot);
    shard.shared.update_member(slot, |m| {
        m.uuid = uuid;
        m.path = path;
        m.replacement.clear();
    });
    shard.shared.tell(Some(slot), ArrayEventKind::ReplaceFinished);
}

/// Writes the bitmap to the replacement. Returns false if the replacement was abandoned.
async fn prepare(shard: &Shard, group: Group) -> bool {
    {
        let mut leader = shard.leader_mut();
        let Some((replacement, Stage::Filling)) = leader.replacing() else { return false };
        if replacement.lacks.count_ones() != 0 {
            return false;
        }
        reconfigure(shard, &mut leader, Event::Prepare);
        let members = leader.state.states.len();
        Bitmap::all(members).for_each(|bitmap| leader.state.bitmaps.rewrite(bitmap));
        leader.bad_unwritten = leader.state.bad.sequence > 0;
    }
    let mut failed = tasks::write_pages(shard, group).await;
    if failed.is_empty() {
        failed = tasks::write_bad_blocks(shard, group).await;
    }
    for (member, failure) in failed {
        tasks::fail_member(shard, group, member, MemberEvent::WriteFailed, Some(failure.kind))
            .await;
    }
    let leader = shard.leader_mut();
    !shard.shared.is_lost() && matches!(leader.replacing(), Some((_, Stage::Prepared)))
}

/// Writes the label of the next generation to the replacement. Returns the error, if any.
async fn own_label(shard: &Shard, group: Group, slot: MemberIndex) -> Option<IoErrorKind> {
    let (home, own) = {
        let mut leader = shard.leader_mut();
        leader.state.superblock.generation += 1;
        (leader.label_home(slot), leader.state.superblock.members[slot.at()].uuid)
    };
    write_label(shard, group, slot, home, own).await
}

/// Writes a label to the old device that records the replacement. Without this label, the array could be started from
/// the old device alone with stale data. A failure of this write is ignored, because the old device may be failing.
async fn retire_old(shard: &Shard, group: Group, slot: MemberIndex) {
    let stage = shard.leader_mut().replacing().map(|(_, stage)| stage);
    if let Some(Stage::Named((record, Some(layout)))) = stage {
        let _ = write_label(shard, group, slot, (slot, layout), record.uuid).await;
    }
}

/// Writes the present label as the label of `own` to the head ring of the device at `home`. Returns the error, if any.
/// The tail ring is not written, because a label in the tail ring means that every member has this label.
async fn write_label(
    shard: &Shard,
    group: Group,
    slot: MemberIndex,
    (device, layout): (MemberIndex, AreaLayout),
    own: Uuid,
) -> Option<IoErrorKind> {
    let mut label = shard.leader_mut().state.superblock.clone();
    (label.slot, label.member) = (slot, own);
    let offset = layout.slot_offset(Copy::Head, label.generation);
    let record = (device, offset, label.encode(Copy::Head, offset));
    let failed = tasks::write_metadata(shard, group, vec![record]).await;
    failed.first().map(|(_, failure)| failure.kind)
}

/// The member failed while its replacement was being filled: the replacement gets the slot and is rebuilt from the
/// other members.
pub(super) async fn take_over(shard: &Shard, group: Group) {
    let drive = {
        let mut leader = shard.leader_mut();
        let Some((replacement, Stage::Orphaned)) = leader.replacing() else { return };
        if shard.shared.is_lost() {
            return;
        }
        let drive = replacement.drive.clone();
        reconfigure(shard, &mut leader, Event::TakeOver);
        drive
    };
    tasks::publish(shard).await;
    let slot = drive.member;
    let replaced = {
        let mut leader = shard.leader_mut();
        reconfigure(shard, &mut leader, Event::Taken);
        !shard.shared.is_lost() && leader.put_in(&drive)
    };
    if replaced {
        // If this fails, the member stays out of use, and the events report it.
        let _ = tasks::join(shard, group, drive).await;
    }
    // If the replacement was not recorded, the status still shows it as a replacement.
    shard.shared.update_member(slot, |m| m.replacement.clear());
}

/// Copies a band to the replacement of a member, if the replacement lacks it. If the member is unreadable, smaller
/// columns are read, and only the unreadable columns are reconstructed from the rest of the stripe.
pub(super) async fn copy(shard: &Shard, group: Group, band: Band) -> Result<(), IoError> {
    let Some((slot, position)) = wanted(shard, band) else { return Ok(()) };
    let geometry = &shard.geometry;
    let mut left =
        Columns::new(Window { offset: geometry.band_offset(band), blocks: geometry.band_blocks() });
    while let Some(window) = left.next() {
        if shard.members.borrow().paired.copied() != Some(slot) {
            break;
        }
        let since = shard.members.borrow().membership_epoch();
        match read_column(shard, group, band, window, position).await {
            Ok(data) => write_replacement(shard, group, (band, window), data).await?,
            Err(failure) if failure.kind != IoErrorKind::Medium || failure.former => {
                // When this call returns, the member is out of use, and its replacement has ended.
                shard.blame(slot, failure);
                shard.await_member_out(slot, since).await?;
            }
            Err(_) if window.blocks > 1 => left.halve(window),
            Err(_) => {
                shard.shared.errors.count_medium(slot);
                Box::pin(recover_column(shard, group, band, window, position)).await?;
            }
        }
    }
    Ok(())
}

async fn read_column(
    shard: &Shard,
    group: Group,
    band: Band,
    window: Window,
    position: u8,
) -> Result<Sg, Failure> {
    let bytes = (window.blocks << shard.geometry.block_size().shift()) as usize;
    let at = shard.geometry.member_lba(band.stripe, window.offset);
    let lost = || shard.shared.is_lost();
    let Some(mut loan) = scratch::borrow(&shard.scratch, 1, bytes, lost).await else {
        let place = shard.geometry.member(band.stripe, position);
        return Err(Failure { kind: IoErrorKind::Lost, slow: false, former: true, place });
    };
    let data = SgMut::from(loan.take(bytes));
    let slot = shard.issue(group, band.stripe, position, Op::Read { at, data });
    settled(&shard.members, group).await;
    let (op, result) = shard.members.borrow_mut().take(slot);
    scratch::end(&shard.scratch, loan);
    let Some(Op::Read { data, .. }) = op else {
        return Err(result.expect_err("a read that does not return its buffer has failed"));
    };
    let mut parts = data.into_parts();
    match result {
        Ok(()) => Ok(Sg::from(parts.next().expect("one buffer was read into").freeze())),
        Err(failure) => {
            scratch::give_back(&shard.scratch, parts);
            Err(failure)
        }
    }
}

fn wanted(shard: &Shard, band: Band) -> Option<(MemberIndex, u8)> {
    let members = shard.members.borrow();
    let slot = members.paired.copied()?;
    let region = shard.regions.region_of(band.stripe);
    let lacks = shard.rebuild.borrow().lacks(members.paired.place(), region);
    let position = shard.geometry.position_of_member(band.stripe, slot)?;
    lacks.then_some((slot, position))
}

async fn write_replacement(
    shard: &Shard,
    group: Group,
    (band, window): (Band, Window),
    data: Sg,
) -> Result<(), IoError> {
    let at = shard.geometry.member_lba(band.stripe, window.offset);
    let place = {
        let members = shard.members.borrow();
        members.paired.copied().map(|_| members.paired.place())
    };
    let Some(place) = place else {
        scratch::give_back_list(&shard.scratch, data);
        return Ok(());
    };
    let op = Op::Write { at, data, durability: strake_block::Durability::Normal };
    let target = super::address::Target::Data;
    let slot = shard.members.borrow_mut().issue(shard.now.get(), group, place, target, op);
    settled(&shard.members, group).await;
    let (op, result) = shard.members.borrow_mut().take(slot);
    if let Some(Op::Write { data, .. }) = op {
        scratch::give_back_list(&shard.scratch, data);
    }
    shard.expel_replacement(result.err().filter(|f| !f.former).map(|f| (place, f))).await
}

impl Shard {
    pub(super) fn lead_copied(&self, leader: &mut Leader, region: RegionIndex) {
        if matches!(leader.replacing(), Some((_, Stage::Filling))) {
            reconfigure(self, leader, Event::Copied(region));
        }
    }

    /// Waits until the device of a pair that failed a write is out of use.
    pub(super) async fn expel_replacement(
        &self,
        failed: Option<(MemberIndex, Failure)>,
    ) -> Result<(), IoError> {
        let Some((member, failure)) = failed else { return Ok(()) };
        let (since, place) = {
            let members = self.members.borrow();
            (members.membership_epoch(), members.paired.place())
        };
        self.blame(member, failure);
        if member != place {
            let swapped = self.members.borrow().paired.swapped_at();
            self.await_member_out(member, swapped).await?;
            // The old device may have failed as well, and shards that have not swapped yet may still read it.
            return self.await_member_out(place, since).await;
        }
        let slot = self.members.borrow().paired.copied();
        self.await_member_out(place, since).await?;
        let swapped = self.members.borrow().paired.swapped_at();
        match slot {
            // The shard swapped in the replacement before the leader received the report of the failure.
            Some(slot) if swapped > since && self.members.borrow().view(slot) != View::Absent => {
                self.await_member_out(slot, swapped).await
            }
            Some(_) | None => Ok(()),
        }
    }
}
