//! The leader's two tasks: one writes labels, one writes the bitmap. Each does everything that has come up
//! until nothing is left, so several changes share one write.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::mpsc;
use std::task::Poll;

use strake_block::{BufMut, Durability, IoErrorKind, Op, Sg};
use strake_ondisk::{AreaLayout, Copy, PAGES_PER_PLANE, Plane};
use strake_raid::{MemberEvent, MemberState};
use strake_units::{Lba, MemberIndex, RegionIndex};

use super::Shard;
use super::address::Target;
use super::leader::{Change, Leader, PLANES, Sweep};
use super::members::{Group, settled};
use super::serve::{FailedMembers, flush_members};
use crate::error::{ArrayError, ArrayErrorKind};
use crate::message::Peer;

type Reply = mpsc::Sender<Result<(), ArrayError>>;

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
        let Some(change) = change else { break };
        apply(&shard, group, change).await;
    }
    shard.members.borrow_mut().close_group(group);
}

async fn apply(shard: &Shard, group: Group, change: Change) {
    match change {
        Change::Failed { member, cause } => {
            fail_member(shard, group, member, event_of(cause), Some(cause)).await;
        }
        Change::Fail { member, event, reply } => {
            let answer = fail_on_request(shard, group, member, event).await;
            answer_to(&reply, answer);
        }
        Change::Replace { member, uuid, bytes, reply } => {
            let answer = replace(shard, group, member, uuid, bytes).await;
            answer_to(&reply, answer);
        }
        Change::Checkpoint => checkpoint(shard, group).await,
        Change::Rebuilt { member } => rebuilt(shard, group, member).await,
        Change::Stop { reply } => {
            let answer = stop(shard, group).await;
            answer_to(&reply, answer);
        }
    }
}

/// What becomes of a member that failed an I/O it may not fail.
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

fn answer_to(reply: &Reply, answer: Result<(), ArrayError>) {
    // Whoever asked may have given up waiting; what was done stays done.
    let _ = reply.send(answer);
}

/// True when the array still holds its data without `member` as well.
fn survives_without(shard: &Shard, leader: &Leader, member: MemberIndex) -> bool {
    shard.geometry.tolerates(leader.impaired() | 1 << member.0)
}

async fn fail_member(
    shard: &Shard,
    group: Group,
    member: MemberIndex,
    event: MemberEvent,
    cause: Option<IoErrorKind>,
) {
    {
        let mut leader = shard.leader_mut();
        if shard.board.is_lost()
            || matches!(
                leader.state.states[member.at()],
                MemberState::Faulty | MemberState::Missing
            )
        {
            return;
        }
        if !survives_without(shard, &leader, member) {
            shard.board.update_member(member, |m| m.cause = cause);
            shard.lose(&mut leader);
            return;
        }
        if !leader.transition(member, event) {
            return;
        }
    }
    shard.board.update_member(member, |m| m.cause = cause);
    if write_labels(shard, group).await {
        publish(shard).await;
    }
}

async fn fail_on_request(
    shard: &Shard,
    group: Group,
    member: MemberIndex,
    event: MemberEvent,
) -> Result<(), ArrayError> {
    {
        let leader = shard.leader_mut();
        if !survives_without(shard, &leader, member) {
            return Err(ArrayError::refused(format!(
                "member {member} is not failed: the array would lose data without it; rebuild or replace the \
                 members that are missing first"
            )));
        }
    }
    let cause = (event == MemberEvent::Vanished).then_some(IoErrorKind::Gone);
    fail_member(shard, group, member, event, cause).await;
    if shard.board.is_lost() {
        Err(ArrayError::refused("the array has lost too many members"))
    } else {
        Ok(())
    }
}

async fn replace(
    shard: &Shard,
    group: Group,
    member: MemberIndex,
    uuid: strake_units::Uuid,
    bytes: u64,
) -> Result<(), ArrayError> {
    {
        let mut leader = shard.leader_mut();
        if shard.board.is_lost() {
            return Err(ArrayError::refused(
                "the array has lost too many members; nothing can be rebuilt",
            ));
        }
        if !leader.transition(member, MemberEvent::Replaced) {
            return Err(ArrayError::state(format!(
                "member {member} is in use; fail it before replacing it"
            )));
        }
        leader.state.layouts[member.at()] = AreaLayout::of(bytes);
        let record = &mut leader.state.superblock.members[member.at()];
        record.uuid = uuid;
        record.bytes = bytes;
        shard.restart_count(&mut leader, member, 0);
        // The new member has no bitmap yet.
        leader.dirty_pages = (1 << (PLANES.len() as u32 * PAGES_PER_PLANE)) - 1;
        shard.start_bitmap(&mut leader);
    }
    shard.board.update_member(member, |m| {
        m.uuid = uuid;
        m.cause = None;
    });
    shard.board.set_rebuild_halted(false);
    if !write_labels(shard, group).await {
        return Err(ArrayError::refused(
            "the array lost too many members while the replacement was recorded",
        ));
    }
    publish(shard).await;
    match shard.leader_mut().state.states[member.at()] {
        MemberState::Rebuilding { .. } | MemberState::InSync => Ok(()),
        MemberState::Faulty | MemberState::Missing => Err(ArrayError::new(
            ArrayErrorKind::Device,
            format!(
                "the drive that was to replace member {member} failed when its label was written; use another"
            ),
        )),
    }
}

