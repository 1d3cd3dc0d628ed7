//! What a band's task does: one batch after another until nothing waits for the band.

use std::rc::Rc;

use strake_block::{BufMut, Durability, IoError, IoErrorKind, Op, Sg, SgMut};
use strake_raid::{
    Band, Intent, Place, Query, Role, Segment, SegmentList, Strategy, StripeHealth, Window,
};
use strake_units::{Lba, LbaRange};

use super::Shard;
use super::bands::{Batch, WriteBatch};
use super::execute::{Failed, Patience, ReadBufs};
use super::members::{Group, settled};
use super::{regions, scratch};
use crate::message::{Origin, Span, Work};

/// Works on the band of `entry` until its queue is empty.
pub(crate) async fn run(shard: Rc<Shard>, entry: u32) {
    let group = shard.open_group();
    let band = shard.bands.borrow().band(entry);
    loop {
        let batch = shard.bands.borrow_mut().next_batch(entry, &shard.geometry, shard.merge);
        match batch {
            None => break,
            Some(Batch::Read { span }) => read(&shard, group, span).await,
            Some(Batch::Write(batch)) => write(&shard, group, band, batch).await,
            Some(Batch::Resync { origin }) => {
                maintain(&shard, group, band, Intent::Resync, origin).await
            }
            Some(Batch::Rebuild { origin }) => {
                let targets = shard.rebuild_targets(band);
                maintain(&shard, group, band, Intent::Rebuild { targets }, origin).await;
            }
        }
    }
    shard.members.borrow_mut().close_group(group);
}

/// Positions that this operation found it cannot read, on top of what the members' views say.
#[derive(Clone, Copy, Default)]
struct Excluded {
    unreadable: u64,
    /// They could be read, but take long: gone around while there is another way.
    avoided: u64,
    absent: u64,
    /// Positions that were written back once: if they cannot be read after that, they stay unreadable.
    mended: u64,
}

impl Excluded {
    /// Learns from failed reads. Unreadable blocks may still be written; a failed member may not.
    fn learn(&mut self, failed: Failed) {
        self.unreadable |= failed.medium;
        self.absent |= failed.member;
        self.avoided |= failed.slow;
    }

    fn apply(self, mut health: StripeHealth) -> StripeHealth {
        health.unreadable |= self.unreadable | self.avoided;
        health.absent |= self.absent;
        health.unreadable &= !health.absent;
        health
    }
}

const LOST: IoError = IoError::new(IoErrorKind::Lost);

