//! Execution of plans: reads, computations, and then writes. The plan contains all decisions about RAID.

use arrayvec::ArrayVec;
use strake_block::{Buf, BufMut, Durability, IoErrorKind, Op, Sg, SgMut};
use strake_parity::ParityMut;
use strake_raid::{Band, Plan, Segment, Strategy, Transfer, Window};
use strake_units::{LbaRange, MemberIndex, PositionSet, StripeIndex};

use super::Shard;
use super::address::Target;
use super::bands::{Parts, WriteBatch};
use super::members::{Failure, Group, IoSlot, settled};
use super::scratch::{self, Loan};
use crate::limits::MERGE_MAX;
use crate::message::Fill;

/// Maximum number of strips of a plan.
pub(super) const STRIPS_MAX: usize = 64;

/// Buffers of a plan's reads, in the plan's order.
pub(crate) type ReadBufs = ArrayVec<BufMut, STRIPS_MAX>;

/// New data of strips, in pieces: strip, byte offset in the window, and bytes. Each strip and each boundary between
/// merged writes begins a piece, and a list of a write may have several pieces.
type NewParts =
    ArrayVec<(u8, usize, Buf), { STRIPS_MAX + MERGE_MAX * strake_block::buf::SEGMENTS_MAX }>;

/// Parity to write, in the order of the plan's parity writes.
pub(super) type Parity = ArrayVec<Buf, STRIPS_MAX>;

/// Writes of a plan or a record, and their positions.
pub(super) type Slots = ArrayVec<(IoSlot, u8), { STRIPS_MAX + MERGE_MAX }>;

/// Failed positions of a stripe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failed {
    /// Positions with unreadable or unwritable blocks. The members stay in use.
    pub(crate) medium: PositionSet,
    /// Positions whose member failed.
    pub(crate) member: PositionSet,
    /// Positions whose read was slow and was not awaited.
    pub(crate) slow: PositionSet,
    /// The other device of a pair, if it failed a write, and its failure.
    pub(crate) replacement: Option<(MemberIndex, Failure)>,
}

/// The wait for reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Wait as long as the member is in use.
    Long,
    /// Wait only for a short time, because there may be an alternative.
    Short,
}

impl Failed {
    pub(crate) fn any(self) -> PositionSet {
        self.medium | self.member | self.slow
    }
}

impl Shard {
    fn bytes(&self, blocks: u32) -> usize {
        (blocks as usize) << self.geometry.block_size().shift()
    }

    /// Returns the number of scratch buffers that `plan` needs: one per read, one per reconstructed strip, and one per
    /// completely computed parity.
    pub(crate) fn scratch_count(&self, plan: &Plan) -> usize {
        let k = self.geometry.data_strips();
        let parity_writes = plan.writes.iter().filter(|t| t.strip >= k).count();
        let computed = match plan.strategy {
            Strategy::Direct | Strategy::ReadModifyWrite => 0,
            Strategy::FullStripe | Strategy::ReconstructWrite | Strategy::Degraded => parity_writes,
        };
        plan.reads.len() + plan.recover.len() + computed
    }

    /// Waits for the buffers that `plan` needs. Returns `None` if the array has failed.
    pub(crate) async fn borrow(&self, plan: &Plan) -> Option<Loan> {
        let longest =
            plan.reads.iter().map(|t| t.blocks).max().unwrap_or(0).max(plan.window.blocks);
        let (count, bytes) = (self.scratch_count(plan), self.bytes(longest));
        scratch::borrow(&self.scratch, count, bytes, || self.shared.is_lost()).await
    }

    /// Executes all reads of the plan. On failure, releases all buffers and returns the failed positions.
    pub(crate) async fn read_all(
        &self,
        group: Group,
        band: Band,
        plan: &Plan,
        loan: &mut Loan,
    ) -> Result<ReadBufs, Failed> {
        self.read_all_within(group, band, plan, loan, Patience::Long).await
    }

