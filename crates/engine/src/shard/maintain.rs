//! Resync and rebuild of one band: as one plan, or column by column if blocks cannot be reconstructed.

use std::ops::Range;

use strake_block::{Durability, IoError, IoErrorKind};
use strake_ondisk::BadEvent;
use strake_raid::{Band, Place, Plan, Purpose, Query, Scheme, Segment, Window, hull};
use strake_units::{PositionSet, StripSet};

use super::bad::{Columns, all_of, suspect_copies};
use super::members::Group;
use super::mend::{Ended, Excluded, LOST, Stuck, mend};
use super::{Shard, scratch};
use crate::message::{BadNote, Origin};
use crate::trace::Stages;

const NONE: PositionSet = PositionSet::EMPTY;

/// Resynchronizes or rebuilds one band.
pub(super) async fn maintain(
    shard: &Shard,
    group: Group,
    band: Band,
    purpose: Purpose,
    origin: Origin,
) {
    let strips = 0..shard.geometry.data_strips();
    let result = maintain_strips(shard, group, (band, &[][..], strips.clone()), purpose).await;
    if purpose == Purpose::Resync && result.is_ok() {
        note_agreed(shard, band, strips);
    }
    shard.finish(origin, result, None, &Stages::NONE);
}

/// Makes the copies of a strip in the band consistent, as a resync does: the copies of the strip of `wanted`. If blocks
/// are bad, or the table has no space to record the strip, only the blocks of `wanted` are made consistent.
///
/// If the resync has already finished the region, the region's bit may be cleared while this task writes. Unlisted
/// copies then contain what is written. Listed copies may not, and copies that are out of reach are hidden.
pub(super) async fn agree(
    shard: &Shard,
    group: Group,
    band: Band,
    wanted: Segment,
) -> Result<(), IoError> {
    let strips = wanted.strip..wanted.strip + 1;
    let part = shard.agreed.borrow().part(&shard.geometry, band, wanted.strip);
    if let Some(part) = part.filter(|_| shard.bad_positions(band, shard.whole(band)).is_empty()) {
        let whole = (band, &[part][..], strips.clone());
        match maintain_strips(shard, group, whole, Purpose::Resync).await {
            // The list of bad blocks is full. Other bad blocks of the band do not affect the wanted blocks.
            Err(error) if error.kind == IoErrorKind::NoSpace => {}
            ended => {
                if ended.is_ok() {
                    note_agreed(shard, band, strips);
                }
                return ended;
            }
        }
    }
    let columns = (band, Window::of(&wanted), strips);
    // A good block that stays on the full list is compared again when it is read again.
    let (lost, _) = work_by_columns(shard, group, columns, Purpose::Resync).await?;
    match shard.note_bad(lost).await {
        // No copy of a block was readable, and the full list cannot contain the block. If the block becomes readable
        // later, no comparison has checked it.
        Err(error) if error.kind == IoErrorKind::NoSpace => Err(IoError::new(IoErrorKind::Medium)),
        noted => noted,
    }
}

/// Records that copies of `strips` of the band are consistent although the region is not trusted. Blocks on the list of
/// bad blocks may differ, as in a trusted region: a read of such a block writes the result to the other copies.
pub(super) fn note_agreed(shard: &Shard, band: Band, strips: Range<u8>) {
    let region = shard.regions.region_of(band.stripe);
    if shard.copies_may_differ.get() && !shard.region_table.borrow().trusted(region) {
        shard.agreed.borrow_mut().note(&shard.geometry, band, strips);
    }
}

/// Resynchronizes or rebuilds `segments`, which are all in `strips`, or the whole band without segments.
async fn maintain_strips(
    shard: &Shard,
    group: Group,
    (band, segments, strips): (Band, &[Segment], Range<u8>),
    purpose: Purpose,
) -> Result<(), IoError> {
    match maintain_window(shard, group, band, (segments, NONE), purpose).await {
        Ended::Done(result) => result,
        Ended::Stuck(stuck) if !stuck.by_blocks() => Err(LOST),
        Ended::Stuck(_) => {
            let window = if segments.is_empty() { shard.whole(band) } else { hull(segments) };
            let columns = (band, window, strips);
            Box::pin(maintain_by_columns(shard, group, columns, purpose)).await
        }
    }
}

