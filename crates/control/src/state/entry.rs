//! Records of each array and of each of its slots, in addition to the recorded configuration and the status of a
//! running array.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::drives::PathKey;
use crate::policy::report::Seen;
use crate::state::loss::Loss;
use crate::state::offline::Offline;
use crate::state::prospect::{Prospect, Sight};
use crate::state::start::Starting;
use crate::state::written::{Kept, Written};

/// The state of a slot of an array, and of its drive.
#[derive(Default)]
pub(crate) struct SlotNotes {
    /// The reason why the drive found for the slot is not used.
    pub(crate) objection: Option<String>,
    /// The path at which the drive of a member in use is missing. The drive stays in use because the data depend on it.
    pub(crate) unreachable: Option<String>,
    /// The reason why the copy of the member does not restart.
    pub(crate) copy_trouble: Option<String>,
    /// The identity of the member's drive, at whose path another one was found.
    pub(crate) swapped: Option<String>,
    /// The path of the drive that continued without the running array. Its later writes exist nowhere else.
    pub(crate) other_half: Option<String>,
    /// The findings about the drive of a member that is out.
    pub(crate) prospect: Option<Prospect>,
}

impl SlotNotes {
    /// Nothing.
    const fn new() -> Self {
        Self {
            objection: None,
            unreachable: None,
            copy_trouble: None,
            swapped: None,
            other_half: None,
            prospect: None,
        }
    }

    /// Clears earlier objections, because the array has a new drive in the slot.
    pub(crate) fn taken(&mut self) {
        let (unreachable, copy_trouble) = (self.unreachable.take(), self.copy_trouble.take());
        *self = Self { unreachable, copy_trouble, ..Self::new() };
    }
}

/// The state of an array.
#[derive(Default)]
pub(crate) struct ArrayEntry {
    /// The reason why the array does not run, and its last known state.
    pub(crate) offline: Option<Offline>,
    /// The last failure of the array, if it failed while it ran.
    pub(crate) loss: Option<Loss>,
    /// The progress of an automatic start.
    pub(crate) starting: Option<Starting>,
    /// Time of the last attempt after the assemble timeout.
    pub(crate) last_try: Option<Instant>,
    /// The last reported state of a running array.
    pub(crate) seen: Option<Seen>,
    /// The last record on the members of a running array.
    pub(crate) written: Option<Written>,
    /// A record on the members of a running array that must not be overwritten yet.
    pub(crate) kept: Option<Kept>,
    /// Block devices that appeared while the array runs and were not checked yet.
    pub(crate) appeared: BTreeSet<String>,
    /// The last checked objects by path: `None` if there was no object.
    looked: BTreeMap<String, Option<PathKey>>,
    /// The last checked states for prospects, by path.
    sights: BTreeMap<String, Sight>,
    slots: Vec<SlotNotes>,
}

impl ArrayEntry {
    /// Nothing.
    const fn new() -> Self {
        Self {
            offline: None,
            loss: None,
            starting: None,
            last_try: None,
            seen: None,
            written: None,
            kept: None,
            appeared: BTreeSet::new(),
            looked: BTreeMap::new(),
            sights: BTreeMap::new(),
            slots: Vec::new(),
        }
    }

    /// Returns the state of a slot.
    pub(crate) fn slot(&self, slot: usize) -> &SlotNotes {
        static NOTHING: SlotNotes = SlotNotes::new();
        self.slots.get(slot).unwrap_or(&NOTHING)
    }

    /// Returns the state of a slot for changes.
    pub(crate) fn slot_mut(&mut self, slot: usize) -> &mut SlotNotes {
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, SlotNotes::new);
        }
        &mut self.slots[slot]
    }

    /// Records the missing paths of members in use, by slot. Returns the new ones.
    pub(crate) fn put_unreachable(
        &mut self,
        now: BTreeMap<usize, String>,
    ) -> BTreeMap<usize, String> {
        let mut new = now.clone();
        new.retain(|slot, _| self.slot(*slot).unreachable.is_none());
        self.slots.iter_mut().for_each(|notes| notes.unreachable = None);
        for (slot, why) in now {
            self.slot_mut(slot).unreachable = Some(why);
        }
        new
    }

    /// True if the object at a path must be checked: it has just appeared, or it was not checked and is `wanted`. An
    /// empty path is recorded.
    pub(crate) fn is_news(&mut self, path: &str, key: Option<PathKey>, wanted: bool) -> bool {
        let Some(key) = key else {
            self.looked.insert(path.to_owned(), None);
            return false;
        };
        match self.looked.get(path) {
            // The object was not there before.
            Some(None) => true,
            Some(Some(before)) => *before != key,
            None => wanted,
        }
    }

    /// Records a checked object.
    pub(crate) fn looked_at(&mut self, path: &str, key: Option<PathKey>) {
        self.looked.insert(path.to_owned(), key);
    }

    /// True if the same state was seen at a path before.
    pub(crate) fn is_known_sight(&self, path: &str, sight: Sight) -> bool {
        self.sights.get(path) == Some(&sight)
    }

    /// Records the state at a path.
    pub(crate) fn put_sight(&mut self, path: &str, sight: Sight) {
        self.sights.insert(path.to_owned(), sight);
    }

    /// Removes the states at paths that are no longer checked.
    pub(crate) fn keep_sights(&mut self, is_looked_at: impl Fn(&str) -> bool) {
        self.sights.retain(|path, _| is_looked_at(path));
    }

    /// Returns the paths at which drives of members that are out were found.
    pub(crate) fn prospect_paths(&self) -> impl Iterator<Item = &String> {
        self.slots.iter().filter_map(|notes| Some(&notes.prospect.as_ref()?.path))
    }

    /// Removes the drive that was seen at a path.
    pub(crate) fn forget_prospect(&mut self, path: &str) {
        self.sights.remove(path);
        for notes in &mut self.slots {
            notes.prospect.take_if(|prospect| prospect.path == path);
        }
    }

    /// Clears the observations about the array and its drives while it ran, as a restart does.
    pub(crate) fn forget_run(&mut self) {
        (self.seen, self.written, self.kept) = (None, None, None);
        self.appeared.clear();
        self.looked.clear();
        self.sights.clear();
        for notes in &mut self.slots {
            *notes = SlotNotes { copy_trouble: notes.copy_trouble.take(), ..SlotNotes::new() };
        }
    }
}

