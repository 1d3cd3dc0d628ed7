//! The task of a band, which executes one batch after another until no waiting operation needs a task.

use strake_block::{BufMut, IoError, IoErrorKind, Op, SgMut};
use strake_raid::{Band, Purpose, Query, Segment, Strategy, StripeHealth, Window, hull};
use strake_units::{LbaRange, MemberIndex, PositionSet, StripeIndex};

use super::bad::{Columns, suspect_copies};
use super::bands::{Batch, WriteBatch};
use super::execute::{Patience, ReadBufs};
use super::joint::{self, Joined};
use super::maintain::{agree, heal, maintain};
use super::members::{Group, settled};
use super::mend::{Ended, Excluded, LOST, Stuck, copy_back, repair};
use super::small::needs_no_task;
use super::write_task::write;
use super::{Shard, replacement, scratch, scrub};
use crate::message::{Span, Work};
use crate::trace::{Arrival, Stage, Stages, TaskStages, Trail};

/// Works on the band of `entry` until its queue is empty, or until the next operation needs no task.
pub(crate) async fn run(shard: &Shard, entry: u32) {
    let group = shard.open_group();
    let band = shard.bands.borrow().band(entry);
    let mut writes = WriteBatch::empty();
    let mut has_worked = false;
    loop {
        if std::mem::replace(&mut has_worked, true) && needs_no_task(shard, entry) {
            shard.bands.borrow_mut().give_back(entry);
            break;
        }
        let batch = {
            let mut bands = shard.bands.borrow_mut();
            bands.next_batch(entry, &shard.geometry, shard.merge, &mut writes)
        };
        if !matches!(batch, None | Some(Batch::Read { .. })) {
            shard.forget_cached(band);
        }
        // Maintenance leaves a last member.
        last_member(shard, group);
        let mut trail = Trail::begin(Stage::Read, shard.now.get());
        match batch {
            None => break,
            Some(Batch::Read { span, arrival }) if copies_may_differ(shard, band) => {
                Box::pin(read_agreed(shard, group, (span, arrival), trail)).await;
            }
            Some(Batch::Read { span, arrival }) => match shard.join_reads(entry, (span, arrival)) {
                Joined::Alone(span, arrival) => read(shard, group, (span, arrival), trail).await,
                Joined::Reads { segments, avoided } => {
                    joint::read(shard, group, entry, (segments, avoided), &mut trail).await;
                }
            },
            Some(Batch::Write) => write(shard, group, band, &mut writes).await,
            Some(Batch::Resync { origin })
                if shard.was_replayed(band.stripe)
                    || shard.agreed.borrow().contains_all(&shard.geometry, band) =>
            {
                shard.finish(origin, Ok(()), None, &Stages::NONE);
            }
            Some(Batch::Resync { origin }) => {
                maintain(shard, group, band, Purpose::Resync, origin).await
            }
            Some(Batch::Rebuild { origin }) => {
                if let Err(error) = replacement::copy(shard, group, band).await {
                    shard.finish(origin, Err(error), None, &Stages::NONE);
                    continue;
                }
                let targets = shard.rebuild_targets(band);
                maintain(shard, group, band, Purpose::Rebuild { targets }, origin).await;
            }
            Some(Batch::Scrub { order, origin }) => {
                // The future is boxed, because a repair needs much more memory than other tasks.
                let result = Box::pin(scrub::band(shard, group, band, order)).await;
                shard.finish(origin, result, None, &Stages::NONE);
            }
        }
    }
    shard.members.borrow_mut().groups.close(group);
}

/// Reads a range of one strip, if necessary by reconstruction from the rest of the stripe.
pub(super) async fn read(
    shard: &Shard,
    group: Group,
    (span, arrival): (Span, Arrival),
    mut trail: Trail,
) {
    let Span { band, work: Work::Read { range, data, unreadable, avoid }, origin } = span else {
        unreachable!("a read batch holds a read")
    };
    let wanted = Wanted { band, range, unreadable, avoid };
    let trail = &mut trail;
    let (data, result) = match read_range(shard, group, wanted, data, trail).await {
        (data, Ended::Done(result)) => (data, result),
        (data, Ended::Stuck(stuck)) if stuck.by_blocks() && range.blocks > 1 => {
            Box::pin(read_by_blocks(shard, group, wanted, data, trail)).await
        }
        (data, Ended::Stuck(_)) => (data, Err(LOST)),
    };
    let stages = ended(shard, group, trail).of(&arrival);
    shard.finish(origin, result, Some(data), &stages);
}

/// True if copies of the band may differ: its region was written before a crash, or is not initialized, and was not
/// resynchronized since.
fn copies_may_differ(shard: &Shard, band: Band) -> bool {
    shard.copies_may_differ.get()
        && shard.geometry.copies() > 1
        && !shard.health(band).parity_trusted
}

