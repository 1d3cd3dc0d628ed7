//! The two tasks of the leader: one writes labels, the other writes bitmaps. Each task runs until no work is left, so
//! several changes share one write.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use strake_block::{BufMut, IoErrorKind, Op, SgMut};
use strake_ondisk::{Bitmap, Bits, COMPAT_AFTER_CRASH, Superblock};
use strake_raid::{MemberEvent, MemberState};
use strake_units::{Lba, MemberIndex, MemberSet, Name, RegionIndex};

use super::Shard;
use super::address::Target;
use super::leader::{Leader, Sweep};
use super::members::{Group, settled};
use super::reconfiguration::{Event, reconfigure};
use super::replacement;
use crate::array::check_returning;
use crate::assemble::write_intent_pages;
use crate::bitmaps::WriteIntentPages;
use crate::error::{ArrayError, ArrayErrorKind, ArrayRemedy};
use crate::events::ArrayEventKind;
use crate::message::{
    Answer, BadNote, Change, FailReason, IncomingDrive, Peer, Reconfigure, Reply,
};
use crate::shared_status::MemberCause;

mod bitmap;
mod flush;
mod logged;
mod records;

pub(crate) use bitmap::bitmap;
pub(super) use bitmap::write_pages;
pub(super) use flush::flush_all;
use logged::change_consistency;
pub(super) use records::{record, record_as_begun, write_bad_blocks, write_metadata};

/// Writes label changes until there are none.
pub(crate) async fn labels(shard: Rc<Shard>) {
    let group = shard.open_group();
    loop {
        let change = {
            let mut leader = shard.leader_mut();
            let change = leader.changes.pop_front();
            leader.labels_running = change.is_some();
            change
        };
        let Some((change, reply)) = change else { break };
        let answer = apply(&shard, group, change).await;
        answer_to(reply, answer);
    }
    shard.members.borrow_mut().groups.close(group);
}

async fn apply(shard: &Shard, group: Group, change: Change) -> Answer {
    if shard.leader_mut().stopped {
        return refuse_late(shard, change);
    }
    match change {
        Change::Fail { member, reason } => return fail(shard, group, member, reason).await,
        Change::Reconfigure(step) => return change_drives(shard, group, step).await,
        Change::Rename { name } => return rename(shard, group, name).await,
        Change::Consistency { mode } => return change_consistency(shard, group, mode).await,
        Change::Stop => return stop(shard, group).await,
        Change::Drained { version } => logged::drained(shard, group, version).await,
        Change::Bad { from, ticket, notes } => {
            let result = note_bad(shard, group, &notes).await;
            shard.post(from, Peer::BadNoted { ticket, result });
        }
        Change::Checkpoint => checkpoint(shard, group).await,
        Change::Rebuilt { member } => rebuilt(shard, group, member).await,
    }
    Ok(())
}

/// Refuses changes after the labels recorded the stop of the array.
fn refuse_late(shard: &Shard, change: Change) -> Answer {
    if let Change::Bad { from, ticket, .. } = change {
        shard.post(from, Peer::BadNoted { ticket, result: Err(IoErrorKind::Lost) });
    }
    Err(ArrayError::refused("the array has stopped"))
}

async fn change_drives(shard: &Shard, group: Group, step: Reconfigure) -> Answer {
    match step {
        Reconfigure::Replace(drive) => return replace(shard, group, drive).await,
        Reconfigure::Readd { drive, label } => return readd(shard, group, drive, &label).await,
        Reconfigure::BeginReplacement(drive) => return replacement::begin(shard, drive).await,
        Reconfigure::CancelReplacement { member } => {
            return replacement::cancel(shard, group, member).await;
        }
        Reconfigure::Filled => replacement::filled(shard, group).await,
        Reconfigure::TakeOver => replacement::take_over(shard, group).await,
    }
    Ok(())
}