/// Fills blocks that the rebuild of their member could not fill, in columns that are readable now.
pub(super) async fn heal(shard: &Shard, group: Group, band: Band, segments: &[Segment]) {
    let targets = shard.hidden_positions(band, hull(segments));
    if !targets.is_empty() {
        // Blocks that still cannot be filled stay on the list.
        let _ = maintain_window(shard, group, band, (segments, NONE), Purpose::Rebuild { targets })
            .await;
    }
}

/// Reconstructs one unreadable column of the member at `position` from the rest of its stripe, or records the column as
/// lost.
pub(super) async fn recover_column(
    shard: &Shard,
    group: Group,
    band: Band,
    window: Window,
    position: u8,
) -> Result<(), IoError> {
    let segments: Vec<Segment> = (0..shard.geometry.data_strips())
        .map(|strip| segment(shard, band, window, strip))
        .collect();
    let unreadable = PositionSet::of(position);
    let purpose = Purpose::Rebuild { targets: unreadable };
    match maintain_window(shard, group, band, (&segments, unreadable), purpose).await {
        Ended::Done(result) => result,
        Ended::Stuck(_) => {
            let place = all_of(position, window);
            shard.note_bad(vec![shard.bad_note(band, &place, BadEvent::Hollow)]).await
        }
    }
}

/// Resynchronizes or rebuilds the columns of `segments`, or the whole band without segments, as one plan. The second
/// part of the argument contains positions that are known to be unreadable.
pub(super) async fn maintain_window(
    shard: &Shard,
    group: Group,
    band: Band,
    (segments, unreadable): (&[Segment], PositionSet),
    purpose: Purpose,
) -> Ended {
    loop {
        let ended = try_window(shard, group, band, (segments, unreadable), purpose).await;
        if let Some(ended) = ended {
            return ended;
        }
    }
}

/// Like `maintain_window`, but returns `None` if a member that missed a part of the work was replaced meanwhile. The
/// caller must try again.
async fn try_window(
    shard: &Shard,
    group: Group,
    band: Band,
    (segments, unreadable): (&[Segment], PositionSet),
    purpose: Purpose,
) -> Option<Ended> {
    let window = if segments.is_empty() { shard.whole(band) } else { hull(segments) };
    let apart = purpose == Purpose::Resync && window.blocks > 1;
    let mut excluded = Excluded::over(shard, band, window);
    excluded.unreadable |= unreadable;
    if matches!(purpose, Purpose::Rebuild { .. }) {
        excluded.avoided = suspect_copies(shard, band, window);
    }
    let since = shard.members.borrow().membership_epoch();
    loop {
        let health = excluded.apply(shard.health(band));
        let purpose = match purpose {
            Purpose::Rebuild { targets } if targets.is_subset(health.absent) => {
                return Some(Ended::Done(Ok(())));
            }
            Purpose::Rebuild { targets } => Purpose::Rebuild { targets: targets - health.absent },
            Purpose::Resync => Purpose::Resync,
            Purpose::Read | Purpose::Write => unreachable!("maintenance does not serve hosts"),
        };
        if apart && shard.lacks_data(band, excluded) {
            // Rows that are readable must not be reconstructed from parity that may be inconsistent.
            return Some(Ended::Stuck(Stuck { blocks: excluded.unreadable, health }));
        }
        let query = Query { band, health, segments, purpose, copy_hint: 0 };
        let Ok(plan) = strake_raid::plan(&shard.geometry, &query) else {
            if !std::mem::take(&mut excluded.avoided).is_empty() {
                continue;
            }
            return Some(Ended::Stuck(Stuck { blocks: excluded.unreadable, health }));
        };
        if plan.writes.is_empty() {
            // The content of a member whose read failed was not compared. Reads may return this content until the
            // member is out of use.
            match missed(shard, band, excluded.absent, since).await {
                Ok(Missed::Out) => return Some(Ended::Done(Ok(()))),
                Ok(Missed::HandedOver) => return None,
                Err(error) => return Some(Ended::Done(Err(error))),
            }
        }
        let bad = !shard.bad_positions(band, window).is_empty();
        let durability = if bad { Durability::Fua } else { Durability::Normal };
        let Some(mut loan) = shard.borrow(&plan).await else { return Some(Ended::Done(Err(LOST))) };
        if excluded.apply(shard.health(band)) != health {
            // A member went out or was replaced while this task waited for memory, so the plan is obsolete.
            scratch::end(&shard.scratch, loan);
            continue;
        }
        let outcome = match shard.read_all(group, band, &plan, &mut loan).await {
            Err(failed) => {
                excluded.learn(failed);
                None
            }
            Ok(reads) => {
                Some(shard.rewrite(group, band, (&plan, durability), reads, &mut loan).await)
            }
        };
        scratch::end(&shard.scratch, loan);
        let Some(failed) = outcome else {
            if !apart {
                mend(shard, group, band, plan.window, &mut excluded).await;
            }
            continue;
        };
        if let Err(error) = shard.expel_replacement(failed.replacement).await {
            return Some(Ended::Done(Err(error)));
        }
        // Members whose reads failed may differ from their reconstructed content, so they must be out of use too.
        match missed(shard, band, failed.any() | excluded.absent, since).await {
            Ok(Missed::Out) if bad => {}
            Ok(Missed::HandedOver) => return None,
            ended => return Some(Ended::Done(ended.map(|_| ()))),
        }
        // In other regions, members that are out lack the region, and a rebuild fills the region when they return. The
        // check happens here because the resync may have ended, and the bit of the region may have been cleared, before
        // the members went out.
        let trusted = shard.health(band).parity_trusted;
        if (matches!(purpose, Purpose::Rebuild { .. }) || trusted)
            && let Err(error) = Box::pin(hide_unread(shard, band, &plan, excluded)).await
        {
            return Some(Ended::Done(Err(error)));
        }
        let noted =
            shard.note_written(band, &plan, failed.any(), StripSet::EMPTY, BadEvent::Restored);
        return Some(Ended::Done(Box::pin(noted).await));
    }
}

