//! Joint reads of several strips of a degraded stripe: every survivor is read once, and its data answer all of these
//! reads.
//!
//! The shard that hands a request out sends the strips that could be read from their members to the owner as well when
//! they are needed to recover others of the same request ([`Shard::is_survivor`]). At the owner, reads that wait for a
//! band are joined like writes are ([`Shard::join_reads`]). That is the ordinary degraded case only: whatever comes up
//! on the way is left to the reads alone, one by one, which know what to do.

use arrayvec::ArrayVec;
use strake_block::{BufMut, Op, SgMut};
use strake_raid::{
    Band, Piece, Plan, Purpose, Query, Segment, SegmentList, Strategy, Transfer, Window,
};
use strake_units::{LbaRange, PositionSet, StripSet};

use super::execute::{Patience, ReadBufs};
use super::members::{Group, IoSlot, settled};
use super::mend::Excluded;
use super::scratch::Loan;
use super::{Shard, band_task, scratch};
use crate::limits::JOIN_MAX;
use crate::message::{Origin, Span, View, Work};
use crate::trace::{Arrival, Stage, Stages, TaskStages, Trail};

const NONE: PositionSet = PositionSet::EMPTY;

/// How a task executes a read from the queue of its band.
#[allow(clippy::large_enum_variant)]
pub(super) enum Joined {
    /// No other read is joined with it.
    Alone(Span, Arrival),
    /// The read and other reads were put aside, for execution together.
    Reads {
        /// The union of the segments of the reads.
        segments: SegmentList,
        /// Positions to read only if nothing else suffices.
        avoided: PositionSet,
    },
}

/// Reads that are being joined.
struct Gathering {
    /// At most one per strip, in ascending order.
    segments: SegmentList,
    /// Strips that cannot be read.
    lost: StripSet,
    /// The columns in which strips must be reconstructed, as far as known.
    window: Option<Window>,
}

impl Gathering {
    /// Adds the segment of a read, unless this would require reads of columns that no read needs.
    fn admit(&mut self, segment: Segment) -> bool {
        let own = Window::of(&segment);
        if self.window.is_some_and(|window| !window.touches(own)) {
            return false;
        }
        let at = self.segments.iter().take_while(|known| known.strip < segment.strip).count();
        match self.segments.get(at) {
            Some(known) if known.strip == segment.strip => {
                if !Window::of(known).touches(own) {
                    return false;
                }
                self.segments[at] = union(known, &segment);
            }
            Some(_) | None => {
                self.segments.push(segment);
                self.segments[at..].rotate_right(1);
            }
        }
        if self.lost.contains(segment.strip) {
            self.window = Some(self.window.map_or(own, |window| window.with(own)));
        }
        true
    }
}

/// Returns the union of two adjacent segments of a strip.
fn union(a: &Segment, b: &Segment) -> Segment {
    let Window { offset, blocks } = Window::of(a).with(Window::of(b));
    Segment { strip: a.strip, offset, blocks, lba: a.lba.min(b.lba) }
}

impl Shard {
    /// True if reads of a band may be joined. In a band with bad blocks, each read is executed individually.
    fn may_join(&self, band: Band) -> bool {
        let offset = u32::from(band.index) * self.geometry.band_blocks();
        self.merge && self.geometry.parity_strips() > 0 && !self.is_bad_band(band.stripe, offset)
    }

    /// True if every member can be read everywhere, which is the normal case.
    fn all_readable(&self) -> bool {
        self.sets.get().readable() == self.geometry.all_members()
    }

    /// True if `piece` of a read of `range` must be read to reconstruct other strips that the request needs, although
    /// its member could answer it. The reconstruction then also answers `piece`.
    pub(super) fn is_survivor(&self, piece: &Piece, range: LbaRange) -> bool {
        let whole = u64::from(piece.segment.blocks) == range.blocks;
        if self.all_readable() || whole || !self.may_join(piece.band) {
            return false;
        }
        let lost = self.lost_strips(piece.band);
        if lost.is_empty() {
            return false;
        }
        let segments = self.geometry.segments(piece.band, range);
        let lost = segments.iter().filter(|segment| lost.contains(segment.strip));
        let window = lost.map(Window::of).reduce(Window::with);
        window.is_some_and(|window| window.touches(Window::of(&piece.segment)))
    }

    /// Strips of the band's stripe that this shard would not read from their members. Only the owner of the band knows
    /// in which regions a rebuilding member can be read.
    fn lost_strips(&self, band: Band) -> StripSet {
        let members = self.members.borrow();
        let lost = |position: &u8| {
            members.view(self.geometry.member(band.stripe, *position)) != View::InSync
        };
        let positions: PositionSet = (0..self.geometry.width()).filter(lost).collect();
        drop(members);
        let positions = positions | self.slow_positions(band);
        self.geometry.strips_of_positions(band.stripe, positions)
    }

