//! An array that runs, and its drives.

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

/// An array that runs.
pub(crate) struct Running {
    pub(crate) array: Array,
    /// The drive in each slot, the failed ones too until they are replaced.
    pub(crate) drives: Vec<Option<Drive>>,
    /// The drive that is to take the place of one of them, while it is being filled.
    pub(crate) replacement: Option<Replacement>,
    /// Made in this run, so that a resync is its first initialization.
    pub(crate) fresh: bool,
    pub(crate) resync_bytes_at_start: u64,
    /// What its start found of a crash.
    pub(crate) recovery: Recovery,
    pub(crate) meters: Meters,
    /// What was last recorded of its scrub.
    pub(crate) scrub: KeptScrub,
    /// What may be wrong with its contents, as it is recorded.
    pub(crate) doubt: Doubt,
    /// A crash in mode `none` that is not recorded yet.
    pub(crate) crash_unrecorded: bool,
    /// While room is made on its members for it to grow: how far that is.
    pub(crate) growth: Option<Arc<Growth>>,
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
        }
    }

    pub(crate) fn uuid(&self) -> String {
        self.array.uuid().to_string()
    }

    /// Its drives, and the one that is to take the place of one of them.
    pub(crate) fn all_drives(&self) -> impl Iterator<Item = &Drive> {
        self.drives.iter().flatten().chain(self.replacement.as_ref().map(|next| &next.drive))
    }

    /// Keys that reserve its drives.
    pub(crate) fn drive_keys(&self) -> impl Iterator<Item = String> {
        self.all_drives().map(|d| drive_key(&d.device.identity()))
    }

    /// Paths of the drives that serve.
    pub(crate) fn serving_paths(&self) -> BTreeSet<String> {
        let status = self.array.status();
        let serving = self.drives.iter().zip(&status.members).filter(|(_, m)| !is_out(m));
        serving.filter_map(|(drive, _)| Some(drive.as_ref()?.path.clone())).collect()
    }

    /// The member that is out and that `found` was last.
    pub(crate) fn absent_as(&self, found: &Labelled) -> Option<Uuid> {
        let status = self.array.status();
        let member = status.members.get(found.label.slot.at())?;
        (is_out(member) && member.uuid == found.label.member).then_some(member.uuid)
    }

    /// Whether `found` is a member that went on without the array: it holds writes that the array lacks.
    pub(crate) fn is_left_by(&self, found: &Superblock) -> bool {
        matches!(returning(&self.array.newest_label(), found), Returning::Fork { .. })
    }

    /// The slot that a medium has, or is to get when it is filled.
    pub(crate) fn slot_of(&self, identity: &str) -> Option<usize> {
        let here = |d: &Option<Drive>| d.as_ref().is_some_and(|d| d.device.identity() == identity);
        self.drives.iter().position(here).or_else(|| {
            let next = self.replacement.as_ref()?;
            (next.drive.device.identity() == identity).then_some(next.slot.at())
        })
    }
}

/// The drive that is being filled to take a member's place.
pub(crate) struct Replacement {
    /// Whose place.
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
    /// Identity of the member whose place it is.
    pub(crate) was: Uuid,
}

/// What was last recorded of the scrub of an array that runs.
#[derive(Debug, Default)]
pub(crate) struct KeptScrub {
    /// It was looked whether there is one to be taken up.
    pub(crate) looked: bool,
    /// Which scrub the array's last one is: when it was begun.
    pub(crate) begun_us: u64,
    /// When that was recorded, and what.
    pub(crate) kept: Option<(u64, ScrubPosition)>,
    /// What the scrub had seen then, also in regions that were not yet done.
    pub(crate) seen: ScrubCounts,
}