async fn checkpoint(shard: &Shard, group: Group) {
    let advanced: Vec<(MemberIndex, u64)> = {
        let leader = shard.leader_mut();
        let states = leader.state.states.iter().enumerate();
        let rebuilding = states.filter(|(_, s)| matches!(s, MemberState::Rebuilding { .. }));
        let members = rebuilding.map(|(i, _)| MemberIndex(i as u8));
        members.map(|m| (m, shard.recovered_stripes(&leader, m))).collect()
    };
    // The cursor may only pass what is stable on the member, whatever its cache does.
    if advanced.is_empty() || !flush_all(shard, group).await {
        return;
    }
    let mut moved = false;
    for (member, stripes) in advanced {
        moved |= shard.leader_mut().transition(member, MemberEvent::Progress { stripes });
    }
    if moved && write_labels(shard, group).await {
        publish(shard).await;
    }
}

async fn rebuilt(shard: &Shard, group: Group, member: MemberIndex) {
    if !flush_all(shard, group).await {
        return;
    }
    {
        let mut leader = shard.leader_mut();
        if !shard.is_rebuilt(&leader, member) || !leader.transition(member, MemberEvent::Finished) {
            return;
        }
    }
    if write_labels(shard, group).await {
        publish(shard).await;
    }
}

async fn stop(shard: &Shard, group: Group) -> Result<(), ArrayError> {
    if shard.board.is_lost() {
        return Err(ArrayError::refused(
            "the array has lost too many members; its labels are left as they were",
        ));
    }
    let lost = || ArrayError::refused("the array lost too many members while it was stopping");
    if !flush_all(shard, group).await {
        return Err(lost());
    }
    let untrusted = shard.board.untrusted_regions();
    {
        let mut leader = shard.leader_mut();
        let regions: Vec<u32> = leader.state.intent.iter_ones().collect();
        for region in regions.into_iter().filter(|r| !untrusted.contains(r)) {
            leader.forget(RegionIndex(region));
        }
        leader.state.superblock.clean = true;
    }
    for (member, failure) in write_pages(shard, group).await {
        fail_member(shard, group, member, event_of(failure.kind), Some(failure.kind)).await;
    }
    if !shard.board.is_lost() && write_labels(shard, group).await { Ok(()) } else { Err(lost()) }
}

/// Flushes every member, taking those that fail out of use. False when too few are left.
async fn flush_all(shard: &Shard, group: Group) -> bool {
    for (member, failure) in flush_members(shard, group).await {
        fail_member(shard, group, member, event_of(failure.kind), Some(failure.kind)).await;
    }
    !shard.board.is_lost()
}

/// Writes the labels of a new generation to every live member: heads first, and only when all have it, tails.
/// Members that fail on the way are recorded as failed in the next generation. False when too few are left.
async fn write_labels(shard: &Shard, group: Group) -> bool {
    loop {
        shard.leader_mut().state.superblock.generation += 1;
        let mut failed = write_copy(shard, group, Copy::Head).await;
        if failed.is_empty() {
            failed = write_copy(shard, group, Copy::Tail).await;
        }
        if failed.is_empty() {
            shard.board.set_generation(shard.leader_mut().state.superblock.generation);
            return true;
        }
        for (member, failure) in failed {
            let mut leader = shard.leader_mut();
            if !survives_without(shard, &leader, member) {
                shard.lose(&mut leader);
                return false;
            }
            leader.transition(member, event_of(failure.kind));
            shard.board.update_member(member, |m| m.cause = Some(failure.kind));
        }
    }
}

async fn write_copy(shard: &Shard, group: Group, copy: Copy) -> FailedMembers {
    let mut labels = Vec::new();
    {
        let leader = shard.leader_mut();
        for member in leader.live() {
            let mut label = leader.state.superblock.clone();
            label.slot = member;
            label.member = label.members[member.at()].uuid;
            let layout =
                leader.state.layouts[member.at()].as_ref().expect("a live member has a device");
            let offset = layout.slot_offset(copy, label.generation);
            labels.push((member, offset, label.encode(copy, offset)));
        }
    }
    write_metadata(shard, group, labels).await
}

