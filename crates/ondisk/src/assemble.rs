//! The pure decision which labels form an array, in consuming steps `Scanned -> Matched -> Assembled`.
//!
//! **The argument.** The array writes a label of generation `g + 1` to the head ring of every member that is live in
//! the label. If a member fails, the label `g + 2` records the member as faulty, and this step repeats. Then the array
//! writes the tail rings, and only then acts on the label. Therefore:
//!
//! 1. The highest generation is always correct: either every member that is live in its label has this label, or the
//!    array never acted on it.
//! 2. A member that is in sync in the newest label (generation `G`) had `G - 1` before the write of `G` started;
//!    otherwise `G` would record it as faulty. Such a member is in sync if its newest label is `G`, or `G - 1` of the
//!    same history (the update was cut short). It is stale if its newest label is older, because no crash leaves a
//!    member two labels behind. If the tail ring of any member also contains `G`, the update was not cut short, and a
//!    drive that has only `G - 1` is an older snapshot of a member.
//! 3. Let `C` be the members that the newest label records as in sync since before generation `g`, and let a drive have
//!    a label of generation `g`. If the array acted on that label, every member that is live in the label had it. If
//!    the label records a member of `C` as in sync, that member had the previous label. The history of the newest label
//!    then contains the previous label; it also contains this label, or the array never acted on this label. If the
//!    label proves this for no member of `C`, two histories exist: a fork. The state rebuilding alone proves nothing: a
//!    crash may cut short the update that re-adds the member before the member has the label, and the array acted on
//!    earlier labels without the member. The state rebuilding is a proof if the label records that the member was in
//!    sync after it last went out (`Superblock::vouches_for`).
//! 4. If the tail ring of a member that is live in the first label of an activation lacks this label, the array never
//!    acted on it. The array did not serve under this label. It is cleanly shut down if it was so before, as the label
//!    records (`Superblock::is_clean_start_after`).
//! 5. If two labels have the same generation, the array never acted on one of them. A present drive identifies this
//!    label if the drive is live in it and does not have it. Without such a drive, the assembly must not ignore either
//!    label.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use strake_units::{MemberIndex, Name, Uuid};

use crate::lineage::{Lineage, is_as_it_left};
use crate::superblock::{MemberRecord, RecordedState, Superblock};

/// A drive with a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The caller's index of the drive.
    pub drive: usize,
    /// The newest valid label of its two rings.
    pub label: Superblock,
    /// Bytes of the device as it is now.
    pub device_bytes: u64,
    /// True if the tail ring also contains the label: every member that is live in the label then had it in its head
    /// ring.
    pub confirmed: bool,
    /// The label before this one, if the tail ring ends with it and no damaged slot may contain a later label. The
    /// present label was then never written to the tail ring.
    pub before: Option<Box<Superblock>>,
}

/// The policy for incomplete arrays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Start with the present members, because the operator requested it or the time limit has expired.
    pub allow_degraded: bool,
}

/// The decision about one array or one drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The array can start with these members. The caller must check the redundancy.
    Assembled(Assembled),
    /// Members are absent that were live when the newest label was written. One of them may have a newer label.
    Waiting {
        /// The newest present label.
        superblock: Superblock,
        /// Slots whose members were live and cannot be used now.
        missing: Vec<MemberIndex>,
        /// The missing members that were being rebuilt.
        rebuilding: Vec<MemberIndex>,
        /// Slots whose members can be used.
        present: Vec<MemberIndex>,
    },
    /// The array must not start before a decision of the operator.
    Refused {
        /// The array.
        array: Uuid,
        /// Name of the array.
        name: Name,
        /// The reason.
        reason: Refusal,
    },
    /// The drive is not used.
    Ignored {
        /// The caller's index of the drive.
        drive: usize,
        /// The reason.
        reason: IgnoreReason,
    },
}

/// An array ready to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembled {
    /// The newest label on any member.
    pub superblock: Superblock,
    /// The members of all slots, in order.
    pub members: Vec<AssembledMember>,
    /// True if every member that is live in the newest label certainly had this label.
    pub confirmed: bool,
    /// True if the newest label starts an activation and is missing in the tail ring of a member. The array did not
    /// serve under this label (point 4), and counts as cleanly shut down although `superblock` does not say so. A drive
    /// that lost a block of this ring looks the same; other records of this activation on the members then show that
    /// the array served.
    pub unserved: bool,
}

