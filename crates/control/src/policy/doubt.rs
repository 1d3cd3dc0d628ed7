//! Bytes of an array that may be wrong, because they are, or were, computed from stripes that a scrub found
//! inconsistent.

use strake_engine::{ScrubFinding, ScrubVerdict};
use strake_raid::Geometry;
use strake_units::{ByteSize, Lba, LbaRange, MemberIndex, MemberSet};

use crate::limits::SUSPECT_RANGES_MAX;
use crate::policy::scrub::has_redundancy;

/// Maximum number of strips of a finding that are examined separately. A longer finding counts from its first block to
/// its last block.
const STRIPS_MAX: u64 = 64;

/// The ranges of bytes, as offset and length in ascending order, in which blocks of the members `out` may be computed
/// wrongly, because a scrub found errors in their stripes that are not repaired. An error on a member that is out has
/// no effect, because no block is computed from this member. `unlisted` findings may be in any stripe.
pub(crate) fn suspect_without(
    out: MemberSet,
    findings: &[ScrubFinding],
    unlisted: bool,
    geometry: &Geometry,
) -> Vec<(u64, u64)> {
    let size = geometry.block_size();
    if out.is_empty() || !has_redundancy(geometry) {
        return Vec::new();
    }
    if unlisted {
        return vec![(0, geometry.capacity_blocks() << size.shift())];
    }
    let harms = |finding: &&ScrubFinding| {
        let is_used = finding.member.is_none_or(|wrong| !out.contains(wrong));
        is_unsettled(finding) && is_used
    };
    let mut ranges = Vec::new();
    for finding in findings.iter().filter(harms) {
        let group = geometry.group(finding.stripe);
        let width = usize::from(geometry.width());
        for member in out.iter().filter(|member| member.at() / width == group) {
            computed(finding, member, geometry, &mut ranges);
        }
    }
    joined(ranges.iter().map(|r| (r.start.bytes(size), r.blocks << size.shift())).collect())
}

/// True if a finding concerns inconsistent blocks. Unreadable blocks are recorded in the bad block list.
pub(crate) fn is_unsettled(finding: &ScrubFinding) -> bool {
    !finding.repaired && finding.verdict != ScrubVerdict::Unreadable
}

/// Adds the blocks of the array that `member` holds in the rows of `finding`. If the member is absent, they are
/// computed.
fn computed(
    finding: &ScrubFinding,
    member: MemberIndex,
    geometry: &Geometry,
    ranges: &mut Vec<LbaRange>,
) {
    let (rows, strip) = (finding.rows, u64::from(geometry.strip_blocks()));
    if rows.blocks / strip > STRIPS_MAX {
        ranges.push(finding.array);
        return;
    }
    let mut at = rows.start.0;
    while at < rows.end().0 {
        let end = rows.end().0.min((at / strip + 1) * strip);
        if let Some(data) = geometry.data_at(member, Lba(at)) {
            // If the scheme has copies, a finding concerns the copies of one strip.
            let start = data.0.max(finding.array.start.0);
            let stop = (data.0 + end - at).min(finding.array.end().0);
            if start < stop {
                ranges.push(LbaRange::new(Lba(start), stop - start));
            }
        }
        at = end;
    }
}

/// Returns the ranges in ascending order without overlap, at most [`SUSPECT_RANGES_MAX`]. If there are more, the last
/// range extends to the end of all of them.
pub(crate) fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut all: Vec<(u64, u64)> = Vec::new();
    for (start, bytes) in ranges {
        let end = start + bytes;
        let is_full = all.len() == SUSPECT_RANGES_MAX;
        match all.last_mut().filter(|last| is_full || start <= last.0 + last.1) {
            Some(last) => last.1 = last.1.max(end - last.0),
            None => all.push((start, bytes)),
        }
    }
    all
}

/// True if `range` contains all bytes of `other`.
pub(crate) const fn holds(range: (u64, u64), other: (u64, u64)) -> bool {
    range.0 <= other.0 && other.0 + other.1 <= range.0 + range.1
}

/// Returns the number of bytes of the ranges.
pub(crate) fn total(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|&(_, bytes)| bytes).sum()
}

/// Describes ranges for the operator: their number of bytes, and their first offsets.
pub(crate) fn words(ranges: &[(u64, u64)]) -> String {
    const SHOWN: usize = 4;
    let shown = ranges.iter().take(SHOWN).map(|(start, bytes)| format!("{start}+{bytes}"));
    let mut shown: Vec<String> = shown.collect();
    if ranges.len() > SHOWN {
        shown.push(format!("{} more", ranges.len() - SHOWN));
    }
    format!("{} (at byte offset+length {})", ByteSize(total(ranges)), shown.join(", "))
}

#[cfg(test)]
mod tests;
