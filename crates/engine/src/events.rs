//! Events of an array, for operators and management programs.

use std::collections::VecDeque;

use strake_block::IoErrorKind;
use strake_units::MemberIndex;

use crate::limits::EVENTS_MAX;
use crate::scrub::{ScrubCounts, ScrubMode};

/// An event of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayEvent {
    /// The member concerned, if any.
    pub member: Option<MemberIndex>,
    /// The kind of the event.
    pub kind: ArrayEventKind,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayEventKind {
    /// The member failed an I/O and is out of use.
    MemberFailed {
        /// The error of the I/O.
        cause: IoErrorKind,
    },
    /// The member's drive was removed.
    MemberVanished,
    /// The operator declared the member failed.
    MemberFailedByHand,
    /// The rebuild of the member started.
    RebuildStarted {
        /// Bytes that the member lacks.
        stale_bytes: u64,
    },
    /// The member is in sync.
    RebuildFinished,
    /// The rebuild halted because some block cannot be reconstructed.
    RebuildHalted,
    /// The copy of the serving member to its replacement started.
    ReplaceStarted,
    /// The replacement has the slot of the member.
    ReplaceFinished,
    /// The replacement ended early, and the member keeps its slot.
    ReplaceAbandoned {
        /// The error of the replacement; `None` if the replacement was cancelled.
        cause: Option<IoErrorKind>,
    },
    /// Blocks could not be reconstructed. They are on the list of bad blocks, and reads of these blocks fail until the
    /// blocks are written.
    BlocksLost {
        /// Bytes of the array.
        bytes: u64,
    },
    /// Both copies of bitmap pages were unreadable or damaged on the member when the array started.
    BitmapLost {
        /// Number of pages.
        pages: u64,
        /// Number of these pages that no member in sync has. All bits of these pages count as set.
        everywhere: u64,
    },
    /// A crash interrupted writes while members were missing, or in mode `strict`. The writes were replayed from the
    /// redo log.
    WritesRedone {
        /// Number of writes.
        count: u64,
    },
    /// A resync started.
    ResyncStarted,
    /// A member went out before the resync of these regions after a crash, so its blocks in these regions may be
    /// reconstructed wrongly. The next start is refused until the operator accepts this.
    InDoubt {
        /// Number of regions.
        regions: u64,
    },
    /// The resync finished.
    ResyncFinished,
    /// The resync halted because some block cannot be reconstructed.
    ResyncHalted,
    /// Reads avoid the member, because the member is much slower than its peers.
    SitOut,
    /// The member is read again.
    SitOutEnded,
    /// More members are stalled at the same time than the array can do without. The cause is probably not a single
    /// drive, so no member goes out of use.
    MembersStalled,
    /// Enough members answer again.
    MembersStalledEnded,
    /// A scrub started.
    ScrubStarted {
        /// The mode of the scrub.
        mode: ScrubMode,
        /// Bytes of the array that were checked before an interruption; 0 for a new scrub.
        done_bytes: u64,
    },
    /// A scrub has found mismatches or unreadable blocks. This event is reported at most once a minute.
    ScrubFound {
        /// All findings so far.
        counts: ScrubCounts,
    },
    /// A scrub has finished.
    ScrubEnded {
        /// True if the scrub checked the whole array; false if the scrub was stopped.
        whole: bool,
        /// The findings of the scrub.
        counts: ScrubCounts,
    },
    /// The array has failed: more members are absent than the level tolerates, and I/O stops.
    Lost,
    /// Events were dropped at this position because they were not fetched.
    Dropped {
        /// Number of dropped events.
        count: u64,
    },
}

/// Events that were not fetched yet, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct EventRing {
    events: VecDeque<ArrayEvent>,
    dropped: u64,
}

impl EventRing {
    /// Adds an event. If the ring is full, the oldest event is dropped and counted.
    pub(crate) fn push(&mut self, event: ArrayEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(event);
    }

    /// Removes and returns all events.
    pub(crate) fn drain(&mut self) -> Vec<ArrayEvent> {
        let count = std::mem::take(&mut self.dropped);
        let dropped = ArrayEvent { member: None, kind: ArrayEventKind::Dropped { count } };
        (count > 0).then_some(dropped).into_iter().chain(self.events.drain(..)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_are_not_fetched_are_counted() {
        let mut ring = EventRing::default();
        let event = |slot| ArrayEvent {
            member: Some(MemberIndex(slot)),
            kind: ArrayEventKind::RebuildFinished,
        };
        for nth in 0..EVENTS_MAX + 3 {
            ring.push(event((nth % 64) as u8));
        }
        let events = ring.drain();
        assert_eq!(events.len(), EVENTS_MAX + 1);
        assert_eq!(events[0].kind, ArrayEventKind::Dropped { count: 3 });
        assert_eq!(events[1], event(3));
        assert_eq!(ring.drain(), []);
    }
}
