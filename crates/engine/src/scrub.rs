//! The interface of scrubs: mode, progress and findings.
//!
//! A scrub reads every strip of every stripe, and compares parity or copies with the data. If they do not match,
//! redundancy may show which strip is wrong. Only such a strip is repaired, from the other strips. If the wrong strip
//! is unknown, nothing is changed, unless the operator decides to accept the data as read.

use strake_raid::Geometry;
use strake_units::{LbaRange, MemberIndex, StripeIndex};

/// The reaction of a scrub to its findings. In every mode, unreadable blocks are reconstructed and rewritten, as for
/// reads of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubMode {
    /// The scrub only reports mismatches.
    Check,
    /// The scrub rewrites strips that are known to be wrong, from the other strips. If the wrong strip is unknown,
    /// nothing is changed.
    Repair,
    /// The scrub repairs as in `Repair`. If the wrong strip is unknown, it makes parity match the data as read, and
    /// copies match the first copy. If the data were wrong, they stay wrong.
    TrustData,
}

impl ScrubMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Check, Self::Repair, Self::TrustData];

    /// The name in the interface.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Repair => "repair",
            Self::TrustData => "trust_data",
        }
    }
}

/// State of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubState {
    /// The scrub is running, or waits for the end of resync and rebuild.
    Running,
    /// The scrub is paused.
    Paused,
    /// The scrub has checked the whole array.
    Finished,
    /// The scrub was stopped, or the array has failed.
    Stopped,
}

impl ScrubState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Running, Self::Paused, Self::Finished, Self::Stopped];

    /// The name in the interface.
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

/// Kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubVerdict {
    /// The data strip of the member is wrong, according to all other strips.
    DataWrong,
    /// The parity strip of the member is wrong, according to all other strips.
    ParityWrong,
    /// The copy of the member differs from the majority of the copies.
    CopyWrong,
    /// Parity does not match the data, and the wrong strip is unknown.
    ParityDiffers,
    /// Copies differ, and no majority shows which copy is right.
    CopiesDiffer,
    /// Blocks of the member are unreadable.
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

    /// The name in the interface.
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

/// A finding of a scrub: the same verdict on adjacent rows of one member, or of one group of members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubFinding {
    /// The kind of the finding.
    pub verdict: ScrubVerdict,
    /// The wrong member; `None` if unknown.
    pub member: Option<MemberIndex>,
    /// The first stripe.
    pub stripe: StripeIndex,
    /// Rows, in blocks from the start of each member's data area.
    pub rows: LbaRange,
    /// The blocks of the array concerned. With wrong data, these are the blocks of the data. With wrong parity, or if
    /// the wrong strip is unknown, these are all blocks from the first to the last block of the stripe in these rows.
    /// If the rows cover several stripes, the range extends from the first block to the last block.
    pub array: LbaRange,
    /// True if the strips were repaired and matched when read again.
    pub repaired: bool,
}

impl ScrubFinding {
    /// Merges `next` into this finding, if it continues at the end of this finding.
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

/// Results of a scrub in bytes. Findings count the bytes of the members concerned. If the wrong strip is unknown, the
/// bytes of one member are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCounts {
    /// Data of the array that was compared with its parity or copies.
    pub checked: u64,
    /// Data of the array that could not be compared, because no redundancy is left there or parity is not yet trusted.
    pub unchecked: u64,
    /// Bytes of strips that are known to be wrong.
    pub wrong: u64,
    /// Bytes of rows with a mismatch whose wrong strip is unknown.
    pub unsure: u64,
    /// Bytes of unreadable blocks.
    pub unreadable: u64,
    /// Bytes of these findings that were repaired.
    pub repaired: u64,
}

impl ScrubCounts {
    /// Bytes of the array that the scrub has processed.
    #[must_use]
    pub const fn done(&self) -> u64 {
        self.checked + self.unchecked
    }

    /// Bytes of all findings, repaired or not.
    #[must_use]
    pub const fn found(&self) -> u64 {
        self.wrong + self.unsure + self.unreadable
    }

    /// Bytes of findings that were not repaired.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.found().saturating_sub(self.repaired)
    }

    /// Counts a finding in rows of blocks of `1 << shift` bytes.
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

/// The status of the scrub in progress, or of the last scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubStatus {
    /// Number of the scrub since the array was started, from 1. A continued scrub gets a new number.
    pub number: u64,
    /// The mode of the scrub.
    pub mode: ScrubMode,
    /// The state of the scrub.
    pub state: ScrubState,
    /// The results of the scrub.
    pub counts: ScrubCounts,
    /// Number of findings that are not listed, because the list is full.
    pub unlisted: u64,
}

/// The order to shards.
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
