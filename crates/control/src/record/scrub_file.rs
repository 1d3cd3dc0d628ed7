//! Positions and findings of scrubs, in a file of the state directory for each array. A scrub continues from its
//! position after a restart, and the findings of the last scrub stay available.

use std::io;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use strake_engine::{
    ScrubCounts, ScrubFinding, ScrubMode, ScrubPosition, ScrubState, ScrubVerdict,
};
use strake_units::{Lba, LbaRange, MemberIndex, StripeIndex};

use crate::record::files::StateFolder;

/// Version of the file that this program writes.
const VERSION: u32 = 1;

/// Maximum size of a file: all listed findings, and the regions of the largest array in any pattern.
const FILE_BYTES_MAX: u64 = 2 << 20;

/// The recorded position of a scrub, and its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Start of the scrub, in microseconds since 1970.
    pub(crate) begun_us: u64,
    pub(crate) position: ScrubPosition,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    version: u32,
    begun_us: u64,
    mode: String,
    state: String,
    regions: u32,
    /// Runs of regions, as the first region and the region after the last.
    done: Vec<(u32, u32)>,
    checked: u64,
    unchecked: u64,
    wrong: u64,
    unsure: u64,
    unreadable: u64,
    repaired: u64,
    unlisted: u64,
    findings: Vec<Entry>,
}

/// A finding, as files hold it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    verdict: String,
    member: Option<u8>,
    stripe: u64,
    /// Start and number of blocks.
    rows: (u64, u64),
    array: (u64, u64),
    repaired: bool,
}

fn name(uuid: &str) -> String {
    format!("scrub-{uuid}.json")
}

/// Reads the record of the last scrub of array `uuid`; `None` without a record.
///
/// # Errors
/// If a file exists but is invalid.
pub(crate) fn read(state: &StateFolder, uuid: &str) -> Result<Option<Kept>, String> {
    let text = state.read(&name(uuid), FILE_BYTES_MAX).map_err(|e| e.to_string())?;
    let Some(text) = text else { return Ok(None) };
    let page: Page = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    if page.version != VERSION {
        return Err(format!(
            "it has version {}, this program writes version {VERSION}",
            page.version
        ));
    }
    page.kept().map(Some).ok_or_else(|| "it has words that are unknown to this program".to_owned())
}

/// Records the position of the scrub of an array.
pub(crate) fn write(state: &StateFolder, uuid: &str, kept: &Kept) -> io::Result<()> {
    state.replace(&name(uuid), &serde_json::to_vec(&Page::of(kept))?)
}

/// Removes the record of the scrubs of an array.
pub(crate) fn forget(state: &StateFolder, uuid: &str) {
    if let Err(error) = state.remove(&name(uuid)) {
        // The file is never read again, because no other array has this identity.
        tracing::debug!(uuid, %error, "the position of a scrub could not be removed");
    }
}

impl Page {
    fn of(Kept { begun_us, position }: &Kept) -> Self {
        let ScrubPosition { mode, state, regions, done, counts, findings, unlisted } = position;
        Self {
            version: VERSION,
            begun_us: *begun_us,
            mode: mode.word().to_owned(),
            state: state.word().to_owned(),
            regions: *regions,
            done: done.iter().map(|run| (run.start, run.end)).collect(),
            checked: counts.checked,
            unchecked: counts.unchecked,
            wrong: counts.wrong,
            unsure: counts.unsure,
            unreadable: counts.unreadable,
            repaired: counts.repaired,
            unlisted: *unlisted,
            findings: findings.iter().map(Entry::of).collect(),
        }
    }

    fn kept(self) -> Option<Kept> {
        let position = ScrubPosition {
            mode: ScrubMode::ALL.into_iter().find(|mode| mode.word() == self.mode)?,
            state: ScrubState::ALL.into_iter().find(|state| state.word() == self.state)?,
            regions: self.regions,
            done: self.done.into_iter().map(|(start, end)| Range { start, end }).collect(),
            counts: ScrubCounts {
                checked: self.checked,
                unchecked: self.unchecked,
                wrong: self.wrong,
                unsure: self.unsure,
                unreadable: self.unreadable,
                repaired: self.repaired,
            },
            findings: self.findings.iter().map(Entry::finding).collect::<Option<_>>()?,
            unlisted: self.unlisted,
        };
        Some(Kept { begun_us: self.begun_us, position })
    }
}

impl Entry {
    pub(crate) fn of(finding: &ScrubFinding) -> Self {
        Self {
            verdict: finding.verdict.word().to_owned(),
            member: finding.member.map(|member| member.0),
            stripe: finding.stripe.0,
            rows: (finding.rows.start.0, finding.rows.blocks),
            array: (finding.array.start.0, finding.array.blocks),
            repaired: finding.repaired,
        }
    }

    /// The finding; `None` if it has words that are unknown to this program.
    pub(crate) fn finding(&self) -> Option<ScrubFinding> {
        let range = |(start, blocks)| LbaRange::new(Lba(start), blocks);
        Some(ScrubFinding {
            verdict: ScrubVerdict::ALL.into_iter().find(|word| word.word() == self.verdict)?,
            member: self.member.map(MemberIndex),
            stripe: StripeIndex(self.stripe),
            rows: range(self.rows),
            array: range(self.array),
            repaired: self.repaired,
        })
    }
}
