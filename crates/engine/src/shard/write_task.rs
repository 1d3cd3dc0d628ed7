//! Writes of one band: as one plan, or column by column if blocks are bad.

use strake_block::{BufMut, Durability, IoError, Sg};
use strake_ondisk::BadEvent;
use strake_raid::{Band, Place, Plan, Purpose, Query, Segment, Strategy, Window, hull};
use strake_units::{PositionSet, StripSet};

use super::bad::{Columns, all_of};
use super::bands::WriteBatch;
use super::execute::{Parity, ReadBufs};
use super::maintain::{maintain_by_columns, note_agreed};
use super::members::Group;
use super::mend::{Ended, Excluded, LOST, Stuck, mend};
use super::redo::{Entry, Recorded};
use super::{Shard, band_task, regions, scratch};
use crate::trace::{Stage, Trail};

/// Executes one batch of writes and answers every write in it.
pub(super) async fn write(shard: &Shard, group: Group, band: Band, batch: &mut WriteBatch) {
    batch.trail.set(Trail::begin(Stage::Intent, shard.now.get()));
    let result = write_batch(shard, group, band, batch).await;
    let ended = band_task::ended(shard, group, &batch.trail.get());
    for item in batch.items.drain(..) {
        shard.finish(item.origin, result, None, &ended.of(&item.arrival));
    }
}

async fn write_batch(
    shard: &Shard,
    group: Group,
    band: Band,
    batch: &WriteBatch,
) -> Result<(), IoError> {
    if shard.may_skip(band, batch) {
        return Ok(());
    }
    let region = shard.regions.region_of(band.stripe);
    regions::enter(&shard.region_table, region, || shard.ask_write_intent(region)).await?;
    band_task::enter_write(shard, group, batch, Stage::Queued);
    let writer = shard.redo.borrow_mut().writes(shard.members.borrow().membership_epoch());
    let result = write_in_region(shard, group, band, batch).await;
    shard.redo.borrow_mut().wrote(writer);
    shard.region_table.borrow_mut().leave(region);
    if result.is_ok() && shard.copies_may_differ.get() {
        let whole = |segment: &&Segment| segment.blocks == shard.geometry.band_blocks();
        for Segment { strip, .. } in batch.segments.iter().filter(whole) {
            note_agreed(shard, band, *strip..strip + 1);
        }
    }
    result
}

/// Writes in a region whose write-intent bit is stable.
async fn write_in_region(
    shard: &Shard,
    group: Group,
    band: Band,
    batch: &WriteBatch,
) -> Result<(), IoError> {
    if shard.bad_positions(band, hull(&batch.segments)).is_empty() {
        match write_window(shard, group, band, batch).await {
            Ended::Done(result) => return result,
            Ended::Stuck(stuck) if !stuck.by_blocks() => return Err(LOST),
            Ended::Stuck(_) => {}
        }
    }
    Box::pin(write_by_columns(shard, group, band, batch)).await
}

