//! The leader's writes to members: labels, the list of bad blocks, and other records.

use strake_block::{BufMut, Durability, Op, Sg};
use strake_ondisk::{Copy, RecordedState, Superblock};
use strake_units::{Lba, MemberIndex, MemberSet};

use super::bitmap::write_pages;
use super::{event_of, put_out, survives_without};
use crate::shard::address::Target;
use crate::shard::members::{Group, settled};
use crate::shard::serve::FailedMembers;
use crate::shard::{Shard, replacement};

/// Records the state of the array on every live member. First the changed bitmap pages are written, so that no label
/// calls a member out before its dirty bitmap is recorded. Then the labels of a new generation are written. Members
/// that fail meanwhile are recorded as failed in the next generation. Returns false if too few members remain.
pub(in crate::shard) async fn record(shard: &Shard, group: Group) -> bool {
    let tried = pages_and_label(shard, group).await;
    until_recorded(shard, group, tried).await
}

/// Records a label that one member already has. It is written to all members before another change, because two
/// different labels of one generation would be two histories. The label calls no member out, so the bitmap pages may
/// follow it.
pub(in crate::shard) async fn record_as_begun(shard: &Shard, group: Group) -> bool {
    let tried = label(shard, group).await;
    until_recorded(shard, group, tried).await
}

/// The result of an attempt to write a record to every member.
struct Tried {
    /// Members that the label calls live.
    live: MemberSet,
    /// Members whose write failed.
    failed: FailedMembers,
}

/// Continues after `tried` until every remaining member has all records. Returns false if too few members remain.
async fn until_recorded(shard: &Shard, group: Group, mut tried: Tried) -> bool {
    while !tried.failed.is_empty() {
        for (member, failure) in tried.failed {
            let mut leader = shard.leader_mut();
            if member.at() >= shard.geometry.members() {
                replacement::give_up(shard, &mut leader, Some(failure.kind));
                continue;
            }
            if !leader.is_swapping(member) && !survives_without(shard, &leader, member) {
                shard.lose(&mut leader);
                return false;
            }
            put_out(shard, &mut leader, member, event_of(failure.kind), Some(failure.kind));
        }
        tried = pages_and_label(shard, group).await;
    }
    let mut leader = shard.leader_mut();
    leader.completed = leader.state.superblock.generation;
    leader.state.bitmaps.recorded(tried.live);
    shard.shared.set_superblock(&leader.state.superblock);
    true
}

async fn pages_and_label(shard: &Shard, group: Group) -> Tried {
    let mut failed = write_pages(shard, group).await;
    if failed.is_empty() {
        failed = write_bad_blocks(shard, group).await;
    }
    if failed.is_empty() {
        label(shard, group).await
    } else {
        Tried { live: MemberSet::EMPTY, failed }
    }
}

async fn label(shard: &Shard, group: Group) -> Tried {
    let live = called_live(shard);
    Tried { live, failed: write_labels(shard, group).await }
}

/// Members that the label calls live.
fn called_live(shard: &Shard) -> MemberSet {
    let leader = shard.leader_mut();
    let rows = leader.state.superblock.members.iter().enumerate();
    let live = rows.filter(|(_, row)| row.state.is_live());
    live.map(|(slot, _)| slot).collect()
}

/// Writes the list of bad blocks to every live member, unless all have it. Returns the members that failed.
pub(in crate::shard) async fn write_bad_blocks(shard: &Shard, group: Group) -> FailedMembers {
    let records = shard.leader_mut().bad_records();
    if records.is_empty() {
        return FailedMembers::new();
    }
    let failed = write_metadata(shard, group, records).await;
    shard.leader_mut().bad_unwritten = !failed.is_empty();
    failed
}

/// Writes the labels of a new generation: first to the head rings of all members, and then to the tail rings. Returns
/// the members that failed.
async fn write_labels(shard: &Shard, group: Group) -> FailedMembers {
    let promoted = {
        let superblock = &mut shard.leader_mut().state.superblock;
        superblock.generation += 1;
        superblock.compat |= shard.shared.marks();
        promoted(superblock)
    };
    let failed = write_heads(shard, group, promoted).await;
    if failed.is_empty() {
        write_copy(shard, group, Copy::Tail, MemberSet::ALL).await
    } else {
        failed
    }
}

/// Returns the members that are in sync according to this label, but not according to the previous one.
fn promoted(label: &Superblock) -> MemberSet {
    let rows = label.members.iter().enumerate();
    let promoted = rows.filter(|(_, row)| {
        row.state == RecordedState::InSync && row.in_sync_generation == label.generation
    });
    promoted.map(|(slot, _)| slot).collect()
}

/// Writes the label to the head rings, first on the members that the label promotes. A promotion counts only if the
/// label of the member itself contains it, so a label that also calls another member out could leave too few members in
/// sync.
async fn write_heads(shard: &Shard, group: Group, promoted: MemberSet) -> FailedMembers {
    if promoted.is_empty() {
        return write_copy(shard, group, Copy::Head, MemberSet::ALL).await;
    }
    let mut failed = write_copy(shard, group, Copy::Head, promoted).await;
    if survives_all(shard, &failed) {
        // The label is written to the other members even if the promotion failed, because no member may be two
        // generations behind the next label.
        failed.extend(write_copy(shard, group, Copy::Head, MemberSet::ALL - promoted).await);
    }
    failed
}

/// True if the array keeps its data without the members in `failed`.
fn survives_all(shard: &Shard, failed: &FailedMembers) -> bool {
    let leader = shard.leader_mut();
    let members = failed.iter().map(|(member, _)| *member);
    let lost = members.filter(|m| m.at() < shard.geometry.members() && !leader.is_swapping(*m));
    shard.geometry.tolerates(leader.impaired() | lost.collect())
}

/// Writes the label to one ring of the live members in `to`. Returns the members that failed.
async fn write_copy(shard: &Shard, group: Group, copy: Copy, to: MemberSet) -> FailedMembers {
    let mut labels = Vec::new();
    {
        let leader = shard.leader_mut();
        for member in leader.live().filter(|member| to.contains(member)) {
            let mut label = leader.state.superblock.clone();
            label.slot = member;
            label.member = label.members[member.at()].uuid;
            let (device, layout) = leader.label_home(member);
            let offset = layout.slot_offset(copy, label.generation);
            labels.push((device, offset, label.encode(copy, offset)));
        }
    }
    write_metadata(shard, group, labels).await
}

/// Writes 4 KiB records at byte offsets, stable. Returns the members that failed.
pub(in crate::shard) async fn write_metadata(
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
        let now = shard.now.get();
        slots.push(shard.members.borrow_mut().issue(now, group, member, Target::Raw, op));
    }
    settled(&shard.members, group).await;
    let mut failed = FailedMembers::new();
    for slot in slots {
        let (_, result) = shard.members.borrow_mut().take(slot);
        if let Err(error) = result
            && failed.iter().all(|(known, _)| *known != error.place)
        {
            failed.push((error.place, error));
        }
    }
    failed
}