    /// Puts `first` and the reads that wait behind it aside, as long as the necessary reads of the survivors answer
    /// each of them.
    pub(super) fn join_reads(&self, entry: u32, (first, arrival): (Span, Arrival)) -> Joined {
        let Work::Read { range, unreadable, avoid, .. } = &first.work else {
            return Joined::Alone(first, arrival);
        };
        let ordinary = unreadable.is_empty() && self.may_join(first.band);
        if !ordinary || self.bands.borrow().waiting_read(entry).is_none() {
            return Joined::Alone(first, arrival);
        }
        let avoided = *avoid | self.slow_positions(first.band);
        let mut gathering = self.gather(first.band, avoided);
        let segment = |range| self.geometry.segments(first.band, range)[0];
        let mut count = usize::from(gathering.admit(segment(*range)));
        while count < JOIN_MAX
            && let Some(next) = { self.bands.borrow().waiting_read(entry) }
            && next.unreadable.is_empty()
            && next.avoid.is_subset(avoided)
            && gathering.admit(segment(next.range))
        {
            self.bands.borrow_mut().join_waiting(entry);
            count += 1;
        }
        if count == 1 {
            return Joined::Alone(first, arrival);
        }
        self.bands.borrow_mut().join(entry, (first.work, first.origin, arrival));
        Joined::Reads { segments: gathering.segments, avoided }
    }

    fn gather(&self, band: Band, avoided: PositionSet) -> Gathering {
        let health = around(avoided).apply(self.health(band));
        let hidden = health.absent | health.unreadable;
        let lost = self.geometry.strips_of_positions(band.stripe, hidden);
        Gathering { segments: SegmentList::new(), lost, window: None }
    }

    /// Lends the buffers of joined reads to `loan` if they will contain exactly what `plan` reads or reconstructs of
    /// their strips. No copy is then needed.
    fn lend_joined(&self, entry: u32, plan: &Plan, loan: &mut Loan) {
        let mut bands = self.bands.borrow_mut();
        let band = bands.band(entry);
        bands.each_joined(entry, |range, data| {
            let Segment { strip, offset, blocks, .. } = self.geometry.segments(band, range)[0];
            let read = |target: &Transfer| {
                (target.strip, target.offset, target.blocks) == (strip, offset, blocks)
            };
            let recovered =
                plan.recover.contains(&strip) && plan.window == Window { offset, blocks };
            let whole = recovered || plan.reads.iter().any(read);
            if whole && data.parts().len() == 1 && !loan.was_lent(strip) {
                let lent = std::mem::take(data).into_single();
                lent.into_iter().for_each(|buf| loan.lend(strip, buf));
            }
        });
    }

    /// Takes lent buffers that were not used back, because the reads are executed one by one. An unresponsive drive
    /// keeps the user's buffer, and the answer then has another buffer.
    fn take_lent_back(&self, entry: u32, loan: &mut Loan) {
        let mut bands = self.bands.borrow_mut();
        let (band, shift) = (bands.band(entry), self.geometry.block_size().shift());
        bands.each_joined(entry, |range, data| {
            if data.is_empty() {
                let strip = self.geometry.segments(band, range)[0].strip;
                let another = || BufMut::alone((range.blocks as usize) << shift);
                *data = SgMut::from(loan.take_lent(strip).unwrap_or_else(another));
            }
        });
    }

    /// Answers the joined reads from the strips that were read and reconstructed: first the reads that receive copies,
    /// and then the reads whose buffers contain the data. Releases the other buffers.
    fn answer_joined(
        &self,
        entry: u32,
        plan: &Plan,
        (reads, recovered): (ReadBufs, ReadBufs),
        ended: &TaskStages,
    ) {
        let mut owners = ArrayVec::<(u8, Origin, Stages), JOIN_MAX>::new();
        while let Some((span, arrival)) = { self.bands.borrow_mut().take_joined(entry) } {
            let Span { band, work: Work::Read { range, mut data, .. }, origin } = span else {
                unreachable!("only reads are put aside")
            };
            let stages = ended.of(&arrival);
            let segment = self.geometry.segments(band, range)[0];
            if plan.recover.contains(&segment.strip) {
                self.shared.count_degraded_reads(1);
            }
            if data.is_empty() {
                owners.push((segment.strip, origin, stages));
                continue;
            }
            self.copy_out(plan, &segment, &reads, &recovered, &mut data);
            self.finish(origin, Ok(()), Some(data), &stages);
        }
        let strips = plan.reads.iter().map(|target| target.strip).zip(reads);
        for (strip, buf) in strips.chain(plan.recover.iter().copied().zip(recovered)) {
            match owners.iter().find(|(of, ..)| *of == strip) {
                Some((_, origin, stages)) => {
                    self.finish(*origin, Ok(()), Some(SgMut::from(buf)), stages);
                }
                None => scratch::give_back(&self.scratch, [buf]),
            }
        }
    }
}

/// Returns an exclusion of the slow positions in `avoided`.
fn around(avoided: PositionSet) -> Excluded {
    let mut excluded = Excluded::default();
    excluded.avoided = avoided;
    excluded
}