/// Hides copies that were out of reach while listed blocks were copied to other copies, because they may differ now.
async fn hide_unread(
    shard: &Shard,
    band: Band,
    plan: &Plan,
    excluded: Excluded,
) -> Result<(), IoError> {
    let written: PositionSet = plan.writes.iter().map(|write| write.position).collect();
    let out_of_reach = excluded.unreadable | excluded.absent | shard.health(band).absent;
    let mut notes = Vec::new();
    for read in plan.reads.iter() {
        for at in (out_of_reach - written) & shard.copies_of(read.strip) {
            notes.extend(shard.hide_where_listed(band, read, at));
        }
    }
    shard.note_bad(notes).await
}

/// Resynchronizes or rebuilds `strips` column by column as far as possible, and records the rest as lost.
///
/// # Errors
/// If the array has failed, or the list of bad blocks is full. With a full list, all work that does not need the list
/// is done.
pub(super) async fn maintain_by_columns(
    shard: &Shard,
    group: Group,
    columns: (Band, Window, Range<u8>),
    purpose: Purpose,
) -> Result<(), IoError> {
    let (lost, full) = work_by_columns(shard, group, columns, purpose).await?;
    // Blocks that were not filled must be on the list before the band counts as done.
    shard.note_bad(lost).await.and(full)
}

/// Does the work column by column. Returns the lost blocks, and whether a good block stays on a full list.
async fn work_by_columns(
    shard: &Shard,
    group: Group,
    (band, window, strips): (Band, Window, Range<u8>),
    purpose: Purpose,
) -> Result<(Vec<BadNote>, Result<(), IoError>), IoError> {
    let mut left = Columns::new(window);
    let mut notes = Vec::new();
    let mut full = Ok(());
    while let Some(window) = left.next() {
        let segments: Vec<Segment> =
            strips.clone().map(|strip| segment(shard, band, window, strip)).collect();
        let done = match maintain_window(shard, group, band, (&segments, NONE), purpose).await {
            Ended::Done(result) => result,
            Ended::Stuck(stuck) if !stuck.by_blocks() => return Err(LOST),
            Ended::Stuck(_) if window.blocks > 1 => {
                left.halve(window);
                Ok(())
            }
            Ended::Stuck(stuck) => lose_column(shard, group, band, &segments, purpose, stuck)
                .await
                .map(|lost| notes.extend(lost)),
        };
        match done {
            // A full list does not affect the following columns.
            Err(error) if error.kind == IoErrorKind::NoSpace => full = Err(error),
            done => done?,
        }
    }
    Ok((notes, full))
}

