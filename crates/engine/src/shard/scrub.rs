//! The scrub of the regions of one shard: band by band, after resync and rebuild, at the speed of maintenance.

mod judge;
mod remedy;

use strake_block::{IoError, Op, SgMut};
use strake_raid::{Band, Geometry, Regions, Window};
use strake_units::{PositionSet, RegionIndex, StripeIndex};

use self::judge::{Strips, Wrong};
use super::Shard;
use super::bad::Columns;
use super::execute::{Failed, ReadBufs};
use super::members::{Group, IoSlot, settled};
use super::mend::{Excluded, LOST};
use super::rebuild::{all_back, hand_out, may_go};
use super::scratch::{self, Loan};
use crate::message::Work;
use crate::scrub::{ScrubOrder, ScrubReport};

/// The position of the scrub on this shard.
#[derive(Default)]
pub(crate) struct ScrubTable {
    order: Option<ScrubOrder>,
    /// The present region; `None` at the end.
    region: Option<RegionIndex>,
    /// The next band of this region; `None` after all bands were started.
    next: Option<Band>,
    /// True after this shard reported the end of its part.
    through: bool,
}

impl ScrubTable {
    /// True if a scrub is running and this shard has not finished its part.
    pub(crate) fn is_wanted(&self) -> bool {
        self.order.is_some_and(|order| order.runs) && !self.through
    }

    /// Moves to the first band of a region.
    fn enter(&mut self, region: Option<RegionIndex>, regions: &Regions) {
        let first = |region| StripeIndex(regions.stripes(region).start);
        self.region = region;
        self.next = region.map(|region| Band { stripe: first(region), index: 0 });
    }

    /// Returns the next band of the region and advances.
    fn take(&mut self, geometry: &Geometry, regions: &Regions) -> Option<(Band, ScrubOrder)> {
        let (band, order) = (self.next?, self.order?);
        let Band { stripe, index } = band;
        self.next = if index + 1 < geometry.bands_per_stripe() {
            Some(Band { stripe, index: index + 1 })
        } else {
            let after = StripeIndex(stripe.0 + 1);
            let inside = regions.stripes(regions.region_of(stripe)).contains(&after.0);
            inside.then_some(Band { stripe: after, index: 0 })
        };
        Some((band, order))
    }
}

/// Scrubs until all bands were checked, more urgent work appears, or the scrub or the shard stops. Returns false if no
/// maintenance work is left.
pub(super) async fn go_on(shard: &Shard) -> bool {
    let rests = || shard.stopping() || !shard.scrub.borrow().is_wanted();
    let gives_way = || rests() || shard.redundancy_wanted();
    while !gives_way() {
        may_go(shard, gives_way).await;
        if gives_way() {
            break;
        }
        let next = shard.scrub.borrow_mut().take(&shard.geometry, &shard.regions);
        match next {
            Some((band, order)) => hand_out(shard, band, Work::Scrub { order }),
            None => end_region(shard).await,
        }
    }
    all_back(&shard.window).await;
    // A band fails only if the array has failed, which every shard notices.
    let _ = shard.window.borrow_mut().take_error();
    !rests() || shard.redundancy_wanted()
}

/// Waits for the last bands of a region, records the region as scrubbed, and moves to the next region.
async fn end_region(shard: &Shard) {
    all_back(&shard.window).await;
    if shard.stopping() {
        return;
    }
    let mut table = shard.scrub.borrow_mut();
    let Some(order) = table.order.filter(|_| table.next.is_none()) else {
        // Another scrub was started meanwhile.
        return;
    };
    let done = table.region.take();
    let next = done.and_then(|region| shard.shared.scrubbed(shard.core, order.number, region));
    table.enter(next, &shard.regions);
    if next.is_none() {
        table.through = true;
        shard.shared.scrub_shard_done(order.number);
    }
}

/// Checks the parity or copies of one band, and repairs mismatches according to the mode.
///
/// # Errors
/// If the array has failed.
pub(super) async fn band(
    shard: &Shard,
    group: Group,
    band: Band,
    order: ScrubOrder,
) -> Result<(), IoError> {
    let geometry = &shard.geometry;
    let mut left =
        Columns::new(Window { offset: geometry.band_offset(band), blocks: geometry.band_blocks() });
    let mut report = ScrubReport::default();
    while let Some(window) = left.next() {
        let seen = look(shard, group, (band, window), NONE).await?;
        if !seen.unreadable.is_empty() && window.blocks > 1 {
            left.halve(window);
            continue;
        }
        let bytes = shard.bytes_of_rows(window) * u64::from(geometry.data_strips());
        let (checked, unchecked) = if seen.compared { (bytes, 0) } else { (0, bytes) };
        shard.shared.count_scrubbed(shard.core, order.number, checked, unchecked);
        if !seen.unreadable.is_empty() || !seen.wrong.is_empty() {
            remedy::settle(shard, group, (band, window), seen, order, &mut report).await?;
        }
    }
    if !report.findings.is_empty() {
        shard.shared.report_scrub(shard.core, order.number, &report, shard.now.get());
    }
    Ok(())
}

