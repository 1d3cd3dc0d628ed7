//! A short history, written down: what every drive was told and did, what clients were told, what labels promised.

use strake_raid::Geometry;
use strake_units::{Lba, LbaRange, Nanos, Uuid};

use super::case::{Case, STRIPES};
use super::disk::{Disk, Event, Promise, Tape};
use super::image::Image;
use super::player::Player;
use crate::drive::Crash;
use crate::oracle::{Begun, Oracle};
use crate::rng::Rng;

/// What is known of a case after it was played once.
pub(super) struct Record {
    pub(super) case: Case,
    pub(super) geometry: Geometry,
    /// What every drive held, stably, when the history began.
    pub(super) base: Vec<Image>,
    /// What every block held then.
    pub(super) oracle: Oracle,
    pub(super) events: Vec<Event>,
    /// Drives that are not there after a crash, as a mask.
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
        watched(&self.geometry)
    }

    /// What the labels promised at a point. What they promise at the end of a turn may be so from anywhere in it: there
    /// the less of both counts.
    pub(super) fn promise(&self, point: usize) -> Promise {
        // The first event is what they promise when the history begins.
        let before = promise(&self.events[..point.max(1)]);
        let after = self.events[point..].iter().find_map(|event| match event {
            Event::Promise { promise, from } => Some((*promise, *from)),
            _ => None,
        });
        match after {
            Some((Promise { logged, out }, from)) if from < point => {
                Promise { logged: before.logged & logged, out: before.out | out }
            }
            Some(_) | None => before,
        }
    }

    /// True when the array can do without the slots in the mask `out` and the drives in the mask `lost`.
    pub(super) fn tolerates(&self, out: u64, lost: u64) -> bool {
        self.geometry.tolerates(out | self.case.slots(lost))
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
            .map(|lba| self.geometry.place(Lba(lba)).stripe.0)
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

pub(super) fn watched(geometry: &Geometry) -> LbaRange {
    let blocks = (STRIPES * geometry.stripe_data_blocks()).min(geometry.capacity_blocks());
    LbaRange::new(Lba(0), blocks)
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