/// Reads a range of one strip, from whatever is left of its stripe if need be.
async fn read(shard: &Shard, group: Group, span: Span) {
    let Span { band, work: Work::Read { range, mut data, unreadable, avoid }, origin } = span
    else {
        unreachable!("a read batch holds a read")
    };
    let segments = shard.geometry.segments(band, range);
    let avoided = avoid | shard.slow_positions(band);
    let mut excluded = Excluded { unreadable, avoided, ..Excluded::default() };
    let mut hearsay = unreadable;
    let mut patience = Patience::Short;
    let result = loop {
        if shard.board.is_lost() {
            // A write cut short by the loss leaves its stripe inconsistent: what follows from it is not to be told.
            break Err(LOST);
        }
        if !shard.health(band).parity_trusted {
            // The way around is parity or a copy that may be wrong: nobody is avoided for being slow.
            excluded.avoided = 0;
            patience = Patience::Long;
        }
        let health = excluded.apply(shard.health(band));
        let query = Query {
            band,
            health,
            segments: &segments,
            intent: Intent::Read,
            copy_hint: shard.copy_hint(),
        };
        let Ok(plan) = strake_raid::plan(&shard.geometry, &query) else {
            if std::mem::take(&mut excluded.avoided) != 0 {
                // There is no way around: whoever takes long is waited for.
                patience = Patience::Long;
                continue;
            }
            if std::mem::take(&mut hearsay) == 0 {
                break Err(LOST);
            }
            // What could not be read when the request came in may have been written since.
            excluded.unreadable &= !unreadable;
            continue;
        };
        if plan.strategy == Strategy::Direct {
            let read = plan.reads[0];
            let at = shard.geometry.member_lba(band.stripe, read.offset);
            let bytes = data.len();
            let slot = shard.issue(group, band.stripe, read.position, Op::Read { at, data });
            if patience == Patience::Short {
                shard.members.borrow_mut().hurry(slot);
            }
            settled(&shard.members, group).await;
            let (op, result) = shard.members.borrow_mut().take(slot);
            data = match op {
                Some(Op::Read { data, .. }) => data,
                // The drive that timed out keeps the host's buffer; the answer comes in another one.
                None | Some(_) => SgMut::from(BufMut::alone(bytes)),
            };
            match result {
                Ok(()) => {
                    copy_back(shard, group, band, &segments[0], excluded, &data).await;
                    break Ok(());
                }
                Err(error) => excluded.learn(shard.classify(band.stripe, read.position, error)),
            }
            continue;
        }
        let mut loan = shard.borrow(&plan).await;
        if excluded.apply(shard.health(band)) != health {
            // A member left or was replaced while this waited for memory: what it holds is not what was planned on.
            scratch::end(&shard.scratch, loan);
            continue;
        }
        match shard.read_all_within(group, band, &plan, &mut loan, patience).await {
            Err(failed) => excluded.learn(failed),
            Ok(reads) => {
                let recovered = shard.recover(&plan, &reads, &mut loan);
                shard.copy_out(&plan, &segments[0], &reads, &recovered, &mut data);
                scratch::give_back(&shard.scratch, reads);
                repair(shard, group, band, &plan, excluded, recovered).await;
                scratch::end(&shard.scratch, loan);
                shard.board.count_degraded_read();
                break Ok(());
            }
        }
        scratch::end(&shard.scratch, loan);
    };
    shard.finish(origin, result, Some(data));
}

/// Writes what one copy held over the copies that could not be read.
async fn copy_back(
    shard: &Shard,
    group: Group,
    band: Band,
    segment: &Segment,
    excluded: Excluded,
    data: &SgMut,
) {
    for position in (0..shard.geometry.width()).filter(|p| excluded.unreadable & 1 << p != 0) {
        let mut loan = scratch::borrow(&shard.scratch, 1, data.len()).await;
        let mut buf = loan.take(data.len());
        let mut rest = buf.as_mut_slice();
        for part in data.parts() {
            let (head, tail) = rest.split_at_mut(part.len());
            head.copy_from_slice(part.as_slice());
            rest = tail;
        }
        let at = shard.geometry.member_lba(band.stripe, segment.offset);
        write_back(shard, group, band, position, at, buf).await;
    }
}

/// Writes recovered strips back over the blocks that could not be read (the drive will remap them). Returns the
/// positions whose member failed that.
async fn repair(
    shard: &Shard,
    group: Group,
    band: Band,
    plan: &strake_raid::Plan,
    excluded: Excluded,
    recovered: ReadBufs,
) -> u64 {
    let mut failed = 0;
    for (strip, buf) in plan.recover.iter().zip(recovered) {
        let position = shard.position_of_strip(band.stripe, *strip);
        if excluded.unreadable & 1 << position == 0 {
            scratch::give_back(&shard.scratch, [buf]);
            continue;
        }
        let at = shard.geometry.member_lba(band.stripe, plan.window.offset);
        if !write_back(shard, group, band, position, at, buf).await {
            failed |= 1 << position;
        }
    }
    failed
}

/// Writes good bytes over blocks that could not be read; false when the member fails that.
async fn write_back(
    shard: &Shard,
    group: Group,
    band: Band,
    position: u8,
    at: Lba,
    buf: BufMut,
) -> bool {
    let op = Op::Write { at, data: Sg::from(buf.freeze()), durability: Durability::Normal };
    let slot = shard.issue(group, band.stripe, position, op);
    settled(&shard.members, group).await;
    let (op, result) = shard.members.borrow_mut().take(slot);
    if let Some(Op::Write { data, .. }) = op {
        scratch::give_back_list(&shard.scratch, data);
    }
    match result {
        Ok(()) => shard.board.count_repair(shard.geometry.member(band.stripe, position)),
        Err(error) => shard.blame(shard.geometry.member(band.stripe, position), error),
    }
    result.is_ok()
}

