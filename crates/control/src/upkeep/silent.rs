//! Unresponsive members. They are recorded, so that they are re-added also after a restart.

use strake_engine::MemberStatus;
use strake_raid::MemberState;
use strake_units::Uuid;

use crate::manager::Manager;
use crate::policy::returns::{Away, silent_members};
use crate::record::store::SilentRecord;

/// Records the members that must be re-added when their drives answer.
pub(crate) fn note_silent(manager: &mut Manager) {
    let silent: Vec<(String, Vec<SilentRecord>)> = manager
        .running
        .iter()
        .filter(|running| !running.array.status().lost)
        .map(|running| (running.uuid(), running.array.status().members))
        .filter_map(|(uuid, members)| {
            let silent = silent_now(manager, &uuid, &members)?;
            Some((uuid, silent))
        })
        .collect();
    for (uuid, silent) in silent {
        manager.records.record_silent(&uuid, silent);
    }
}

/// The unresponsive members of the array `uuid`; `None` if they are already recorded.
pub(crate) fn silent_now(
    manager: &Manager,
    uuid: &str,
    members: &[MemberStatus],
) -> Option<Vec<SilentRecord>> {
    let known = &manager.records.record_of(uuid)?.silent;
    let silent = silent_members(members, known, |member| manager.returns.is_by_hand(member));
    (silent != *known).then_some(silent)
}

/// The unresponsive member whose drive was last at `path` and must be inspected until it answers; `None` if there is no
/// such member, or if the next inspection is not yet due.
pub(crate) fn awaited_at(manager: &Manager, array: &str, path: &str) -> Option<Uuid> {
    let record = manager.records.record_of(array)?;
    let silent = record.silent.iter().find(|silent| silent.path == path)?;
    silent.member.parse().ok().filter(|_| manager.returns.is_due(&silent.member))
}

/// The reason why `member` is out.
pub(crate) fn why_away(manager: &Manager, array: &str, slot: usize, member: &MemberStatus) -> Away {
    let silent = manager.records.record_of(array).is_some_and(|record| {
        let uuid = member.uuid.to_string();
        record.silent.iter().any(|s| usize::from(s.slot) == slot && s.member == uuid)
    });
    match member.state {
        MemberState::Missing => Away::Missing,
        MemberState::Faulty if silent => Away::Silent,
        MemberState::Faulty | MemberState::InSync | MemberState::Rebuilding { .. } => Away::Failed,
    }
}
