//! Bytes of an array that may be wrong: they are, or were, computed from stripes that a scrub found inconsistent.

use strake_engine::{ScrubFinding, ScrubVerdict};
use strake_raid::Geometry;
use strake_units::{ByteSize, MemberSet};

use crate::limits::SUSPECT_RANGES_MAX;

/// The ranges of bytes, as offset and length in ascending order, in which blocks of the members `out` may be computed
/// wrongly: what a scrub found there is not repaired. What is wrong on a member that is out harms none: nothing is
/// computed from it. `unlisted` findings may be anywhere.
pub(crate) fn suspect_without(
    out: MemberSet,
    findings: &[ScrubFinding],
    unlisted: u64,
    geometry: &Geometry,
) -> Vec<(u64, u64)> {
    let size = geometry.block_size();
    if out.is_empty() || geometry.redundancy(MemberSet::EMPTY).is_none_or(|left| left == 0) {
        return Vec::new();
    }
    if unlisted > 0 {
        return vec![(0, geometry.capacity_blocks() << size.shift())];
    }
    let width = usize::from(geometry.width());
    let is_used = |finding: &ScrubFinding| {
        let group = geometry.group(finding.stripe);
        out.iter().any(|member| member.at() / width == group)
            && finding.member.is_none_or(|wrong| !out.contains(wrong))
    };
    let harms = |finding: &&ScrubFinding| {
        !finding.repaired && finding.verdict != ScrubVerdict::Unreadable && is_used(finding)
    };
    let range = |finding: &ScrubFinding| {
        (finding.array.start.bytes(size), finding.array.blocks << size.shift())
    };
    joined(findings.iter().filter(harms).map(range).collect())
}

/// Ranges in ascending order, each once, at most [`SUSPECT_RANGES_MAX`]: the last one reaches over all that have no
/// place of their own.
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
