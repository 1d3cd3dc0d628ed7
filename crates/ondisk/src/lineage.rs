//! The history of a label: the activations of an array, and the evaluation of a returning drive.

use strake_units::{MemberIndex, Uuid};

use crate::bytes::{put, u64_at, uuid_at};
use crate::error::{Unusable, Wanted};
use crate::features::COMPAT_CLEAN_START;
use crate::superblock::{MemberRecord, RecordedState, Superblock};

/// Maximum number of activations in a label.
pub const HISTORY_MAX: usize = 16;
/// Maximum number of replacements in a label.
pub const REPLACEMENTS_MAX: usize = 4;

/// Bytes of the history: a count, then the activations.
pub(crate) const HISTORY_BYTES: usize = 8 + HISTORY_MAX * ACTIVATION_BYTES;
/// Bytes of the replacements: a count, then the records.
pub(crate) const REPLACEMENTS_BYTES: usize = 8 + REPLACEMENTS_MAX * REPLACEMENT_BYTES;

const ACTIVATION_BYTES: usize = 24;
const REPLACEMENT_BYTES: usize = 32;

/// One activation of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activation {
    /// Identifier of the activation.
    pub epoch: Uuid,
    /// The first generation of the activation.
    pub first_generation: u64,
}

/// A replacement that is being filled while its member still serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplacementRecord {
    /// The slot of the member.
    pub slot: MemberIndex,
    /// The identity of the drive, and later of the member.
    pub uuid: Uuid,
    /// Bytes of the drive.
    pub bytes: u64,
}

pub(crate) fn encode_history(history: &[Activation], out: &mut [u8]) {
    out[0] = history.len() as u8;
    for (activation, row) in history.iter().zip(out[8..].chunks_exact_mut(ACTIVATION_BYTES)) {
        put(row, 0, &activation.epoch.0);
        put(row, 16, &activation.first_generation.to_le_bytes());
    }
}

/// Decodes the history at the start of `bytes`, or returns its invalid field.
pub(crate) fn decode_history(bytes: &[u8]) -> Result<Vec<Activation>, Unusable> {
    let count = usize::from(bytes[0]);
    if count > HISTORY_MAX {
        return Err(("activations", count as u64, Wanted::AtMost(HISTORY_MAX as u64)));
    }
    let row = |row: &[u8]| Activation { epoch: uuid_at(row, 0), first_generation: u64_at(row, 16) };
    let rows = bytes[8..HISTORY_BYTES].chunks_exact(ACTIVATION_BYTES);
    let history: Vec<Activation> = rows.take(count).map(row).collect();
    let falls = |pair: &&[Activation]| pair[0].first_generation >= pair[1].first_generation;
    match history.windows(2).find(falls) {
        Some(pair) => {
            let least = Wanted::AtLeast(pair[0].first_generation.saturating_add(1));
            Err(("first generation of an activation", pair[1].first_generation, least))
        }
        None => Ok(history),
    }
}

pub(crate) fn encode_replacements(replacements: &[ReplacementRecord], out: &mut [u8]) {
    out[0] = replacements.len() as u8;
    for (record, row) in replacements.iter().zip(out[8..].chunks_exact_mut(REPLACEMENT_BYTES)) {
        put(row, 0, &record.uuid.0);
        put(row, 16, &record.bytes.to_le_bytes());
        row[24] = record.slot.0;
    }
}

/// Decodes the replacements at the start of `bytes` in an array of `members`, or returns their invalid field.
pub(crate) fn decode_replacements(
    bytes: &[u8],
    members: usize,
) -> Result<Vec<ReplacementRecord>, Unusable> {
    let count = usize::from(bytes[0]);
    if count > REPLACEMENTS_MAX {
        return Err(("replacements", count as u64, Wanted::AtMost(REPLACEMENTS_MAX as u64)));
    }
    let row = |row: &[u8]| ReplacementRecord {
        slot: MemberIndex(row[24]),
        uuid: uuid_at(row, 0),
        bytes: u64_at(row, 16),
    };
    let rows = bytes[8..REPLACEMENTS_BYTES].chunks_exact(REPLACEMENT_BYTES);
    let records: Vec<ReplacementRecord> = rows.take(count).map(row).collect();
    match records.iter().find(|record| record.slot.at() >= members) {
        Some(record) => {
            let most = Wanted::AtMost(members as u64 - 1);
            Err(("slot of a replacement", record.slot.0.into(), most))
        }
        None => Ok(records),
    }
}