/// One slot of an assembled array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssembledMember {
    /// The caller's index of the drive; `None` unless the state is in sync or rebuilding.
    pub drive: Option<usize>,
    /// The state to start with.
    pub state: RecordedState,
    /// For a rebuilding member without a bitmap, the number of valid stripes from the start.
    pub recovered_stripes: u64,
    /// The regions that the member lacks. A member that was live and has no drive now also lacks the regions of the
    /// write-intent bitmap.
    pub lacks: Lacks,
    /// The present drive of this member that is out of date.
    pub stale: Option<Stale>,
}

/// The data that a member lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// Nothing.
    Nothing,
    /// The regions in its per-member dirty bitmap; without bitmaps, the stripes after `recovered_stripes`.
    Recorded,
    /// Possibly everything.
    Everything,
}

/// A drive whose contents are out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The caller's index of the drive.
    pub drive: usize,
    /// The reason.
    pub reason: StaleReason,
}

/// The reason why the content of a member is out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// The member is faulty or missing in the newest label: the array continued without the member.
    LeftBehind(RecordedState),
    /// Its own newest label is too old for a crash.
    Lags {
        /// Generation of the member's label.
        own: u64,
        /// The newest generation.
        newest: u64,
    },
}

impl fmt::Display for StaleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeftBehind(_) => f.write_str("the array went on without it"),
            Self::Lags { own, newest } => write!(
                f,
                "its label is of generation {own}, the array's of {newest}; it has to be rebuilt"
            ),
        }
    }
}

/// The reason why an array must not start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The same member is on several drives. It is unknown which drive is the copy.
    Duplicate {
        /// The member.
        member: Uuid,
        /// The caller's indices of all drives with it.
        drives: Vec<usize>,
    },
    /// Two sets of members continued separately from a common history.
    Fork(Difference),
    /// Two labels have the same generation, and no present drive shows which label never took effect.
    Undecided(Difference),
}

/// Two labels of one array, neither of which continues the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The drive with the label of the higher generation.
    pub newer: usize,
    /// Generation, epoch and parent epoch of this label.
    pub newer_chain: (u64, Uuid, Uuid),
    /// The drive with the other label.
    pub older: usize,
    /// Generation, epoch and parent epoch of this label.
    pub older_chain: (u64, Uuid, Uuid),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate { member, drives } => write!(
                f,
                "member {member} is on {} drives, so all but one are copies; detach the copies",
                drives.len()
            ),
            Self::Fork(difference) => {
                let (newer, older) = (&difference.newer_chain, &difference.older_chain);
                write!(
                    f,
                    "its members went on separately: one side is at generation {} of epoch {} (after {}), the \
                     other at generation {} of epoch {} (after {}); detach the side whose changes shall be lost",
                    newer.0, newer.1, newer.2, older.0, older.1, older.2
                )
            }
            Self::Undecided(difference) => write!(
                f,
                "two labels of generation {} are here, of epochs {} and {}, and only a member that is not here shows \
                 which of them was acted on; bring that member back",
                difference.newer_chain.0, difference.newer_chain.1, difference.older_chain.1
            ),
        }
    }
}

/// The reason why a drive is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoreReason {
    /// The array of the drive was destroyed.
    Destroyed,
    /// The label does not contain the drive in its own slot.
    SlotMismatch,
    /// Another member has the slot now.
    Replaced,
    /// The device is smaller than recorded.
    Shrunk {
        /// Bytes recorded.
        recorded: u64,
        /// Bytes now.
        actual: u64,
    },
}

impl fmt::Display for IgnoreReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Destroyed => f.write_str("its array was destroyed"),
            Self::SlotMismatch => f.write_str("its label does not name it in its own slot"),
            Self::Replaced => f.write_str("another member has taken its place in the array"),
            Self::Shrunk { recorded, actual } => {
                write!(f, "it has {actual} bytes and had {recorded}; a member must not shrink")
            }
        }
    }
}

/// Decides which arrays the drives form. Returns one verdict for every array that is not destroyed, in order of array
/// UUID. Verdicts about unused drives precede the verdict of their array.
#[must_use]
pub fn assemble(found: Vec<Found>, policy: Policy) -> Vec<Verdict> {
    let mut arrays: BTreeMap<Uuid, Vec<Found>> = BTreeMap::new();
    for drive in found {
        arrays.entry(drive.label.array).or_default().push(drive);
    }
    let mut verdicts = Vec::new();
    for drives in arrays.into_values() {
        let mut step = Scanned { drives, verdicts: Vec::new() };
        let verdict = step.matched().map(|matched| matched.assembled(policy));
        verdicts.append(&mut step.verdicts);
        match verdict {
            Ok(verdict) => verdicts.push(verdict),
            Err(refused) => verdicts.extend(refused.map(|verdict| *verdict)),
        }
    }
    verdicts
}

