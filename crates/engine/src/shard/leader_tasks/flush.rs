//! Flushes of the label task. While the task waits for a flush, it records failures of other members.
//!
//! Writes that a failed member missed are acknowledged after the failure is recorded. A flush may take seconds, and
//! would delay all of these writes, so failures are recorded during the flush.

use std::future::poll_fn;
use std::task::Poll;

use strake_units::MemberIndex;

use super::{answer_to, event_of, fail_at_once, fail_member};
use crate::message::{Change, FailReason, Reply};
use crate::shard::Shard;
use crate::shard::leader::Leader;
use crate::shard::members::Group;
use crate::shard::serve::{begin_flush, end_flush};

/// Flushes every member, and takes members that fail out of use. Meanwhile, records failures of other members. Returns
/// false if too few members remain.
pub(in crate::shard) async fn flush_all(shard: &Shard, group: Group) -> bool {
    // The labels are written in `group`, so the flushes need another group.
    let flushing = shard.open_group();
    let flushes = begin_flush(shard, flushing);
    while let Some((failed, reply)) = failure_or_settled(shard, flushing).await {
        answer_to(reply, fail_at_once(shard, group, failed).await);
    }
    let failed = end_flush(shard, flushes);
    shard.members.borrow_mut().groups.close(flushing);
    for (member, failure) in failed {
        fail_member(shard, group, member, event_of(failure.kind), Some(failure.kind)).await;
    }
    !shard.shared.is_lost()
}

/// Returns the next failure to record; `None` after the flushes have completed.
async fn failure_or_settled(shard: &Shard, flushing: Group) -> Option<Failed> {
    poll_fn(|_| {
        if shard.members.borrow().groups.is_settled(flushing) {
            return Poll::Ready(None);
        }
        let mut leader = shard.leader_mut();
        if let Some(failed) = take_failure(&mut leader) {
            return Poll::Ready(Some(failed));
        }
        leader.settling.register();
        Poll::Pending
    })
    .await
}

/// Removes the first failure of a member from the queue, unless an earlier change in the queue assigns another drive to
/// a slot: the failure may then concern another drive.
fn take_failure(leader: &mut Leader) -> Option<Failed> {
    for (at, (change, _)) in leader.changes.iter().enumerate() {
        match change {
            Change::Fail { member, reason } => {
                let failed = (*member, *reason);
                let (_, reply) = leader.changes.remove(at)?;
                return Some((failed, reply));
            }
            Change::Reconfigure(_) | Change::Stop => return None,
            Change::Rename { .. }
            | Change::Consistency { .. }
            | Change::Drained { .. }
            | Change::Bad { .. }
            | Change::Checkpoint
            | Change::Rebuilt { .. } => {}
        }
    }
    None
}

/// A failure that is recorded before other changes.
type Failed = ((MemberIndex, FailReason), Option<Reply>);