/// The relation of a label to the history of another label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lineage {
    /// The label is a part of the history.
    Ours,
    /// The label is older than the recorded history, so the relation is unknown.
    Older,
    /// The history covers the generation of the label but does not contain the label.
    Other,
}

impl Superblock {
    /// Starts a new activation: the next generation with `epoch`.
    pub fn activate(&mut self, epoch: Uuid) {
        self.generation += 1;
        self.parent_epoch = self.epoch;
        self.epoch = epoch;
        if self.history.len() == HISTORY_MAX {
            self.history.remove(0);
        }
        self.history.push(Activation { epoch, first_generation: self.generation });
    }

    /// Returns true if the array of this label had the label of `generation` and `epoch`, which recorded the members
    /// `in_sync` as in sync. Also returns true if that label is older than the history of this one.
    ///
    /// A generation and an epoch alone prove nothing: a start that records absent members writes labels of the last
    /// epoch. Every member that is in sync since that generation must be one of `in_sync`; otherwise this label is of
    /// another history. If no member is in sync since that generation, the generation and the epoch decide.
    #[must_use]
    pub fn continues(&self, generation: u64, epoch: Uuid, in_sync: &[Uuid]) -> bool {
        let past = Self { generation, epoch, ..self.clone() };
        match self.lineage(&past) {
            Lineage::Ours => {
                self.lasting_since(generation).all(|member| in_sync.contains(&member.uuid))
            }
            Lineage::Older => generation <= self.generation,
            Lineage::Other => false,
        }
    }

    /// Returns the members that have been in sync since `generation` or before. If a label of that generation
    /// [vouches](Self::vouches_for) for one of these members, the history contains the label, or the array never acted
    /// on it.
    pub(crate) fn lasting_since(&self, generation: u64) -> impl Iterator<Item = &MemberRecord> {
        let in_sync = self.members.iter().filter(|record| record.state == RecordedState::InSync);
        in_sync.filter(move |record| record.in_sync_generation <= generation)
    }

    /// Returns true if this label proves that `member` had the previous label. The label then records the member as in
    /// sync, or as rebuilding although the member was in sync after it last went out. A start records this second state
    /// for a member that lacks the label of its promotion. A label that re-adds a member proves nothing about the
    /// member: a crash may cut the label update short before the member has the label, and the array acted on earlier
    /// labels without that member.
    pub(crate) fn vouches_for(&self, member: Uuid) -> bool {
        let row = self.members.iter().find(|row| row.uuid == member);
        row.is_some_and(|row| match row.state {
            RecordedState::InSync => true,
            // A member that goes out during the write of the label of its promotion had the previous label.
            RecordedState::Rebuilding => row.in_sync_generation > row.held_generation + 1,
            RecordedState::Faulty | RecordedState::Missing => false,
        })
    }

    /// Returns true if this label starts an activation of an array that had been cleanly shut down, as the label
    /// records, and if all label updates from `before` to this label are starts. An older `before` proves nothing about
    /// these starts.
    pub(crate) fn is_clean_start_after(&self, before: &Self) -> bool {
        let later = self.history.iter().map(|activation| activation.first_generation);
        let later = later.filter(|first| *first > before.generation);
        self.compat & COMPAT_CLEAN_START != 0
            && (self.array, self.lineage(before)) == (before.array, Lineage::Ours)
            && later.eq(before.generation.saturating_add(1)..=self.generation)
    }

    /// Returns true if this label starts an activation of the array, if the previous label `before` records a clean
    /// shutdown, and if the same members are in sync in both. Versions without [`COMPAT_CLEAN_START`] write such
    /// labels.
    pub(crate) fn resumes(&self, before: &Self) -> bool {
        let in_sync = |row: &MemberRecord| (row.uuid, row.state == RecordedState::InSync);
        before.clean
            && before.generation.checked_add(1) == Some(self.generation)
            && self.epoch != before.epoch
            && self.parent_epoch == before.epoch
            && self.members.iter().map(in_sync).eq(before.members.iter().map(in_sync))
    }

