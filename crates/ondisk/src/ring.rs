//! The rings of the redo log: their location, their free space, and the records that count.
//!
//! The following must hold at any time, regardless of which writes in progress have reached the members: if a record
//! counts, because no readable header has a greater floor, then every later record whose write was started is complete.
//! Otherwise an older write could be replayed without the newer write of the same blocks. Three rules ensure this:
//!
//! - Space is released in the order of sequences, and the ring wraps at one line (`line`) that every lap passes, so
//!   what is overwritten is always older than what is not.
//! - Space is used again only when some header that is stable has a floor above its record: several records may be in
//!   progress at once, and the one that overwrites the newer may arrive before the one that overwrites the older.
//! - Headers without a record (marks) record a floor when nothing else would. They have two [slots](crate::slot) of
//!   their own.

use std::collections::{BTreeMap, VecDeque};

use crate::layout::{LOG_BYTES, LOG_OFFSET};
use crate::redo::REDO_HEADER_BYTES;
use crate::slot::Slots;

/// Bytes of a ring before its records, for the slots of marks.
pub const REDO_LEAD_BYTES: u64 = 2 * REDO_HEADER_BYTES as u64;

/// Byte offset on a member and bytes of ring `ring` of `rings`, a multiple of the header's size.
///
/// # Panics
/// If there is no such ring.
#[must_use]
pub const fn redo_ring(ring: u16, rings: u16) -> (u64, u64) {
    assert!(ring < rings, "rings are numbered from 0");
    let bytes = LOG_BYTES / rings as u64 / REDO_HEADER_BYTES as u64 * REDO_HEADER_BYTES as u64;
    (LOG_OFFSET + ring as u64 * bytes, bytes)
}

/// The identifier of a record in an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordId {
    /// The ring of the record.
    pub ring: u16,
    /// The sequence of the record in the ring.
    pub sequence: u64,
}

/// The floors in readable headers, by ring. Older records were executed.
#[derive(Clone, Debug, Default)]
pub struct Floors(BTreeMap<u16, u64>);

impl Floors {
    /// Adds the floor in a header of `ring`.
    pub fn add(&mut self, ring: u16, floor: u64) {
        let known = self.0.entry(ring).or_default();
        *known = floor.max(*known);
    }

    /// True if no header shows that the record was executed.
    #[must_use]
    pub fn is_current(&self, id: RecordId) -> bool {
        id.sequence >= self.0.get(&id.ring).copied().unwrap_or(0)
    }
}

/// A record whose space is not free.
#[derive(Debug)]
struct Live {
    sequence: u64,
    at: u64,
    /// True if the write is complete.
    done: bool,
}

/// The space of a record, or of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The record's sequence; 0 for a mark.
    pub sequence: u64,
    /// Start of the record, in bytes from the start of the member.
    pub at: u64,
    /// The floor in its header.
    pub floor: u64,
}

/// The answer to a request for space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Free space.
    Place(Entry),
    /// A mark to write. Afterwards there may be free space.
    Mark(Entry),
    /// No space. The caller must wait until a write completes.
    Nothing,
}

/// The free space of a ring while the array runs.
#[derive(Debug)]
pub struct Ring {
    /// Start of the ring on every member.
    start: u64,
    /// Maximum start of a record, counted from the start of the ring.
    line: u64,
    /// Start of the next record.
    head: u64,
    /// Records in use, the oldest first.
    live: VecDeque<Live>,
    /// The last sequence given to a record.
    sequence: u64,
    /// All records with a smaller number are complete.
    floor: u64,
    /// The greatest floor in a stable header.
    reported: u64,
    /// Number of records that are being written and not stable yet.
    recording: u32,
    marks: u64,
}

impl Ring {
    /// Creates a ring of `bytes` bytes at `start`, for records of at most `largest` bytes.
    ///
    /// # Panics
    /// If the ring has no space for such a record.
    #[must_use]
    pub fn new(start: u64, bytes: u64, largest: u64) -> Self {
        assert!(REDO_LEAD_BYTES + largest <= bytes, "a ring has room for the largest record");
        let records = bytes as usize / REDO_HEADER_BYTES + 1;
        Self {
            start,
            line: bytes - largest,
            head: REDO_LEAD_BYTES,
            live: VecDeque::with_capacity(records),
            sequence: 0,
            floor: 1,
            reported: 0,
            recording: 0,
            marks: 0,
        }
    }

    /// Returns space for a record of `bytes` bytes, or the step that may free space.
    pub fn offer(&mut self, bytes: u64) -> Offer {
        self.place(bytes).map_or_else(|| self.mark(), Offer::Place)
    }

    /// Returns space for a record of `bytes` bytes, if there is space now.
    pub fn place(&mut self, bytes: u64) -> Option<Entry> {
        let at = self.next(bytes)?;
        self.sequence += 1;
        self.head = at + bytes;
        self.recording += 1;
        self.live.push_back(Live { sequence: self.sequence, at, done: false });
        Some(Entry { sequence: self.sequence, at: self.start + at, floor: self.floor })
    }

    /// True if there is space for a record of `bytes` bytes now.
    #[must_use]
    pub fn has_room(&self, bytes: u64) -> bool {
        self.next(bytes).is_some()
    }

    /// Returns the start of the next record, if there is space for `bytes` bytes.
    fn next(&self, bytes: u64) -> Option<u64> {
        let at = if self.head <= self.line { self.head } else { REDO_LEAD_BYTES };
        let free = match self.live.front() {
            None => true,
            // The head is at the same position after all records were released, or it has wrapped.
            Some(front) if at <= front.at => at + bytes <= front.at && self.head != front.at,
            Some(_) => true,
        };
        free.then_some(at)
    }

    /// True if the write of every record is complete.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.recording == 0 && self.live.iter().all(|live| live.done)
    }

    /// Returns a mark, unless records in progress may contain a sufficient floor when they are stable.
    fn mark(&mut self) -> Offer {
        let floor = self.floor;
        if self.recording > 0 || floor <= self.reported {
            return Offer::Nothing;
        }
        let at = Slots::pair(self.start, REDO_HEADER_BYTES).at(self.marks);
        self.marks += 1;
        Offer::Mark(Entry { sequence: 0, at, floor })
    }

    /// Records that a record or a mark is stable.
    pub fn stable(&mut self, entry: Entry) {
        self.recording -= u32::from(entry.sequence != 0);
        self.reported = self.reported.max(entry.floor);
        self.release();
    }

    /// Releases a record that was not written completely. Its write was not started.
    pub fn failed(&mut self, entry: Entry) {
        self.recording -= u32::from(entry.sequence != 0);
        if entry.sequence != 0 {
            self.done(entry);
        }
    }

    /// Releases a record. Its write is complete and stable, and the members that failed the write are out of use.
    ///
    /// # Panics
    /// If the record was already released.
    pub fn done(&mut self, entry: Entry) {
        // Consecutive records have consecutive numbers.
        let first = self.live.front().map_or(u64::MAX, |front| front.sequence);
        let at = entry.sequence.checked_sub(first);
        let live = at.and_then(|at| self.live.get_mut(at as usize));
        live.expect("a record is done once").done = true;
        // No record at or above the floor was released.
        let done =
            |floor: u64| self.live.get((floor - first) as usize).is_some_and(|live| live.done);
        while done(self.floor) {
            self.floor += 1;
        }
        self.release();
    }

    fn release(&mut self) {
        let free = |live: &Live, reported: u64| live.done && live.sequence < reported;
        while self.live.front().is_some_and(|front| free(front, self.reported)) {
            self.live.pop_front();
        }
    }
}
