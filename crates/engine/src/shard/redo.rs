//! The redo log of one shard: records of writes to stripes with an absent member, written before the writes themselves.
//!
//! A crash during such a write leaves parity that matches neither the old nor the new data, although the absent strip
//! can only be computed from this parity. Therefore all content of the write is first recorded stably, and a start
//! after a crash replays the record. Records are in a ring in the order of their numbers, and the front of the ring is
//! released when its writes are complete and stable. As long as a record exists, every later record of the same blocks
//! exists too, so a replay of all records in order ends with the newest content ([`strake_ondisk::ring`]).
//!
//! ```text
//!  plan --> read, computed --> place in the ring --> record on every member it touches, stable
//!       --> in place, stable --> members that failed are out of use --> the place is given up
//! ```

mod escapes;

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use arrayvec::ArrayVec;
use strake_block::{Buf, BufMut, BufPool, Durability, Op, Pages, Sg};
pub(super) use strake_ondisk::ring::Entry;
use strake_ondisk::ring::{Offer, Ring};
use strake_ondisk::{
    Consistency, REDO_BLOCK_BYTES, REDO_HEADER_BYTES, RedoHeader, RedoPart, encode_redo,
    encode_redo_again, redo_ring,
};
use strake_parity::checksum::crc32c_append;
use strake_raid::{Band, Geometry, Plan};
use strake_reactor::Scheduler;
use strake_units::{Lba, MemberIndex, MemberSet, StripeIndex, Uuid};

use super::Shard;
use super::address::Target;
use super::bands::{Parts, WriteBatch};
use super::execute::{Failed, STRIPS_MAX, Slots};
use super::members::{Group, IoSlot, settled};
use super::wait::WaitQueue;
use crate::message::{Peer, ToLeader, View};
use crate::roll::Roll;
use crate::slab::Slab;
use escapes::{copied, escape_marked, marks};

pub(crate) struct Redo {
    roll: Arc<Roll>,
    ring: u16,
    places: Ring,
    /// Buffers for headers, in arrays with parity. Each page contains zeroes or an earlier header.
    pages: Option<BufPool>,
    waiting: WaitQueue,
    /// Number of tasks that wait for a page.
    waiting_for_pages: usize,
    /// Tickets keep the order of arrival.
    next_ticket: u64,
    serving: u64,
    /// Members to whose stripes writes are logged. The set contains whole groups.
    logging: MemberSet,
    /// True if small writes to stripes without an absent member are recorded as partial writes instead.
    intends: bool,
    /// The membership epoch at the start of each write of a task.
    writers: Slab<u64>,
    /// The version of the views to report when all writes are complete that started before this membership epoch.
    draining: Option<(u64, u64)>,
}

impl Redo {
    /// Creates ring `ring` of `rings`, for records whose parts have at most `largest` bytes, and for at most `tasks`
    /// tasks. `pages` are buffers for headers.
    pub(super) fn new(
        scheduler: &Scheduler,
        roll: Arc<Roll>,
        (ring, rings): (u16, u16),
        largest: usize,
        tasks: usize,
        pages: Option<BufPool>,
    ) -> Self {
        let (start, bytes) = redo_ring(ring, rings);
        Self {
            roll,
            ring,
            places: Ring::new(start, bytes, record_bytes(largest as u64)),
            pages,
            waiting: WaitQueue::new(scheduler),
            waiting_for_pages: 0,
            next_ticket: 0,
            serving: 0,
            logging: MemberSet::EMPTY,
            intends: false,
            writers: Slab::new(tasks),
            draining: None,
        }
    }

    /// Applies new members and new rules of logging. `version` is reported when all older writes are complete.
    pub(super) fn adopt(
        &mut self,
        roll: Arc<Roll>,
        logging: Logging,
        version: u64,
        membership_epoch: u64,
    ) {
        self.roll = roll;
        self.begin(logging);
        self.draining = Some((version, membership_epoch));
    }

    /// Applies the rules of logging at the start, without older writes.
    pub(super) fn begin(&mut self, logging: Logging) {
        (self.logging, self.intends) = (logging.members, logging.intends);
        self.draining = Some((0, 0));
    }

    /// True if small writes are recorded as partial writes.
    pub(super) fn intends(&self) -> bool {
        self.intends
    }

