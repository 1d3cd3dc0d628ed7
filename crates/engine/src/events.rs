//! What happened to an array, for operators and for programs that manage it.

use std::collections::VecDeque;

use strake_block::IoErrorKind;
use strake_units::MemberIndex;

use crate::limits::EVENTS_MAX;
use crate::scrub::{ScrubCounts, ScrubMode};

/// Something that happened to an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayEvent {
    /// The member it happened to, when it is about one.
    pub member: Option<MemberIndex>,
    /// What happened.
    pub kind: ArrayEventKind,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayEventKind {
    /// The member failed an I/O that it may not fail and is out of use.
    MemberFailed {
        /// How the I/O failed.
        cause: IoErrorKind,
    },
    /// The member's drive was removed.
    MemberVanished,
    /// The operator declared the member failed.
    MemberFailedByHand,
    /// The member is being filled.
    RebuildStarted {
        /// Bytes that it lacks.
        stale_bytes: u64,
    },
    /// The member holds everything it should.
    RebuildFinished,
    /// The rebuild cannot go on: nothing is left to recover some block from.
    RebuildHalted,
    /// A drive is being filled that is to take the place of the member, which still serves.
    ReplaceStarted,
    /// The drive has taken the member's place.
    ReplaceFinished,
    /// The member keeps its place.
    ReplaceAbandoned {
        /// How the drive failed; `None` when it was cancelled.
        cause: Option<IoErrorKind>,
    },
    /// Nothing was left to recover blocks from. They are listed, and answered with errors until they are written.
    BlocksLost {
        /// Bytes of the array.
        bytes: u64,
    },
    /// Both copies of bitmap pages were unreadable or damaged on the member when the array started.
    BitmapLost {
        /// How many pages.
        pages: u64,
        /// Of these, pages that no member in sync has: all their bits count as set.
        everywhere: u64,
    },
    /// A crash cut writes short while members were missing, or in an array that records every write: they were done
    /// again from the redo log.
    WritesRedone {
        /// How many.
        count: u64,
    },
    /// Parity or copies are being made to agree.
    ResyncStarted,
    /// A member went out while parity of these regions was not known to be right after a crash: its blocks may be
    /// recovered wrongly there. The next start is refused until that is accepted.
    InDoubt {
        /// How many.
        regions: u64,
    },
    /// They agree.
    ResyncFinished,
    /// They cannot be made to agree: nothing is left to recover some block from.
    ResyncHalted,
    /// Reads avoid the member, because it is much slower than its peers.
    SitOut,
    /// The member is read again.
    SitOutEnded,
    /// So many members are stalled at once that the array cannot do without them. The cause is hardly a drive, so none
    /// is taken out for it.
    MembersStalled,
    /// Enough of them answer again.
    MembersStalledEnded,
    /// A scrub began.
    ScrubStarted {
        /// What it does.
        mode: ScrubMode,
        /// Bytes of the array that it was over before it was interrupted; 0 when it begins.
        done_bytes: u64,
    },
    /// A scrub has found something; reported once a minute at most.
    ScrubFound {
        /// All that it found so far.
        counts: ScrubCounts,
    },
    /// A scrub has finished.
    ScrubEnded {
        /// It has been over everything; otherwise it was stopped.
        whole: bool,
        /// What it saw.
        counts: ScrubCounts,
    },
    /// More members are absent than redundancy covers; nothing is served.
    Lost,
    /// So many events were dropped here because they were not fetched.
    Dropped {
        /// How many.
        count: u64,
    },
}

/// Events that have not been fetched yet, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct EventRing {
    events: VecDeque<ArrayEvent>,
    dropped: u64,
}

impl EventRing {
    /// Adds an event. When there is no room the oldest makes way, and is counted.
    pub(crate) fn push(&mut self, event: ArrayEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(event);
    }

    /// Takes all of them.
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