    /// Executes all reads of the plan. With short patience, slow strips count as failed.
    pub(crate) async fn read_all_within(
        &self,
        group: Group,
        band: Band,
        plan: &Plan,
        loan: &mut Loan,
        patience: Patience,
    ) -> Result<ReadBufs, Failed> {
        let mut slots = ArrayVec::<IoSlot, STRIPS_MAX>::new();
        for read in plan.reads.iter() {
            let data = SgMut::from(loan.take_for(read.strip, self.bytes(read.blocks)));
            let at = self.geometry.member_lba(band.stripe, read.offset);
            let slot = self.issue(group, band.stripe, read.position, Op::Read { at, data });
            if patience == Patience::Short {
                self.members.borrow_mut().hurry(slot);
            }
            slots.push(slot);
        }
        settled(&self.members, group).await;
        let mut bufs = ReadBufs::new();
        let mut strips = ArrayVec::<u8, STRIPS_MAX>::new();
        let mut failed = Failed::default();
        for (read, slot) in plan.reads.iter().zip(slots) {
            let (op, result) = self.members.borrow_mut().take(slot);
            if let Err(error) = result {
                self.note_failure(&mut failed, band.stripe, read.position, error);
            }
            if let Some(Op::Read { data, .. }) = op {
                bufs.extend(data.into_parts());
                strips.push(read.strip);
            }
        }
        if failed.any().is_empty() {
            return Ok(bufs);
        }
        for (strip, buf) in strips.into_iter().zip(bufs) {
            if loan.was_lent(strip) {
                loan.lend(strip, buf);
            } else {
                scratch::give_back(&self.scratch, [buf]);
            }
        }
        Err(failed)
    }

    /// Classifies a failure. Medium errors concern only the blocks; other errors fail the member.
    pub(crate) fn note_failure(
        &self,
        failed: &mut Failed,
        stripe: StripeIndex,
        position: u8,
        failure: Failure,
    ) {
        if failure.slow {
            failed.slow.insert(position);
            return;
        }
        match failure.kind {
            IoErrorKind::Medium => {
                failed.medium.insert(position);
                self.shared.errors.count_medium(self.geometry.member(stripe, position));
            }
            IoErrorKind::Device
            | IoErrorKind::Gone
            | IoErrorKind::Timeout
            | IoErrorKind::NoSpace
            | IoErrorKind::OutOfRange
            | IoErrorKind::Misaligned
            | IoErrorKind::ReadOnly
            | IoErrorKind::Unsupported
            | IoErrorKind::Lost
            | IoErrorKind::Aborted => {
                failed.member.insert(position);
                self.blame(self.geometry.member(stripe, position), failure);
            }
        }
    }

    /// Reconstructs strips of the plan over the whole window.
    pub(crate) fn recover(&self, plan: &Plan, reads: &ReadBufs, loan: &mut Loan) -> ReadBufs {
        let mut wanted = ReadBufs::new();
        if plan.recover.is_empty() {
            return wanted;
        }
        let bytes = self.bytes(plan.window.blocks);
        for strip in plan.recover.iter() {
            wanted.push(loan.take_for(*strip, bytes));
        }
        let recoveries = self.recoveries.as_ref().expect("only parity schemes recover");
        let mut recoveries = recoveries.borrow_mut();
        let known: ArrayVec<u8, STRIPS_MAX> = plan.reads.iter().map(|t| t.strip).collect();
        let recovery = recoveries.get(&known, &plan.recover).expect("a plan reads enough strips");
        // The strips that were read may be longer than the window.
        let sources: ArrayVec<&[u8], STRIPS_MAX> = plan
            .reads
            .iter()
            .zip(reads)
            .map(|(read, buf)| {
                let from = self.bytes(plan.window.offset - read.offset);
                &buf.as_slice()[from..from + bytes]
            })
            .collect();
        {
            let mut targets: ArrayVec<&mut [u8], STRIPS_MAX> =
                wanted.iter_mut().map(BufMut::as_mut_slice).collect();
            recovery.apply(&sources, &mut targets).expect("a plan's buffers are equally long");
        }
        wanted
    }

    /// Computes new parity by adding the change of the data to the old parity. `reads` contains old data and old
    /// parity. Returns the parity buffers in the order of the plan's parity writes, and releases the old data.
    pub(crate) fn modify(&self, plan: &Plan, batch: &WriteBatch, reads: &mut ReadBufs) -> ReadBufs {
        let k = self.geometry.data_strips();
        let code = self.code.as_ref().expect("only parity schemes read-modify-write");
        let mut parity = ReadBufs::new();
        let mut old = ArrayVec::<(u8, BufMut), STRIPS_MAX>::new();
        let mut indices = ArrayVec::<u8, STRIPS_MAX>::new();
        for (read, buf) in plan.reads.iter().zip(reads.drain(..)) {
            if read.strip >= k {
                indices.push(read.strip - k);
                parity.push(buf);
            } else {
                old.push((read.strip, buf));
            }
        }
        let mut parts = Parts::new();
        for segment in batch.segments.iter() {
            let (_, old) =
                old.iter().find(|(strip, _)| *strip == segment.strip).expect("old data was read");
            let base = self.bytes(segment.offset - plan.window.offset);
            batch.parts(segment, (self.geometry.block_size(), &self.zeroes), &mut parts);
            for (offset, new) in &parts {
                let part = base + offset..base + offset + new.len();
                let mut targets = windowed(&mut parity, &indices, part);
                let old = &old.as_slice()[*offset..*offset + new.len()];
                strake_parity::update(
                    code,
                    usize::from(segment.strip),
                    old,
                    new.as_slice(),
                    &mut targets,
                )
                .expect("a plan's buffers are equally long");
            }
        }
        scratch::give_back(&self.scratch, old.into_iter().map(|(_, buf)| buf));
        parity
    }