/// Drives whose labels name the same array.
struct Scanned {
    drives: Vec<Found>,
    verdicts: Vec<Verdict>,
}

/// Drives of one history, at most one for each member, and their newest label.
struct Matched {
    newest: Superblock,
    /// True if every member that is live in the newest label had this label.
    confirmed: bool,
    /// True if the newest label was never written to all members, so that the array did not serve under it.
    unserved: bool,
    /// Slots whose present drive has become too small. The truncated data are lost, even if the drive grows again.
    cut: Vec<MemberIndex>,
    drives: Vec<Found>,
}

/// The order of labels. The greatest label describes the array.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Authority {
    /// The last update.
    generation: u64,
    /// True if no present drive is of another history than this label. Of two labels with the same generation, neither
    /// is older, but one may show that the other never took effect: points 3 and 5.
    undisputed: bool,
    /// Number of members with this activation. Of several activations with equal progress, the most common one counts.
    holders: usize,
    /// Identical labels are ordered by slot.
    slot: Reverse<MemberIndex>,
}

impl Scanned {
    /// Finds the newest label and the drives that belong to it.
    fn matched(&mut self) -> Result<Matched, Option<Box<Verdict>>> {
        self.ignore(|drive| is_misplaced(&drive.label).then_some(IgnoreReason::SlotMismatch));
        let Some(newest) = self.newest().cloned() else { return Err(None) };
        let all = newest.label.destroyed;
        self.ignore(|drive| (all || drive.label.destroyed).then_some(IgnoreReason::Destroyed));
        if all {
            return Err(None);
        }
        let refused = |reason| {
            let (array, name) = (newest.label.array, newest.label.name.clone());
            Err(Some(Box::new(Verdict::Refused { array, name, reason })))
        };
        if let Some(duplicate) = self.duplicate() {
            return refused(duplicate);
        }
        if let Some(other) = self.drives.iter().find(|other| is_fork(&newest.label, &other.label)) {
            return refused(Refusal::Fork(difference(&newest, other)));
        }
        if let Some(other) = self.drives.iter().find(|d| self.is_undecided(&newest.label, &d.label))
        {
            return refused(Refusal::Undecided(difference(&newest, other)));
        }
        let newest = newest.label;
        let chain = |label: &Superblock| (label.generation, label.epoch);
        let is_newest = |drive: &&Found| chain(&drive.label) == chain(&newest);
        let confirmed = self.drives.iter().filter(is_newest).any(|drive| drive.confirmed);
        let live = |drive: &&Found| newest.calls_live(drive.label.member);
        let mut before = self.drives.iter().filter(is_newest).filter(live);
        let unserved =
            before.any(|drive| {
                let own = |label: &&Superblock| label.member == drive.label.member;
                drive.before.as_deref().filter(own).is_some_and(|label| {
                    newest.is_clean_start_after(label) || newest.resumes(label)
                })
            });
        let is_cut =
            |drive: &&Found| matches!(unusable(&newest, drive), Some(IgnoreReason::Shrunk { .. }));
        let cut = self.drives.iter().filter(is_cut).map(|drive| drive.label.slot).collect();
        self.ignore(|drive| unusable(&newest, drive));
        if self.drives.is_empty() {
            // Former members alone are not an array.
            return Err(None);
        }
        Ok(Matched { newest, confirmed, unserved, cut, drives: std::mem::take(&mut self.drives) })
    }

    fn newest(&self) -> Option<&Found> {
        let chain = |label: &Superblock| (label.generation, label.epoch);
        self.drives.iter().max_by_key(|drive| Authority {
            generation: drive.label.generation,
            undisputed: !self.drives.iter().any(|d| self.is_other(&drive.label, &d.label)),
            holders: self.drives.iter().filter(|d| chain(&d.label) == chain(&drive.label)).count(),
            slot: Reverse(drive.label.slot),
        })
    }

    /// True if `own` is, or may be, of another history than `newest`.
    fn is_other(&self, newest: &Superblock, own: &Superblock) -> bool {
        is_fork(newest, own) || self.is_undecided(newest, own)
    }