/// Executes the batch as one plan, if the remaining strips of the stripe suffice.
async fn write_window(shard: &Shard, group: Group, band: Band, batch: &WriteBatch) -> Ended {
    let mut excluded = Excluded::over(shard, band, hull(&batch.segments));
    let mut since = shard.members.borrow().membership_epoch();
    let mut agrees = false;
    let mut plan = Plan::new();
    loop {
        band_task::begin_write(shard, group, batch);
        let health = excluded.apply(shard.health(band));
        agrees |= health.parity_trusted;
        if !agrees && shard.lacks_data(band, excluded) {
            // The reconstruction below depends on parity, so parity must be made consistent first.
            let columns = (band, hull(&batch.segments), 0..shard.geometry.data_strips());
            let resync = maintain_by_columns(shard, group, columns, Purpose::Resync);
            if let Err(error) = Box::pin(resync).await {
                return Ended::Done(Err(error));
            }
            // Unreadable blocks were rewritten meanwhile, or are on the list.
            excluded.unreadable = shard.hidden_positions(band, hull(&batch.segments));
            agrees = true;
            continue;
        }
        let query = Query {
            band,
            health,
            segments: &batch.segments,
            purpose: Purpose::Write,
            copy_hint: 0,
        };
        if strake_raid::plan_into(&shard.geometry, &query, &mut plan).is_err() {
            return Ended::Stuck(Stuck { blocks: excluded.unreadable, health });
        }
        let logged = shard.is_logged(band.stripe);
        let Some(mut loan) = shard.borrow(&plan).await else {
            return Ended::Done(Err(LOST));
        };
        if excluded.apply(shard.health(band)) != health || shard.is_logged(band.stripe) != logged {
            // A member went out or was replaced while this task waited for memory, so the plan is obsolete.
            scratch::end(&shard.scratch, loan);
            continue;
        }
        band_task::enter_write(shard, group, batch, Stage::Read);
        let mut reads = match shard.read_all(group, band, &plan, &mut loan).await {
            Ok(reads) => reads,
            Err(failed) => {
                scratch::end(&shard.scratch, loan);
                excluded.learn(failed);
                band_task::retry_write(shard, group, batch);
                if agrees {
                    mend(shard, group, band, plan.window, &mut excluded).await;
                }
                continue;
            }
        };
        let parity = match plan.strategy {
            Strategy::Direct | Strategy::FullStripe
                if !logged && shard.writes_nothing(&plan, batch) =>
            {
                None
            }
            Strategy::Direct => Some(ReadBufs::new()),
            Strategy::ReadModifyWrite => Some(shard.modify(&plan, batch, &mut reads)),
            Strategy::FullStripe | Strategy::ReconstructWrite | Strategy::Degraded => {
                let mut recovered = shard.recover(&plan, &reads, &mut loan);
                Some(shard.encode(&plan, batch, (&mut reads, &mut recovered), &mut loan))
            }
        };
        scratch::end(&shard.scratch, loan);
        let mut parity =
            parity.map(|bufs| bufs.into_iter().map(BufMut::freeze).collect::<Parity>());
        let mut entry = None;
        if logged {
            band_task::enter_write(shard, group, batch, Stage::Log);
            let known = (excluded.absent, since);
            match record(shard, group, (band, &plan), (batch, &mut parity), known).await {
                Step::On(recorded) => entry = Some(recorded),
                Step::Again => {
                    band_task::retry_write(shard, group, batch);
                    excluded = Excluded::over(shard, band, hull(&batch.segments));
                    since = shard.members.borrow().membership_epoch();
                    continue;
                }
                Step::Ended(error) => return Ended::Done(Err(error)),
            }
        }
        // The data must be stable on the members before the record is released.
        let cached = !shard.members.borrow().to_flush().is_empty();
        let durability = if entry.is_some() && cached { Durability::Fua } else { batch.durability };
        band_task::enter_write(shard, group, batch, Stage::Write);
        let failed = shard.write_all(group, band, &plan, (batch, durability), parity).await;
        if let Err(error) = shard.expel_replacement(failed.replacement).await {
            return Ended::Done(Err(error));
        }
        // Members that were excluded because a read failed were not written either. Both kinds are stale in this band,
        // and must be out of use everywhere before the host gets the answer. This also applies to members that are
        // already out of use here, as long as another shard may read their stale blocks.
        let missed = failed.any() | health.absent;
        let out = shard.await_out_of_use(band.stripe, missed, since).await;
        if let Some(entry) = entry {
            shard.redo.borrow_mut().done(entry);
        }
        let handed = shard.handed_over(band.stripe, health.absent, since);
        if out.is_ok() && !handed.is_empty() {
            band_task::retry_write(shard, group, batch);
            // The old device was excluded, and now its replacement has the slot, but missed the write too. Parity
            // already contains the new data, so the whole strip must be written, not a difference.
            excluded = Excluded::over(shard, band, plan.window);
            excluded.unreadable |= handed;
            agrees = true;
            since = shard.members.borrow().membership_epoch();
            continue;
        }
        if out.is_err() || shard.no_bad_blocks() {
            return Ended::Done(out);
        }
        let (failed, zeroed) = (failed.any(), batch.zeroed);
        let noted = shard.note_written(band, &plan, failed, zeroed, BadEvent::Written);
        return Ended::Done(Box::pin(noted).await);
    }
}

/// The next step after the attempt to record a write.
enum Step {
    /// The write is recorded.
    On(Entry),
    /// Members have gone out, so the write must be planned again.
    Again,
    /// The array has stopped.
    Ended(IoError),
}

