//! A recorded short history: the commands of every drive, the completions of clients, and the promises of labels.

use strake_raid::Geometry;
use strake_units::{BlockSize, Lba, LbaRange, MemberSet, Nanos, Uuid};

use super::case::Case;
use super::disk::{Disk, Event, Tape};
use super::image::Image;
use super::player::Player;
use super::promise::{Promise, of_history, promise_at};
use crate::drive::Crash;
use crate::oracle::{Begun, Oracle};
use crate::placement::{Placement, Spot};
use crate::rng::Rng;

/// The record of a case that was played once.
pub(super) struct Record {
    pub(super) case: Case,
    /// The geometry as the engine reports it; no check uses it.
    pub(super) geometry: Geometry,
    /// The expected placement of all bytes.
    pub(super) placement: Placement,
    /// The stable content of every drive at the start of the history.
    pub(super) base: Vec<Image>,
    /// The content of every block at that time.
    pub(super) oracle: Oracle,
    pub(super) events: Vec<Event>,
    /// Drives that are absent after a crash.
    pub(super) pulled: u64,
}

impl Record {
    /// Plays the history of a case.
    ///
    /// Returns an error after a failure without a drive fault.
    pub(super) fn of(case: Case) -> Result<Self, String> {
        Player::new(&case)?.play(case)
    }

    /// The blocks that are checked.
    pub(super) fn watched(&self) -> LbaRange {
        watched(&self.placement, self.first_stripe(), self.case.array_block)
    }

    /// The first stripe that is checked.
    fn first_stripe(&self) -> u64 {
        self.case.first_stripe(&self.geometry)
    }

    /// The parts of strips that are checked.
    pub(super) fn windows(&self) -> Vec<Window> {
        windows(&self.placement, self.first_stripe())
    }

    /// The blocks of a part of one strip.
    pub(super) fn blocks(&self, window: &Window, strip: u64) -> LbaRange {
        let shift = self.case.array_block.shift();
        let spot = Spot { stripe: window.stripe, strip, at: window.from };
        let first = Lba(self.placement.address(spot) >> shift);
        LbaRange::new(first, (window.to - window.from) >> shift)
    }

    /// The promise of the labels at a point.
    pub(super) fn promise(&self, point: usize) -> Promise {
        // The first event is the promise at the start of the history.
        promise_at(point, promise(&self.events[..1]), of_history(&self.events))
    }

    /// True if the array tolerates the loss of the slots in `out` and of the drives in the mask `lost`.
    pub(super) fn tolerates(&self, out: MemberSet, lost: u64) -> bool {
        self.placement.tolerates(out | self.case.slots(lost))
    }

    /// The permitted content of blocks after a crash at a point, and the stripes with a write in flight or not stable.
    pub(super) fn oracle(&self, point: usize, crash: Crash) -> (Oracle, Vec<u64>) {
        let mut oracle = self.oracle.clone();
        let mut live: Vec<(Begun, LbaRange)> = Vec::new();
        for event in &self.events[..point] {
            match event {
                Event::Begin { id, range, content } => {
                    live.push((oracle.begin_write(*id, *range, *content, false), *range));
                }
                Event::FlushBegin { id } => live.push((oracle.begin(*id), LbaRange::default())),
                Event::Ack { id, fua } => {
                    let (begun, range) = take(&mut live, *id);
                    oracle.end_write(begun, range, *fua);
                }
                Event::FlushAck { id } => oracle.end_flush(take(&mut live, *id).0),
                Event::Issue { .. }
                | Event::Done { .. }
                | Event::FlushIssue
                | Event::FlushDone { .. }
                | Event::Promise { .. } => {}
            }
        }
        let watched = self.watched();
        let mut stripes: Vec<u64> = (watched.start.0..watched.end().0)
            .filter(|lba| oracle.is_unsettled(*lba, crash))
            .map(|lba| self.placement.spot(Lba(lba).bytes(self.case.array_block)).stripe)
            .collect();
        stripes.dedup();
        oracle.crash(crash);
        (oracle, stripes)
    }
}

/// The last promise of the labels.
pub(super) fn promise(events: &[Event]) -> Promise {
    let promises = events.iter().rev().find_map(|event| match event {
        Event::Promise { promise, .. } => Some(*promise),
        _ => None,
    });
    promises.unwrap_or_default()
}

fn take(live: &mut Vec<(Begun, LbaRange)>, id: u64) -> (Begun, LbaRange) {
    let at = live.iter().position(|(begun, _)| begun.id == id);
    live.swap_remove(at.expect("an answer follows its request"))
}

/// The blocks that are filled before a history begins.
pub(super) fn watched(placement: &Placement, first_stripe: u64, size: BlockSize) -> LbaRange {
    let stripes = looked_at(placement, first_stripe);
    let blocks = (placement.data() * placement.strip_bytes()) >> size.shift();
    LbaRange::new(Lba(stripes.start * blocks), (stripes.end - stripes.start) * blocks)
}

fn looked_at(placement: &Placement, first: u64) -> std::ops::Range<u64> {
    first..(first + stripes(placement.strip_bytes())).min(placement.stripes())
}

/// A part of every data strip of a stripe: a range of bytes in the strip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) stripe: u64,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// Short strips completely; of tall strips the first and the last pages, and those on either side of each border of
/// bands.
fn windows(placement: &Placement, first_stripe: u64) -> Vec<Window> {
    let strip = placement.strip_bytes();
    let stripes = looked_at(placement, first_stripe);
    let parts: Vec<(u64, u64)> = if strip < TALL_BYTES {
        vec![(0, strip)]
    } else {
        let borders = (0..=strip).step_by(BAND_BYTES as usize);
        borders.map(|at| (at.saturating_sub(BESIDE), (at + BESIDE).min(strip))).collect()
    };
    let of_one = |stripe| parts.iter().map(move |&(from, to)| Window { stripe, from, to });
    stripes.flat_map(of_one).collect()
}

/// Strips from this size on are checked in parts.
pub(super) const TALL_BYTES: u64 = 64 << 10;

/// The unit of a strip that is written at once (docs/on-disk.md, "Redo log").
pub(super) const BAND_BYTES: u64 = 128 << 10;

/// The bytes that are checked on either side of a border.
const BESIDE: u64 = 4096;

/// The number of stripes that are checked, if the array has as many. Requests address the stripes before the last one,
/// so that untouched stripes follow them.
pub(super) const fn stripes(strip_bytes: u64) -> u64 {
    if strip_bytes < TALL_BYTES { 5 } else { 3 }
}

pub(super) fn uuid(seed: u64, what: u64) -> Uuid {
    Uuid::from_random(Rng::new(seed ^ what.rotate_left(40)).bytes16())
}

/// A wait function for drives that need no waiting.
pub(super) fn at_once(mut now: u64) -> impl FnMut() -> Option<Nanos> {
    move || {
        now += 1_000;
        Some(Nanos(now))
    }
}

/// A tape of the later events of these drives.
pub(super) fn tape_of(disks: &[Option<Disk>], seed: u64) -> Tape {
    let tape = Tape::default();
    for (at, disk) in disks.iter().enumerate() {
        if let Some(disk) = disk {
            disk.record(&tape, seed ^ at as u64);
        }
    }
    tape
}
