//! Bad blocks on one shard: the blocks of a stripe that are not used, and reports to the leader.
//!
//! The leader keeps the list (`bad_leader.rs`), writes it to every member and sends it to every shard before it
//! answers. Only the task that holds a band changes the entries of this band, so the entries do not change during the
//! task.
//!
//! ```text
//!  a rebuild cannot recover a block    --> hollow, listed --> the rebuild continues
//!  something else is written there     --> abandoning, listed --> zeroes, parity --> abandoned
//!  the block itself is written         --> stable --> off the list --> acknowledged
//! ```

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

use strake_block::{IoError, IoErrorKind};
use strake_ondisk::{BadEvent, BadList, BadRun};
use strake_raid::{Band, Plan, Role, Scheme, Sets, Spot, Transfer, Window};
use strake_reactor::Scheduler;
use strake_units::{Lba, LbaRange, MemberIndex, MemberSet, PositionSet, StripSet, StripeIndex};

use super::Shard;
use super::wait::WaitQueue;
use crate::message::{BadNote, Change, Peer, ToLeader};

/// The bad blocks on a shard.
pub(crate) struct BadTable {
    list: Arc<BadList>,
    /// The bands with listed blocks, by number on a member. The ranges are sorted and not adjacent.
    bands: Vec<Range<u64>>,
    band_blocks: u64,
    /// Counts the notes that were sent to the leader.
    ticket: u64,
    /// Answers of the leader that no task has taken yet.
    answers: Vec<(u64, Result<(), IoErrorKind>)>,
    waiting: WaitQueue,
}

impl BadTable {
    pub(crate) fn new(list: Arc<BadList>, band_blocks: u32, scheduler: &Scheduler) -> Self {
        let (band_blocks, waiting) = (u64::from(band_blocks), WaitQueue::new(scheduler));
        let bands = bands_of(&list, band_blocks);
        Self { list, bands, band_blocks, ticket: 0, answers: Vec::new(), waiting }
    }

    /// Replaces the list by the list of the leader.
    pub(crate) fn replace(&mut self, list: Arc<BadList>) {
        if !Arc::ptr_eq(&self.list, &list) {
            self.bands = bands_of(&list, self.band_blocks);
        }
        self.list = list;
    }

    /// True if a block of any member is listed in the band that contains block `at` of the members.
    #[inline(never)]
    fn touches(&self, at: Lba) -> bool {
        let band = at.0 / self.band_blocks;
        let next = self.bands.partition_point(|bands| bands.end <= band);
        self.bands.get(next).is_some_and(|bands| bands.start <= band)
    }

    /// Stores an answer of the leader.
    pub(crate) fn answered(&mut self, ticket: u64, result: Result<(), IoErrorKind>) {
        self.answers.push((ticket, result));
        self.waiting.wake_all();
    }

    fn take_answer(&mut self, ticket: u64) -> Option<Result<(), IoErrorKind>> {
        let at = self.answers.iter().position(|(number, _)| *number == ticket)?;
        Some(self.answers.swap_remove(at).1)
    }
}

/// Returns the bands with listed blocks.
fn bands_of(list: &BadList, band_blocks: u64) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = list
        .runs()
        .iter()
        .map(BadRun::range)
        .filter(|range| range.blocks > 0)
        .map(|range| range.start.0 / band_blocks..(range.end().0 - 1) / band_blocks + 1)
        .collect();
    all.sort_unstable_by_key(|bands| bands.start);
    let mut bands: Vec<Range<u64>> = Vec::with_capacity(all.len());
    for next in all {
        match bands.last_mut() {
            Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
            Some(_) | None => bands.push(next),
        }
    }
    bands
}

/// Returns the rows of `window` at `position`.
pub(crate) const fn all_of(position: u8, window: Window) -> Transfer {
    Transfer { position, strip: 0, offset: window.offset, blocks: window.blocks }
}

/// Returns positions with bad blocks in `window` that are read only if no other copy is left: unlisted copies are
/// equal, but a listed copy was never compared with them.
pub(super) fn suspect_copies(shard: &Shard, band: Band, window: Window) -> PositionSet {
    match shard.geometry.copies() {
        1 => PositionSet::EMPTY,
        _ => shard.bad_positions(band, window),
    }
}

impl Shard {
    /// True if no block of any member is bad, which is the normal case.
    pub(crate) fn no_bad_blocks(&self) -> bool {
        self.bad.borrow().list.is_empty()
    }

    /// True if a block of any member is listed in the band that contains row `offset` of the stripe. Tasks execute
    /// requests in such a band, because they check each block. Groups of members are not distinguished.
    #[inline(always)]
    pub(crate) fn is_bad_band(&self, stripe: StripeIndex, offset: u32) -> bool {
        let bad = self.bad.borrow();
        !bad.bands.is_empty() && bad.touches(self.geometry.member_lba(stripe, offset))
    }

    /// Restricts `sets` to the members that are usable for a request to `spot`.
    #[inline]
    pub(super) fn without_bad(&self, sets: Sets, spot: &Spot) -> Sets {
        match self.is_bad_band(spot.place.stripe, spot.place.offset) {
            true => sets.bad(MemberSet::ALL),
            false => sets,
        }
    }

    fn place(&self, band: Band, transfer: &Transfer) -> (MemberIndex, LbaRange) {
        let at = self.geometry.member_lba(band.stripe, transfer.offset);
        let member = self.geometry.member(band.stripe, transfer.position);
        (member, LbaRange::new(at, u64::from(transfer.blocks)))
    }

    /// True if `test` holds for a run of bad blocks in `transfer`.
    fn any_run(&self, band: Band, transfer: &Transfer, test: impl Fn(&BadRun) -> bool) -> bool {
        let (member, range) = self.place(band, transfer);
        self.bad.borrow().list.within(member, range).any(test)
    }

