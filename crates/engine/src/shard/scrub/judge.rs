//! Comparison of strips, and location of wrong strips.
//!
//! Each column of 4 KiB gets its own verdict, because different strips may be wrong in different columns. This module
//! does no I/O.

use arrayvec::ArrayVec;
use strake_block::BufMut;
use strake_parity::{Verdict, first_difference};
use strake_raid::{Band, Geometry, Role, Window};
use strake_units::PositionSet;

use super::Seen;
use crate::limits::SCRUB_COLUMN_BYTES;
use crate::shard::Shard;
use crate::shard::execute::ReadBufs;

/// Rows with mismatching strips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) window: Window,
    /// The data strip whose copies differ; none with parity.
    pub(super) strip: Option<u8>,
    /// The wrong positions; empty if they cannot be determined.
    pub(super) positions: PositionSet,
}

/// The bytes of a stripe's strips in some rows.
pub(super) struct Strips<'a> {
    band: Band,
    window: Window,
    /// By position.
    bytes: [Option<&'a [u8]>; 64],
}

impl<'a> Strips<'a> {
    /// Creates the strips from `bufs`, which contains the positions in `there` in order.
    pub(super) fn new(
        (band, window): (Band, Window),
        there: PositionSet,
        bufs: &'a ReadBufs,
    ) -> Self {
        let mut bytes = [None; 64];
        for (position, buf) in there.iter().zip(bufs) {
            bytes[usize::from(position)] = Some(buf.as_slice());
        }
        Self { band, window, bytes }
    }

    fn len(&self) -> usize {
        self.bytes.iter().flatten().next().map_or(0, |bytes| bytes.len())
    }

    /// Returns the strips in fewer rows.
    fn column(&self, from: usize, to: usize, shift: u32) -> Self {
        let window = Window {
            offset: self.window.offset + (from >> shift) as u32,
            blocks: ((to - from) >> shift) as u32,
        };
        Self {
            band: self.band,
            window,
            bytes: self.bytes.map(|bytes| bytes.map(|bytes| &bytes[from..to])),
        }
    }

    /// Returns the bytes by strip: first data, then parity.
    fn by_strip(&self, geometry: &Geometry) -> [Option<&'a [u8]>; 64] {
        let mut strips = [None; 64];
        for position in 0..geometry.width() {
            let strip = match geometry.role(self.band.stripe, position) {
                Role::Data { strip, .. } => strip,
                Role::Parity { index } => geometry.data_strips() + index,
            };
            strips[usize::from(strip)] = self.bytes[usize::from(position)];
        }
        strips
    }
}

/// Compares the strips. `targets` contains a buffer for every surplus strip, unless all strips were read. The buffers
/// are returned.
pub(super) fn judge(shard: &Shard, strips: &Strips<'_>, mut targets: ReadBufs) -> (Seen, ReadBufs) {
    let (compared, wrong) = if shard.geometry.parity_strips() == 0 {
        copies(&shard.geometry, strips)
    } else {
        parity(shard, strips, &mut targets)
    };
    (Seen { unreadable: PositionSet::EMPTY, compared, wrong }, targets)
}