    /// Computes parity from all data strips over the window. Every data strip is new data, was read, or was
    /// reconstructed.
    pub(crate) fn encode(
        &self,
        plan: &Plan,
        batch: &WriteBatch,
        (reads, recovered): (&mut ReadBufs, &mut ReadBufs),
        loan: &mut Loan,
    ) -> ReadBufs {
        let parity = self.encode_from(plan, batch, (reads, recovered), loan);
        scratch::give_back(&self.scratch, reads.drain(..).chain(recovered.drain(..)));
        parity
    }

    /// Like [`encode`](Self::encode), but leaves the strips that were read and reconstructed to the caller, overlaid
    /// with the new data.
    fn encode_from(
        &self,
        plan: &Plan,
        batch: &WriteBatch,
        (reads, recovered): (&mut ReadBufs, &mut ReadBufs),
        loan: &mut Loan,
    ) -> ReadBufs {
        let k = self.geometry.data_strips();
        let code = self.code.as_ref().expect("only parity schemes encode");
        let bytes = self.bytes(plan.window.blocks);
        let indices: ArrayVec<u8, STRIPS_MAX> =
            plan.writes.iter().filter(|t| t.strip >= k).map(|t| t.strip - k).collect();
        let mut parity: ReadBufs = indices.iter().map(|_| loan.take(bytes)).collect();
        let mut new = NewParts::new();
        new_strips(self, plan, batch, (reads, recovered), &mut new);
        // A strip that was read or reconstructed contains its new data now.
        let whole = |strip: u8| {
            let read = plan.reads.iter().position(|t| t.strip == strip).map(|at| &reads[at]);
            let computed = || plan.recover.iter().position(|s| *s == strip);
            read.or_else(|| computed().map(|at| &recovered[at])).map(BufMut::as_slice)
        };
        let sole = |strip: u8| {
            let mut parts = new.iter().filter(|(of, _, _)| *of == strip);
            parts
                .next()
                .filter(|(_, _, part)| part.len() == bytes)
                .map(|(_, _, part)| part.as_slice())
        };
        let strips: Option<ArrayVec<&[u8], STRIPS_MAX>> =
            (0..k).map(|strip| whole(strip).or_else(|| sole(strip))).collect();
        if let Some(strips) = strips
            && indices.iter().copied().eq(0..code.parity() as u8)
        {
            encode_whole(code, &strips, &mut parity);
            return parity;
        }
        for buf in &mut parity {
            buf.as_mut_slice().fill(0);
        }
        for strip in 0..k {
            if let Some(old) = whole(strip) {
                add(code, strip, old, 0, &mut parity, &indices);
                continue;
            }
            let mut parts = new.iter().filter(|(of, _, _)| *of == strip).peekable();
            assert!(parts.peek().is_some(), "a plan leaves no data strip of its window unknown");
            for (_, offset, part) in parts {
                add(code, strip, part.as_slice(), *offset, &mut parity, &indices);
            }
        }
        parity
    }

    /// Copies a segment's new data over the old bytes of its strip.
    fn overlay(&self, window: Window, batch: &WriteBatch, segment: &Segment, old: &mut BufMut) {
        let base = self.bytes(segment.offset - window.offset);
        let mut parts = Parts::new();
        batch.parts(segment, (self.geometry.block_size(), &self.zeroes), &mut parts);
        for (offset, new) in &parts {
            let at = base + offset;
            old.as_mut_slice()[at..at + new.len()].copy_from_slice(new.as_slice());
        }
    }

    /// Writes data and parity. If `parity` is `None`, zeroes or deallocates the strips of the plan. Returns the
    /// positions that failed.
    pub(crate) async fn write_all(
        &self,
        group: Group,
        band: Band,
        plan: &Plan,
        (batch, durability): (&WriteBatch, Durability),
        parity: Option<Parity>,
    ) -> Failed {
        let slots = self.issue_writes(group, band, plan, (batch, durability), parity);
        settled(&self.members, group).await;
        self.take_written(band.stripe, slots, |op| {
            if let Some(Op::Write { data, .. }) = op {
                scratch::give_back_list(&self.scratch, data);
            }
        })
    }

