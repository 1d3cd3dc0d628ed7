//! Resync and rebuild of one band: as one plan, or column by column where blocks cannot be recovered.

use strake_block::{Durability, IoError};
use strake_ondisk::BadEvent;
use strake_raid::{Band, Place, Purpose, Query, Scheme, Segment, SegmentList, Window, hull};

use super::bad::{Columns, all_of};
pub(super) use super::degraded_reads::bits;
use super::members::Group;
use super::mend::{Ended, Excluded, LOST, Stuck, mend};
use super::{Shard, scratch};
use crate::message::{BadNote, Origin};

/// Resynchronizes or rebuilds one band.
pub(super) async fn maintain(
    shard: &Shard,
    group: Group,
    band: Band,
    purpose: Purpose,
    origin: Origin,
) {
    let result = maintain_segments(shard, group, band, &SegmentList::new(), purpose).await;
    shard.finish(origin, result, None);
}

/// Makes the copies of `segments` agree, as a resync does.
pub(super) async fn agree(
    shard: &Shard,
    group: Group,
    band: Band,
    segments: &[Segment],
) -> Result<(), IoError> {
    maintain_segments(shard, group, band, segments, Purpose::Resync).await
}

/// Resynchronizes or rebuilds `segments` of a band, or all of it when there are none.
async fn maintain_segments(
    shard: &Shard,
    group: Group,
    band: Band,
    segments: &[Segment],
    purpose: Purpose,
) -> Result<(), IoError> {
    match maintain_window(shard, group, band, (segments, 0), purpose).await {
        Ended::Done(result) => result,
        Ended::Stuck(stuck) if !stuck.by_blocks() => Err(LOST),
        Ended::Stuck(_) => {
            let window = if segments.is_empty() { shard.whole(band) } else { hull(segments) };
            Box::pin(maintain_by_columns(shard, group, (band, window), purpose)).await
        }
    }
}

/// Fills what could not be filled when its member was rebuilt, in columns of which more can be read now.
pub(super) async fn heal(shard: &Shard, group: Group, band: Band, segments: &[Segment]) {
    let targets = shard.hidden_positions(band, hull(segments));
    if targets != 0 {
        // What cannot be filled yet stays as it is, and listed.
        let _ =
            maintain_window(shard, group, band, (segments, 0), Purpose::Rebuild { targets }).await;
    }
}

/// Makes up one column of the member at `position` from the rest of its stripe, since it cannot be read there; or takes
/// note that it is lost.
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
    let unreadable = 1 << position;
    let purpose = Purpose::Rebuild { targets: unreadable };
    match maintain_window(shard, group, band, (&segments, unreadable), purpose).await {
        Ended::Done(result) => result,
        Ended::Stuck(_) => {
            let place = all_of(position, window);
            shard.note_bad(vec![shard.bad_note(band, &place, BadEvent::Hollow)]).await
        }
    }
}

/// The same for the columns of `segments`, or for all when there are none; positions that are known to be unreadable
/// come with them.
pub(super) async fn maintain_window(
    shard: &Shard,
    group: Group,
    band: Band,
    (segments, unreadable): (&[Segment], u64),
    purpose: Purpose,
) -> Ended {
    let window = if segments.is_empty() { shard.whole(band) } else { hull(segments) };
    let apart = purpose == Purpose::Resync && window.blocks > 1;
    let mut excluded = Excluded::over(shard, band, window);
    excluded.unreadable |= unreadable;
    let mut since = shard.members.borrow().membership_epoch();
    loop {
        let health = excluded.apply(shard.health(band));
        let purpose = match purpose {
            Purpose::Rebuild { targets } if targets & !health.absent == 0 => {
                return Ended::Done(Ok(()));
            }
            Purpose::Rebuild { targets } => Purpose::Rebuild { targets: targets & !health.absent },
            Purpose::Resync => Purpose::Resync,
            Purpose::Read | Purpose::Write => unreachable!("maintenance does not serve hosts"),
        };
        if apart && shard.lacks_data(band, excluded) {
            // What can be read in other rows is not to be made up from parity that may be wrong.
            return Ended::Stuck(Stuck { blocks: excluded.unreadable, health });
        }
        let query = Query { band, health, segments, purpose, copy_hint: 0 };
        let Ok(plan) = strake_raid::plan(&shard.geometry, &query) else {
            return Ended::Stuck(Stuck { blocks: excluded.unreadable, health });
        };
        if plan.writes.is_empty() {
            return Ended::Done(Ok(()));
        }
        let bad = shard.bad_positions(band, window) != 0;
        let durability = if bad { Durability::Fua } else { Durability::Normal };
        let Some(mut loan) = shard.borrow(&plan).await else { return Ended::Done(Err(LOST)) };
        if excluded.apply(shard.health(band)) != health {
            // A member left or was replaced while this waited for memory: what it holds is not what was planned on.
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
            return Ended::Done(Err(error));
        }
        // Members whose reads failed may differ from what was made up for them, so they must be out of use too.
        let missed = failed.any() | excluded.absent;
        let out = shard.await_out_of_use(band.stripe, missed, since).await;
        if out.is_ok() && shard.handed_over(band.stripe, missed, since) != 0 {
            // What was reconstructed for the old device may not be what its replacement holds, which has the place now.
            excluded = Excluded::over(shard, band, window);
            excluded.unreadable |= unreadable;
            since = shard.members.borrow().membership_epoch();
            continue;
        }
        if out.is_err() || !bad {
            return Ended::Done(out);
        }
        let noted = shard.note_written(band, &plan, (failed.any(), 0), BadEvent::Restored);
        return Ended::Done(Box::pin(noted).await);
    }
}

