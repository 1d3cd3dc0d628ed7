//! The list of bad blocks, and its meaning for the blocks of an array.

use std::sync::Arc;

use strake_ondisk::BadList;
use strake_raid::{Geometry, MemberState};
use strake_units::{Lba, LbaRange};

/// The list, and the sequence of its newest copy on the members (0 without a copy).
#[derive(Clone, Debug, Default)]
pub(crate) struct BadBlocks {
    pub(crate) list: Arc<BadList>,
    pub(crate) sequence: u64,
}

/// Returns the blocks of the array that are lost according to `list` while members have these states: sorted ranges
/// that are not adjacent. A block with copies is lost only if no copy in sync can show it.
pub(crate) fn array_ranges(
    list: &BadList,
    geometry: &Geometry,
    states: &[MemberState],
) -> Vec<LbaRange> {
    let mut ranges = Vec::new();
    for run in list.runs() {
        let (mut at, end) = (run.start.0, run.range().end().0);
        while at < end {
            let strip = u64::from(geometry.strip_blocks());
            let next = ((at / strip + 1) * strip).min(end);
            let data = geometry.data_at(run.member, Lba(at));
            let data = data.map(|start| LbaRange::new(start, next - at));
            ranges.extend(data.into_iter().flat_map(|r| in_no_copy(list, geometry, states, r)));
            at = next;
        }
    }
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<LbaRange> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end() => {
                let end = range.end().0.max(last.end().0);
                last.blocks = end - last.start.0;
            }
            Some(_) | None => joined.push(range),
        }
    }
    joined
}

/// Returns the parts of `range`, which is in one strip, that no copy in sync can show.
fn in_no_copy(
    list: &BadList,
    geometry: &Geometry,
    states: &[MemberState],
    range: LbaRange,
) -> Vec<LbaRange> {
    let mut lost = vec![range];
    if geometry.copies() == 1 {
        return lost;
    }
    let place = geometry.place(range.start);
    let row = geometry.member_lba(place.stripe, place.offset);
    let copies = (0..geometry.copies()).map(|copy| geometry.data_member(place, copy));
    for member in copies.filter(|member| states[member.at()] == MemberState::InSync) {
        let bad = list.within(member, LbaRange::new(row, range.blocks));
        let bad: Vec<_> = bad.map(|run| (run.start.0.max(row.0), run.range().end().0)).collect();
        let both = |lost: &LbaRange| {
            let (from, to) = (lost.start.0, lost.end().0);
            let array = move |at: u64| at - row.0 + range.start.0;
            let common =
                bad.iter().map(move |(first, end)| (array(*first).max(from), array(*end).min(to)));
            common.filter(|(from, to)| from < to).collect::<Vec<_>>()
        };
        let common = lost.iter().flat_map(both);
        lost = common.map(|(from, to)| LbaRange::new(Lba(from), to - from)).collect();
    }
    lost
}