    /// Issues the writes of [`write_all`](Self::write_all).
    fn issue_writes(
        &self,
        group: Group,
        band: Band,
        plan: &Plan,
        (batch, durability): (&WriteBatch, Durability),
        parity: Option<Parity>,
    ) -> Slots {
        let k = self.geometry.data_strips();
        let mut slots = Slots::new();
        let hollow = parity.is_none();
        let mut parity = parity.into_iter().flatten();
        let mut parts = Parts::new();
        for write in plan.writes.iter() {
            if hollow {
                let op = self.hollow_op(band, write, batch);
                slots.push((self.issue(group, band.stripe, write.position, op), write.position));
            } else if write.strip >= k {
                let data = Sg::from(parity.next().expect("one buffer per parity write"));
                slots.push((
                    self.issue_write(group, band, write, (0, data), durability),
                    write.position,
                ));
            } else {
                let segment =
                    batch.segments.iter().find(|s| s.strip == write.strip).expect("planned");
                batch.parts(segment, (self.geometry.block_size(), &self.zeroes), &mut parts);
                each_list(&mut parts, |list| {
                    let slot = self.issue_write(group, band, write, list, durability);
                    slots.push((slot, write.position));
                });
            }
        }
        slots
    }

    /// Takes the outcomes of writes, and reports the members that failed. Returns the positions that failed.
    pub(super) fn take_written(
        &self,
        stripe: StripeIndex,
        slots: impl IntoIterator<Item = (IoSlot, u8)>,
        mut came_back: impl FnMut(Option<Op>),
    ) -> Failed {
        let mut failed = Failed::default();
        for (slot, position) in slots {
            let (op, result) = self.members.borrow_mut().take(slot);
            failed.replacement =
                failed.replacement.or(self.members.borrow_mut().paired.take_failed());
            if let Err(error) = result {
                // A failed write fails the member for every kind of error, because its block is stale from now on.
                failed.member.insert(position);
                self.blame(self.geometry.member(stripe, position), error);
            }
            came_back(op);
        }
        failed
    }

    /// Writes the strips that a resync or rebuild plan computed, with `durability`. Returns the positions that failed.
    pub(crate) async fn rewrite(
        &self,
        group: Group,
        band: Band,
        (plan, durability): (&Plan, Durability),
        mut reads: ReadBufs,
        loan: &mut Loan,
    ) -> Failed {
        let k = self.geometry.data_strips();
        let mut sources = ArrayVec::<(u8, Sg), STRIPS_MAX>::new();
        let mut recovered = self.recover(plan, &reads, loan);
        let computes_parity =
            plan.writes.iter().any(|w| w.strip >= k && !plan.recover.contains(&w.strip));
        if computes_parity {
            let nothing = WriteBatch::empty();
            let known = (&mut reads, &mut recovered);
            let parity = self.encode_from(plan, &nothing, known, loan);
            let strips = plan.writes.iter().map(|w| w.strip).filter(|s| *s >= k);
            sources.extend(strips.zip(parity.into_iter().map(|buf| Sg::from(buf.freeze()))));
            scratch::give_back(&self.scratch, reads);
        } else {
            let read = plan.reads.iter().map(|t| t.strip).zip(reads);
            sources.extend(read.map(|(strip, buf)| (strip, Sg::from(buf.freeze()))));
        }
        let computed = plan.recover.iter().copied().zip(recovered);
        sources.extend(computed.map(|(strip, buf)| (strip, Sg::from(buf.freeze()))));
        let mut slots = ArrayVec::<(IoSlot, u8), STRIPS_MAX>::new();
        for write in plan.writes.iter() {
            let (_, data) =
                sources.iter().find(|(strip, _)| *strip == write.strip).expect("planned");
            let slot = self.issue_write(group, band, write, (0, data.clone()), durability);
            slots.push((slot, write.position));
        }
        settled(&self.members, group).await;
        let failed = self.take_written(band.stripe, slots, drop);
        for (_, data) in sources {
            scratch::give_back_list(&self.scratch, data);
        }
        failed
    }

    /// True if a whole band is zeroed or deallocated, so that no data need to be sent.
    pub(crate) fn writes_nothing(&self, plan: &Plan, batch: &WriteBatch) -> bool {
        let hollow = batch.items.iter().all(|item| !matches!(item.fill, Fill::Data(_)));
        let whole = plan.window.blocks == self.geometry.band_blocks();
        hollow
            && whole
            && matches!(plan.strategy, Strategy::FullStripe | Strategy::Direct)
            && self.covers(batch)
    }

