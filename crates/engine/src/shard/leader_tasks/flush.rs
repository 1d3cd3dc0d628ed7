//! Flushes that the task of the labels waits for, and what does not wait for them: failures of other members.
//!
//! Writes that a failed member missed are acknowledged when its failure is on record. A drive may take seconds over a
//! flush, and then all of them would wait for it; so failures get through in between.

use std::future::poll_fn;
use std::task::Poll;

use super::{answer_to, event_of, fail_member, refuse_needed};
use crate::error::ArrayError;
use crate::shard::Shard;
use crate::shard::leader::{Change, Leader};
use crate::shard::members::Group;
use crate::shard::serve::{begin_flush, end_flush};

/// Flushes every member, taking those that fail out of use, and records other members as failed meanwhile. False when
/// too few are left.
pub(in crate::shard) async fn flush_all(shard: &Shard, group: Group) -> bool {
    // Labels are written in `group`, which must not wait for the flushes.
    let flushing = shard.open_group();
    let flushes = begin_flush(shard, flushing);
    while let Some(change) = failure_or_settled(shard, flushing).await {
        get_through(shard, group, change).await;
    }
    let failed = end_flush(shard, flushes);
    shard.members.borrow_mut().groups.close(flushing);
    for (member, failure) in failed {
        fail_member(shard, group, member, event_of(failure.kind), Some(failure.kind)).await;
    }
    !shard.shared.is_lost()
}

/// The next failure to record; `None` when the flushes are done.
async fn failure_or_settled(shard: &Shard, flushing: Group) -> Option<Change> {
    poll_fn(|_| {
        if shard.members.borrow().groups.is_settled(flushing) {
            return Poll::Ready(None);
        }
        let mut leader = shard.leader_mut();
        if let Some(change) = take_failure(&mut leader) {
            return Poll::Ready(Some(change));
        }
        leader.settling.register();
        Poll::Pending
    })
    .await
}

/// Takes the first failure of a member out of the queue, unless something comes before it that changes which drive has
/// the place of a member: then it is about another drive.
fn take_failure(leader: &mut Leader) -> Option<Change> {
    let mut at = None;
    for (next, change) in leader.changes.iter().enumerate() {
        match change {
            Change::Failed { .. } | Change::Fail { .. } => {
                at = Some(next);
                break;
            }
            Change::Replace { .. }
            | Change::Readd { .. }
            | Change::BeginReplacement { .. }
            | Change::CancelReplacement { .. }
            | Change::Filled
            | Change::TakeOver
            | Change::Stop { .. } => break,
            Change::Rename { .. }
            | Change::Bad { .. }
            | Change::Consistency { .. }
            | Change::Drained { .. }
            | Change::Checkpoint
            | Change::Rebuilt { .. } => {}
        }
    }
    leader.changes.remove(at?)
}

/// Records a member as failed while a flush is waited for.
async fn get_through(shard: &Shard, group: Group, change: Change) {
    match change {
        Change::Failed { member, cause, copied } => {
            let Some(member) = shard.leader_mut().blamed(member, copied) else { return };
            fail_member(shard, group, member, event_of(cause), Some(cause)).await;
        }
        Change::Fail { member, event, reply } => {
            // Marks of idle regions stay as they are: clearing them takes another flush.
            let answer = match refuse_needed(shard, member) {
                Ok(()) => {
                    let cause = super::cause_of_request(event);
                    fail_member(shard, group, member, event, cause).await;
                    super::unless_lost(shard)
                }
                Err(refused) => Err::<(), ArrayError>(refused),
            };
            answer_to(&reply, answer);
        }
        Change::Replace { .. }
        | Change::Readd { .. }
        | Change::BeginReplacement { .. }
        | Change::CancelReplacement { .. }
        | Change::Filled
        | Change::TakeOver
        | Change::Stop { .. }
        | Change::Rename { .. }
        | Change::Bad { .. }
        | Change::Consistency { .. }
        | Change::Drained { .. }
        | Change::Checkpoint
        | Change::Rebuilt { .. } => unreachable!("only failures are taken out of turn"),
    }
}