/// Returns the event of a member whose I/O failed with `cause`.
const fn event_of(cause: IoErrorKind) -> MemberEvent {
    match cause {
        IoErrorKind::Gone => MemberEvent::Vanished,
        IoErrorKind::Medium
        | IoErrorKind::Device
        | IoErrorKind::Timeout
        | IoErrorKind::NoSpace
        | IoErrorKind::OutOfRange
        | IoErrorKind::Misaligned
        | IoErrorKind::ReadOnly
        | IoErrorKind::Unsupported
        | IoErrorKind::Lost
        | IoErrorKind::Aborted => MemberEvent::WriteFailed,
    }
}

fn answer_to(reply: Option<Reply>, answer: Answer) {
    // The caller may have stopped waiting. The change remains.
    let _ = reply.map(|reply| reply.send(answer));
}

/// True if the array keeps its data without `member`.
fn survives_without(shard: &Shard, leader: &Leader, member: MemberIndex) -> bool {
    shard.geometry.tolerates(leader.impaired().with(member))
}

pub(super) async fn fail_member(
    shard: &Shard,
    group: Group,
    member: MemberIndex,
    event: MemberEvent,
    cause: Option<IoErrorKind>,
) {
    if member.at() >= shard.geometry.members() {
        replacement::fail(shard, group, cause).await;
        return;
    }
    {
        let mut leader = shard.leader_mut();
        if shard.shared.is_lost()
            || matches!(
                leader.state.states[member.at()],
                MemberState::Faulty | MemberState::Missing
            )
        {
            return;
        }
        if !survives_without(shard, &leader, member) {
            let cause = Some(cause_of(cause));
            leader.causes[member.at()] = cause;
            shard.shared.update_member(member, |m| m.cause = cause);
            shard.lose(&mut leader);
            return;
        }
        if !put_out(shard, &mut leader, member, event, cause) {
            return;
        }
    }
    if record(shard, group).await {
        publish(shard).await;
    }
}

/// Puts a live member out of use, and reports an event. Returns false if the member is already out.
fn put_out(
    shard: &Shard,
    leader: &mut Leader,
    member: MemberIndex,
    event: MemberEvent,
    cause: Option<IoErrorKind>,
) -> bool {
    if leader.is_swapping(member) {
        // The replacement already has the slot.
        return false;
    }
    let doubt = shard.doubt_without(leader, member);
    if !leader.take_out(member, event) {
        return false;
    }
    shard.put_in_doubt(leader, &doubt);
    reconfigure(shard, leader, Event::MemberOut(member));
    shard.shared.note_failing(member);
    // The cause is published together with the state.
    leader.causes[member.at()] = Some(cause_of(cause));
    let kind = match (event, cause) {
        (MemberEvent::Vanished, _) => ArrayEventKind::MemberVanished,
        (_, Some(cause)) => ArrayEventKind::MemberFailed { cause },
        (_, None) => ArrayEventKind::MemberFailedByHand,
    };
    shard.shared.tell(Some(member), kind);
    true
}

/// Without an error, only the operator puts a member out of use.
fn cause_of(error: Option<IoErrorKind>) -> MemberCause {
    error.map_or(MemberCause::ByHand, MemberCause::Error)
}

/// Puts a member out of use.
async fn fail(shard: &Shard, group: Group, member: MemberIndex, reason: FailReason) -> Answer {
    if matches!(reason, FailReason::Request(MemberEvent::OperatorFailed)) {
        refuse_needed(shard, member)?;
        unmark_idle(shard, group).await;
    }
    // Another member may have failed during the flush.
    fail_at_once(shard, group, (member, reason)).await
}

/// Puts a member out of use without a flush, so bits of idle regions stay set.
async fn fail_at_once(
    shard: &Shard,
    group: Group,
    (member, reason): (MemberIndex, FailReason),
) -> Answer {
    let answer = match reason {
        FailReason::Io { cause, copied } => {
            let blamed = shard.leader_mut().blamed(member, copied);
            if let Some(member) = blamed {
                fail_member(shard, group, member, event_of(cause), Some(cause)).await;
            }
            Ok(())
        }
        FailReason::Request(event) => fail_on_request(shard, group, member, event).await,
    };
    if member.at() < shard.geometry.members() {
        shard.shared.settle_failing(MemberSet::of(member));
    }
    answer
}

