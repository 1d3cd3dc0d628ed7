//! Advice to operators, and the reasons for it.

use std::fmt::Display;

use strake_api::v1::{ImportArraysRequest, StartScrubRequest, UnloadArrayRequest};
use strake_engine::MemberStatus;
use strake_raid::MemberState;
use strake_wording::{Text, replace, say, show};

use crate::remedy::{DEGRADED, LOSSY, job, remove_spare, start};

/// Returns the advice for an array with too many absent members.
pub(crate) fn lost_next(name: impl Display) -> Text {
    let what = say("return its members, and the array starts automatically; ");
    what.run(show(&name)).say("; ").then(without_return(name))
}

/// Returns the advice for an array whose drives are permanently absent.
pub(crate) fn without_return(name: impl Display) -> Text {
    let unload = UnloadArrayRequest { name: name.to_string(), ..Default::default() };
    say("if they will not return, restore the data from a backup; to delete the record of the array: ")
        .run(unload)
}

/// Returns the advice for regions in doubt.
pub(crate) fn in_doubt_next(name: &str) -> Text {
    say("compare the blocks that ")
        .run(show(name))
        .say(" lists with a backup; accept the blocks at the next start: ")
        .run(start(name, LOSSY))
}

/// Returns the advice for bytes that may have been computed wrongly. A scrub can resolve them only if no member is
/// absent.
pub(crate) fn suspect_next(name: &str, is_degraded: bool) -> Text {
    let first = if is_degraded { "re-add or replace the absent members; then " } else { "" };
    say(format!("{first}compare the bytes that "))
        .run(show(name))
        .say(" lists with a backup, rewrite the wrong bytes, and: ")
        .run(trust_data(name))
}

/// Returns the advice for redundancy that was not verified since a crash.
pub(crate) fn unverified_next(name: &str, is_degraded: bool) -> Text {
    let first = if is_degraded { "re-add or replace the absent members; then " } else { "" };
    say(format!("{first}make parity or copies match the data: ")).run(trust_data(name))
}

fn trust_data(name: &str) -> StartScrubRequest {
    StartScrubRequest { name: name.to_owned(), mode: "trust_data".to_owned() }
}

/// Returns the advice for lost blocks.
pub(crate) fn lost_blocks_next(name: &str) -> Text {
    Text::from(show(name)).say(" lists the blocks; rewrite them from a backup")
}

/// Returns the advice for the copy of a member that waits for the drive at `path`.
pub(crate) fn copy_next(name: &str, path: &str) -> Text {
    say(format!("return {path}, or: ")).run(job("cancel", format!("{name}/replace")))
}

/// Returns the advice for the unusable spare at `path`.
pub(crate) fn spare_next(path: &str) -> Text {
    say("return the drive, or: ").run(remove_spare(path))
}

/// Returns the advice while the data depend on a drive that could not be opened again.
pub(crate) fn keep_open(name: &str) -> String {
    format!(
        "do not restart straked or the host; copy the data of array {name}, or return the drive to its slot"
    )
}

/// Returns the description of a member's drive that continued without the array, and the advice, which never overwrites
/// the drive.
pub(crate) fn other_half(name: &str, member: usize, path: &str) -> (String, Text) {
    let cause = format!(
        "its drive at {path} was used without this array and contains writes that exist on no other drive"
    );
    let unload = UnloadArrayRequest { name: name.to_owned(), ..Default::default() };
    let alone = ImportArraysRequest { drives: vec![path.to_owned()], ..start("", DEGRADED) };
    let next = say(format!(
        "keep {path} unchanged until you have decided which data to keep. To use {path}: "
    ))
    .run(unload)
    .say(", remove the other drives, then ")
    .run(alone)
    .say(". To keep using this array: ")
    .run(replace(name, Some(member as u32), ""));
    (cause, next)
}

/// Returns the reason why a member went out. Labels do not record the reason, so it is unknown after a restart of the
/// array.
pub(crate) fn cause_of(status: &MemberStatus) -> String {
    match (status.cause, status.state) {
        (Some(cause), _) => cause.text().to_owned(),
        (None, MemberState::Faulty) => "failed before the array was started".to_owned(),
        (None, MemberState::Missing) => "not found when the array was started".to_owned(),
        (None, MemberState::InSync | MemberState::Rebuilding { .. }) => String::new(),
    }
}