    /// True if no present drive shows that `own`, which has the generation of `newest`, never took effect; point 5.
    fn is_undecided(&self, newest: &Superblock, own: &Superblock) -> bool {
        let lacks_it =
            |found: &Found| own.calls_live(found.label.member) && !is_same(&found.label, own);
        own.generation == newest.generation
            && !is_same(own, newest)
            && !self.drives.iter().any(lacks_it)
    }

    fn ignore(&mut self, why: impl Fn(&Found) -> Option<IgnoreReason>) {
        let verdicts = &mut self.verdicts;
        self.drives.retain(|found| match why(found) {
            Some(reason) => {
                verdicts.push(Verdict::Ignored { drive: found.drive, reason });
                false
            }
            None => true,
        });
    }

    fn duplicate(&self) -> Option<Refusal> {
        let mut seen: BTreeMap<Uuid, Vec<usize>> = BTreeMap::new();
        for found in &self.drives {
            seen.entry(found.label.member).or_default().push(found.drive);
        }
        let (member, drives) = seen.into_iter().find(|(_, drives)| drives.len() > 1)?;
        Some(Refusal::Duplicate { member, drives })
    }
}

/// True if a label names a slot that does not exist in the array, or that is not the slot of the drive. The own label
/// of a replaced drive records the replacement: the drive is not a member, although its label may be the newest.
fn is_misplaced(label: &Superblock) -> bool {
    let elsewhere = label.members.iter().any(|record| record.uuid == label.member);
    label.own_record().is_none() && (elsewhere || label.slot.at() >= label.members.len())
}

fn unusable(newest: &Superblock, found: &Found) -> Option<IgnoreReason> {
    let own = &found.label;
    let recorded = newest.members.get(own.slot.at()).filter(|record| record.uuid == own.member);
    let Some(recorded) = recorded else { return Some(IgnoreReason::Replaced) };
    let recorded = recorded.bytes.max(own.own_record().map_or(0, |record| record.bytes));
    let actual = found.device_bytes;
    (actual < recorded).then_some(IgnoreReason::Shrunk { recorded, actual })
}

/// True if two labels are copies of one label.
fn is_same(a: &Superblock, b: &Superblock) -> bool {
    a.generation == b.generation && a.epoch == b.epoch && a.members == b.members
}

/// True if `own` belongs to another history than `newest`; points 2 and 3 of the argument.
fn is_fork(newest: &Superblock, own: &Superblock) -> bool {
    if is_same(own, newest) {
        return own.geometry != newest.geometry;
    }
    let mut lasting = newest.lasting_since(own.generation).peekable();
    if lasting.peek().is_some() {
        if !lasting.any(|record| own.vouches_for(record.uuid)) {
            return true;
        }
    } else if newest.lineage(own) == Lineage::Other {
        // No member of `C` is left, so the history in the newest label decides.
        return true;
    }
    let called_in_sync = newest
        .members
        .iter()
        .any(|record| record.uuid == own.member && record.state == RecordedState::InSync);
    called_in_sync && own.generation + 1 >= newest.generation && !precedes(own, newest)
}

/// True if `own` is the label directly before `newest`, in the same activation or the previous one.
fn precedes(own: &Superblock, newest: &Superblock) -> bool {
    own.generation.checked_add(1) == Some(newest.generation)
        && (own.epoch == newest.epoch || own.epoch == newest.parent_epoch)
}

fn difference(newer: &Found, older: &Found) -> Difference {
    let chain = |label: &Superblock| (label.generation, label.epoch, label.parent_epoch);
    Difference {
        newer: newer.drive,
        newer_chain: chain(&newer.label),
        older: older.drive,
        older_chain: chain(&older.label),
    }
}

impl Matched {
    fn assembled(self, policy: Policy) -> Verdict {
        let slots = (0..self.newest.members.len()).map(|slot| MemberIndex(slot as u8));
        let members: Vec<AssembledMember> = slots.clone().map(|slot| self.member(slot)).collect();
        let has = |slot: &MemberIndex| members[slot.at()].drive.is_some();
        let was_live = |slot: &MemberIndex| self.newest.members[slot.at()].state.is_live();
        let missing: Vec<MemberIndex> = slots.clone().filter(|s| was_live(s) && !has(s)).collect();
        if !missing.is_empty() && !policy.allow_degraded {
            let present = slots.filter(has).collect();
            let state = |slot: &MemberIndex| self.newest.members[slot.at()].state;
            let rebuilding = missing.iter().copied();
            let rebuilding = rebuilding.filter(|s| state(s) == RecordedState::Rebuilding).collect();
            return Verdict::Waiting { superblock: self.newest, missing, rebuilding, present };
        }
        let Self { newest: superblock, confirmed, unserved, .. } = self;
        Verdict::Assembled(Assembled { superblock, members, confirmed, unserved })
    }