    /// True if the batch covers every data strip of its band completely.
    pub(crate) fn covers(&self, batch: &WriteBatch) -> bool {
        batch.segments.len() == usize::from(self.geometry.data_strips())
            && batch.segments.iter().all(|s| s.blocks == self.geometry.band_blocks())
    }

    fn hollow_op(&self, band: Band, write: &Transfer, batch: &WriteBatch) -> Op {
        let at = self.geometry.member_lba(band.stripe, write.offset);
        let range = LbaRange::new(at, u64::from(write.blocks));
        match batch.items[0].fill {
            Fill::Deallocate => Op::Deallocate { range },
            Fill::Data(_) | Fill::Zeroes => Op::WriteZeroes { range, durability: batch.durability },
        }
    }

    fn issue_write(
        &self,
        group: Group,
        band: Band,
        write: &Transfer,
        (offset_bytes, data): (usize, Sg),
        durability: Durability,
    ) -> IoSlot {
        let blocks = (offset_bytes >> self.geometry.block_size().shift()) as u32;
        let at = self.geometry.member_lba(band.stripe, write.offset + blocks);
        self.issue(group, band.stripe, write.position, Op::Write { at, data, durability })
    }

    pub(crate) fn issue(&self, group: Group, stripe: StripeIndex, position: u8, op: Op) -> IoSlot {
        let member = self.geometry.member(stripe, position);
        self.members.borrow_mut().issue(self.now.get(), group, member, Target::Data, op)
    }
}

/// Overlays the strips that were read or reconstructed with their new data. Adds the new data of the other written
/// strips, which are written over the whole window, to `new`.
fn new_strips(
    shard: &Shard,
    plan: &Plan,
    batch: &WriteBatch,
    (reads, recovered): (&mut ReadBufs, &mut ReadBufs),
    new: &mut NewParts,
) {
    let mut parts = Parts::new();
    for segment in batch.segments.iter() {
        let old = held(&plan.reads, reads, segment.strip).or_else(|| {
            let at = plan.recover.iter().position(|strip| *strip == segment.strip);
            at.map(|at| &mut recovered[at])
        });
        if let Some(old) = old {
            shard.overlay(plan.window, batch, segment, old);
            continue;
        }
        batch.parts(segment, (shard.geometry.block_size(), &shard.zeroes), &mut parts);
        new.extend(parts.drain(..).map(|(offset, part)| (segment.strip, offset, part)));
    }
}

/// Returns the buffer that a plan read for `strip`, if any.
fn held<'a>(reads: &[Transfer], bufs: &'a mut ReadBufs, strip: u8) -> Option<&'a mut BufMut> {
    let at = reads.iter().position(|t| t.strip == strip)?;
    bufs.get_mut(at)
}

/// Returns a byte range of every parity buffer, with the index of the parity.
fn windowed<'a>(
    parity: &'a mut ReadBufs,
    indices: &[u8],
    part: std::ops::Range<usize>,
) -> ArrayVec<ParityMut<'a>, STRIPS_MAX> {
    parity
        .iter_mut()
        .zip(indices)
        .map(|(buf, index)| ParityMut {
            index: *index,
            bytes: &mut buf.as_mut_slice()[part.clone()],
        })
        .collect()
}

fn add(
    code: &strake_parity::Code,
    strip: u8,
    data: &[u8],
    offset: usize,
    parity: &mut ReadBufs,
    indices: &[u8],
) {
    let mut targets = windowed(parity, indices, offset..offset + data.len());
    strake_parity::accumulate(code, usize::from(strip), data, &mut targets)
        .expect("a plan's buffers are equally long");
}

/// Computes every parity from all data in one pass.
fn encode_whole(code: &strake_parity::Code, strips: &[&[u8]], parity: &mut ReadBufs) {
    let mut targets: ArrayVec<&mut [u8], STRIPS_MAX> =
        parity.iter_mut().map(BufMut::as_mut_slice).collect();
    strake_parity::encode(code, strips, &mut targets).expect("a plan's buffers are equally long");
}

/// Calls `issue` with scatter lists of consecutive parts, and with the byte offset of each list.
fn each_list(parts: &mut Parts, mut issue: impl FnMut((usize, Sg))) {
    let mut list: Option<(usize, Sg)> = None;
    for (offset, part) in parts.drain(..) {
        let full = match &mut list {
            Some((_, list)) => list.push(part).err(),
            None => Some(part),
        };
        if let Some(part) = full
            && let Some(full) = list.replace((offset, Sg::from(part)))
        {
            issue(full);
        }
    }
    list.into_iter().for_each(issue);
}