/// The records of all arrays, by identity.
#[derive(Default)]
pub(crate) struct Entries {
    arrays: BTreeMap<String, ArrayEntry>,
}

impl Entries {
    /// Returns the state of an array.
    pub(crate) fn get(&self, uuid: &str) -> &ArrayEntry {
        static NOTHING: ArrayEntry = ArrayEntry::new();
        self.arrays.get(uuid).unwrap_or(&NOTHING)
    }

    /// Returns the record of a recorded array, and creates it if it is missing.
    pub(crate) fn of(&mut self, uuid: &str) -> &mut ArrayEntry {
        self.arrays.entry(uuid.to_owned()).or_default()
    }

    /// Returns the record for work without a reservation; `None` if the array was removed meanwhile.
    pub(crate) fn get_mut(&mut self, uuid: &str) -> Option<&mut ArrayEntry> {
        self.arrays.get_mut(uuid)
    }

    /// Returns all records.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&String, &mut ArrayEntry)> {
        self.arrays.iter_mut()
    }

    /// Returns the identities of the arrays that are being started, and their progress.
    pub(crate) fn starting(&self) -> impl Iterator<Item = (&String, &Starting)> {
        self.arrays.iter().filter_map(|(uuid, entry)| Some((uuid, entry.starting.as_ref()?)))
    }

    /// Records that a start of the array no longer changes labels.
    pub(crate) fn end_assembling(&mut self, uuid: &str) {
        if let Some(starting) = self.get_mut(uuid).and_then(|entry| entry.starting.as_mut()) {
            starting.assembling = false;
        }
    }

    /// Removes the record of a removed array.
    pub(crate) fn remove(&mut self, uuid: &str) {
        self.arrays.remove(uuid);
    }
}

#[cfg(test)]
mod tests {
    use super::{ArrayEntry, Entries, SlotNotes};
    use std::collections::BTreeMap;

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn an_array_that_went_leaves_nothing_behind() {
        let mut entries = Entries::default();
        entries.of("a").slot_mut(2).swapped = some("identity");
        assert_eq!(entries.get("a").slot(2).swapped, some("identity"));
        assert_eq!(entries.get("a").slot(7).swapped, None);
        entries.remove("a");
        assert_eq!(entries.get("a").slot(2).swapped, None);
        assert!(entries.get_mut("a").is_none(), "late work must not bring it back");
    }

    #[test]
    fn a_run_that_ended_is_forgotten_but_for_why_a_recorded_copy_waits() {
        let mut entry = ArrayEntry::default();
        entry.looked_at("/d", Some((1, 2, 3)));
        *entry.slot_mut(1) = SlotNotes {
            objection: some("written over"),
            copy_trouble: some("not here"),
            swapped: some("identity"),
            ..SlotNotes::new()
        };
        entry.forget_run();
        assert_eq!(entry.slot(1).objection, None);
        assert_eq!(entry.slot(1).swapped, None);
        assert_eq!(entry.slot(1).copy_trouble, some("not here"));
        assert!(!entry.is_news("/d", Some((1, 2, 3)), false));
        assert!(entry.is_news("/d", Some((1, 2, 3)), true), "it was never looked at in this run");
    }

    #[test]
    fn what_comes_to_a_path_is_news_once() {
        let (mut entry, one, other) = (ArrayEntry::default(), Some((1, 1, 1)), Some((1, 2, 1)));
        assert!(!entry.is_news("/d", None, true), "nothing is there");
        assert!(entry.is_news("/d", one, false), "it came");
        entry.looked_at("/d", one);
        assert!(!entry.is_news("/d", one, true));
        assert!(entry.is_news("/d", other, false), "another one has its place");
    }

    #[test]
    fn a_member_without_a_path_is_reported_once() {
        let mut entry = ArrayEntry::default();
        let at = |slots: &[usize]| -> BTreeMap<usize, String> {
            slots.iter().map(|slot| (*slot, format!("gone {slot}"))).collect()
        };
        assert_eq!(entry.put_unreachable(at(&[0, 2])), at(&[0, 2]));
        assert_eq!(entry.put_unreachable(at(&[2, 3])), at(&[3]));
        assert_eq!(entry.slot(0).unreachable, None);
        assert_eq!(entry.put_unreachable(at(&[0])), at(&[0]), "it came back in between");
    }
}