    fn member(&self, slot: MemberIndex) -> AssembledMember {
        let recorded = &self.newest.members[slot.at()];
        let absent = |stale| AssembledMember {
            drive: None,
            state: match recorded.state {
                RecordedState::Faulty => RecordedState::Faulty,
                RecordedState::InSync | RecordedState::Rebuilding | RecordedState::Missing => {
                    RecordedState::Missing
                }
            },
            recovered_stripes: 0,
            lacks: if self.cut.contains(&slot) {
                Lacks::Everything
            } else {
                lacks_without_drive(&self.newest, recorded)
            },
            stale,
        };
        let Some(found) = self.drives.iter().find(|found| found.label.slot == slot) else {
            return absent(None);
        };
        match trust((&self.newest, self.confirmed), recorded, &found.label) {
            Ok(Trust { state, recovered_stripes, lacks }) => AssembledMember {
                drive: Some(found.drive),
                state,
                recovered_stripes,
                lacks,
                stale: None,
            },
            Err(reason) => absent(Some(Stale { drive: found.drive, reason })),
        }
    }
}

/// Returns the data that a missing or unusable member lacks.
fn lacks_without_drive(newest: &Superblock, recorded: &MemberRecord) -> Lacks {
    match recorded.state {
        RecordedState::InSync => Lacks::Nothing,
        RecordedState::Rebuilding | RecordedState::Faulty | RecordedState::Missing => {
            if newest.keeps_member_bitmaps() { Lacks::Recorded } else { Lacks::Everything }
        }
    }
}

/// The valid content of a member.
struct Trust {
    state: RecordedState,
    recovered_stripes: u64,
    lacks: Lacks,
}

/// Returns the valid content of a member, or the reason why nothing is valid.
///
/// A label that every member certainly had cannot be from an interrupted update. A drive that has only the label before
/// it is an older snapshot.
fn trust(
    (newest, confirmed): (&Superblock, bool),
    recorded: &MemberRecord,
    own: &Superblock,
) -> Result<Trust, StaleReason> {
    let current = own.generation == newest.generation && own.epoch == newest.epoch;
    let lags = StaleReason::Lags { own: own.generation, newest: newest.generation };
    // The own label of a member limits its state, because the update that promotes the member may have been
    // interrupted.
    let (own_state, own_stripes) = match own.own_record() {
        Some(row) if current || !confirmed && precedes(own, newest) => {
            (row.state, row.recovered_stripes)
        }
        Some(_) | None => (RecordedState::Missing, 0),
    };
    let rebuilding = |recovered_stripes, lacks| {
        Ok(Trust { state: RecordedState::Rebuilding, recovered_stripes, lacks })
    };
    match (recorded.state, own_state) {
        (state @ (RecordedState::Faulty | RecordedState::Missing), _) => {
            Err(StaleReason::LeftBehind(state))
        }
        (RecordedState::InSync, RecordedState::InSync) => {
            Ok(Trust { state: RecordedState::InSync, recovered_stripes: 0, lacks: Lacks::Nothing })
        }
        (RecordedState::InSync, RecordedState::Rebuilding) => {
            rebuilding(own_stripes, Lacks::Recorded)
        }
        (RecordedState::InSync, RecordedState::Faulty | RecordedState::Missing) => Err(lags),
        (RecordedState::Rebuilding, RecordedState::Rebuilding) => {
            rebuilding(own_stripes.min(recorded.recovered_stripes), Lacks::Recorded)
        }
        // The interrupted update re-added the member, so its content has not changed since it went out.
        (RecordedState::Rebuilding, RecordedState::Missing)
            if !confirmed
                && newest.keeps_member_bitmaps()
                && newest.lineage(own) == Lineage::Ours
                && is_as_it_left(recorded.held_generation, own.generation) =>
        {
            rebuilding(0, Lacks::Recorded)
        }
        // The member joined with the interrupted update, or its content is unknown, so the rebuild starts from the
        // beginning.
        (
            RecordedState::Rebuilding,
            RecordedState::InSync | RecordedState::Faulty | RecordedState::Missing,
        ) => rebuilding(0, Lacks::Everything),
    }
}
