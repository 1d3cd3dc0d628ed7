//! Advice to operators, and the reasons for it.

use strake_engine::MemberStatus;
use strake_raid::MemberState;

/// What to do about regions in doubt.
pub(crate) fn in_doubt_next(name: &str) -> String {
    format!(
        "compare the blocks that strake array show {name} lists with a backup; accept them at the next start: strake \
         array import {name} --degraded --accept-loss"
    )
}

/// What to do while the data depends on a drive that could not be opened again.
pub(crate) fn keep_open(name: &str) -> String {
    format!(
        "restart neither straked nor the host; copy the data of array {name}, or return the drive to its place"
    )
}

/// What is to be said of a member's drive that went on without the array, and what to do: never to overwrite it.
pub(crate) fn other_half(name: &str, member: usize, path: &str) -> (String, String) {
    (
        format!(
            "its drive at {path} was used without this array and holds writes that exist nowhere else"
        ),
        format!(
            "keep {path} unchanged until you have chosen one side. To use {path}: strake array unload {name}, remove \
             the other drives, then strake array import --drives {path} --degraded. To keep using this array: strake \
             array replace {name} --member {member} --with another drive"
        ),
    )
}

/// Why a member left. Labels do not record the reason, so after a restart of the array only the fact is known.
pub(crate) fn cause_of(status: &MemberStatus) -> String {
    match (status.cause, status.state) {
        (Some(cause), _) => cause.text().to_owned(),
        (None, MemberState::Faulty) => "failed before the array was started".to_owned(),
        (None, MemberState::Missing) => "not found when the array was started".to_owned(),
        (None, MemberState::InSync | MemberState::Rebuilding { .. }) => String::new(),
    }
}
