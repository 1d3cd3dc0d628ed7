//! Scrubs, as seen from outside the engine: what is wanted, how far it has come, and what was found.
//!
//! A scrub reads every strip of every stripe and asks whether parity, or the copies, agree with the data. Where they do
//! not, redundancy may say which strip is wrong; that strip alone is ever repaired, from the others. Where it cannot
//! say, nothing is changed, unless the operator decides that the data as it is read is to count.

use strake_raid::Geometry;
use strake_units::{LbaRange, MemberIndex, StripeIndex};

/// What a scrub does about what it finds. Blocks that cannot be read are recovered and written back by each, as reads
/// of clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubMode {
    /// Finds and tells.
    Check,
    /// Rewrites strips that are known to be wrong, from the others. What is uncertain is left as it is.
    Repair,
    /// The same, and where it is unknown which strip is wrong, parity is made to agree with the data as it is read,
    /// and copies with the lowest of them. If it was the data that was wrong, that is for good.
    TrustData,
}

impl ScrubMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Check, Self::Repair, Self::TrustData];

    /// What the interface calls it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Repair => "repair",
            Self::TrustData => "trust_data",
        }
    }
}

/// Where a scrub stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubState {
    /// It continues, after resync and rebuild if there are any.
    Running,
    /// It rests until it is resumed.
    Paused,
    /// It has seen everything.
    Finished,
    /// It was stopped, or the array was lost.
    Stopped,
}

impl ScrubState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Running, Self::Paused, Self::Finished, Self::Stopped];

    /// What the interface calls it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
        }
    }

    pub(crate) const fn is_over(self) -> bool {
        match self {
            Self::Running | Self::Paused => false,
            Self::Finished | Self::Stopped => true,
        }
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubVerdict {
    /// The member's strip holds wrong data: all others agree on what it should hold.
    DataWrong,
    /// The member's strip holds wrong parity: all others agree on what it should hold.
    ParityWrong,
    /// The member's copy differs from what most copies hold.
    CopyWrong,
    /// Parity does not fit the data, and nothing says which strip is wrong.
    ParityDiffers,
    /// Copies differ, and no majority says which is right.
    CopiesDiffer,
    /// The member's blocks cannot be read.
    Unreadable,
}

impl ScrubVerdict {
    /// Every verdict.
    pub const ALL: [Self; 6] = [
        Self::DataWrong,
        Self::ParityWrong,
        Self::CopyWrong,
        Self::ParityDiffers,
        Self::CopiesDiffer,
        Self::Unreadable,
    ];

    /// What the interface calls it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::DataWrong => "data_wrong",
            Self::ParityWrong => "parity_wrong",
            Self::CopyWrong => "copy_wrong",
            Self::ParityDiffers => "parity_differs",
            Self::CopiesDiffer => "copies_differ",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Something that a scrub found: the same verdict on adjoining rows of one member, or of one group of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubFinding {
    /// What is wrong.
    pub verdict: ScrubVerdict,
    /// Which member is wrong; `None` when that is unknown.
    pub member: Option<MemberIndex>,
    /// The first stripe.
    pub stripe: StripeIndex,
    /// Rows, in blocks from the start of each member's data area.
    pub rows: LbaRange,
    /// Blocks of the array that it is about: those of the wrong data, or, where parity is wrong or it is unknown what
    /// is, everything from the first to the last block of the stripe in these rows. Where the rows reach over several
    /// stripes, from the first block to the last.
    pub array: LbaRange,
    /// It was put right, and is right now when read again.
    pub repaired: bool,
}

impl ScrubFinding {
    /// Takes `next` in when it continues where this one ends.
    fn join(&mut self, next: &Self, geometry: &Geometry) -> bool {
        let same = self.verdict == next.verdict
            && self.member == next.member
            && self.repaired == next.repaired
            && geometry.group(self.stripe) == geometry.group(next.stripe);
        let (follows, precedes) =
            (self.rows.end() == next.rows.start, next.rows.end() == self.rows.start);
        if !same || !(follows || precedes) {
            return false;
        }
        self.stripe = self.stripe.min(next.stripe);
        self.rows = hull(self.rows, next.rows);
        self.array = hull(self.array, next.array);
        true
    }
}

fn hull(a: LbaRange, b: LbaRange) -> LbaRange {
    let (start, end) = (a.start.min(b.start), a.end().max(b.end()));
    LbaRange::new(start, end.0 - start.0)
}

/// What a scrub has seen, in bytes. Of findings, bytes of the members concerned; of one, where it is unknown which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCounts {
    /// Data of the array that was compared with its parity or copies.
    pub checked: u64,
    /// Data of the array that could not be compared with anything: no redundancy is left there, or it is not known
    /// yet whether parity fits.
    pub unchecked: u64,
    /// Strips that are known to be wrong.
    pub wrong: u64,
    /// Rows in which something is wrong, and it is unknown what.
    pub unsure: u64,
    /// Blocks that could not be read.
    pub unreadable: u64,
    /// What was put right of all that.
    pub repaired: u64,
}

impl ScrubCounts {
    /// Bytes of the array that it has been over.
    #[must_use]
    pub const fn done(&self) -> u64 {
        self.checked + self.unchecked
    }

    /// What was found, put right or not.
    #[must_use]
    pub const fn found(&self) -> u64 {
        self.wrong + self.unsure + self.unreadable
    }

    /// What is still not as it should be.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.found().saturating_sub(self.repaired)
    }

    /// Counts what was found in rows of blocks of `1 << shift` bytes.
    pub(crate) fn note(&mut self, finding: &ScrubFinding, shift: u32) {
        let bytes = finding.rows.blocks << shift;
        match finding.verdict {
            ScrubVerdict::DataWrong | ScrubVerdict::ParityWrong | ScrubVerdict::CopyWrong => {
                self.wrong += bytes;
            }
            ScrubVerdict::ParityDiffers | ScrubVerdict::CopiesDiffer => self.unsure += bytes,
            ScrubVerdict::Unreadable => self.unreadable += bytes,
        }
        if finding.repaired {
            self.repaired += bytes;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.checked += other.checked;
        self.unchecked += other.unchecked;
        self.wrong += other.wrong;
        self.unsure += other.unsure;
        self.unreadable += other.unreadable;
        self.repaired += other.repaired;
    }
}

/// A scrub: the one under way, or the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Counts scrubs since the array was started, from 1; one that continues from before gets a new number.
    pub number: u64,
    /// What it does.
    pub mode: ScrubMode,
    /// Where it stands.
    pub state: ScrubState,
    /// What it has seen.
    pub counts: ScrubCounts,
    /// Findings that are not listed, because there was no room.
    pub unlisted: u64,
}

/// What shards are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScrubOrder {
    pub(crate) number: u64,
    pub(crate) mode: ScrubMode,
    pub(crate) runs: bool,
}

pub(crate) use self::shared::{ScrubReport, SharedScrub};

mod position;
mod shared;

pub use self::position::ScrubPosition;

#[cfg(test)]
mod tests;
