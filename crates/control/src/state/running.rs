//! A running array and its drives.

use std::collections::BTreeSet;
use std::sync::Arc;

use strake_engine::{Array, Drive, Recovery, ScrubCounts, ScrubPosition};
use strake_ondisk::{Returning, Superblock, returning};
use strake_units::{MemberIndex, Uuid};

use crate::drives::label::Labelled;
use crate::names::drive_key;
use crate::policy::members::is_out;
use crate::record::doubt_file::Doubt;
use crate::state::growth::Growth;
use crate::state::meters::Meters;
use crate::state::pool::PoolSlot;

/// A running array.
pub(crate) struct Running {
    pub(crate) array: Array,
    /// The drive in each slot, the failed ones too until they are replaced.
    pub(crate) drives: Vec<Option<Drive>>,
    /// The replacement that is being filled, if any.
    pub(crate) replacement: Option<Replacement>,
    /// True if the array was created in this run, so that its resync is the initialization.
    pub(crate) fresh: bool,
    pub(crate) resync_bytes_at_start: u64,
    /// The findings of its start after a crash.
    pub(crate) recovery: Recovery,
    pub(crate) meters: Meters,
    /// The last record of its scrub.
    pub(crate) scrub: KeptScrub,
    /// What may be wrong with its contents, as it is recorded.
    pub(crate) doubt: Doubt,
    /// A crash in mode `none` that is not recorded yet.
    pub(crate) crash_unrecorded: bool,
    /// While room is made on its members for it to grow: how far that is.
    pub(crate) growth: Option<Arc<Growth>>,
    /// The pool on the array.
    pub(crate) pool: PoolSlot,
}

impl Running {
    pub(crate) fn new(
        array: Array,
        drives: Vec<Option<Drive>>,
        fresh: bool,
        (resync_bytes_at_start, recovery): (u64, Recovery),
    ) -> Self {
        Self {
            array,
            drives,
            replacement: None,
            fresh,
            resync_bytes_at_start,
            recovery,
            meters: Meters::default(),
            scrub: KeptScrub::default(),
            doubt: Doubt::default(),
            crash_unrecorded: false,
            growth: None,
            pool: PoolSlot::default(),
        }
    }

    pub(crate) fn uuid(&self) -> String {
        self.array.uuid().to_string()
    }

    /// Returns its drives and its replacement.
    pub(crate) fn all_drives(&self) -> impl Iterator<Item = &Drive> {
        self.drives.iter().flatten().chain(self.replacement.as_ref().map(|next| &next.drive))
    }

    /// Returns the keys that reserve its drives.
    pub(crate) fn drive_keys(&self) -> impl Iterator<Item = String> {
        self.all_drives().map(|d| drive_key(&d.device.identity()))
    }

    /// Returns the paths of serving drives.
    pub(crate) fn serving_paths(&self) -> BTreeSet<String> {
        let status = self.array.status();
        let serving = self.drives.iter().zip(&status.members).filter(|(_, m)| !is_out(m));
        serving.filter_map(|(drive, _)| Some(drive.as_ref()?.path.clone())).collect()
    }

    /// Returns the member that is out and whose last drive is `found`.
    pub(crate) fn absent_as(&self, found: &Labelled) -> Option<Uuid> {
        let status = self.array.status();
        let member = status.members.get(found.label.slot.at())?;
        (is_out(member) && member.uuid == found.label.member).then_some(member.uuid)
    }

    /// True if `found` is a member that continued without the array and contains writes that the array lacks.
    pub(crate) fn is_left_by(&self, found: &Superblock) -> bool {
        matches!(returning(&self.array.newest_label(), found), Returning::Fork { .. })
    }

    /// Returns the slot of a medium, or the slot that a replacement will get.
    pub(crate) fn slot_of(&self, identity: &str) -> Option<usize> {
        let here = |d: &Option<Drive>| d.as_ref().is_some_and(|d| d.device.identity() == identity);
        self.drives.iter().position(here).or_else(|| {
            let next = self.replacement.as_ref()?;
            (next.drive.device.identity() == identity).then_some(next.slot.at())
        })
    }
}

/// A replacement that is being filled.
pub(crate) struct Replacement {
    /// Slot of the member.
    pub(crate) slot: MemberIndex,
    /// Identity of the member that it will be.
    pub(crate) uuid: Uuid,
    pub(crate) drive: Drive,
}

/// A member of a running array that is about to get a drive.
pub(crate) struct Place {
    /// Identity of the array.
    pub(crate) array: String,
    pub(crate) name: String,
    pub(crate) member: MemberIndex,
    /// Identity of the member in the slot.
    pub(crate) was: Uuid,
}

/// The last record of the scrub of a running array.
#[derive(Debug, Default)]
pub(crate) struct KeptScrub {
    /// True after the check for a scrub to continue.
    pub(crate) looked: bool,
    /// Start of the last scrub, which identifies it.
    pub(crate) begun_us: u64,
    /// The time and the position of the last record.
    pub(crate) kept: Option<(u64, ScrubPosition)>,
    /// The counts of the scrub at this time, including incomplete regions.
    pub(crate) seen: ScrubCounts,
}
