//! The list of bad blocks that could not be reconstructed, so that a rebuild can continue without them.
//!
//! A list is in one of two [slots](crate::slot) of consecutive pages. All pages must be valid and have the same
//! sequence.

use strake_units::{Lba, LbaRange, MemberIndex, Uuid};

use crate::bytes::{put, u16_at, u32_at, u64_at};
use crate::slot::{
    PAGE_BYTES, PAGE_HEADER_BYTES, Sequenced, new_page, newest_of, page_sequence, seal_page,
};

/// Pages of one slot.
pub const BAD_PAGES: usize = 16;
/// Bytes of one slot.
pub const BAD_SLOT_BYTES: u64 = (BAD_PAGES * PAGE_BYTES) as u64;
/// Maximum number of runs of bad blocks in a list.
pub const BAD_RUNS_MAX: usize = BAD_PAGES * RUNS_PER_PAGE;

const RUN_BYTES: usize = 16;
const RUNS_PER_PAGE: usize = (PAGE_BYTES - PAGE_HEADER_BYTES) / RUN_BYTES;
const MAGIC: [u8; 4] = *b"SKBB";
const AT_PAGE: usize = 4;
const AT_PAGES: usize = 5;
const AT_COUNT: usize = 6;

/// The kind of a bad block of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Badness {
    /// The drive could not read the block, and it could not be reconstructed. A read may try again.
    Unreadable,
    /// The block could not be filled. Its content is undefined and never used.
    Hollow,
    /// The data of the block are abandoned, because another block of its column was written. The content of the member
    /// is undefined until zeroes, which replace the data in parity, are written.
    Abandoning,
    /// The data of the block are abandoned and replaced by zeroes, which match parity.
    Abandoned,
}

impl Badness {
    /// True if the content of the block must not be used.
    #[must_use]
    pub const fn is_hidden(self) -> bool {
        match self {
            Self::Hollow | Self::Abandoning => true,
            Self::Unreadable | Self::Abandoned => false,
        }
    }

    /// True if a reconstruction of the block would not return the written data.
    #[must_use]
    pub const fn is_given_up(self) -> bool {
        match self {
            Self::Abandoning | Self::Abandoned => true,
            Self::Unreadable | Self::Hollow => false,
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Unreadable => 1,
            Self::Hollow => 2,
            Self::Abandoning => 3,
            Self::Abandoned => 4,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Unreadable),
            2 => Some(Self::Hollow),
            3 => Some(Self::Abandoning),
            4 => Some(Self::Abandoned),
            _ => None,
        }
    }
}

/// Changes of blocks of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BadEvent {
    /// The blocks could not be read or reconstructed.
    Unreadable,
    /// The blocks could not be filled.
    Hollow,
    /// The data of the blocks are abandoned, and zeroes will be written.
    Abandon,
    /// The blocks contain their reconstructed content again: data, or zeroes that replace abandoned data.
    Restored,
    /// New data were written to the blocks, or parity of the whole column.
    Written,
}

impl BadEvent {
    const fn applied_to(self, before: Option<Badness>) -> Option<Badness> {
        use Badness::{Abandoned, Abandoning, Hollow, Unreadable};
        match (self, before) {
            (Self::Unreadable, None) => Some(Unreadable),
            (Self::Unreadable, Some(_)) => before,
            (Self::Hollow, None | Some(Unreadable | Hollow)) => Some(Hollow),
            (Self::Hollow, Some(Abandoning | Abandoned)) | (Self::Abandon, _) => Some(Abandoning),
            (Self::Restored, Some(Abandoning | Abandoned)) => Some(Abandoned),
            (Self::Restored, None | Some(Unreadable | Hollow)) | (Self::Written, _) => None,
        }
    }
}

/// Consecutive bad blocks of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BadRun {
    /// The slot of the member.
    pub member: MemberIndex,
    /// First block, in blocks of the array from the start of the member's data area.
    pub start: Lba,
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// The kind of the bad blocks.
    pub what: Badness,
}

impl BadRun {
    /// The blocks.
    #[must_use]
    pub const fn range(&self) -> LbaRange {
        LbaRange::new(self.start, self.blocks as u64)
    }

    const fn end(&self) -> u64 {
        self.start.0 + self.blocks as u64
    }
}

/// The list has no space for another run. The caller that found the block must stop, because without an entry,
/// undefined content would be returned as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadListFull;

impl std::fmt::Display for BadListFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the list of bad blocks has room for {BAD_RUNS_MAX} runs and is full; overwrite bad blocks, or replace the \
             drive that has them"
        )
    }
}

impl std::error::Error for BadListFull {}

/// Every bad block of an array's members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadList {
    /// The runs by member and block. Runs do not overlap, and adjacent runs of the same kind are merged.
    runs: Vec<BadRun>,
}

impl BadList {
    /// Returns all runs, by member and block.
    #[must_use]
    pub fn runs(&self) -> &[BadRun] {
        &self.runs
    }

    /// True if no block is bad.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the runs with blocks in `range` of `member`.
    pub fn within(&self, member: MemberIndex, range: LbaRange) -> impl Iterator<Item = &BadRun> {
        let first = self.runs.partition_point(|r| (r.member, r.end()) <= (member, range.start.0));
        self.runs[first..].iter().take_while(move |r| r.member == member && r.start < range.end())
    }