/// Reads a range of one strip whose copies may differ. First makes the copies consistent, unless they are known to be
/// consistent. Otherwise, if the member that was read goes out before the resync of the band, a later read could return
/// older data.
async fn read_agreed(shard: &Shard, group: Group, (span, arrival): (Span, Arrival), trail: Trail) {
    let Span { band, work: Work::Read { range, .. }, .. } = &span else {
        unreachable!("a read batch holds a read")
    };
    let segment = shard.geometry.segments(*band, *range)[0];
    let agreed = shard.agreed.borrow().contains(&shard.geometry, *band, segment.strip);
    let result = if agreed { Ok(()) } else { agree(shard, group, *band, segment).await };
    match result {
        Ok(()) => read(shard, group, (span, arrival), trail).await,
        Err(error) => {
            if let Span { work: Work::Read { data, .. }, origin, .. } = span {
                let stages = ended(shard, group, &trail).of(&arrival);
                shard.finish(origin, Err(error), Some(data), &stages);
            }
        }
    }
}

/// The range to read.
#[derive(Clone, Copy)]
struct Wanted {
    band: Band,
    range: LbaRange,
    unreadable: PositionSet,
    avoid: PositionSet,
}

/// Reads a range whose parts need different reconstructions.
async fn read_by_blocks(
    shard: &Shard,
    group: Group,
    wanted: Wanted,
    mut data: SgMut,
    trail: &mut Trail,
) -> (SgMut, Result<(), IoError>) {
    let shift = shard.geometry.block_size().shift();
    let mut left = Columns::new(Window { offset: 0, blocks: wanted.range.blocks as u32 });
    while let Some(window) = left.next() {
        let start = wanted.range.start.plus(window.offset.into());
        let range = LbaRange::new(start, window.blocks.into());
        let buf = SgMut::from(BufMut::alone((window.blocks as usize) << shift));
        let part = Wanted { range, unreadable: PositionSet::EMPTY, ..wanted };
        match read_range(shard, group, part, buf, trail).await {
            (buf, Ended::Done(Ok(()))) => {
                let mut at = (window.offset as usize) << shift;
                for bytes in buf.parts() {
                    data.copy_from(at, bytes.as_slice());
                    at += bytes.len();
                }
            }
            (_, Ended::Done(Err(error))) => return (data, Err(error)),
            (_, Ended::Stuck(stuck)) if stuck.by_blocks() && window.blocks > 1 => {
                left.halve(window);
            }
            (_, Ended::Stuck(_)) => return (data, Err(LOST)),
        }
    }
    (data, Ok(()))
}

/// Reads a range of one strip as one plan.
async fn read_range(
    shard: &Shard,
    group: Group,
    wanted: Wanted,
    mut data: SgMut,
    trail: &mut Trail,
) -> (SgMut, Ended) {
    let Wanted { band, range, unreadable, avoid } = wanted;
    let segments = shard.geometry.segments(band, range);
    let window = hull(&segments);
    let avoided = avoid | shard.slow_positions(band);
    let hidden = shard.hidden_positions(band, window);
    let mut excluded = Excluded::default();
    excluded.unreadable = unreadable | hidden;
    excluded.avoided = avoided | suspect_copies(shard, band, window);
    let mut hearsay = unreadable - hidden;
    let mut patience = Patience::Short;
    let result = loop {
        if shard.shared.is_lost() {
            // A write that the failure of the array interrupted leaves its stripe inconsistent, so data reconstructed
            // from the stripe are not returned.
            break Err(LOST);
        }
        if shard.is_given_up(band, segments[0].strip, window) {
            break Err(IoError::new(IoErrorKind::Medium));
        }
        if !shard.health(band).parity_trusted {
            // The alternative is parity or a copy that may be wrong, so slow members are not avoided.
            excluded.avoided = PositionSet::EMPTY;
            patience = Patience::Long;
        }
        let health = excluded.apply(shard.health(band));
        let query = Query {
            band,
            health,
            segments: &segments,
            purpose: Purpose::Read,
            copy_hint: shard.copy_hint(),
        };
        let Ok(plan) = strake_raid::plan(&shard.geometry, &query) else {
            if !std::mem::take(&mut excluded.avoided).is_empty() {
                // There is no alternative, so the read waits for slow members.
                patience = Patience::Long;
                continue;
            }
            let reported = std::mem::take(&mut hearsay);
            if reported.is_empty() {
                return (data, Ended::Stuck(Stuck { blocks: excluded.unreadable, health }));
            }
            // Blocks that were unreadable when the request arrived may have been written since.
            excluded.unreadable -= reported;
            continue;
        };
        if !health.parity_trusted && range.blocks > 1 && shard.lacks_data(band, excluded) {
            // Rows that are readable must not be reconstructed from parity that may be wrong.
            return (data, Ended::Stuck(Stuck { blocks: excluded.unreadable, health }));
        }
        if plan.strategy == Strategy::Direct {
            enter(shard, group, trail, Stage::Read);
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
                // A drive that timed out keeps the host's buffer, so the answer has another buffer.
                None | Some(_) => SgMut::from(BufMut::alone(bytes)),
            };
            match result {
                Ok(()) => {
                    if shard.geometry.copies() > 1 {
                        let source = (read.position, excluded);
                        let segment = (band, &segments[0]);
                        break copy_back(shard, group, segment, source, &data).await;
                    }
                    if shard.is_bad(band, &read) {
                        // The block was readable after all. A block that stays listed is harmless.
                        let _ = Box::pin(shard.note_restored(band, &read)).await;
                        Box::pin(heal(shard, group, band, &segments)).await;
                    }
                    break Ok(());
                }
                Err(error) => {
                    retry(shard, group, trail);
                    excluded.learn(shard.classify(band.stripe, read.position, error));
                }
            }
            continue;
        }
        enter(shard, group, trail, Stage::Queued);
        let Some(mut loan) = shard.borrow(&plan).await else { break Err(LOST) };
        enter(shard, group, trail, Stage::Read);
        if excluded.apply(shard.health(band)) != health {
            // A member went out or was replaced while this task waited for memory, so the plan is obsolete.
            scratch::end(&shard.scratch, loan);
            continue;
        }
        match shard.read_all_within(group, band, &plan, &mut loan, patience).await {
            Err(failed) => {
                retry(shard, group, trail);
                excluded.learn(failed);
            }
            Ok(reads) => {
                let recovered = shard.recover(&plan, &reads, &mut loan);
                shard.copy_out(&plan, &segments[0], &reads, &recovered, &mut data);
                scratch::give_back(&shard.scratch, reads);
                repair(shard, group, band, &plan, excluded, recovered).await;
                scratch::end(&shard.scratch, loan);
                shard.shared.count_degraded_reads(1);
                if !hidden.is_empty() {
                    Box::pin(heal(shard, group, band, &segments)).await;
                }
                break Ok(());
            }
        }
        scratch::end(&shard.scratch, loan);
    };
    (data, Ended::Done(result))
}