/// Calls `verdict` for each column, and merges adjacent columns with the same verdict.
fn by_columns(
    strips: &Strips<'_>,
    shift: u32,
    mut verdict: impl FnMut(&Strips<'_>) -> Option<PositionSet>,
) -> Vec<Wrong> {
    let mut found: Vec<Wrong> = Vec::new();
    for from in (0..strips.len()).step_by(SCRUB_COLUMN_BYTES) {
        let to = strips.len().min(from + SCRUB_COLUMN_BYTES);
        let column = strips.column(from, to, shift);
        let Some(positions) = verdict(&column) else { continue };
        match found.last_mut() {
            Some(last) if last.positions == positions && last.window.touches(column.window) => {
                last.window = last.window.with(column.window);
            }
            Some(_) | None => {
                found.push(Wrong { window: column.window, strip: None, positions });
            }
        }
    }
    found
}

/// Compares the copies of each strip. The majority counts as right.
fn copies(geometry: &Geometry, strips: &Strips<'_>) -> (bool, Vec<Wrong>) {
    let shift = geometry.block_size().shift();
    let (mut compared, mut wrong) = (true, Vec::new());
    for strip in 0..geometry.data_strips() {
        let copies = geometry.positions_of_copies(strip);
        let there = || copies.iter().filter_map(|at| strips.bytes[usize::from(at)]);
        compared &= there().count() > 1;
        let Some(one) = there().next() else { continue };
        if there().all(|other| first_difference(one, other).is_none()) {
            continue;
        }
        let differing = by_columns(strips, shift, |column| minority(column, copies));
        wrong.extend(differing.into_iter().map(|w| Wrong { strip: Some(strip), ..w }));
    }
    (compared, wrong)
}

/// Returns the positions of the copies that differ from the majority; an empty set without a majority; `None` if all
/// copies are equal.
fn minority(column: &Strips<'_>, copies: PositionSet) -> Option<PositionSet> {
    let there: ArrayVec<(u8, &[u8]), 64> =
        copies.iter().filter_map(|at| Some((at, column.bytes[usize::from(at)]?))).collect();
    let like = |bytes: &[u8]| {
        let same = there.iter().filter(|(_, other)| first_difference(bytes, other).is_none());
        same.map(|(at, _)| at).collect::<PositionSet>()
    };
    let all: PositionSet = there.iter().map(|(at, _)| at).collect();
    let most = there.iter().map(|(_, bytes)| like(bytes)).max_by_key(|same| same.len())?;
    if most == all {
        return None;
    }
    let majority = 2 * most.len() > there.len();
    Some(if majority { all - most } else { PositionSet::EMPTY })
}

/// Compares parity with data.
fn parity(shard: &Shard, strips: &Strips<'_>, targets: &mut ReadBufs) -> (bool, Vec<Wrong>) {
    let geometry = &shard.geometry;
    let shift = geometry.block_size().shift();
    let all = strips.by_strip(geometry);
    let there = all.iter().flatten().count();
    let surplus = there.saturating_sub(usize::from(geometry.data_strips()));
    if surplus == 0 {
        return (false, Vec::new());
    }
    if there == usize::from(geometry.width()) {
        if verdict(shard, strips) == Verdict::Clean {
            return (true, Vec::new());
        }
        return (true, by_columns(strips, shift, |column| located(shard, column)));
    }
    if fits(shard, &all, None, targets) {
        return (true, Vec::new());
    }
    (true, by_columns(strips, shift, |column| located_without_some(shard, column, targets)))
}

/// Returns the verdict of the parities, if all strips were read.
fn verdict(shard: &Shard, strips: &Strips<'_>) -> Verdict {
    let code = shard.code.as_ref().expect("a scheme with parity has a code");
    let all: ArrayVec<&[u8], 64> = strips.by_strip(&shard.geometry).into_iter().flatten().collect();
    let (data, parity) = all.split_at(code.data());
    strake_parity::check(code, data, parity).expect("strips are equally long")
}

/// Returns the wrong positions in one column; an empty set if they cannot be determined; `None` if parity matches.
fn located(shard: &Shard, column: &Strips<'_>) -> Option<PositionSet> {
    let position = |strip: usize| {
        let stripe = column.band.stripe;
        PositionSet::of(shard.position_of_strip(stripe, strip as u8))
    };
    match verdict(shard, column) {
        Verdict::Clean => None,
        Verdict::OneWrong(strip) => Some(position(strip)),
        Verdict::TwoWrong(one, other) => Some(position(one) | position(other)),
        Verdict::Inconsistent => Some(PositionSet::EMPTY),
    }
}

/// Returns the wrong positions like `located`, if strips are missing. With two surplus strips, a single wrong strip is
/// the only strip without which the other strips match. A second such strip would imply two stripes that differ in
/// fewer strips than the minimum distance of the code.
fn located_without_some(
    shard: &Shard,
    column: &Strips<'_>,
    targets: &mut ReadBufs,
) -> Option<PositionSet> {
    let all = column.by_strip(&shard.geometry);
    if fits(shard, &all, None, targets) {
        return None;
    }
    let surplus = all.iter().flatten().count() - usize::from(shard.geometry.data_strips());
    if surplus < 2 {
        return Some(PositionSet::EMPTY);
    }
    let suspects = (0..64u8).filter(|strip| all[usize::from(*strip)].is_some());
    let mut guilty = suspects.filter(|strip| fits(shard, &all, Some(*strip), targets));
    let position = |strip| shard.position_of_strip(column.band.stripe, strip);
    Some(guilty.next().map(position).into_iter().collect())
}

/// True if the readable strips without `suspect` are consistent: the others match the content computed from k of them.
fn fits(
    shard: &Shard,
    all: &[Option<&[u8]>; 64],
    suspect: Option<u8>,
    targets: &mut ReadBufs,
) -> bool {
    let k = usize::from(shard.geometry.data_strips());
    let trusted: ArrayVec<u8, 64> = (0..64u8)
        .filter(|strip| all[usize::from(*strip)].is_some() && Some(*strip) != suspect)
        .collect();
    let (known, wanted) = trusted.split_at(k);
    let bytes = |strip: &u8| all[usize::from(*strip)].expect("it is there");
    let sources: ArrayVec<&[u8], 64> = known.iter().map(bytes).collect();
    let length = sources.first().map_or(0, |bytes| bytes.len());
    let mut computed: ArrayVec<&mut [u8], 64> = targets
        .iter_mut()
        .take(wanted.len())
        .map(|buf: &mut BufMut| &mut buf.as_mut_slice()[..length])
        .collect();
    let recoveries = shard.recoveries.as_ref().expect("a scheme with parity recovers");
    let mut recoveries = recoveries.borrow_mut();
    let recovery = recoveries.get(known, wanted).expect("k strips are known");
    recovery.apply(&sources, &mut computed).expect("strips are equally long");
    computed.iter().zip(wanted).all(|(computed, strip)| {
        let stored = bytes(strip);
        first_difference(computed, stored).is_none()
    })
}
