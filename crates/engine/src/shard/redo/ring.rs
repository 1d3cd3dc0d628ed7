//! Places in a ring of the redo log, as arithmetic.
//!
//! What has to hold at any moment, whatever of the writes under way has reached the members: if a record counts,
//! because no header that can be read tells a floor above it, then every later record that was acted upon is whole.
//! Otherwise an older write could be carried out without the newer one of the same blocks. Three rules see to it:
//!
//! - Places are given up in the order of numbers, and the ring goes around at one line (`line`) that every lap
//!   passes, so what is overwritten is always older than what is not.
//! - A place is used again only when some header that is stable tells a floor above its record: several records may be
//!   under way at once, and the one that overwrites the newer may arrive before the one that overwrites the older.
//! - Headers without a record (marks) tell a floor when nothing else would. They have two places of their own, by
//!   turns.

use std::collections::VecDeque;

use strake_ondisk::{REDO_HEADER_BYTES, REDO_LEAD_BYTES};

/// A record whose place is not free.
#[derive(Debug)]
struct Live {
    sequence: u64,
    at: u64,
    /// Its write is done.
    done: bool,
}

/// A place for a record, or for a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The record's number; 0 for a mark.
    pub(super) sequence: u64,
    /// Where it begins, in bytes from the start of the member.
    pub(in crate::shard) at: u64,
    /// What its header tells.
    pub(super) floor: u64,
}

/// The answer to a request for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// A free place.
    Place(Entry),
    /// If this mark is written there may be one.
    Mark(Entry),
    /// The caller has to wait until something is done.
    Nothing,
}

#[derive(Debug)]
pub(super) struct Ring {
    /// Where the ring begins on every member.
    start: u64,
    /// Records begin at or before this, counted from the start.
    line: u64,
    /// Where the next record goes.
    head: u64,
    /// The oldest first.
    live: VecDeque<Live>,
    /// The last number given to a record.
    sequence: u64,
    /// The greatest floor that a stable header tells.
    reported: u64,
    /// Records that are being written and not stable yet.
    recording: u32,
    marks: u64,
}

impl Ring {
    /// A ring of `bytes` bytes at `start`, for records of at most `largest` bytes.
    pub(super) fn new(start: u64, bytes: u64, largest: u64) -> Self {
        assert!(REDO_LEAD_BYTES + largest <= bytes, "a ring has room for the largest record");
        let records = bytes as usize / REDO_HEADER_BYTES + 1;
        Self {
            start,
            line: bytes - largest,
            head: REDO_LEAD_BYTES,
            live: VecDeque::with_capacity(records),
            sequence: 0,
            reported: 0,
            recording: 0,
            marks: 0,
        }
    }

    /// All records below this are done.
    fn floor(&self) -> u64 {
        let first = self.live.iter().find(|live| !live.done);
        first.map_or(self.sequence + 1, |live| live.sequence)
    }

    /// A place for a record of `bytes` bytes, or what can be done for one.
    pub(super) fn offer(&mut self, bytes: u64) -> Offer {
        let at = if self.head <= self.line { self.head } else { REDO_LEAD_BYTES };
        let free = match self.live.front() {
            None => true,
            // The head is where it was when everything behind it was given up, or has gone around.
            Some(front) if at <= front.at => at + bytes <= front.at && self.head != front.at,
            Some(_) => true,
        };
        if !free {
            return self.mark();
        }
        self.sequence += 1;
        self.head = at + bytes;
        self.recording += 1;
        self.live.push_back(Live { sequence: self.sequence, at, done: false });
        Offer::Place(Entry { sequence: self.sequence, at: self.start + at, floor: self.floor() })
    }

    /// Records under way may tell enough themselves when they are stable.
    fn mark(&mut self) -> Offer {
        let floor = self.floor();
        if self.recording > 0 || floor <= self.reported {
            return Offer::Nothing;
        }
        let at = self.start + self.marks % 2 * REDO_HEADER_BYTES as u64;
        self.marks += 1;
        Offer::Mark(Entry { sequence: 0, at, floor })
    }

    /// A record or a mark is stable.
    pub(super) fn stable(&mut self, entry: Entry) {
        self.recording -= u32::from(entry.sequence != 0);
        self.reported = self.reported.max(entry.floor);
        self.give_up();
    }

    /// A record was not written as a whole, and nothing was done about it.
    pub(super) fn failed(&mut self, entry: Entry) {
        self.recording -= u32::from(entry.sequence != 0);
        if entry.sequence != 0 {
            self.done(entry);
        }
    }

    /// What a record describes is done and stable, and the members that failed it are out of use.
    pub(super) fn done(&mut self, entry: Entry) {
        let live = self.live.iter_mut().find(|live| live.sequence == entry.sequence);
        live.expect("a record is done once").done = true;
        self.give_up();
    }

    fn give_up(&mut self) {
        let free = |live: &Live, reported: u64| live.done && live.sequence < reported;
        while self.live.front().is_some_and(|front| free(front, self.reported)) {
            self.live.pop_front();
        }
    }
}

#[cfg(test)]
mod tests;