async fn fail_on_request(
    shard: &Shard,
    group: Group,
    member: MemberIndex,
    event: MemberEvent,
) -> Answer {
    refuse_needed(shard, member)?;
    let cause = (event == MemberEvent::Vanished).then_some(IoErrorKind::Gone);
    fail_member(shard, group, member, event, cause).await;
    unless_lost(shard)
}

fn unless_lost(shard: &Shard) -> Answer {
    if shard.shared.is_lost() {
        Err(ArrayError::refused("the array has lost too many members"))
    } else {
        Ok(())
    }
}

/// Refuses to put `member` out of use if the array would lose data, unless the array has already failed.
fn refuse_needed(shard: &Shard, member: MemberIndex) -> Answer {
    if survives_without(shard, &shard.leader_mut(), member) {
        return Ok(());
    }
    Err(ArrayError::refused(format!(
        "member {member} is not failed: the array would lose data without it; rebuild or replace the members that \
         are missing first"
    )))
}

/// Flushes, and clears the bits of idle regions. A crash while a member is out leaves every region with a set bit in
/// doubt.
async fn unmark_idle(shard: &Shard, group: Group) {
    // A region is idle if it was not written between two sweeps.
    for _ in 0..2 {
        {
            let mut leader = shard.leader_mut();
            let idle = leader.take_swept();
            leader.urgent_sweep = Some(Sweep { awaiting: shard.cores, idle });
        }
        shard.broadcast(|| Peer::Sweep { urgent: true });
        let all_swept =
            |leader: &Leader| leader.urgent_sweep.as_ref().is_none_or(|sweep| sweep.awaiting == 0);
        led_until(shard, all_swept).await;
    }
    let flushed = flush_all(shard, group).await;
    let mut leader = shard.leader_mut();
    for region in leader.take_swept().into_iter().filter(|_| flushed) {
        leader.forget(region);
    }
    if leader.state.bitmaps.is_dirty() {
        shard.start_bitmap(&mut leader);
    }
}

async fn rename(shard: &Shard, group: Group, name: Name) -> Answer {
    let lost = || ArrayError::refused("the array has lost too many members to be renamed");
    if shard.shared.is_lost() {
        return Err(lost());
    }
    shard.leader_mut().state.superblock.name = name;
    if !record(shard, group).await {
        return Err(lost());
    }
    // A member may have failed during the write of the new name.
    publish(shard).await;
    Ok(())
}

async fn replace(shard: &Shard, group: Group, incoming: IncomingDrive) -> Answer {
    let member = incoming.member;
    {
        let mut leader = shard.leader_mut();
        if shard.shared.is_lost() {
            return Err(ArrayError::refused(
                "the array has lost too many members; nothing can be rebuilt",
            ));
        }
        if !leader.put_in(&incoming) {
            return Err(ArrayError::state(format!(
                "member {member} is in use; fail it before replacing it"
            )));
        }
        leader.state.bitmaps.change(Bitmap::Member(member), Bits::fill);
    }
    join(shard, group, incoming).await
}

/// Re-adds a member in the state in which it went out.
async fn readd(shard: &Shard, group: Group, incoming: IncomingDrive, label: &Superblock) -> Answer {
    let member = incoming.member;
    let pages = read_write_intent(shard, group, member, incoming.bytes).await?;
    {
        let mut leader = shard.leader_mut();
        if shard.shared.is_lost() {
            return Err(ArrayError::refused(
                "the array has lost too many members; nothing can be re-added",
            ));
        }
        if leader.state.bitmaps.is_older(member, pages) {
            return Err(ArrayError::refused(format!(
                "the drive is an older copy of member {member}: no bitmap lists all writes that it lacks; return the \
                 original drive, or copy the whole member"
            ))
            .with(ArrayRemedy::Replace(leader.state.superblock.name.clone(), member)));
        }
        // The check repeats, because the member may have been replaced or re-added since the first check.
        check_returning(&leader.state.superblock, member, label)?;
        if !leader.transition(member, MemberEvent::Readded) {
            return Err(ArrayError::state(format!(
                "member {member} is in use; there is nothing to re-add"
            )));
        }
    }
    join(shard, group, incoming).await
}