    /// Returns the positions with a run of bad blocks in `window` for which `test` holds.
    fn positions(&self, band: Band, window: Window, test: impl Fn(&BadRun) -> bool) -> PositionSet {
        if self.no_bad_blocks() {
            return PositionSet::EMPTY;
        }
        (0..self.geometry.width())
            .filter(|position| self.any_run(band, &all_of(*position, window), &test))
            .collect()
    }

    /// Returns the positions with bad blocks in `window`.
    pub(crate) fn bad_positions(&self, band: Band, window: Window) -> PositionSet {
        self.positions(band, window, |_| true)
    }

    /// Returns the positions that must not be read in `window`, because they contain blocks that were never filled.
    pub(crate) fn hidden_positions(&self, band: Band, window: Window) -> PositionSet {
        self.positions(band, window, |run| run.what.is_hidden())
    }

    /// True if some of the blocks are bad.
    pub(crate) fn is_bad(&self, band: Band, transfer: &Transfer) -> bool {
        !self.no_bad_blocks() && self.any_run(band, transfer, |_| true)
    }

    /// True if some of these data are abandoned. A reconstruction would not return the written data.
    pub(crate) fn is_given_up(&self, band: Band, strip: u8, window: Window) -> bool {
        let parity = match self.geometry.scheme() {
            Scheme::Parity(_) => true,
            Scheme::Copies(_) => false,
        };
        let wanted = all_of(self.position_of_strip(band.stripe, strip), window);
        parity && !self.no_bad_blocks() && self.any_run(band, &wanted, |r| r.what.is_given_up())
    }

    /// Returns a note of `event` for the blocks of `transfer`.
    pub(crate) fn bad_note(&self, band: Band, transfer: &Transfer, event: BadEvent) -> BadNote {
        let (member, range) = self.place(band, transfer);
        BadNote { member, range, event }
    }

    /// Adds notes that hide the blocks of `position` where blocks of `listed` are on the list, except hidden blocks.
    pub(super) fn hide_where_listed(
        &self,
        band: Band,
        listed: &Transfer,
        position: u8,
    ) -> Vec<BadNote> {
        let (member, range) = self.place(band, listed);
        let hidden = self.geometry.member(band.stripe, position);
        let bad = self.bad.borrow();
        let shown = bad.list.within(member, range).filter(|run| !run.what.is_hidden());
        let within = shown.map(|run| {
            let start = run.start.max(range.start);
            let end = run.range().end().min(range.end());
            LbaRange::new(start, end.0 - start.0)
        });
        within.map(|range| BadNote { member: hidden, range, event: BadEvent::Hollow }).collect()
    }

    /// Sends notes to the leader, and waits until the list is on every live member and every shard.
    ///
    /// # Errors
    /// If the list is full, or the array has failed.
    pub(crate) async fn note_bad(&self, notes: Vec<BadNote>) -> Result<(), IoError> {
        if notes.is_empty() {
            return Ok(());
        }
        let ticket = {
            let mut bad = self.bad.borrow_mut();
            bad.ticket += 1;
            bad.ticket
        };
        self.post(0, Peer::Lead(ToLeader::Change(Change::Bad { from: self.core, ticket, notes })));
        let answer = poll_fn(|_| {
            let mut bad = self.bad.borrow_mut();
            match bad.take_answer(ticket) {
                Some(answer) => Poll::Ready(answer),
                None => {
                    bad.waiting.register();
                    Poll::Pending
                }
            }
        });
        answer.await.map_err(IoError::new)
    }

    /// Records that these blocks were read, or stably contain their reconstructed content.
    pub(crate) async fn note_restored(
        &self,
        band: Band,
        transfer: &Transfer,
    ) -> Result<(), IoError> {
        if !self.is_bad(band, transfer) {
            return Ok(());
        }
        self.note_bad(vec![self.bad_note(band, transfer, BadEvent::Restored)]).await
    }

    /// Records the stable writes of `plan`, except for the positions in `failed`: `event` happened to the written
    /// blocks, and data strips in `zeroed` contain zeroes instead of abandoned data.
    pub(crate) async fn note_written(
        &self,
        band: Band,
        plan: &Plan,
        failed: PositionSet,
        zeroed: StripSet,
        event: BadEvent,
    ) -> Result<(), IoError> {
        if self.no_bad_blocks() {
            return Ok(());
        }
        let written = plan.writes.iter().filter(|w| !failed.contains(w.position));
        let bad = written.filter(|write| self.is_bad(band, write));
        let notes = bad.map(|write| {
            let event = if zeroed.contains(write.strip) { BadEvent::Restored } else { event };
            self.bad_note(band, write, event)
        });
        self.note_bad(notes.collect()).await
    }

    /// True if `position` is a data strip in the stripe of the band.
    pub(crate) fn holds_data(&self, band: Band, position: u8) -> bool {
        match self.geometry.role(band.stripe, position) {
            Role::Data { .. } => true,
            Role::Parity { .. } => false,
        }
    }
}

/// Columns that are not yet processed, the first columns on top.
pub(crate) struct Columns(arrayvec::ArrayVec<Window, 24>);

impl Columns {
    pub(crate) fn new(window: Window) -> Self {
        Self([window].into_iter().collect())
    }

    pub(crate) fn next(&mut self) -> Option<Window> {
        self.0.pop()
    }

    /// Puts both halves of `window` back. The window must have more than one block.
    pub(crate) fn halve(&mut self, window: Window) {
        let blocks = window.blocks / 2;
        self.0.push(Window { offset: window.offset + blocks, blocks: window.blocks - blocks });
        self.0.push(Window { offset: window.offset, blocks });
    }
}
