//! Replacing a member that is in use: its replacement is filled while the member serves, and then takes its place.
//!
//! ```text
//!  begin:    views (the replacement is written) --> every shard --> `Lacks`: copy begins
//!  copied:   flush --> pages on the replacement --> label of the next generation on the replacement, then on all
//!            --> views (devices swapped, both written) --> every shard --> views (the old device is out)
//!  member fails first:  it goes out, lacking what the replacement lacks --> views (the replacement has its place)
//!                       --> label (rebuilding) --> rebuild of what was not copied
//! ```
//!
//! Until the label says otherwise the member is the old device, so a crash leaves the array as it was.

use strake_block::{IoError, IoErrorKind, Op, Sg, SgMut};
use strake_ondisk::{AreaLayout, Bitmap, Bits, Copy, MemberRecord};
use strake_raid::{Band, MemberEvent, MemberState, Window};
use strake_units::{MemberIndex, RegionIndex, Uuid};

use super::Shard;
use super::bad::Columns;
use super::leader::Leader;
use super::leader_tasks as tasks;
use super::maintain::recover_column;
use super::members::{Failure, Group, Pairing, settled};
use super::scratch;
use crate::error::ArrayError;
use crate::events::ArrayEventKind;
use crate::message::{Change, IncomingDrive, Peer, Reconfigure, View};

/// The leader's knowledge of a replacement.
pub(crate) struct Replacement {
    /// Whose it is.
    slot: MemberIndex,
    uuid: Uuid,
    bytes: u64,
    path: String,
    layout: AreaLayout,
    /// Regions that were not copied yet.
    lacks: Bits,
    /// Bitmap pages are written to it.
    paged: bool,
    /// What the label said of the member before it named the replacement, once it does.
    before: Option<(MemberRecord, Option<AreaLayout>)>,
    /// The member has failed.
    orphan: bool,
}

impl Leader {
    fn replacement_place(&self) -> MemberIndex {
        MemberIndex(self.state.states.len() as u8)
    }

    /// The drive that is written along with a member, and the member's slot.
    pub(super) fn pending_replacement(&self) -> Option<(MemberIndex, Uuid)> {
        self.replacement
            .as_ref()
            .filter(|replacement| !replacement.orphan)
            .map(|replacement| (replacement.slot, replacement.uuid))
    }

    /// Who failed, now that the leader looks at it: the devices of a pair may have changed places since.
    pub(super) fn blamed(&self, member: MemberIndex, copied: bool) -> Option<MemberIndex> {
        let replacement = member == self.replacement_place();
        if !copied || self.replacement.is_some() {
            return Some(member);
        }
        match self.swapped {
            Some(slot) if replacement => Some(slot),
            Some(slot) if slot == member => None,
            None if replacement => None,
            Some(_) | None => Some(member),
        }
    }

    /// True when the label names the replacement of `member` already.
    pub(super) fn is_swapping(&self, member: MemberIndex) -> bool {
        self.replacement
            .as_ref()
            .is_some_and(|replacement| replacement.slot == member && replacement.before.is_some())
    }

    /// `member` has just gone out. If it has a replacement, what it lacks is what the replacement lacks, and true comes
    /// back.
    pub(super) fn orphan_replacement(&mut self, member: MemberIndex) -> bool {
        let Some(replacement) =
            self.replacement.as_mut().filter(|replacement| replacement.slot == member)
        else {
            return false;
        };
        replacement.orphan = true;
        replacement.paged = false;
        let lacks = replacement.lacks.clone();
        self.pairing = Pairing::Orphaned(member);
        self.swapped = None;
        self.state.bitmaps.change(Bitmap::Member(member), |stale| stale.join(&lacks));
        true
    }

    /// The replacement's place and layout, when it gets bitmap pages.
    fn paged_replacement(&self) -> Option<(MemberIndex, AreaLayout)> {
        let replacement = self.replacement.as_ref().filter(|replacement| replacement.paged)?;
        Some((self.replacement_place(), replacement.layout))
    }

