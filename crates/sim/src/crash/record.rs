//! A recorded short history: the commands and actions of every drive, the answers to clients, the promises of labels.

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

/// What is known of a case after it was played once.
pub(super) struct Record {
    pub(super) case: Case,
    /// What the engine says. Nothing is judged by it.
    pub(super) geometry: Geometry,
    /// Where everything has to be.
    pub(super) placement: Placement,
    /// What every drive held, stably, when the history began.
    pub(super) base: Vec<Image>,
    /// What every block held then.
    pub(super) oracle: Oracle,
    pub(super) events: Vec<Event>,
    /// Drives that are not there after a crash.
    pub(super) pulled: u64,
}

impl Record {
    /// Plays the history of a case.
    ///
    /// # Errors
    /// When something goes wrong in it, though nothing went wrong with a drive.
    pub(super) fn of(case: Case) -> Result<Self, String> {
        Player::new(&case)?.play(case)
    }

    /// The blocks that are looked at.
    pub(super) fn watched(&self) -> LbaRange {
        watched(&self.placement, self.first_stripe(), self.case.array_block)
    }

    /// The first stripe that is looked at.
    fn first_stripe(&self) -> u64 {
        self.case.first_stripe(&self.geometry)
    }

    /// The parts of strips that are looked at.
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

    /// What the labels promised at a point.
    pub(super) fn promise(&self, point: usize) -> Promise {
        // The first event is what they promise when the history begins.
        promise_at(point, promise(&self.events[..1]), of_history(&self.events))
    }

    /// True when the array can do without the slots in the mask `out` and the drives in the mask `lost`.
    pub(super) fn tolerates(&self, out: MemberSet, lost: u64) -> bool {
        self.placement.tolerates(out | self.case.slots(lost))
    }

    /// What blocks may hold when the machine stops at a point, and which stripes had a write under way or not stable.
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

/// What the labels promised last.
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

/// A part of every data strip of a stripe: bytes of the strip.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) stripe: u64,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// All of short strips; of tall ones the first and the last pages, and those on either side of each border of bands.
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

/// Strips from this size on are looked at in parts.
pub(super) const TALL_BYTES: u64 = 64 << 10;

/// What of a strip is written as one (docs/on-disk.md, "Redo log").
pub(super) const BAND_BYTES: u64 = 128 << 10;

/// What is looked at on either side of a border.
const BESIDE: u64 = 4096;

/// Stripes that are looked at, as far as there are so many. Requests go to the ones before the last, so that there are
/// bystanders behind them.
pub(super) const fn stripes(strip_bytes: u64) -> u64 {
    if strip_bytes < TALL_BYTES { 5 } else { 3 }
}

pub(super) fn uuid(seed: u64, what: u64) -> Uuid {
    Uuid::from_random(Rng::new(seed ^ what.rotate_left(40)).bytes16())
}

/// A way to wait for drives that need no waiting.
pub(super) fn at_once(mut now: u64) -> impl FnMut() -> Option<Nanos> {
    move || {
        now += 1_000;
        Some(Nanos(now))
    }
}

/// The tape of what happens to these drives from now on.
pub(super) fn tape_of(disks: &[Option<Disk>], seed: u64) -> Tape {
    let tape = Tape::default();
    for (at, disk) in disks.iter().enumerate() {
        if let Some(disk) = disk {
            disk.record(&tape, seed ^ at as u64);
        }
    }
    tape
}