    /// Records `event` for the blocks `range` of `member`. Returns true if the list changed.
    ///
    /// # Errors
    /// If there is no space. The list is then unchanged.
    pub fn note(
        &mut self,
        member: MemberIndex,
        range: LbaRange,
        event: BadEvent,
    ) -> Result<bool, BadListFull> {
        let (start, end) = (range.start.0, range.end().0);
        let touched: Vec<BadRun> = self.within(member, range).copied().collect();
        let mut next: Vec<BadRun> =
            self.runs.iter().filter(|run| !touched.contains(run)).copied().collect();
        let mut put = |from: u64, to: u64, what: Option<Badness>| {
            if let (true, Some(what)) = (from < to, what) {
                // A run that is too long for its field becomes several runs.
                next.extend((from..to).step_by(u32::MAX as usize).map(|at| BadRun {
                    member,
                    start: Lba(at),
                    blocks: (to - at).min(u64::from(u32::MAX)) as u32,
                    what,
                }));
            }
        };
        let mut at = start;
        for run in &touched {
            put(run.start.0, start, Some(run.what));
            put(at, run.start.0, event.applied_to(None));
            put(run.start.0.max(start), run.end().min(end), event.applied_to(Some(run.what)));
            put(end, run.end(), Some(run.what));
            at = run.end();
        }
        put(at, end, event.applied_to(None));
        next.sort_unstable();
        next.dedup_by(|right, left| join(left, right));
        if next.len() > BAD_RUNS_MAX {
            return Err(BadListFull);
        }
        let changed = next != self.runs;
        self.runs = next;
        Ok(changed)
    }

    /// Encodes the pages of a slot with `sequence`. Empty pages are left out, except the first.
    #[must_use]
    pub fn encode(&self, array: Uuid, sequence: u64) -> Vec<[u8; PAGE_BYTES]> {
        let count = self.runs.len().div_ceil(RUNS_PER_PAGE).max(1);
        let runs = |page| self.runs.chunks(RUNS_PER_PAGE).nth(page).unwrap_or_default();
        (0..count).map(|page| encode_page(array, sequence, (page, count), runs(page))).collect()
    }
}

/// Merges `right` into `left` if both have the same kind and are adjacent.
fn join(left: &mut BadRun, right: &mut BadRun) -> bool {
    let alike =
        left.member == right.member && left.what == right.what && left.end() == right.start.0;
    match left.blocks.checked_add(right.blocks) {
        Some(blocks) if alike => {
            left.blocks = blocks;
            true
        }
        Some(_) | None => false,
    }
}

fn encode_page(
    array: Uuid,
    sequence: u64,
    (page, pages): (usize, usize),
    runs: &[BadRun],
) -> [u8; PAGE_BYTES] {
    let mut out = new_page(MAGIC, array, sequence);
    out[AT_PAGE] = page as u8;
    out[AT_PAGES] = pages as u8;
    put(&mut out, AT_COUNT, &(runs.len() as u16).to_le_bytes());
    for (run, row) in runs.iter().zip(out[PAGE_HEADER_BYTES..].chunks_exact_mut(RUN_BYTES)) {
        put(row, 0, &run.start.0.to_le_bytes());
        put(row, 8, &run.blocks.to_le_bytes());
        row[12] = run.member.0;
        row[13] = run.what.code();
    }
    seal_page(&mut out);
    out
}

/// Decodes the list in a slot of an array with `members` members. Returns `None` without a complete list.
fn decode(slot: &[u8], array: Uuid, members: usize) -> Option<Sequenced<BadList>> {
    let mut pages = slot.chunks_exact(PAGE_BYTES).take(BAD_PAGES);
    let first = pages.next()?;
    let (sequence, count) = (page_sequence(first, MAGIC, array)?, usize::from(first[AT_PAGES]));
    let mut runs = Vec::new();
    for (at, page) in std::iter::once(first).chain(pages).take(count.max(1)).enumerate() {
        let sound = page_sequence(page, MAGIC, array)? == sequence
            && usize::from(page[AT_PAGE]) == at
            && usize::from(page[AT_PAGES]) == count;
        let rows = usize::from(u16_at(page, AT_COUNT));
        if !sound || rows > RUNS_PER_PAGE {
            return None;
        }
        for row in page[PAGE_HEADER_BYTES..].chunks_exact(RUN_BYTES).take(rows) {
            runs.push(decode_run(row, members)?);
        }
    }
    let whole = (1..=BAD_PAGES).contains(&count) && slot.len() >= count * PAGE_BYTES;
    let ordered = runs.windows(2).all(|pair: &[BadRun]| {
        pair[0].member < pair[1].member
            || pair[0].member == pair[1].member && pair[0].end() <= pair[1].start.0
    });
    (whole && ordered).then_some(Sequenced { sequence, record: BadList { runs } })
}

fn decode_run(row: &[u8], members: usize) -> Option<BadRun> {
    let run = BadRun {
        member: MemberIndex(row[12]),
        start: Lba(u64_at(row, 0)),
        blocks: u32_at(row, 8),
        what: Badness::from_code(row[13])?,
    };
    let ends = run.start.0.checked_add(u64::from(run.blocks)).is_some();
    (ends && run.blocks > 0 && run.member.at() < members).then_some(run)
}

/// Returns the newest list in the two slots of a member: `a` is the slot of even sequences, `b` the slot of odd
/// sequences. Returns `None` without a list.
#[must_use]
pub fn newest_bad_list(
    a: &[u8],
    b: &[u8],
    array: Uuid,
    members: usize,
) -> Option<Sequenced<BadList>> {
    newest_of([a, b].map(|slot| decode(slot, array, members)))
}