/// Writes 4 KiB records at byte offsets, stable. Returns who failed.
async fn write_metadata(
    shard: &Shard,
    group: Group,
    records: Vec<(MemberIndex, u64, [u8; 4096])>,
) -> FailedMembers {
    let mut slots = Vec::new();
    for (member, offset, record) in records {
        let mut buf = BufMut::alone(record.len());
        buf.as_mut_slice().copy_from_slice(&record);
        let op = Op::Write {
            at: Lba(offset),
            data: Sg::from(buf.freeze()),
            durability: Durability::Fua,
        };
        slots.push((
            member,
            shard.members.borrow_mut().issue(shard.now.get(), group, member, Target::Raw, op),
        ));
    }
    settled(&shard.members, group).await;
    let mut failed = FailedMembers::new();
    for (member, slot) in slots {
        let (_, result) = shard.members.borrow_mut().take(slot);
        if let Err(error) = result
            && failed.iter().all(|(known, _)| *known != member)
        {
            failed.push((member, error));
        }
    }
    failed
}

/// Makes the members' states the ones that every shard works by.
async fn publish(shard: &Shard) {
    let version = {
        let mut leader = shard.leader_mut();
        let version = leader.new_version();
        let views = leader.views();
        shard.broadcast(|| Peer::Views { version, views: views.clone() });
        version
    };
    poll_fn(|_| {
        let mut leader = shard.leader_mut();
        if leader.all_applied(version, shard.cores) {
            return Poll::Ready(());
        }
        leader.settling.register();
        Poll::Pending
    })
    .await;
    shard.broadcast(|| Peer::Settled);
    show(shard);
}

/// Shows the members' states to the control plane.
fn show(shard: &Shard) {
    let leader = shard.leader_mut();
    for (at, state) in leader.state.states.iter().enumerate() {
        shard.board.update_member(MemberIndex(at as u8), |m| m.state = *state);
    }
}

/// Writes bitmap changes until there are none, and answers who waited for them.
pub(crate) async fn bitmap(shard: Rc<Shard>) {
    let group = shard.open_group();
    loop {
        clear_swept(&shard, group).await;
        let asked = std::mem::take(&mut shard.leader_mut().asked);
        if asked.is_empty() && shard.leader_mut().dirty_pages == 0 {
            break;
        }
        for (_, region) in &asked {
            shard.board.mark_written(*region);
        }
        let failed = write_pages(&shard, group).await;
        // A bitmap that misses a bit must never be believed. When too few are left the answer below says so.
        let _ = shard.expel(failed).await;
        let result = if shard.board.is_lost() { Err(IoErrorKind::Lost) } else { Ok(()) };
        for (from, region) in asked {
            shard.post(from, Peer::Intended { region, result });
        }
    }
    shard.leader_mut().bitmap_running = false;
    shard.members.borrow_mut().close_group(group);
}

/// Clears the bits of regions that a finished sweep found idle, once their data is stable.
async fn clear_swept(shard: &Shard, group: Group) {
    if !matches!(&shard.leader_mut().sweep, Some(Sweep { awaiting: 0, .. })) {
        return;
    }
    let failed = flush_members(shard, group).await;
    let flushed = shard.expel(failed).await.is_ok();
    let mut leader = shard.leader_mut();
    // A region that was asked for again meanwhile has left the list.
    let Some(sweep) = leader.sweep.take() else { return };
    for region in sweep.idle.into_iter().filter(|_| flushed) {
        leader.forget(region);
    }
}

/// Writes every changed page to every live member. Returns who failed.
async fn write_pages(shard: &Shard, group: Group) -> FailedMembers {
    let mut records = Vec::new();
    {
        let mut leader = shard.leader_mut();
        let dirty = std::mem::take(&mut leader.dirty_pages);
        for (at, plane) in PLANES.into_iter().enumerate() {
            for page in 0..PAGES_PER_PLANE {
                let index = Leader::page_index(at, page);
                if dirty & 1 << index != 0 {
                    leader.state.sequences[index] += 1;
                    encode_page(&leader, at, plane, page, &mut records);
                }
            }
        }
    }
    write_metadata(shard, group, records).await
}

fn encode_page(
    leader: &Leader,
    at: usize,
    plane: Plane,
    page: u32,
    records: &mut Vec<(MemberIndex, u64, [u8; 4096])>,
) {
    let sequence = leader.state.sequences[Leader::page_index(at, page)];
    let bits = if at == 0 { &leader.state.intent } else { &leader.state.written };
    let array = leader.state.superblock.array;
    let record = strake_ondisk::encode_page(array, plane, page, sequence, bits.page_bytes(page));
    for member in leader.live() {
        let layout =
            leader.state.layouts[member.at()].as_ref().expect("a live member has a device");
        records.push((member, layout.bitmap_page_offset(plane, page, sequence), record));
    }
}

impl Shard {
    fn leader_mut(&self) -> std::cell::RefMut<'_, Leader> {
        self.leader.as_ref().expect("leader tasks run on shard 0").borrow_mut()
    }
}