    /// Returns the identity of a member in records.
    pub(super) fn uuid(&self, member: MemberIndex) -> Uuid {
        self.roll.members[member.at()]
    }

    /// Returns the members to whose stripes writes are logged.
    pub(super) fn logging(&self) -> MemberSet {
        self.logging
    }

    /// Records the start of a write of a task. Pairs with [`wrote`](Self::wrote).
    pub(super) fn writes(&mut self, membership_epoch: u64) -> u32 {
        self.writers.insert(membership_epoch)
    }

    pub(super) fn wrote(&mut self, writer: u32) {
        self.writers.release(writer);
    }

    /// Returns the version that can be reported, because all tasks have completed writes that started before it was
    /// applied.
    pub(super) fn drained(&mut self) -> Option<(u64, u64)> {
        let (version, membership_epoch) = self.draining?;
        let done = self.writers.iter_mut().all(|(_, began)| *began >= membership_epoch);
        done.then_some((version, membership_epoch))
    }

    /// Records that the version was reported.
    pub(super) fn reported(&mut self) {
        self.draining = None;
    }

    /// True if a version is not yet reported.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.is_some()
    }

    /// True if no record has an unfinished write, and all pages are free.
    pub(super) fn is_idle(&self) -> bool {
        let all_free = |pages: &BufPool| pages.available() >= pages.chunks();
        self.places.is_idle() && self.pages.as_ref().is_none_or(all_free)
    }

    /// Wakes all waiting tasks, so that they notice that the array has failed.
    pub(super) fn wake_all(&mut self) {
        self.waiting.wake_all();
    }

    /// True if a record whose parts have `payload` bytes has space now.
    pub(super) fn has_room(&self, payload: usize) -> bool {
        self.serves_small_writes() && self.places.has_room(record_bytes(payload as u64))
    }

    /// True if a page is free, and no task waits for a page or for space.
    fn serves_small_writes(&self) -> bool {
        let nothing_waits = self.serving == self.next_ticket && self.waiting_for_pages == 0;
        nothing_waits && self.pages.as_ref().is_some_and(|pages| pages.available() > 0)
    }

    /// Returns the bytes of all pages.
    pub(super) fn page_bytes(&self) -> usize {
        self.pages.as_ref().map_or(0, |pages| pages.chunks() * pages.chunk_bytes())
    }

    /// Returns the bytes of all pages that are in huge pages of memory.
    pub(super) fn huge_page_bytes(&self) -> usize {
        let huge = |pool: &&BufPool| pool.arena().pages() != Pages::Ordinary;
        self.pages.as_ref().filter(huge).map_or(0, |pages| pages.chunks() * pages.chunk_bytes())
    }

    fn pages(&mut self) -> &mut BufPool {
        self.pages.as_mut().expect("only arrays with parity log writes")
    }

    /// Allocates a record whose parts have `payload` bytes, and a page for its header, if both are free and no task
    /// waits for them.
    pub(super) fn place_now(&mut self, payload: usize) -> Option<(Entry, BufMut)> {
        if !self.serves_small_writes() {
            return None;
        }
        let entry = self.places.place(record_bytes(payload as u64))?;
        let page = self.pages().get(REDO_HEADER_BYTES).expect("a page is free");
        Some((entry, page))
    }

    /// Ends the write of a record.
    pub(super) fn recorded(&mut self, entry: Entry, outcome: RecordOutcome) {
        match outcome {
            RecordOutcome::Stable => self.places.stable(entry),
            RecordOutcome::Failed => self.places.failed(entry),
        }
        self.waiting.wake_all();
    }

    /// Takes back a page that a drive returned late, or returns the buffer because it is no page.
    pub(super) fn take_late_page(&mut self, buf: Buf) -> Option<Buf> {
        let Some(pages) = self.pages.as_mut().filter(|pages| pages.is_in(buf.arena())) else {
            return Some(buf);
        };
        pages.put_frozen(buf);
        self.waiting.wake_all();
        None
    }

    /// Returns a page. If a drive that timed out keeps the page, another page replaces it.
    pub(super) fn give_page(&mut self, page: Buf) {
        let pages = self.pages();
        match page.reclaim() {
            Ok(page) if pages.owns(&page) => pages.put(page),
            Ok(_) | Err(_) => pages.replace_lost(),
        }
        self.waiting.wake_all();
    }

    /// Releases a record. Its write is complete and stable, and the members that failed the write are out of use.
    pub(super) fn done(&mut self, entry: Entry) {
        self.places.done(entry);
        self.waiting.wake_all();
    }
}