/// Returns the member of the last I/O of the group with an outcome since the last call.
pub(super) fn last_member(shard: &Shard, group: Group) -> Option<MemberIndex> {
    shard.members.borrow_mut().groups.take_last(group)
}

/// Ends the present stage of a task, and starts `stage`.
pub(super) fn enter(shard: &Shard, group: Group, trail: &mut Trail, stage: Stage) {
    trail.enter(stage, shard.now.get(), last_member(shard, group));
}

/// Records that the present attempt of a task failed, and starts the next attempt.
pub(super) fn retry(shard: &Shard, group: Group, trail: &mut Trail) {
    trail.retry(shard.now.get(), last_member(shard, group));
}

/// Returns the stages of a task, which ends now.
pub(super) fn ended(shard: &Shard, group: Group, trail: &Trail) -> TaskStages {
    trail.ended(shard.now.get(), last_member(shard, group))
}

/// As [`enter`], for a batch of writes.
pub(super) fn enter_write(shard: &Shard, group: Group, batch: &WriteBatch, stage: Stage) {
    change(batch, |trail| enter(shard, group, trail, stage));
}

/// Starts an attempt of a batch of writes.
pub(super) fn begin_write(shard: &Shard, group: Group, batch: &WriteBatch) {
    last_member(shard, group);
    change(batch, |trail| trail.begin_attempt(shard.now.get()));
}

/// As [`retry`], for a batch of writes.
pub(super) fn retry_write(shard: &Shard, group: Group, batch: &WriteBatch) {
    change(batch, |trail| retry(shard, group, trail));
}

fn change(batch: &WriteBatch, change: impl FnOnce(&mut Trail)) {
    let mut trail = batch.trail.get();
    change(&mut trail);
    batch.trail.set(trail);
}

impl Shard {
    /// Returns the state of the stripe of `band` for the planner.
    pub(crate) fn health(&self, band: Band) -> StripeHealth {
        let region = self.regions.region_of(band.stripe);
        let mut health = StripeHealth {
            parity_trusted: self.region_table.borrow().trusted(region)
                || self.was_replayed(band.stripe),
            ..StripeHealth::default()
        };
        let members = self.members.borrow();
        if !members.degraded() {
            return health;
        }
        for position in 0..self.geometry.width() {
            let member = self.geometry.member(band.stripe, position);
            match members.view(member) {
                crate::message::View::InSync => {}
                crate::message::View::Absent => health.absent.insert(position),
                crate::message::View::Rebuilding => {
                    if self.rebuild.borrow().lacks(member, region) {
                        health.unreadable.insert(position);
                    }
                }
            }
        }
        health
    }

    /// True if all writes to the stripe before the last crash were in the redo log.
    pub(super) fn was_replayed(&self, stripe: StripeIndex) -> bool {
        self.replayed.contains(self.geometry.member(stripe, 0))
    }

    /// Copies the wanted segment from the strips that were read or reconstructed.
    pub(super) fn copy_out(
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