    /// The devices that hold records of the array, and where: the members', and a replacement's once it gets them.
    pub(super) fn homes(&self) -> Vec<(MemberIndex, AreaLayout)> {
        let replacement = self.paged_replacement().filter(|_| !self.replacement_is_named());
        self.live().map(|member| self.label_home(member)).chain(replacement).collect()
    }

    fn replacement_is_named(&self) -> bool {
        self.replacement.as_ref().is_some_and(|replacement| replacement.before.is_some())
    }

    /// Where the label of `member` goes.
    pub(super) fn label_home(&self, member: MemberIndex) -> (MemberIndex, AreaLayout) {
        match &self.replacement {
            Some(replacement) if self.is_swapping(member) => {
                (self.replacement_place(), replacement.layout)
            }
            Some(_) | None => {
                (member, self.state.layouts[member.at()].expect("a live member has a device"))
            }
        }
    }
}

/// Begins to fill the installed device.
pub(super) async fn begin(shard: &Shard, drive: IncomingDrive) -> Result<(), ArrayError> {
    let IncomingDrive { member, uuid, bytes, path } = drive;
    {
        let mut leader = shard.leader_mut();
        let state = leader.state.states[member.at()];
        if shard.shared.is_lost() || state != MemberState::InSync || leader.replacement.is_some() {
            return Err(ArrayError::state(format!(
                "member {member} cannot be replaced now: it has just failed, or another member is being replaced"
            )));
        }
        let Some(layout) = AreaLayout::of(bytes) else {
            return Err(ArrayError::usage(format!("{path} is too small")));
        };
        let mut lacks = Bits::new(leader.state.bitmaps.write_intent().regions());
        lacks.fill();
        leader.replacement = Some(Replacement {
            slot: member,
            uuid,
            bytes,
            path: path.clone(),
            layout,
            lacks,
            paged: false,
            before: None,
            orphan: false,
        });
        leader.pairing = Pairing::Copying(member);
    }
    shard.shared.update_member(member, |m| m.replacement = path);
    shard.shared.set_uncopied_regions(u64::from(shard.regions.count()));
    tasks::publish(shard).await;
    shard.shared.tell(Some(member), ArrayEventKind::ReplaceStarted);
    let leader = shard.leader_mut();
    if let Some(replacement) = &leader.replacement {
        let bitmap = std::sync::Arc::new(replacement.lacks.clone());
        let place = leader.replacement_place();
        shard.broadcast(|| Peer::Lacks { member: place, bitmap: std::sync::Arc::clone(&bitmap) });
    }
    Ok(())
}

/// Gives up the replacement, in memory; the member keeps its place, in the label to be written too. The event follows
/// when no shard uses the replacement.
pub(super) fn abandon(leader: &mut Leader, cause: Option<IoErrorKind>) {
    let Some(replacement) = leader.replacement.take() else { return };
    if let Some((record, layout)) = replacement.before {
        leader.state.superblock.members[replacement.slot.at()] = record;
        leader.state.layouts[replacement.slot.at()] = layout;
    }
    leader.pairing = Pairing::None;
    leader.swapped = None;
    leader.abandoned = Some((replacement.slot, cause));
}

/// Every shard goes by the leader's views: a replacement that was given up is out of use.
pub(super) fn settled_views(shard: &Shard, leader: &mut Leader) {
    let Some((slot, cause)) = leader.abandoned.take() else { return };
    shard.shared.update_member(slot, |m| m.replacement.clear());
    shard.shared.tell(Some(slot), ArrayEventKind::ReplaceAbandoned { cause });
}

