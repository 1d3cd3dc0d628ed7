//! Which drives can replace which members.

use std::collections::BTreeMap;

use strake_engine::{ArrayStatus, Drive, MemberStatus};
use strake_units::ByteSize;

use crate::error::{ControlError, ControlErrorKind};
use crate::record::store::SpareRecord;

/// What a spare is like now.
#[derive(Clone)]
pub(crate) enum SpareState {
    /// Open, and holds nothing.
    Ready(Drive),
    /// Not here, for this reason.
    Missing(String),
    /// Here, and another program has put something on it.
    Occupied(String),
    /// Here, and of no use, for this reason.
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

/// What each spare is like, by the identity of its medium.
#[derive(Default)]
pub(crate) struct Spares {
    states: BTreeMap<String, SpareState>,
}

impl Spares {
    /// What a spare is like; `None` when it was not looked at yet.
    pub(crate) fn get(&self, record: &SpareRecord) -> Option<&SpareState> {
        self.states.get(&record.identity)
    }

    /// The drive of a spare that could be used now.
    pub(crate) fn ready(&self, record: &SpareRecord) -> Option<&Drive> {
        match self.get(record)? {
            SpareState::Ready(drive) => Some(drive),
            SpareState::Missing(_) | SpareState::Occupied(_) | SpareState::Failed(_) => None,
        }
    }

    /// Takes note of what a spare is like.
    pub(crate) fn put(&mut self, record: &SpareRecord, state: SpareState) {
        self.states.insert(record.identity.clone(), state);
    }

    /// The medium is no longer a spare.
    pub(crate) fn remove(&mut self, identity: &str) {
        self.states.remove(identity);
    }
}

/// Whether `drive` can replace any member of an array, and why not.
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

/// The state of a spare that an error speaks against.
pub(crate) fn unusable(error: &ControlError) -> SpareState {
    let why = error.what.clone();
    if error.kind == ControlErrorKind::Refused {
        SpareState::Occupied(why)
    } else {
        SpareState::Failed(why)
    }
}

/// Whether an error in giving a spare to an array speaks against the spare. An array that is not ready for it (another
/// member is being copied, another command was quicker, it stops) may want it a second later.
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

/// Slots of members that a spare should replace now: those that are out, or, when none is, the first that `is_sick`.
/// None while a member is being copied to its replacement: an array takes no other drive until that has ended.
pub(crate) fn slots_for_spares(
    status: &ArrayStatus,
    is_sick: impl Fn(&MemberStatus) -> bool,
) -> Vec<usize> {
    let slots = |test: &dyn Fn(&MemberStatus) -> bool| -> Vec<usize> {
        let members = status.members.iter().enumerate();
        members.filter(|(_, m)| test(m)).map(|(slot, _)| slot).collect()
    };
    if status.replace.is_some() {
        return Vec::new();
    }
    let out = slots(&crate::policy::members::is_out);
    if !out.is_empty() || status.rebuild.is_some() {
        return out;
    }
    slots(&is_sick).into_iter().take(1).collect()
}
