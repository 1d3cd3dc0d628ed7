//! The labels in a ring, and the selection of the newest label.

use std::cmp::Reverse;

use crate::error::{LabelError, LabelErrorKind};
use crate::layout::{Copy, HEAD_RING_OFFSET, RING_SLOTS, SLOT_BYTES};
use crate::slot::newer;
use crate::superblock::{Address, Superblock};

/// The content of a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingScan {
    /// The valid label with the highest generation; also `None` if `refused` is set.
    pub newest: Option<Superblock>,
    /// Number of valid labels.
    pub valid: u32,
    /// Slots that are unreadable, or whose content is not a valid label of this slot; bit n is slot n.
    pub damaged: u64,
    /// A valid label that this program does not support, unless it is known to be older than every supported label.
    /// While there is such a label, no older label may be used instead.
    pub refused: Option<LabelError>,
}

/// What the slots of a ring hold, in their order: `ring` is what
/// [`AreaLayout::ring_range`](crate::AreaLayout::ring_range) covers.
///
/// The self-address is checked against the copy and the slot, and in the head ring, whose place does not depend on
/// the device, against the byte offset too. A short `ring` is scanned as far as it goes.
pub fn ring_labels(
    ring: &[u8],
    copy: Copy,
) -> impl Iterator<Item = Result<Superblock, LabelError>> {
    labels_from(0, ring, copy)
}

/// Returns the labels of a part of a ring that starts with the slot `first`.
fn labels_from(
    first: usize,
    part: &[u8],
    copy: Copy,
) -> impl Iterator<Item = Result<Superblock, LabelError>> {
    let slots = (first..RING_SLOTS as usize).zip(part.chunks(SLOT_BYTES));
    slots.map(move |(slot, bytes)| {
        let offset = match copy {
            Copy::Head => Some(HEAD_RING_OFFSET + (slot * SLOT_BYTES) as u64),
            Copy::Tail => None,
        };
        Superblock::decode(bytes, Address { copy, ring_slot: slot as u8, offset })
    })
}

/// Scans a ring, as [`ring_labels`] does, for the newest label.
#[must_use]
pub fn newest(ring: &[u8], copy: Copy) -> RingScan {
    let mut scan = RingScan::default();
    scan.add_slots(0, ring, copy);
    scan.prefer_refusal();
    scan
}

impl RingScan {
    /// Scans a part of a ring that starts with the slot `first`. Parts may arrive in any order. Slots of missing parts
    /// count as blank.
    pub fn add_slots(&mut self, first: usize, part: &[u8], copy: Copy) {
        labels_from(first, part, copy).for_each(|slot| self.add(slot));
    }

    /// Records that `slot` is unreadable and may contain a label.
    pub fn add_unreadable(&mut self, slot: usize) {
        self.damaged |= 1_u64.checked_shl(slot as u32).unwrap_or(0);
    }

    /// True if a damaged slot may contain a label after the generation `from`, up to the generation `to`.
    #[must_use]
    pub fn may_have_lost(&self, from: u64, to: u64) -> bool {
        if to.saturating_sub(from) >= RING_SLOTS {
            return self.damaged != 0;
        }
        (from + 1..=to).any(|generation| self.damaged >> (generation % RING_SLOTS) & 1 == 1)
    }

    fn add(&mut self, slot: Result<Superblock, LabelError>) {
        match slot {
            Ok(label) => {
                self.valid += 1;
                self.newest = newer(self.newest.take(), Some(label), |label| label.generation);
            }
            Err(error) if error.kind.is_unknown() => {
                // Of equally new labels, the first one in the ring counts.
                let order =
                    |error: &LabelError| (error.kind.generation(), Reverse(error.ring_slot));
                self.refused = newer(self.refused, Some(error), order);
            }
            Err(error) if error.kind == LabelErrorKind::Blank => {}
            Err(error) => self.damaged |= 1 << error.ring_slot,
        }
    }

    /// Drops the older one of newest label and refused label, after every part was scanned.
    pub fn prefer_refusal(&mut self) {
        let Some(refused) = self.refused.and_then(|e| e.kind.generation()) else { return };
        if self.newest.as_ref().is_some_and(|label| label.generation > refused) {
            self.refused = None;
        } else {
            self.newest = None;
        }
    }
}