/// The replacement failed, or was cancelled.
pub(super) async fn fail(shard: &Shard, group: Group, cause: Option<IoErrorKind>) {
    {
        let mut leader = shard.leader_mut();
        if shard.shared.is_lost() || leader.replacement.is_none() {
            return;
        }
        abandon(&mut leader, cause);
    }
    // The replacement may hold a label by now: a newer one makes it worthless.
    if tasks::record(shard, group).await {
        tasks::publish(shard).await;
    }
}

pub(super) async fn cancel(
    shard: &Shard,
    group: Group,
    member: MemberIndex,
) -> Result<(), ArrayError> {
    if shard
        .leader_mut()
        .replacement
        .as_ref()
        .is_none_or(|replacement| replacement.slot != member || replacement.orphan)
    {
        return Err(ArrayError::state(format!("member {member} is not being replaced")));
    }
    fail(shard, group, None).await;
    Ok(())
}

/// Everything was copied: the replacement takes the member's place.
pub(super) async fn filled(shard: &Shard, group: Group) {
    if !tasks::flush_all(shard, group).await || !prepare(shard, group).await {
        return;
    }
    if stands_still(shard) {
        // As soon as its I/Os are given up it takes part in nothing: the member that serves is the better one.
        fail(shard, group, Some(IoErrorKind::Timeout)).await;
        return;
    }
    let slot = {
        let mut leader = shard.leader_mut();
        let generation = leader.state.superblock.generation;
        let Some(mut replacement) = leader.replacement.take() else { return };
        let slot = replacement.slot;
        let layout = leader.state.layouts[slot.at()].replace(replacement.layout);
        let record = &mut leader.state.superblock.members[slot.at()];
        // If the replacement fails yet, the label that names it is one that does not call the member live.
        let kept = MemberRecord { in_sync_generation: generation + 2, ..*record };
        replacement.before = Some((kept, layout));
        record.uuid = replacement.uuid;
        record.bytes = replacement.bytes;
        record.in_sync_generation = generation + 1;
        leader.replacement = Some(replacement);
        slot
    };
    // The replacement first: a start that finds a label that names it finds the replacement as well.
    let failed = own_label(shard, group, slot).await;
    if failed.is_none() {
        retire_old(shard, group, slot).await;
    }
    // The same number for all other members: none may be two behind if the machine stops now.
    shard.leader_mut().state.superblock.generation -= 1;
    if let Some(cause) = failed {
        // The replacement may hold its label all the same, so one more number follows that makes it worthless.
        abandon(&mut shard.leader_mut(), Some(cause));
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
            leader.pairing = Pairing::Swapped(slot);
        }
        swaps
    };
    tasks::publish(shard).await;
    if swapped {
        finish(shard, slot).await;
    }
}

/// True when an I/O of the replacement has been outstanding for long on some core.
fn stands_still(shard: &Shard) -> bool {
    shard.shared.standing().contains(shard.leader_mut().replacement_place())
}