/// Returns the rows of `window` in data strip `strip`.
pub(super) fn segment(shard: &Shard, band: Band, window: Window, strip: u8) -> Segment {
    let place = Place { stripe: band.stripe, strip, offset: window.offset };
    let lba = shard.geometry.lba(place);
    Segment { strip, offset: window.offset, blocks: window.blocks, lba }
}

/// Processes one column with blocks that cannot be reconstructed: does the rest, and returns the lost blocks.
async fn lose_column(
    shard: &Shard,
    group: Group,
    band: Band,
    segments: &[Segment],
    purpose: Purpose,
    stuck: Stuck,
) -> Result<Vec<BadNote>, IoError> {
    let mut notes = Vec::new();
    let mut note = |positions: PositionSet, event: BadEvent| {
        let place = |position| all_of(position, hull(segments));
        notes.extend(positions.iter().map(|at| shard.bad_note(band, &place(at), event)));
    };
    let data = shard.data_positions(band);
    match (purpose, shard.geometry.scheme()) {
        (Purpose::Rebuild { targets }, _) => {
            let targets = targets - stuck.health.absent;
            for target in targets.iter().map(PositionSet::of) {
                let one = Purpose::Rebuild { targets: target };
                match maintain_window(shard, group, band, (segments, NONE), one).await {
                    Ended::Done(result) => result?,
                    Ended::Stuck(_) => note(target, BadEvent::Hollow),
                }
            }
            note((stuck.blocks & data) - targets, BadEvent::Unreadable);
        }
        (Purpose::Resync, Scheme::Parity(_)) => {
            let parity = shard.geometry.all_positions() - data;
            note(parity - stuck.health.absent, BadEvent::Hollow);
            note(stuck.blocks & data, BadEvent::Unreadable);
        }
        (Purpose::Resync, Scheme::Copies(_)) => {
            for one in segments.chunks(1) {
                match maintain_window(shard, group, band, (one, NONE), purpose).await {
                    Ended::Done(result) => result?,
                    Ended::Stuck(stuck) => {
                        let copies = shard.copies_of(one[0].strip);
                        note(stuck.blocks & copies, BadEvent::Unreadable);
                    }
                }
            }
        }
        (Purpose::Read | Purpose::Write, _) => unreachable!("maintenance does not serve hosts"),
    }
    Ok(notes)
}

/// The outcome of members that missed a write, or failed a read.
enum Missed {
    /// All members are out of use.
    Out,
    /// The replacement of a member has the slot. Its content may differ from the content that was reconstructed for the
    /// old device.
    HandedOver,
}

/// Waits until the members at `positions` are out of use, or were replaced after `since`.
async fn missed(
    shard: &Shard,
    band: Band,
    positions: PositionSet,
    since: u64,
) -> Result<Missed, IoError> {
    shard.await_out_of_use(band.stripe, positions, since).await?;
    let handed_over = shard.handed_over(band.stripe, positions, since);
    Ok(if handed_over.is_empty() { Missed::Out } else { Missed::HandedOver })
}

impl Shard {
    /// Returns all columns of a band.
    fn whole(&self, band: Band) -> Window {
        Window { offset: self.geometry.band_offset(band), blocks: self.geometry.band_blocks() }
    }

    /// Returns the positions of the data strips in the band's stripe.
    pub(super) fn data_positions(&self, band: Band) -> PositionSet {
        (0..self.geometry.width()).filter(|at| self.holds_data(band, *at)).collect()
    }

    /// True if the level has parity and data strips have unreadable blocks.
    pub(super) fn lacks_data(&self, band: Band, excluded: Excluded) -> bool {
        !excluded.unreadable.is_empty()
            && self.geometry.parity_strips() > 0
            && excluded.unreadable.intersects(self.data_positions(band))
    }

    /// Returns the positions of the copies of `strip`; none with parity.
    pub(super) fn copies_of(&self, strip: u8) -> PositionSet {
        match self.geometry.scheme() {
            Scheme::Parity(_) => PositionSet::EMPTY,
            Scheme::Copies(_) => self.geometry.positions_of_copies(strip),
        }
    }
}
