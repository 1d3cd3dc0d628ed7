//! Derived states of members.

use strake_engine::{ArrayStatus, MemberStatus};
use strake_raid::MemberState;
use strake_units::{MemberIndex, MemberSet};

use crate::error::ControlError;

/// Maximum number of recorded paths of former members of each array.
const OLD_PATHS_MAX: usize = 16;

/// True if a member is out.
pub(crate) fn is_out(member: &MemberStatus) -> bool {
    match member.state {
        MemberState::Faulty | MemberState::Missing => true,
        MemberState::InSync | MemberState::Rebuilding { .. } => false,
    }
}

/// Returns the members that are not in sync.
pub(crate) fn absent_members(status: &ArrayStatus) -> MemberSet {
    let absent = status.members.iter().enumerate().filter(|(_, m)| m.state != MemberState::InSync);
    absent.map(|(slot, _)| slot).collect()
}

/// Returns the number of failures tolerated in the worst case, before and after `member` is put out of use; `None` if
/// this does not change.
pub(crate) fn redundancy_drop(
    status: &ArrayStatus,
    member: MemberIndex,
) -> Result<Option<(u8, u8)>, ControlError> {
    let before = absent_members(status);
    let after = before.with(member);
    let left = status.geometry.redundancy(after).filter(|_| status.geometry.tolerates(after));
    let Some(left) = left else {
        return Err(ControlError::refused(format!(
            "array {} would lose data without member {member}: no redundancy is left for this member; first replace \
                the members that are out of use",
            status.name
        )));
    };
    let in_sync = status.members[member.at()].state == MemberState::InSync;
    Ok(in_sync.then(|| (status.geometry.redundancy(before).unwrap_or(0), left)))
}

/// Returns the paths of an array's drives, with former paths of its members, which may return there.
pub(crate) fn with_old_paths(mut paths: Vec<String>, before: &[String]) -> Vec<String> {
    let old: Vec<String> = before.iter().filter(|p| !paths.contains(p)).cloned().collect();
    paths.extend(old.into_iter().rev().take(OLD_PATHS_MAX).rev());
    paths
}