/// Reads the write-intent pages of the installed drive of a member.
async fn read_write_intent(
    shard: &Shard,
    group: Group,
    member: MemberIndex,
    bytes: u64,
) -> Result<WriteIntentPages, ArrayError> {
    let layout = strake_ondisk::AreaLayout::of(bytes)
        .ok_or_else(|| ArrayError::usage(format!("the drive for member {member} is too small")))?;
    let at = Lba(layout.bitmap_page_offset(Bitmap::WriteIntent, 0, 0));
    let data = SgMut::from(BufMut::alone(strake_ondisk::BITMAP_BYTES as usize));
    let read = Op::Read { at, data };
    let now = shard.now.get();
    let slot = shard.members.borrow_mut().issue(now, group, member, Target::Raw, read);
    settled(&shard.members, group).await;
    let (op, result) = shard.members.borrow_mut().take(slot);
    match (op, result) {
        (Some(Op::Read { data, .. }), Ok(())) => {
            let array = shard.leader_mut().state.superblock.array;
            let parts = data.parts().iter().flat_map(|part| part.as_slice().iter().copied());
            Ok(write_intent_pages(&parts.collect::<Vec<u8>>(), array))
        }
        (_, result) => Err(ArrayError::new(
            ArrayErrorKind::Device,
            format!(
                "the bitmap of the drive for member {member} cannot be read ({:?}); use another drive",
                result.err().map(|failure| failure.kind)
            ),
        )),
    }
}

/// Records a member that has come into use, and makes every shard use it.
pub(super) async fn join(shard: &Shard, group: Group, incoming: IncomingDrive) -> Answer {
    let member = incoming.member;
    {
        let mut leader = shard.leader_mut();
        leader.causes[member.at()] = None;
        leader.take_in(member, incoming.bytes);
        reconfigure(shard, &mut leader, Event::Join(incoming));
    }
    if !record(shard, group).await {
        reconfigure(shard, &mut shard.leader_mut(), Event::NotRecorded);
        return Err(ArrayError::refused(
            "the array lost too many members while the new one was recorded",
        ));
    }
    {
        let mut leader = shard.leader_mut();
        leader.joined = leader.state.superblock.generation;
    }
    publish(shard).await;
    match shard.leader_mut().state.states[member.at()] {
        MemberState::Rebuilding { .. } | MemberState::InSync => Ok(()),
        MemberState::Faulty | MemberState::Missing => Err(ArrayError::new(
            ArrayErrorKind::Device,
            format!("the drive for member {member} failed when its label was written; use another"),
        )),
    }
}

/// Records the rebuilt regions as soon as they are stable.
async fn checkpoint(shard: &Shard, group: Group) {
    let done = shard.leader_mut().take_done();
    // A bit may only be cleared after the region is stable on the member, regardless of its cache.
    if done.is_empty() || !flush_all(shard, group).await {
        return;
    }
    let moved = shard.lead_stable(&mut shard.leader_mut(), done);
    if moved && record(shard, group).await {
        publish(shard).await;
    }
    shard.lead_finished();
}

async fn rebuilt(shard: &Shard, group: Group, member: MemberIndex) {
    let done = shard.leader_mut().take_done();
    if !flush_all(shard, group).await {
        return;
    }
    let (finished, changed) = {
        let mut leader = shard.leader_mut();
        let moved = shard.lead_stable(&mut leader, done);
        let complete = leader.state.bitmaps.stale(member).count_ones() == 0;
        let finished = complete
            && !leader.counts_older_records()
            && leader.transition(member, MemberEvent::Finished);
        (finished, finished || moved)
    };
    // The cleared bits are written first, because the label that promotes the member must match the bitmap.
    let mut recorded = changed && record(shard, group).await;
    // If a crash prevents this label on the drive, the next start does not accept the drive as in sync. Its stripes
    // must then be in the log, according to the labels of the other members. Therefore one more label ends the log.
    if recorded && finished && shard.leader_mut().log_less(member) {
        recorded = record(shard, group).await;
    }
    if recorded {
        publish(shard).await;
        if finished && shard.leader_mut().state.states[member.at()] == MemberState::InSync {
            shard.shared.tell(Some(member), ArrayEventKind::RebuildFinished);
        }
    }
    shard.lead_finished();
}