/// Waits for a page. Returns `None` if the array is `lost`. [`Redo::give_page`] returns the page.
pub(super) async fn page(redo: &RefCell<Redo>, lost: impl Fn() -> bool) -> Option<BufMut> {
    redo.borrow_mut().waiting_for_pages += 1;
    let page = poll_fn(|_| {
        let mut redo = redo.borrow_mut();
        if lost() {
            return Poll::Ready(None);
        }
        let page = redo.pages().get(REDO_HEADER_BYTES);
        if page.is_none() {
            redo.waiting.register();
            return Poll::Pending;
        }
        Poll::Ready(page)
    })
    .await;
    redo.borrow_mut().waiting_for_pages -= 1;
    page
}

/// Returns the bytes of a record whose longest part has `payload` bytes.
fn record_bytes(payload: u64) -> u64 {
    payload.next_multiple_of(REDO_BLOCK_BYTES as u64) + REDO_HEADER_BYTES as u64
}

/// Waits for the ticket of this task. [`end_turn`] ends the turn. Returns false if the array is `lost`.
async fn turn(redo: &RefCell<Redo>, lost: impl Fn() -> bool) -> bool {
    let ticket = {
        let mut redo = redo.borrow_mut();
        redo.next_ticket += 1;
        redo.next_ticket - 1
    };
    poll_fn(|_| {
        let mut redo = redo.borrow_mut();
        if lost() || redo.serving == ticket {
            return Poll::Ready(());
        }
        redo.waiting.register();
        Poll::Pending
    })
    .await;
    !lost()
}

fn end_turn(redo: &RefCell<Redo>) {
    let mut redo = redo.borrow_mut();
    redo.serving += 1;
    redo.waiting.wake_all();
}

/// Waits until the ring has `bytes` free bytes, or until a mark would free them. Returns `None` if the array is `lost`.
async fn offer(redo: &RefCell<Redo>, bytes: u64, lost: impl Fn() -> bool) -> Option<Offer> {
    poll_fn(|_| {
        let mut redo = redo.borrow_mut();
        if lost() {
            return Poll::Ready(None);
        }
        match redo.places.offer(bytes) {
            Offer::Nothing => {
                redo.waiting.register();
                Poll::Pending
            }
            offer @ (Offer::Place(_) | Offer::Mark(_)) => Poll::Ready(Some(offer)),
        }
    })
    .await
}

/// The rules of logging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Logging {
    /// The members to whose stripes writes are logged.
    members: MemberSet,
    /// True if small writes to stripes without an absent member are recorded as partial writes.
    intends: bool,
}

/// Returns the rules of logging while `impaired` are not in sync.
pub(crate) fn logging(
    geometry: &Geometry,
    consistency: Consistency,
    impaired: MemberSet,
) -> Logging {
    let parities = geometry.parity_strips();
    match consistency {
        Consistency::Safe | Consistency::Strict if parities == 0 => Logging::default(),
        Consistency::None | Consistency::Resync => Logging::default(),
        Consistency::Safe => Logging { members: geometry.groups_with(impaired), intends: false },
        Consistency::Strict => Logging { members: geometry.all_members(), intends: parities >= 2 },
    }
}

/// The outcome of the write of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordOutcome {
    /// The record is stable on all its members.
    Stable,
    /// A member failed to write the record.
    Failed,
}

/// The result of recording a write.
pub(super) enum Recorded {
    /// The write may be executed.
    Entry(Entry),
    /// These positions failed. The write was not executed.
    Failed(Failed),
    /// The array has stopped.
    Lost,
}

/// The positions to which a record is written.
pub(super) type Positions = ArrayVec<u8, STRIPS_MAX>;

/// New content of one strip, in order and without gaps.
type Payload = Parts;

impl Shard {
    /// True if writes to `stripe` are logged.
    pub(super) fn is_logged(&self, stripe: StripeIndex) -> bool {
        self.redo.borrow().logging().contains(self.geometry.member(stripe, 0))
    }

