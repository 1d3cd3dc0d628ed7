//! One record of each array, and one of each of its slots: what is known of them besides the recorded configuration and
//! the status of a running array.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use crate::drives::PathKey;
use crate::policy::report::Seen;
use crate::state::loss::Loss;
use crate::state::offline::Offline;
use crate::state::prospect::{Prospect, Sight};
use crate::state::start::Starting;
use crate::state::written::{Kept, Written};

/// What is known of a slot of an array, and of the drive that belongs there.
#[derive(Default)]
pub(crate) struct SlotNotes {
    /// Why the drive found for it is not used.
    pub(crate) objection: Option<String>,
    /// Where the drive of a member in use is missing, and why it is used all the same: the data depends on it.
    pub(crate) unreachable: Option<String>,
    /// Why the copy of the member is not begun again.
    pub(crate) copy_trouble: Option<String>,
    /// The identity of the member's drive, at whose path another one was found.
    pub(crate) swapped: Option<String>,
    /// Where the drive is that went on without the running array: what was written there is nowhere else.
    pub(crate) other_half: Option<String>,
    /// What was found out about the drive of a member that is out.
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

    /// The array has taken a drive in the slot: earlier objections no longer count.
    pub(crate) fn taken(&mut self) {
        let (unreachable, copy_trouble) = (self.unreachable.take(), self.copy_trouble.take());
        *self = Self { unreachable, copy_trouble, ..Self::new() };
    }
}

/// What is known of an array.
#[derive(Default)]
pub(crate) struct ArrayEntry {
    /// Why it does not run, and what it is like.
    pub(crate) offline: Option<Offline>,
    /// Its last loss, if it was lost while it ran.
    pub(crate) loss: Option<Loss>,
    /// While it is being started by itself: how far that is.
    pub(crate) starting: Option<Starting>,
    /// When it was last tried, if it is later than the assemble timeout.
    pub(crate) last_try: Option<Instant>,
    /// While it runs: what was last reported about it.
    pub(crate) seen: Option<Seen>,
    /// While it runs: what was last recorded on its members.
    pub(crate) written: Option<Written>,
    /// While it runs: a record on its members that is not to be overwritten yet.
    pub(crate) kept: Option<Kept>,
    /// While it runs: block devices that appeared, and were not looked at yet.
    pub(crate) appeared: BTreeSet<String>,
    /// What was last looked at by path: `None` when there was nothing.
    looked: BTreeMap<String, Option<PathKey>>,
    /// What was looked at for prospects, by path.
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

    /// What is known of a slot.
    pub(crate) fn slot(&self, slot: usize) -> &SlotNotes {
        static NOTHING: SlotNotes = SlotNotes::new();
        self.slots.get(slot).unwrap_or(&NOTHING)
    }

    /// The same, to be changed.
    pub(crate) fn slot_mut(&mut self, slot: usize) -> &mut SlotNotes {
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, SlotNotes::new);
        }
        &mut self.slots[slot]
    }

    /// Takes note of where members in use have no path, by slot. Returns those of which that is new.
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

    /// Whether what is at a path is worth a look: it has just come, or it was not looked at and is `wanted`. That
    /// nothing is there is remembered.
    pub(crate) fn is_news(&mut self, path: &str, key: Option<PathKey>, wanted: bool) -> bool {
        let Some(key) = key else {
            self.looked.insert(path.to_owned(), None);
            return false;
        };
        match self.looked.get(path) {
            // It was not there before.
            Some(None) => true,
            Some(Some(before)) => *before != key,
            None => wanted,
        }
    }

    /// Remembers what was looked at.
    pub(crate) fn looked_at(&mut self, path: &str, key: Option<PathKey>) {
        self.looked.insert(path.to_owned(), key);
    }

    /// Whether the same was seen at a path before.
    pub(crate) fn is_known_sight(&self, path: &str, sight: Sight) -> bool {
        self.sights.get(path) == Some(&sight)
    }

    /// Remembers what was seen at a path.
    pub(crate) fn put_sight(&mut self, path: &str, sight: Sight) {
        self.sights.insert(path.to_owned(), sight);
    }

    /// Forgets what was seen at paths that are no longer looked at.
    pub(crate) fn keep_sights(&mut self, is_looked_at: impl Fn(&str) -> bool) {
        self.sights.retain(|path, _| is_looked_at(path));
    }

    /// Paths at which the drives of members that are out were found.
    pub(crate) fn prospect_paths(&self) -> impl Iterator<Item = &String> {
        self.slots.iter().filter_map(|notes| Some(&notes.prospect.as_ref()?.path))
    }

    /// Forgets the drive that was seen at a path.
    pub(crate) fn forget_prospect(&mut self, path: &str) {
        self.sights.remove(path);
        for notes in &mut self.slots {
            notes.prospect.take_if(|prospect| prospect.path == path);
        }
    }

    /// Forgets what was seen of the array and its drives while it ran, as a restart would.
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

/// The records of all arrays, by their identity.
#[derive(Default)]
pub(crate) struct Entries {
    arrays: BTreeMap<String, ArrayEntry>,
}

impl Entries {
    /// What is known of an array.
    pub(crate) fn get(&self, uuid: &str) -> &ArrayEntry {
        static NOTHING: ArrayEntry = ArrayEntry::new();
        self.arrays.get(uuid).unwrap_or(&NOTHING)
    }

    /// The record of an array that is recorded, made if there is none yet.
    pub(crate) fn of(&mut self, uuid: &str) -> &mut ArrayEntry {
        self.arrays.entry(uuid.to_owned()).or_default()
    }

    /// The same for work that is not reserved: of an array that went meanwhile there is no record.
    pub(crate) fn get_mut(&mut self, uuid: &str) -> Option<&mut ArrayEntry> {
        self.arrays.get_mut(uuid)
    }

    /// All records.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&String, &mut ArrayEntry)> {
        self.arrays.iter_mut()
    }

    /// Identities of the arrays that are being started, and how far that is.
    pub(crate) fn starting(&self) -> impl Iterator<Item = (&String, &Starting)> {
        self.arrays.iter().filter_map(|(uuid, entry)| Some((uuid, entry.starting.as_ref()?)))
    }

    /// A start of the array no longer changes labels.
    pub(crate) fn end_assembling(&mut self, uuid: &str) {
        if let Some(starting) = self.get_mut(uuid).and_then(|entry| entry.starting.as_mut()) {
            starting.assembling = false;
        }
    }

    /// Forgets an array that is gone.
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