/// Every shard reads the replacement: the old device is let go.
async fn finish(shard: &Shard, slot: MemberIndex) {
    let (uuid, path) = {
        let mut leader = shard.leader_mut();
        let replacement = leader.replacement.take().expect("only the label task ends a swap");
        leader.pairing = Pairing::None;
        leader.swapped = Some(slot);
        // The old drive took its log along, and with it perhaps the only headers that tell which records are done.
        leader.joined = leader.state.superblock.generation;
        (replacement.uuid, replacement.path)
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

/// Writes the bitmap to the replacement. False when there is no longer a replacement that could be swapped in.
async fn prepare(shard: &Shard, group: Group) -> bool {
    {
        let mut leader = shard.leader_mut();
        let Some(replacement) =
            leader.replacement.as_mut().filter(|replacement| !replacement.orphan)
        else {
            return false;
        };
        if replacement.lacks.count_ones() != 0 {
            return false;
        }
        replacement.paged = true;
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
    !shard.shared.is_lost()
        && leader
            .replacement
            .as_ref()
            .is_some_and(|replacement| replacement.paged && !replacement.orphan)
}

/// Writes the label of the next generation to the replacement. Returns how that failed.
async fn own_label(shard: &Shard, group: Group, slot: MemberIndex) -> Option<IoErrorKind> {
    let (home, own) = {
        let mut leader = shard.leader_mut();
        leader.state.superblock.generation += 1;
        (leader.label_home(slot), leader.state.superblock.members[slot.at()].uuid)
    };
    write_label(shard, group, slot, home, own).await
}

/// Tells the old device, from whose label it could otherwise be used alone as if nothing had happened since, that the
/// replacement has its place. It need not hear of it: it may be failing, which is why it is replaced.
async fn retire_old(shard: &Shard, group: Group, slot: MemberIndex) {
    let before = shard.leader_mut().replacement.as_ref().and_then(|replacement| replacement.before);
    if let Some((record, Some(layout))) = before {
        let _ = write_label(shard, group, slot, (slot, layout), record.uuid).await;
    }
}

/// Writes the label as it stands to the head ring of the device at `home`, as that of `own`. Returns how that failed.
/// Not to the tail ring: what stands there says that every member has it.
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

/// The member failed while its replacement was being filled: the replacement takes its place and is filled from the
/// others.
pub(super) async fn take_over(shard: &Shard, group: Group) {
    let slot = {
        let mut leader = shard.leader_mut();
        let Some(replacement) =
            leader.replacement.as_ref().filter(|replacement| replacement.orphan)
        else {
            return;
        };
        let slot = replacement.slot;
        leader.pairing = Pairing::TakenOver(slot);
        slot
    };
    tasks::publish(shard).await;
    let incoming = {
        let mut leader = shard.leader_mut();
        leader.pairing = Pairing::None;
        leader.swapped = Some(slot);
        let replacement =
            leader.replacement.take().expect("only the label task ends a replacement");
        if shard.shared.is_lost() || !leader.transition(slot, MemberEvent::Replaced) {
            shard.shared.update_member(slot, |m| m.replacement.clear());
            return;
        }
        let record = &mut leader.state.superblock.members[slot.at()];
        record.uuid = replacement.uuid;
        record.held_generation = 0;
        leader.take_in(slot, replacement.bytes);
        let Replacement { uuid, bytes, path, .. } = replacement;
        IncomingDrive { member: slot, uuid, bytes, path }
    };
    // If that fails the member stays out, and the events say so.
    let _ = tasks::join(shard, group, incoming).await;
    // If it was not recorded, it was not shown in its place either.
    shard.shared.update_member(slot, |m| m.replacement.clear());
}

/// Copies a band to the replacement of the member that is being replaced, if it lacks it. Where the member cannot be
/// read, ever smaller columns are tried, and only what is left of those is reconstructed from the rest of the stripe.
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
                // When this returns it is out, and its replacement is no longer one.
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
        let Some(replacement) =
            leader.replacement.as_mut().filter(|replacement| !replacement.orphan)
        else {
            return;
        };
        replacement.lacks.clear(region.0);
        self.shared.set_uncopied_regions(u64::from(replacement.lacks.count_ones()));
        if replacement.lacks.count_ones() == 0 {
            self.change(leader, Change::Reconfigure(Reconfigure::Filled));
        }
    }

    /// Waits until the device that failed a write beside its pair's other one is out of use.
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
            // The old device may have failed as well, and be read by shards that do not know of the replacement yet.
            return self.await_member_out(place, since).await;
        }
        let slot = self.members.borrow().paired.copied();
        self.await_member_out(place, since).await?;
        let swapped = self.members.borrow().paired.swapped_at();
        match slot {
            // It was swapped in before the leader heard of the failure.
            Some(slot) if swapped > since && self.members.borrow().view(slot) != View::Absent => {
                self.await_member_out(slot, swapped).await
            }
            Some(_) | None => Ok(()),
        }
    }
}