    /// Records the writes of `plan` on every member that the plan writes.
    pub(super) async fn record_write(
        &self,
        group: Group,
        band: Band,
        plan: &Plan,
        (batch, parity): (&WriteBatch, &[Buf]),
    ) -> Recorded {
        let Some(page) = page(&self.redo, || self.shared.is_lost()).await else {
            return Recorded::Lost;
        };
        let longest = plan.writes.iter().map(|write| write.blocks).max().unwrap_or(0);
        let bytes = record_bytes(u64::from(longest) << self.geometry.block_size().shift());
        let positions = plan.writes.iter().map(|write| write.position).collect();
        let (entry, mut page) =
            match self.place_record(group, band.stripe, positions, bytes, page).await {
                Ok(placed) => placed,
                Err((recorded, page)) => {
                    self.redo.borrow_mut().give_page(page.freeze());
                    return recorded;
                }
            };
        let parts = self.redo_parts(band, plan, batch, parity);
        let about = self.header(band.stripe, entry);
        encode_redo_again(&about, &parts, entry.at, page.as_mut_slice());
        let page = page.freeze();
        let written = (plan, batch, parity);
        let slots = issue_record(self, group, entry, &page, written, &parts);
        settled(&self.members, group).await;
        let failed = self.take_written(band.stripe, slots, drop);
        self.redo.borrow_mut().give_page(page);
        self.end_record(entry, failed)
    }

    /// Ends the write of a record, except for the positions in `failed`.
    pub(super) fn end_record(&self, entry: Entry, failed: Failed) -> Recorded {
        let stable = failed.any().is_empty() && failed.replacement.is_none();
        let outcome = if stable { RecordOutcome::Stable } else { RecordOutcome::Failed };
        self.redo.borrow_mut().recorded(entry, outcome);
        if stable { Recorded::Entry(entry) } else { Recorded::Failed(failed) }
    }

    /// Allocates a record of `bytes` bytes on the members at `positions` of `stripe`, of which at least one remains as
    /// long as the array serves. Returns the entry with `page`, or the reason for a failure.
    pub(super) async fn place_record(
        &self,
        group: Group,
        stripe: StripeIndex,
        positions: Positions,
        bytes: u64,
        mut page: BufMut,
    ) -> Result<(Entry, BufMut), (Recorded, BufMut)> {
        let lost = || self.shared.is_lost();
        if !turn(&self.redo, lost).await {
            return Err((Recorded::Lost, page));
        }
        let placed = loop {
            let mark = match offer(&self.redo, bytes, lost).await {
                Some(Offer::Place(entry)) => break Ok(entry),
                Some(Offer::Mark(mark)) => mark,
                Some(Offer::Nothing) | None => break Err(Recorded::Lost),
            };
            let about = self.header(StripeIndex(0), mark);
            encode_redo(&about, &[], mark.at, page.as_mut_slice());
            let (back, failed) = self.write_header(group, stripe, &positions, mark, page).await;
            page = back;
            if !failed.any().is_empty() || failed.replacement.is_some() {
                break Err(Recorded::Failed(failed));
            }
            self.redo.borrow_mut().places.stable(mark);
        };
        end_turn(&self.redo);
        match placed {
            Ok(entry) => Ok((entry, page)),
            Err(recorded) => Err((recorded, page)),
        }
    }

    /// Writes the header in `page` without a payload to the members at `positions` of `stripe`. Returns the page, and
    /// the positions that failed.
    pub(super) async fn write_header(
        &self,
        group: Group,
        stripe: StripeIndex,
        positions: &Positions,
        entry: Entry,
        page: BufMut,
    ) -> (BufMut, Failed) {
        let page = page.freeze();
        let mut slots = Slots::new();
        for position in positions {
            let member = self.geometry.member(stripe, *position);
            let slot = self.issue_log(group, member, &mut { entry.at }, Sg::from(page.clone()));
            slots.push((slot, *position));
        }
        settled(&self.members, group).await;
        let failed = self.take_written(stripe, slots, drop);
        // A device that timed out keeps its buffers.
        let mut page = page.reclaim().unwrap_or_else(|page| copied(&page));
        page.truncate(REDO_HEADER_BYTES);
        (page, failed)
    }

    fn issue_log(&self, group: Group, member: MemberIndex, at: &mut u64, data: Sg) -> IoSlot {
        let bytes = data.len() as u64;
        let op = Op::Write { at: Lba(*at), data, durability: Durability::Fua };
        *at += bytes;
        self.members.borrow_mut().issue(self.now.get(), group, member, Target::Log, op)
    }

