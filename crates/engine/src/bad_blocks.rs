//! The list of bad blocks between the members and the leader, and what it means for the blocks of an array.

use std::sync::Arc;

use strake_ondisk::BadList;
use strake_raid::Geometry;
use strake_units::{Lba, LbaRange};

/// The list, and the sequence of its newest copy on the members (0 when there is none).
#[derive(Clone, Debug, Default)]
pub(crate) struct BadBlocks {
    pub(crate) list: Arc<BadList>,
    pub(crate) sequence: u64,
}

/// The blocks of the array that hold data in `list`, in order: ranges that neither overlap nor touch.
pub(crate) fn array_ranges(list: &BadList, geometry: &Geometry) -> Vec<LbaRange> {
    let mut ranges = Vec::new();
    for run in list.runs() {
        let (mut at, end) = (run.start.0, run.range().end().0);
        while at < end {
            let strip = u64::from(geometry.strip_blocks());
            let next = ((at / strip + 1) * strip).min(end);
            let data = geometry.data_at(run.member, Lba(at));
            ranges.extend(data.map(|start| LbaRange::new(start, next - at)));
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