const NONE: PositionSet = PositionSet::EMPTY;

/// The result of a check of some rows of a band.
struct Seen {
    /// Positions with blocks that could not be read, or were never filled.
    unreadable: PositionSet,
    /// True if parity or another copy was available for a comparison.
    compared: bool,
    wrong: Vec<Wrong>,
}

impl Seen {
    const fn nothing(unreadable: PositionSet) -> Self {
        Self { unreadable, compared: false, wrong: Vec::new() }
    }
}

/// Reads rows of all strips except the positions in `without`, and compares the strips.
async fn look(
    shard: &Shard,
    group: Group,
    (band, window): (Band, Window),
    without: PositionSet,
) -> Result<Seen, IoError> {
    let geometry = &shard.geometry;
    let mut excluded = Excluded::default();
    excluded.unreadable = without;
    loop {
        let health = excluded.apply(shard.health(band));
        if !health.parity_trusted {
            return Ok(Seen::nothing(NONE));
        }
        let hidden = shard.hidden_positions(band, window) - without - health.absent;
        if !hidden.is_empty() {
            return Ok(Seen::nothing(hidden));
        }
        let all = geometry.all_positions();
        let there = all - health.absent - health.unreadable;
        let surplus = match geometry.parity_strips() {
            0 => 0,
            _ => there.len().saturating_sub(geometry.data_strips().into()),
        };
        // If strips are absent, the expected parity is computed in buffers.
        let computed = if there == all { 0 } else { surplus };
        let bytes = shard.bytes_of_rows(window) as usize;
        let count = there.len() + computed;
        let lost = || shard.shared.is_lost();
        let Some(mut loan) = scratch::borrow(&shard.scratch, count, bytes, lost).await else {
            return Err(LOST);
        };
        if excluded.apply(shard.health(band)) != health {
            // A member went out or was replaced while this task waited for memory.
            scratch::end(&shard.scratch, loan);
            continue;
        }
        let (bufs, failed) = read(shard, group, (band, window), there, &mut loan).await;
        let seen = match failed {
            Failed { member: NONE, slow: NONE, medium: NONE, .. } => {
                let strips = Strips::new((band, window), there, &bufs);
                let targets: ReadBufs = (0..computed).map(|_| loan.take(bytes)).collect();
                let (seen, targets) = judge::judge(shard, &strips, targets);
                scratch::give_back(&shard.scratch, targets);
                Some(seen)
            }
            Failed { member: NONE, slow: NONE, medium, .. } => Some(Seen::nothing(medium)),
            Failed { member, .. } => {
                excluded.absent |= member;
                None
            }
        };
        scratch::give_back(&shard.scratch, bufs);
        scratch::end(&shard.scratch, loan);
        if let Some(seen) = seen {
            return Ok(seen);
        }
        if shard.shared.is_lost() {
            return Err(LOST);
        }
    }
}

/// Reads rows of the strips at the positions in `there`. Failed reads return no buffer.
async fn read(
    shard: &Shard,
    group: Group,
    (band, window): (Band, Window),
    there: PositionSet,
    loan: &mut Loan,
) -> (ReadBufs, Failed) {
    let bytes = shard.bytes_of_rows(window) as usize;
    let at = shard.geometry.member_lba(band.stripe, window.offset);
    let mut slots = arrayvec::ArrayVec::<IoSlot, 64>::new();
    for position in there {
        let data = SgMut::from(loan.take(bytes));
        slots.push(shard.issue(group, band.stripe, position, Op::Read { at, data }));
    }
    settled(&shard.members, group).await;
    let (mut bufs, mut failed) = (ReadBufs::new(), Failed::default());
    for (position, slot) in there.iter().zip(slots) {
        let (op, result) = shard.members.borrow_mut().take(slot);
        if let Err(error) = result {
            shard.note_failure(&mut failed, band.stripe, position, error);
        }
        if let Some(Op::Read { data, .. }) = op {
            bufs.extend(data.into_parts());
        }
    }
    (bufs, failed)
}

impl Shard {
    /// Returns the bytes of one strip in the rows of `window`.
    fn bytes_of_rows(&self, window: Window) -> u64 {
        u64::from(window.blocks) << self.geometry.block_size().shift()
    }

    /// Applies changed settings of the scrub.
    pub(crate) fn scrub_changed(&self) {
        let order = self.shared.scrub_order();
        {
            let mut table = self.scrub.borrow_mut();
            let known = table.order.map(|order| order.number);
            if order.map(|order| order.number) != known {
                table.enter(self.shared.first_to_scrub(self.core), &self.regions);
                table.through = false;
            }
            table.order = order;
        }
        self.window.borrow_mut().look_again();
        self.start_maintenance();
    }
}