/// Recovers data strips whose blocks could not be read over `window` and writes them back, as far as redundancy
/// allows; those are readable again then. What a write or a resync computes from a recovered strip holds only
/// if the drive holds the same: where parity is not trusted, the old bytes may come back as something else.
async fn mend(shard: &Shard, group: Group, band: Band, window: Window, excluded: &mut Excluded) {
    let geometry = &shard.geometry;
    let wanted = excluded.unreadable & !excluded.mended;
    for position in (0..geometry.width()).filter(|p| wanted & 1 << p != 0) {
        let Role::Data { strip, .. } = geometry.role(band.stripe, position) else { continue };
        excluded.mended |= 1 << position;
        let start = geometry.lba(Place { stripe: band.stripe, strip, offset: window.offset });
        let segments = geometry.segments(band, LbaRange::new(start, u64::from(window.blocks)));
        loop {
            let health = excluded.apply(shard.health(band));
            let query =
                Query { band, health, segments: &segments, intent: Intent::Read, copy_hint: 0 };
            let Ok(plan) = strake_raid::plan(geometry, &query) else { break };
            if plan.recover.is_empty() {
                break;
            }
            let mut loan = shard.borrow(&plan).await;
            if excluded.apply(shard.health(band)) != health {
                scratch::end(&shard.scratch, loan);
                continue;
            }
            let outcome = shard.read_all(group, band, &plan, &mut loan).await;
            if let Ok(reads) = outcome {
                let recovered = shard.recover(&plan, &reads, &mut loan);
                scratch::give_back(&shard.scratch, reads);
                excluded.absent |= repair(shard, group, band, &plan, *excluded, recovered).await;
                excluded.unreadable &= !(1 << position);
                scratch::end(&shard.scratch, loan);
                break;
            }
            scratch::end(&shard.scratch, loan);
            excluded.learn(outcome.err().unwrap_or_default());
        }
    }
}

