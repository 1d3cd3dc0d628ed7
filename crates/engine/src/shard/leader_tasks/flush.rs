//! Flushes that the task of the labels waits for, and what does not wait for them: failures of other members.
//!
//! Writes that a failed member missed are acknowledged when its failure is on record. A drive may take seconds over a
//! flush, and then all of them would wait for it; so failures get through in between.

use std::future::poll_fn;
use std::task::Poll;

use strake_units::MemberIndex;

use super::{answer_to, event_of, fail_at_once, fail_member};
use crate::message::{Change, FailReason, Reply};
use crate::shard::Shard;
use crate::shard::leader::Leader;
use crate::shard::members::Group;
use crate::shard::serve::{begin_flush, end_flush};

/// Flushes every member, taking those that fail out of use, and records other members as failed meanwhile. False when
/// too few are left.
pub(in crate::shard) async fn flush_all(shard: &Shard, group: Group) -> bool {
    // Labels are written in `group`, which must not wait for the flushes.
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

/// The next failure to record; `None` when the flushes are done.
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

/// Takes the first failure of a member out of the queue, unless something comes before it that changes which drive has
/// the place of a member: then it is about another drive.
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

/// A failure that is recorded out of turn.
type Failed = ((MemberIndex, FailReason), Option<Reply>);
