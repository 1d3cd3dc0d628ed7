//! Members that hung: recorded, so that they are re-added after a restart as well.

use strake_engine::MemberStatus;
use strake_raid::MemberState;
use strake_units::Uuid;

use crate::manager::Manager;
use crate::policy::returns::{Away, silent_members};
use crate::record::store::SilentRecord;

/// Records which members are to be taken back when their drives answer.
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

/// What is to be recorded of the array `uuid`, unless it is recorded already.
pub(crate) fn silent_now(
    manager: &Manager,
    uuid: &str,
    members: &[MemberStatus],
) -> Option<Vec<SilentRecord>> {
    let known = &manager.records.record_of(uuid)?.silent;
    let silent = silent_members(members, known, |member| manager.returns.is_by_hand(member));
    (silent != *known).then_some(silent)
}

/// The member whose drive, last seen at `path`, is to be looked at until it answers; `None` when there is none, or
/// not now.
pub(crate) fn awaited_at(manager: &Manager, array: &str, path: &str) -> Option<Uuid> {
    let record = manager.records.record_of(array)?;
    let silent = record.silent.iter().find(|silent| silent.path == path)?;
    silent.member.parse().ok().filter(|_| manager.returns.is_due(&silent.member))
}

/// Why a member that is out is.
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