/// Does what can be done column by column, and takes note of what cannot.
pub(super) async fn maintain_by_columns(
    shard: &Shard,
    group: Group,
    (band, window): (Band, Window),
    purpose: Purpose,
) -> Result<(), IoError> {
    let geometry = &shard.geometry;
    let mut left = Columns::new(window);
    let mut notes = Vec::new();
    while let Some(window) = left.next() {
        let segments: Vec<Segment> =
            (0..geometry.data_strips()).map(|strip| segment(shard, band, window, strip)).collect();
        match maintain_window(shard, group, band, (&segments, 0), purpose).await {
            Ended::Done(result) => result?,
            Ended::Stuck(stuck) if !stuck.by_blocks() => return Err(LOST),
            Ended::Stuck(_) if window.blocks > 1 => left.halve(window),
            Ended::Stuck(stuck) => {
                notes.extend(lose_column(shard, group, band, &segments, purpose, stuck).await?);
            }
        }
    }
    // Before the band counts as done: what was not filled must not be believed.
    shard.note_bad(notes).await
}

/// The rows of `window` in data strip `strip`.
pub(super) fn segment(shard: &Shard, band: Band, window: Window, strip: u8) -> Segment {
    let place = Place { stripe: band.stripe, strip, offset: window.offset };
    let lba = shard.geometry.lba(place);
    Segment { strip, offset: window.offset, blocks: window.blocks, lba }
}

/// One column, of which something cannot be recovered: does the rest, and says what is lost.
async fn lose_column(
    shard: &Shard,
    group: Group,
    band: Band,
    segments: &[Segment],
    purpose: Purpose,
    stuck: Stuck,
) -> Result<Vec<BadNote>, IoError> {
    let mut notes = Vec::new();
    let mut note = |positions: u64, event: BadEvent| {
        let place = |position| all_of(position, hull(segments));
        notes.extend(bits(positions).map(|at| shard.bad_note(band, &place(at), event)));
    };
    let data = shard.data_positions(band);
    match (purpose, shard.geometry.scheme()) {
        (Purpose::Rebuild { targets }, _) => {
            let targets = targets & !stuck.health.absent;
            for target in bits(targets) {
                let one = Purpose::Rebuild { targets: 1 << target };
                match maintain_window(shard, group, band, (segments, 0), one).await {
                    Ended::Done(result) => result?,
                    Ended::Stuck(_) => note(1 << target, BadEvent::Hollow),
                }
            }
            note(stuck.blocks & data & !targets, BadEvent::Unreadable);
        }
        (Purpose::Resync, Scheme::Parity(_)) => {
            note(!data & shard.all_positions() & !stuck.health.absent, BadEvent::Hollow);
            note(stuck.blocks & data, BadEvent::Unreadable);
        }
        (Purpose::Resync, Scheme::Copies(_)) => {
            for one in segments.chunks(1) {
                match maintain_window(shard, group, band, (one, 0), purpose).await {
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

impl Shard {
    /// All columns of a band.
    fn whole(&self, band: Band) -> Window {
        Window { offset: self.geometry.band_offset(band), blocks: self.geometry.band_blocks() }
    }

    pub(super) fn all_positions(&self) -> u64 {
        (0..self.geometry.width()).fold(0, |mask, position| mask | 1 << position)
    }

    /// The positions that hold data in the band's stripe, as a mask.
    pub(super) fn data_positions(&self, band: Band) -> u64 {
        let data = (0..self.geometry.width()).filter(|at| self.holds_data(band, *at));
        data.fold(0, |mask, position| mask | 1 << position)
    }

    /// True when data strips with parity have blocks that cannot be read.
    pub(super) fn lacks_data(&self, band: Band, excluded: Excluded) -> bool {
        excluded.unreadable != 0
            && self.geometry.parity_strips() > 0
            && excluded.unreadable & self.data_positions(band) != 0
    }

    /// The positions that hold the same as each other because they are copies of `strip`, as a mask: none with parity.
    pub(super) fn copies_of(&self, strip: u8) -> u64 {
        let copies = self.geometry.copies();
        if self.geometry.parity_strips() > 0 {
            return 0;
        }
        (strip * copies..(strip + 1) * copies).fold(0, |mask, position| mask | 1 << position)
    }
}