    /// Collects in `payload` the new content of a strip.
    fn payload(
        &self,
        plan: &Plan,
        (batch, parity): (&WriteBatch, &[Buf]),
        strip: u8,
        payload: &mut Payload,
    ) {
        let k = self.geometry.data_strips();
        if strip >= k {
            let parities = plan.writes.iter().filter(|write| write.strip >= k);
            let at = parities.clone().position(|write| write.strip == strip);
            payload.clear();
            payload.push((0, parity[at.expect("it is written")].clone()));
            return;
        }
        let segment = batch.segments.iter().find(|s| s.strip == strip).expect("planned");
        batch.parts(segment, (self.geometry.block_size(), &self.zeroes), payload);
    }

    fn redo_parts(
        &self,
        band: Band,
        plan: &Plan,
        batch: &WriteBatch,
        parity: &[Buf],
    ) -> ArrayVec<RedoPart, STRIPS_MAX> {
        let redo = self.redo.borrow();
        let (mut parts, mut payload) = (ArrayVec::new(), Payload::new());
        for write in plan.writes.iter() {
            let slot = self.geometry.member(band.stripe, write.position);
            self.payload(plan, (batch, parity), write.strip, &mut payload);
            let escaped = marks(&payload);
            escape_marked(&mut payload, escaped);
            let crc = payload.iter().fold(0, |crc, (_, buf)| crc32c_append(crc, buf.as_slice()));
            parts.push(RedoPart {
                slot,
                uuid: redo.uuid(slot),
                offset: write.offset,
                blocks: write.blocks,
                crc,
                escaped,
            });
        }
        parts
    }

    /// Returns the header of a record at `entry` for a write to `stripe`.
    pub(super) fn header(&self, stripe: StripeIndex, entry: Entry) -> RedoHeader {
        let out = self.geometry.all_members() - self.members.borrow().viewed(View::InSync);
        header_without(self, out, stripe, entry)
    }

    /// Reports to the leader if all writes that started under older views are complete.
    pub(super) fn report_drained(&self) {
        let drained = {
            let mut redo = self.redo.borrow_mut();
            if !redo.is_draining() {
                return;
            }
            redo.drained()
        };
        let Some((version, membership_epoch)) = drained else { return };
        let trusted = self.region_table.borrow().untrusted() == 0;
        if trusted && self.smalls.borrow().all_since(membership_epoch) {
            self.redo.borrow_mut().reported();
            self.post(0, Peer::Lead(ToLeader::Drained { from: self.core, version }));
        }
    }
}

/// Returns the header of a record while the members in `out` are not in sync.
pub(super) fn header_without(
    shard: &Shard,
    out: MemberSet,
    stripe: StripeIndex,
    entry: Entry,
) -> RedoHeader {
    let redo = shard.redo.borrow();
    RedoHeader {
        array: redo.roll.array,
        epoch: redo.roll.epoch,
        generation: redo.roll.generation,
        ring: redo.ring,
        sequence: entry.sequence,
        floor: entry.floor,
        stripe,
        out,
        replacement: redo.roll.replacement,
    }
}

/// Issues the writes of a record: the header in `page` and the payload to every member that `plan` writes.
fn issue_record(
    shard: &Shard,
    group: Group,
    entry: Entry,
    page: &Buf,
    (plan, batch, parity): (&Plan, &WriteBatch, &[Buf]),
    parts: &[RedoPart],
) -> Slots {
    let (mut slots, mut payload) = (Slots::new(), Payload::new());
    for (write, part) in plan.writes.iter().zip(parts) {
        let mut at = entry.at;
        let mut list = Sg::from(page.clone());
        let mut issue = |list| {
            slots.push((shard.issue_log(group, part.slot, &mut at, list), write.position));
        };
        shard.payload(plan, (batch, parity), write.strip, &mut payload);
        escape_marked(&mut payload, part.escaped);
        for (_, buf) in payload.drain(..) {
            if let Err(buf) = list.push(buf) {
                issue(std::mem::replace(&mut list, Sg::from(buf)));
            }
        }
        issue(list);
    }
    slots
}

#[cfg(test)]
mod tests;
