//! Bytes of an array that may be wrong: they are, or were, computed from stripes that a scrub found inconsistent.

use strake_engine::{ScrubFinding, ScrubVerdict};
use strake_raid::Geometry;
use strake_units::{ByteSize, Lba, LbaRange, MemberIndex, MemberSet};

use crate::limits::SUSPECT_RANGES_MAX;

/// Strips of a finding that are looked at one by one; a longer one counts from its first block to its last.
const STRIPS_MAX: u64 = 64;

/// The ranges of bytes, as offset and length in ascending order, in which blocks of the members `out` may be computed
/// wrongly: what a scrub found in their stripes is not repaired. What is wrong on a member that is out harms none,
/// because nothing is computed from it. `unlisted` findings may be anywhere.
pub(crate) fn suspect_without(
    out: MemberSet,
    findings: &[ScrubFinding],
    unlisted: bool,
    geometry: &Geometry,
) -> Vec<(u64, u64)> {
    let size = geometry.block_size();
    if out.is_empty() || geometry.redundancy(MemberSet::EMPTY).is_none_or(|left| left == 0) {
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

/// Whether a finding is about blocks that do not fit together. Blocks that cannot be read are listed as lost elsewhere.
pub(crate) fn is_unsettled(finding: &ScrubFinding) -> bool {
    !finding.repaired && finding.verdict != ScrubVerdict::Unreadable
}

/// The blocks of the array that `member` holds in the rows of `finding`, which are computed without it.
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
            // Of copies, a finding concerns those of one strip.
            let start = data.0.max(finding.array.start.0);
            let stop = (data.0 + end - at).min(finding.array.end().0);
            if start < stop {
                ranges.push(LbaRange::new(Lba(start), stop - start));
            }
        }
        at = end;
    }
}

/// Ranges in ascending order without overlap, at most [`SUSPECT_RANGES_MAX`]. If there are more, the last range extends
/// to the end of all of them.
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

/// Whether a range has all bytes of another one.
pub(crate) const fn holds(range: (u64, u64), other: (u64, u64)) -> bool {
    range.0 <= other.0 && other.0 + other.1 <= range.0 + range.1
}

/// How many bytes ranges have.
pub(crate) fn total(ranges: &[(u64, u64)]) -> u64 {
    ranges.iter().map(|&(_, bytes)| bytes).sum()
}

/// Ranges, for a person: how much it is, and where it begins.
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