    /// Returns the generation of the last label on the drive of `own` that the history of this label contains. The
    /// member of `own` is out. The result is the newest label of the drive, or the previous label if the array never
    /// acted on the newest one. The result is `None` if the drive is of another history, or older than the recorded
    /// history.
    ///
    /// A member that has been in sync since `own` or before, and that `own` [vouches](Self::vouches_for) for, had the
    /// label before `own`. This history therefore contains that label. It also contains `own`, or the array never acted
    /// on `own`. A generation and an epoch alone prove nothing: a start that records absent members writes labels of
    /// the last epoch.
    fn shared(&self, own: &Self) -> Option<u64> {
        let mut others =
            self.lasting_since(own.generation).filter(|row| row.uuid != own.member).peekable();
        let alone = others.peek().is_none();
        let vouches = others.any(|row| own.vouches_for(row.uuid));
        match self.lineage(own) {
            Lineage::Ours => (alone || vouches).then_some(own.generation),
            Lineage::Other => {
                let before = own.before();
                (vouches && self.lineage(&before) == Lineage::Ours).then_some(before.generation)
            }
            Lineage::Older => None,
        }
    }

    /// Returns the generation and the epoch of the label before this one.
    fn before(&self) -> Self {
        let begins = |first: &Activation| {
            first.epoch == self.epoch && first.first_generation == self.generation
        };
        let first = self.history.last().is_some_and(begins);
        let epoch = if first { self.parent_epoch } else { self.epoch };
        Self { generation: self.generation.saturating_sub(1), epoch, ..self.clone() }
    }

    pub(crate) fn lineage(&self, own: &Self) -> Lineage {
        let Some(first) = self.history.first() else { return Lineage::Older };
        if own.generation < first.first_generation {
            return Lineage::Older;
        }
        let ends = self.history.iter().skip(1).map(|next| next.first_generation);
        let ends = ends.chain([self.generation + 1]);
        let passed = self.history.iter().zip(ends).any(|(activation, end)| {
            activation.epoch == own.epoch
                && (activation.first_generation..end).contains(&own.generation)
        });
        if passed { Lineage::Ours } else { Lineage::Other }
    }
}

/// The relation of a drive to an array that runs without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returning {
    /// The drive is a member in use.
    Current,
    /// The drive is the member as it went out. It lacks only the regions in its per-member dirty bitmap.
    Stale,
    /// The drive is the member, but older than at its exit, or older than the recorded history. No content is valid.
    TooOld {
        /// The generation of its last label in the history, or of its newest label if this is older.
        own: u64,
        /// The generation that it had when it went out; 0 if unknown.
        held: u64,
    },
    /// The drive continued without the array. Its content belongs to another history.
    Fork {
        /// Generation and epoch of the drive.
        own: (u64, Uuid),
        /// Generation and epoch of the array.
        newest: (u64, Uuid),
    },
    /// The drive is not a member of this array, or another drive has its slot now.
    Foreign,
}

/// Returns the relation of the drive with the label `found` to the array with the newest label `newest`. The caller
/// must check that the bitmaps were maintained, see [`Superblock::keeps_member_bitmaps`].
#[must_use]
pub fn returning(newest: &Superblock, found: &Superblock) -> Returning {
    let row = newest.members.get(found.slot.at()).filter(|row| row.uuid == found.member);
    let Some(row) = row.filter(|_| newest.array == found.array && !found.destroyed) else {
        return Returning::Foreign;
    };
    let shared = newest.shared(found);
    let older = newest.lineage(found) == Lineage::Older;
    if shared.is_none() && !older {
        return Returning::Fork {
            own: (found.generation, found.epoch),
            newest: (newest.generation, newest.epoch),
        };
    }
    match row.state {
        RecordedState::InSync | RecordedState::Rebuilding => Returning::Current,
        RecordedState::Faulty | RecordedState::Missing => {
            let held = row.held_generation;
            match shared {
                Some(last) if is_as_it_left(held, last) => Returning::Stale,
                last => Returning::TooOld { own: last.unwrap_or(found.generation), held },
            }
        }
    }
}

/// True if a label of generation `own` may belong to a member that certainly had `held` when it went out. An older
/// label means an older snapshot of the drive.
pub(crate) const fn is_as_it_left(held: u64, own: u64) -> bool {
    held > 0 && own >= held
}