/// Does one plan's worth of writes and answers every write merged into it.
async fn write(shard: &Shard, group: Group, band: Band, batch: WriteBatch) {
    let result = write_batch(shard, group, band, &batch).await;
    for item in batch.items {
        shard.finish(item.origin, result, None);
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
    regions::enter(&shard.region_table, region, || shard.ask_intent(region)).await?;
    let result = write_in_region(shard, group, band, batch).await;
    shard.region_table.borrow_mut().leave(region);
    result
}

async fn write_in_region(
    shard: &Shard,
    group: Group,
    band: Band,
    batch: &WriteBatch,
) -> Result<(), IoError> {
    let mut excluded = Excluded::default();
    let since = shard.members.borrow().clock();
    loop {
        let health = excluded.apply(shard.health(band));
        let query =
            Query { band, health, segments: &batch.segments, intent: Intent::Write, copy_hint: 0 };
        let plan = strake_raid::plan(&shard.geometry, &query).map_err(|_| LOST)?;
        let mut loan = shard.borrow(&plan).await;
        if excluded.apply(shard.health(band)) != health {
            // A member left or was replaced while this waited for memory: what it holds is not what was planned on.
            scratch::end(&shard.scratch, loan);
            continue;
        }
        let reads = match shard.read_all(group, band, &plan, &mut loan).await {
            Ok(reads) => reads,
            Err(failed) => {
                scratch::end(&shard.scratch, loan);
                excluded.learn(failed);
                mend(shard, group, band, plan.window, &mut excluded).await;
                continue;
            }
        };
        let parity = match plan.strategy {
            Strategy::Direct => ReadBufs::new(),
            Strategy::ReadModifyWrite => shard.modify(&plan, batch, reads),
            Strategy::FullStripe if shard.writes_nothing(&plan, batch) => ReadBufs::new(),
            Strategy::FullStripe | Strategy::ReconstructWrite | Strategy::Degraded => {
                let recovered = shard.recover(&plan, &reads, &mut loan);
                shard.encode(&plan, batch, reads, recovered, &mut loan)
            }
        };
        scratch::end(&shard.scratch, loan);
        let failed = shard.write_all(group, band, &plan, batch, parity).await;
        // Members excluded because a read failed were not written either: both kinds are stale in this band
        // and must be out of use everywhere before the host may believe the write.
        // So are those out of use here already, as long as another shard may still read what they missed.
        return shard.await_out_of_use(band.stripe, failed.any() | health.absent, since).await;
    }
}

/// Resynchronizes or rebuilds one band.
async fn maintain(shard: &Shard, group: Group, band: Band, intent: Intent, origin: Origin) {
    let mut excluded = Excluded::default();
    let since = shard.members.borrow().clock();
    let nothing = SegmentList::new();
    let result = loop {
        let health = excluded.apply(shard.health(band));
        let intent = match intent {
            Intent::Rebuild { targets } if targets & !health.absent == 0 => break Ok(()),
            Intent::Rebuild { targets } => Intent::Rebuild { targets: targets & !health.absent },
            Intent::Resync => Intent::Resync,
            Intent::Read | Intent::Write => unreachable!("maintenance does not serve hosts"),
        };
        let query = Query { band, health, segments: &nothing, intent, copy_hint: 0 };
        let Ok(plan) = strake_raid::plan(&shard.geometry, &query) else { break Err(LOST) };
        if plan.writes.is_empty() {
            break Ok(());
        }
        let mut loan = shard.borrow(&plan).await;
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
            Ok(reads) => Some(shard.rewrite(group, band, &plan, reads, &mut loan).await),
        };
        scratch::end(&shard.scratch, loan);
        match outcome {
            None => mend(shard, group, band, plan.window, &mut excluded).await,
            // Members whose reads failed may differ from what was made up for them, so they must be out of use too.
            Some(failed) => {
                break shard
                    .await_out_of_use(band.stripe, failed.any() | excluded.absent, since)
                    .await;
            }
        }
    };
    shard.finish(origin, result, None);
}

impl Shard {
    /// The members' views of the stripe that `band` is in, as the planner wants them.
    pub(crate) fn health(&self, band: Band) -> StripeHealth {
        let region = self.regions.region_of(band.stripe);
        let mut health = StripeHealth {
            absent: 0,
            unreadable: 0,
            parity_trusted: self.region_table.borrow().trusted(region),
        };
        let members = self.members.borrow();
        if !members.degraded() {
            return health;
        }
        for position in 0..self.geometry.width() {
            let member = self.geometry.member(band.stripe, position);
            match members.view(member) {
                crate::message::View::InSync => {}
                crate::message::View::Absent => health.absent |= 1 << position,
                crate::message::View::Rebuilding => {
                    if self.rebuild.borrow().lacks(member, region) {
                        health.unreadable |= 1 << position;
                    }
                }
            }
        }
        health
    }

    /// Copies the wanted segment out of what was read or recovered.
    fn copy_out(
        &self,
        plan: &strake_raid::Plan,
        segment: &Segment,
        reads: &ReadBufs,
        recovered: &ReadBufs,
        data: &mut SgMut,
    ) {
        let shift = self.geometry.block_size().shift();
        let (source, base) = match plan.recover.iter().position(|s| *s == segment.strip) {
            Some(at) => (&recovered[at], plan.window.offset),
            None => {
                let at = plan
                    .reads
                    .iter()
                    .position(|t| t.strip == segment.strip)
                    .expect("read or recovered");
                (&reads[at], plan.reads[at].offset)
            }
        };
        let from = ((segment.offset - base) << shift) as usize;
        data.copy_from(0, &source.as_slice()[from..from + ((segment.blocks << shift) as usize)]);
    }
}