/// Executes the joined reads: together if possible, otherwise one by one.
pub(super) async fn read(
    shard: &Shard,
    group: Group,
    entry: u32,
    (segments, avoided): (SegmentList, PositionSet),
    trail: &mut Trail,
) {
    read_together(shard, group, entry, (&segments, avoided), trail).await;
    // Reads that remain have failed together. Each one waits for the reads before it.
    band_task::retry(shard, group, trail);
    trail.enter(Stage::Band, shard.now.get(), None);
    while let Some(read) = { shard.bands.borrow_mut().take_joined(entry) } {
        let mut trail = *trail;
        band_task::enter(shard, group, &mut trail, Stage::Read);
        trail.begin_attempt(shard.now.get());
        band_task::read(shard, group, read, trail).await;
    }
}

/// Answers all joined reads, or none.
async fn read_together(
    shard: &Shard,
    group: Group,
    entry: u32,
    (segments, avoided): (&SegmentList, PositionSet),
    trail: &mut Trail,
) {
    let band = shard.bands.borrow().band(entry);
    loop {
        if shard.shared.is_lost() {
            return;
        }
        let health = shard.health(band);
        // Parity that may be inconsistent must not replace a member that is only slow.
        let (excluded, patience) = match health.parity_trusted {
            true => (around(avoided), Patience::Short),
            false => (Excluded::default(), Patience::Long),
        };
        let health = excluded.apply(health);
        let query = Query { band, health, segments, purpose: Purpose::Read, copy_hint: 0 };
        let Ok(plan) = strake_raid::plan(&shard.geometry, &query) else { return };
        if plan.strategy == Strategy::Direct {
            return read_each(shard, group, entry, patience, trail).await;
        }
        band_task::enter(shard, group, trail, Stage::Queued);
        let Some(mut loan) = shard.borrow(&plan).await else {
            return read_each(shard, group, entry, patience, trail).await;
        };
        band_task::enter(shard, group, trail, Stage::Read);
        if excluded.apply(shard.health(band)) != health {
            // A member went out or was replaced while this task waited for memory, so the plan is obsolete.
            scratch::end(&shard.scratch, loan);
            continue;
        }
        shard.lend_joined(entry, &plan, &mut loan);
        match shard.read_all_within(group, band, &plan, &mut loan, patience).await {
            Ok(reads) => {
                let recovered = shard.recover(&plan, &reads, &mut loan);
                let ended = band_task::ended(shard, group, trail);
                shard.answer_joined(entry, &plan, (reads, recovered), &ended);
            }
            Err(_) => shard.take_lent_back(entry, &mut loan),
        }
        return scratch::end(&shard.scratch, loan);
    }
}

/// No reconstruction is needed any longer: reads all strips from their members concurrently. Failed reads are put aside
/// again.
async fn read_each(shard: &Shard, group: Group, entry: u32, patience: Patience, trail: &mut Trail) {
    band_task::enter(shard, group, trail, Stage::Read);
    // The reads stay in the table. Otherwise other reads might use their entries before failed reads return to the
    // table.
    let mut wanted = ArrayVec::<(LbaRange, SgMut), JOIN_MAX>::new();
    let band = shard.bands.borrow().band(entry);
    shard.bands.borrow_mut().each_joined(entry, |range, data| {
        wanted.push((range, std::mem::take(data)));
    });
    let mut issued = ArrayVec::<IoSlot, JOIN_MAX>::new();
    for (range, data) in wanted {
        let Segment { strip, offset, .. } = shard.geometry.segments(band, range)[0];
        let position = shard.position_of_strip(band.stripe, strip);
        let at = shard.geometry.member_lba(band.stripe, offset);
        let slot = shard.issue(group, band.stripe, position, Op::Read { at, data });
        if patience == Patience::Short {
            shard.members.borrow_mut().hurry(slot);
        }
        issued.push(slot);
    }
    settled(&shard.members, group).await;
    let (now, last) = (shard.now.get(), band_task::last_member(shard, group));
    let ended = trail.ended(now, last);
    let mut failed = ArrayVec::<(Work, Origin, Arrival), JOIN_MAX>::new();
    for slot in issued {
        let taken = shard.bands.borrow_mut().take_joined(entry);
        let (span, arrival) = taken.expect("it was put aside");
        let Span { work: Work::Read { range, .. }, origin, .. } = span else {
            unreachable!("only reads are put aside")
        };
        let (op, result) = shard.members.borrow_mut().take(slot);
        let bytes = (range.blocks as usize) << shard.geometry.block_size().shift();
        let data = match op {
            Some(Op::Read { data, .. }) => data,
            // A drive that timed out keeps the host's buffer, so the answer has another buffer.
            None | Some(_) => SgMut::from(BufMut::alone(bytes)),
        };
        if result.is_ok() {
            shard.finish(origin, Ok(()), Some(data), &ended.of(&arrival));
        } else {
            let work = Work::Read { range, data, unreadable: NONE, avoid: NONE };
            failed.push((work, origin, arrival));
        }
    }
    if !failed.is_empty() {
        trail.retry(now, last);
    }
    for read in failed {
        shard.bands.borrow_mut().join(entry, read);
    }
}