/// Records the writes of `plan`. Members that are excluded because they failed a read must be out of use everywhere
/// first, because the record is valid without them.
async fn record(
    shard: &Shard,
    group: Group,
    (band, plan): (Band, &Plan),
    (batch, parity): (&WriteBatch, &mut Option<Parity>),
    (absent, since): (PositionSet, u64),
) -> Step {
    let written = parity.as_ref().map_or(&[][..], Parity::as_slice);
    let mut gone = absent;
    if absent.is_empty() {
        match shard.record_write(group, band, plan, (batch, written)).await {
            Recorded::Entry(entry) => return Step::On(entry),
            Recorded::Failed(failed) => {
                if let Err(error) = shard.expel_replacement(failed.replacement).await {
                    return Step::Ended(error);
                }
                gone = failed.any();
            }
            Recorded::Lost => gone = PositionSet::EMPTY,
        }
    }
    for buf in parity.take().into_iter().flatten() {
        scratch::give_back_list(&shard.scratch, Sg::from(buf));
    }
    match shard.await_out_of_use(band.stripe, gone, since).await {
        Ok(()) if !shard.shared.is_lost() => Step::Again,
        Ok(()) => Step::Ended(LOST),
        Err(error) => Step::Ended(error),
    }
}

/// Writes column by column as far as possible, if blocks are bad or cannot be reconstructed.
async fn write_by_columns(
    shard: &Shard,
    group: Group,
    band: Band,
    batch: &WriteBatch,
) -> Result<(), IoError> {
    let mut result = Ok(());
    let mut left = Columns::new(hull(&batch.segments));
    while let Some(window) = left.next() {
        let part = batch.narrowed(window, shard.bad_positions(band, window));
        if part.segments.is_empty() {
            continue;
        }
        let ended = write_window(shard, group, band, &part).await;
        batch.trail.set(part.trail.get());
        let ended = match ended {
            Ended::Done(ended) => ended,
            Ended::Stuck(stuck) if !stuck.by_blocks() => Err(LOST),
            Ended::Stuck(_) if window.blocks > 1 => {
                left.halve(window);
                continue;
            }
            Ended::Stuck(stuck) => write_giving_up(shard, group, band, part, stuck).await,
        };
        result = result.and(ended);
    }
    result
}

/// Writes one column with lost data that this write does not replace, according to the list of bad blocks. Zeroes
/// replace the lost data, so that the written data have redundancy. Reads do not return these zeroes.
async fn write_giving_up(
    shard: &Shard,
    group: Group,
    band: Band,
    part: WriteBatch,
    stuck: Stuck,
) -> Result<(), IoError> {
    let column = hull(&part.segments);
    let strips = shard.to_give_up(band, &part, column, stuck).ok_or(LOST)?;
    let note = |strip: u8| {
        let place = all_of(shard.position_of_strip(band.stripe, strip), column);
        shard.bad_note(band, &place, BadEvent::Abandon)
    };
    shard.note_bad(strips.iter().map(note).collect()).await?;
    let part = part.with_zeroes(strips, column, |strip| {
        shard.geometry.lba(Place { stripe: band.stripe, strip, offset: column.offset })
    });
    match write_window(shard, group, band, &part).await {
        Ended::Done(result) => result,
        Ended::Stuck(_) => Err(LOST),
    }
}

impl Shard {
    /// Returns the data strips of a column that are permanently lost and prevent the write; `None` if other strips
    /// prevent the write, because these may become readable later.
    fn to_give_up(
        &self,
        band: Band,
        part: &WriteBatch,
        column: Window,
        stuck: Stuck,
    ) -> Option<StripSet> {
        let written = |strip| part.segments.iter().any(|segment| segment.strip == strip);
        let hidden = stuck.health.absent | stuck.health.unreadable;
        let mut strips = StripSet::EMPTY;
        for strip in (0..self.geometry.data_strips()).filter(|strip| !written(*strip)) {
            let position = self.position_of_strip(band.stripe, strip);
            if !hidden.contains(position) {
                continue;
            }
            let absent = stuck.health.absent.contains(position);
            if absent || !self.is_bad(band, &all_of(position, column)) {
                return None;
            }
            strips.insert(strip);
        }
        (!strips.is_empty() && self.geometry.parity_strips() > 0).then_some(strips)
    }
}