async fn stop(shard: &Shard, group: Group) -> Answer {
    shard.leader_mut().stopped = true;
    if shard.shared.is_lost() {
        return Err(ArrayError::refused(
            "the array has lost too many members; its labels are unchanged",
        ));
    }
    let lost = || ArrayError::refused("the array lost too many members while it was stopping");
    if !flush_all(shard, group).await {
        return Err(lost());
    }
    let untrusted = shard.shared.untrusted_regions();
    {
        let mut leader = shard.leader_mut();
        let regions: Vec<u32> = leader.state.bitmaps.write_intent().iter_ones().collect();
        for region in regions.into_iter().filter(|r| !untrusted.contains(r)) {
            leader.forget(RegionIndex(region));
        }
        leader.state.superblock.clean = true;
        if untrusted.is_empty() {
            leader.state.superblock.compat &= !COMPAT_AFTER_CRASH;
        }
    }
    let recorded = record(shard, group).await;
    // Publishes the members that failed during the writes.
    show(shard, &shard.leader_mut(), None);
    if recorded { Ok(()) } else { Err(lost()) }
}

/// Changes the list of bad blocks on every live member and for every shard.
async fn note_bad(shard: &Shard, group: Group, notes: &[BadNote]) -> Result<(), IoErrorKind> {
    if shard.shared.is_lost() {
        return Err(IoErrorKind::Lost);
    }
    if !shard.leader_mut().note_bad(notes)? {
        return Ok(());
    }
    if !record(shard, group).await {
        return Err(IoErrorKind::Lost);
    }
    publish(shard).await;
    shard.show_bad(&shard.leader_mut());
    Ok(())
}

/// Publishes the states of the members to every shard.
pub(super) async fn publish(shard: &Shard) {
    let version = {
        let mut leader = shard.leader_mut();
        let version = leader.new_version();
        let views = leader.views();
        let (pairing, bad) = (leader.replacement.pairing(), Arc::clone(&leader.state.bad.list));
        let roll = Arc::new(leader.roll());
        leader.reported = roll.generation;
        shard.broadcast(|| Peer::Views {
            version,
            views: views.clone(),
            pairing,
            bad: Arc::clone(&bad),
            roll: Arc::clone(&roll),
        });
        version
    };
    led_until(shard, |leader| leader.all_applied(version, shard.cores)).await;
    let mut leader = shard.leader_mut();
    reconfigure(shard, &mut leader, Event::Written);
    reconfigure(shard, &mut leader, Event::Applied);
    shard.broadcast(|| Peer::Settled);
    shard.shared.settle_failing(leader.out());
    show(shard, &leader, None);
}

/// Publishes the members to the control plane. `incoming` is a drive that is new in its slot, so that a drive is never
/// published with the state of the previous drive.
pub(super) fn show(shard: &Shard, leader: &Leader, incoming: Option<IncomingDrive>) {
    shard.shared.update_members(|members| {
        for (at, member) in members.iter_mut().enumerate() {
            member.state = leader.state.states[at];
            member.cause = leader.causes[at];
        }
        if let Some(IncomingDrive { member, uuid, path, .. }) = incoming {
            let status = &mut members[member.at()];
            // The counters of this slot may belong to another drive.
            let new = status.uuid != uuid;
            (status.uuid, status.path) = (uuid, path);
            status.replacement.clear();
            if new {
                shard.shared.errors.forget(member);
            }
        }
    });
}

/// Waits until `holds` returns true, which depends on answers of the shards.
async fn led_until(shard: &Shard, holds: impl Fn(&Leader) -> bool) {
    poll_fn(|_| {
        let mut leader = shard.leader_mut();
        if holds(&leader) {
            return Poll::Ready(());
        }
        leader.settling.register();
        Poll::Pending
    })
    .await;
}

impl Shard {
    pub(super) fn leader_mut(&self) -> std::cell::RefMut<'_, Leader> {
        self.leader.as_ref().expect("leader tasks run on shard 0").borrow_mut()
    }
}
