//! Selection of spares for members.

use std::collections::BTreeMap;

use strake_engine::{ArrayStatus, Drive, MemberStatus};
use strake_ondisk::MEMBERS_MAX;
use strake_units::ByteSize;

use crate::error::{ControlError, ControlErrorKind};
use crate::policy::members::is_out;
use crate::policy::sick::Objection;
use crate::record::store::SpareRecord;

/// The state of a spare.
#[derive(Clone)]
pub(crate) enum SpareState {
    /// The spare is open and empty.
    Ready(Drive),
    /// The spare is missing, for this reason.
    Missing(String),
    /// The spare is present, but has foreign content.
    Occupied(String),
    /// The spare is present but unusable, for this reason.
    Failed(String),
}

impl SpareState {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Ready(_) => "ready",
            Self::Missing(_) => "missing",
            Self::Occupied(_) | Self::Failed(_) => "failed",
        }
    }

    pub(crate) fn note(&self) -> &str {
        match self {
            Self::Ready(_) => "",
            Self::Missing(why) | Self::Occupied(why) | Self::Failed(why) => why,
        }
    }
}

/// The state of each spare, by the identity of its medium.
#[derive(Default)]
pub(crate) struct Spares {
    states: BTreeMap<String, SpareState>,
}

impl Spares {
    /// Returns the state of a spare; `None` before its first check.
    pub(crate) fn get(&self, record: &SpareRecord) -> Option<&SpareState> {
        self.states.get(&record.identity)
    }

    /// Returns the drive of a spare that can be used now.
    pub(crate) fn ready(&self, record: &SpareRecord) -> Option<&Drive> {
        match self.get(record)? {
            SpareState::Ready(drive) => Some(drive),
            SpareState::Missing(_) | SpareState::Occupied(_) | SpareState::Failed(_) => None,
        }
    }

    /// Records the state of a spare.
    pub(crate) fn put(&mut self, record: &SpareRecord, state: SpareState) {
        self.states.insert(record.identity.clone(), state);
    }

    /// Removes a spare.
    pub(crate) fn remove(&mut self, identity: &str) {
        self.states.remove(identity);
    }
}

/// Checks that `drive` can replace any member of an array.
pub(crate) fn fits(status: &ArrayStatus, drive: &Drive) -> Result<(), String> {
    let info = drive.device.info();
    let block = status.geometry.block_size();
    let used = status.geometry.member_blocks_used() << block.shift();
    let (has, needs) = (info.bytes(), status.format.least_device_bytes(used));
    if has < needs {
        let (name, size) = (&status.name, ByteSize(needs));
        return Err(format!("it has {has} bytes, array {name} needs {needs} ({size})"));
    }
    if info.block_size > block {
        let (has, name) = (info.block_size, &status.name);
        return Err(format!("it has blocks of {has} bytes, array {name} has {block}"));
    }
    if info.read_only {
        return Err("it is read-only".to_owned());
    }
    Ok(())
}

/// Returns the state of a spare after an error.
pub(crate) fn unusable(error: &ControlError) -> SpareState {
    let why = error.what.clone();
    if error.kind == ControlErrorKind::Refused {
        SpareState::Occupied(why)
    } else {
        SpareState::Failed(why)
    }
}

/// True if an error concerns the spare itself. An array that is not ready (another member is being copied, another
/// command was faster, or the array stops) may need the spare later.
pub(crate) fn is_of_the_drive(kind: ControlErrorKind) -> bool {
    match kind {
        ControlErrorKind::Device | ControlErrorKind::Silent | ControlErrorKind::Usage => true,
        ControlErrorKind::NotFound
        | ControlErrorKind::Exists
        | ControlErrorKind::State
        | ControlErrorKind::Refused
        | ControlErrorKind::Store
        | ControlErrorKind::Stopped
        | ControlErrorKind::Internal => false,
    }
}

/// Returns the slots of members that a spare should replace now: members that are out or, without such members, the
/// first serving member that `wants_spare`. Returns none while a member is being copied to its replacement, because an
/// array accepts no other drive meanwhile.
pub(crate) fn slots_for_spares(
    status: &ArrayStatus,
    wants_spare: impl Fn(usize, &MemberStatus) -> bool,
) -> Vec<usize> {
    if status.replace.is_some() {
        return Vec::new();
    }
    let members = || status.members.iter().enumerate();
    let out = members().filter(|(_, member)| is_out(member)).map(|(slot, _)| slot);
    let out: Vec<usize> = out.collect();
    // An array with the most members has no room for the drive of a copy.
    if !out.is_empty() || status.rebuild.is_some() || status.members.len() == MEMBERS_MAX {
        return out;
    }
    let mut serving = members().filter(|(slot, member)| wants_spare(*slot, member));
    serving.next().map(|(slot, _)| slot).into_iter().collect()
}

/// A spare that fits a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its position among the recorded spares.
    pub(crate) at: usize,
    /// Whose spare it is.
    pub(crate) pool: Pool,
    pub(crate) bytes: u64,
    /// What speaks against it.
    pub(crate) objection: Option<Objection>,
}

/// Whose a spare is, in the order of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pool {
    /// Of one array.
    Own,
    /// Of all arrays.
    Shared,
}

/// The member that a spare is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The member is out: any spare restores redundancy.
    Out,
    /// The member serves: a spare with an objection is no improvement.
    Serving,
}

/// Chooses a spare: one with the least objection, of the array, as small as possible.
pub(crate) fn choose(need: Need, candidates: &[Candidate]) -> Option<&Candidate> {
    let usable = candidates.iter().filter(|c| need == Need::Out || c.objection.is_none());
    usable.min_by(|a, b| (&a.objection, a.pool, a.bytes).cmp(&(&b.objection, b.pool, b.bytes)))
}

#[cfg(test)]
mod tests {
    use super::{Candidate, Need, Objection, Pool, choose};

    #[test]
    fn the_smallest_spare_without_objection_is_used_first() {
        let candidate = |at, pool, bytes, objection| Candidate { at, pool, bytes, objection };
        let predicts = || Some(Objection::Predicts("it is read-only".to_owned()));
        let all = [
            candidate(0, Pool::Own, 1, predicts()),
            candidate(1, Pool::Shared, 2, None),
            candidate(2, Pool::Own, 5, None),
            candidate(3, Pool::Own, 4, None),
        ];
        let chosen = |need, among: &[Candidate]| choose(need, among).map(|chosen| chosen.at);
        for need in [Need::Out, Need::Serving] {
            assert_eq!(chosen(need, &all), Some(3), "{need:?}");
            assert_eq!(chosen(need, &all[..2]), Some(1), "{need:?}");
            assert_eq!(chosen(need, &[]), None, "{need:?}");
        }
        assert_eq!(chosen(Need::Out, &all[..1]), Some(0));
        let unknown = candidate(4, Pool::Shared, 9, Some(Objection::Unknown));
        assert_eq!(chosen(Need::Out, &[all[0].clone(), unknown.clone()]), Some(4));
        assert_eq!(chosen(Need::Out, &[unknown.clone(), all[1].clone()]), Some(1));
        assert_eq!(chosen(Need::Serving, &[unknown]), None);
        assert_eq!(chosen(Need::Serving, &all[..1]), None);
    }
}
