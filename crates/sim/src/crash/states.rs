//! Which states of a history are looked at.
//!
//! At every point every subset of the open writes is one (of more than twelve open writes: a sample of the subsets),
//! once whole and once for each way to tear the last write, times every set of members that may be lost. Two points
//! at which the same writes were kept give the same media; of these the last one counts, since most is known then
//! about what must be there. Where all of that is more than is asked for, chance decides evenly, by the seed.

use std::collections::{BinaryHeap, HashSet};

use super::cut::{Cut, State, Writes, tears};
use super::disk::Event;
use super::image::Torn;
use super::record::{Record, promise};
use crate::drive::Crash;
use crate::rng::{Rng, mix};

/// Open writes of which every subset is looked at.
const EXHAUSTIVE_MAX: usize = 12;

/// Members that a history may lose with the crash.
pub(super) const LOST_MAX: u32 = 2;

/// Subsets drawn where there are more.
const SAMPLE: u64 = 256;

/// The states to be looked at, by point.
pub(super) struct States {
    pub(super) chosen: Vec<State>,
    /// Some subsets were only sampled, or not all states were chosen.
    pub(super) sampled: bool,
}

struct Chooser {
    /// The states of lowest rank, without losses and with.
    best: [BinaryHeap<(u64, usize)>; 2],
    states: Vec<State>,
    most: usize,
    all: u64,
}

impl States {
    /// At most `most` states of a history, with at most `lost_max` members lost.
    pub(super) fn of(record: &Record, most: usize, lost_max: u32) -> Self {
        let losses = losses(record, lost_max);
        let best = [BinaryHeap::new(), BinaryHeap::new()];
        let mut chooser = Chooser { best, states: Vec::new(), most, all: 0 };
        let sampled = every_cut(record, &record.events, &mut |cut, media, chance| {
            let out = record.promise(cut.point).out;
            for &lost in &losses {
                // Whoever is about to go out may be called so already.
                if lost == 0 || record.tolerates(out, lost) {
                    chooser.offer(mix(media ^ mix(lost ^ chance)), State::first(cut, lost));
                }
            }
        });
        chooser.choose(sampled)
    }
}

/// Every cut of `events`, which are those of the history or of a recovery from one of its states. Each is told with
/// what stands for the media that it leaves, and with something drawn. Returns whether any subset was left out.
pub(super) fn every_cut(
    record: &Record,
    events: &[Event],
    each: &mut dyn FnMut(Cut, u64, u64),
) -> bool {
    let mut walk = Walk { record, events, seen: HashSet::new(), sampled: false };
    let cached = record.case.cached;
    for point in (0..=events.len()).rev() {
        if matters(events, point, cached) {
            walk.point(point, Crash::Power, each);
            if cached {
                walk.point(point, Crash::Kill, each);
            }
        }
    }
    walk.sampled
}

struct Walk<'a> {
    record: &'a Record,
    events: &'a [Event],
    seen: HashSet<u64>,
    sampled: bool,
}

/// True when the media may look otherwise at the next point, or other things are promised there.
fn matters(events: &[Event], point: usize, cached: bool) -> bool {
    match events.get(point) {
        None | Some(Event::Issue { .. } | Event::FlushDone { .. } | Event::Promise { .. }) => true,
        // The end of a process loses what is in flight, even where a cache would keep it open.
        Some(Event::Done { of }) => {
            !cached
                || matches!(events[*of], Event::Issue { fua: true, .. })
                || point.is_multiple_of(2)
        }
        Some(
            Event::FlushIssue
            | Event::Begin { .. }
            | Event::Ack { .. }
            | Event::FlushBegin { .. }
            | Event::FlushAck { .. },
        ) => false,
    }
}

/// Sets of at most `lost_max` drives, which is no more than [`LOST_MAX`], that the array could do without, on top of
/// those that are out when the history begins.
pub(super) fn losses(record: &Record, lost_max: u32) -> Vec<u64> {
    let out = record.case.failed.iter().fold(0u64, |mask, slot| mask | 1 << slot);
    let drives = record.case.drives();
    let mut losses = vec![0];
    for a in 0..drives {
        for b in a..drives {
            let lost = 1u64 << a | 1 << b;
            let enough = record.tolerates(out, lost);
            if lost.count_ones() <= lost_max && lost & out == 0 && enough {
                losses.push(lost);
            }
        }
    }
    losses
}

impl Walk<'_> {
    fn point(&mut self, point: usize, crash: Crash, each: &mut dyn FnMut(Cut, u64, u64)) {
        let spec = self.record.case.disk_spec();
        let writes = Writes::before(self.events, point, crash, &spec);
        let promise = promise(&self.events[..point]);
        let base = mix(promise.logged ^ mix(promise.out) ^ mix(crash as u64));
        let base = writes.stable.iter().fold(base, |sum, write| sum.wrapping_add(name(*write)));
        let count = writes.open.len();
        self.sampled |= count > EXHAUSTIVE_MAX;
        let seed = self.record.case.seed;
        let mut subset = |kept| self.subset((point, crash, kept), &writes, base, each);
        if count <= EXHAUSTIVE_MAX {
            (0..1u64 << count).for_each(subset);
            return;
        }
        let all = u64::MAX >> (64 - count);
        subset(0);
        subset(all);
        for bit in 0..count {
            subset(1 << bit);
            subset(all & !(1 << bit));
        }
        let mut rng = Rng::new(seed ^ point as u64);
        for _ in 0..SAMPLE {
            subset(rng.bits() & all);
        }
    }

    fn subset(
        &mut self,
        (point, crash, kept): (usize, Crash, u64),
        writes: &Writes,
        base: u64,
        each: &mut dyn FnMut(Cut, u64, u64),
    ) {
        let bits = writes.open.iter().enumerate().filter(|(bit, _)| kept >> bit & 1 == 1);
        let media = bits.fold(base, |sum, (_, write)| sum.wrapping_add(name(*write)));
        let chance = mix(media ^ self.record.case.seed);
        let mut ways = vec![Torn::Whole];
        if let Some(last) = writes.last(kept) {
            let spec = self.record.case.disk_spec();
            ways.extend(tears(&self.events[last], &self.record.geometry, &spec, chance));
        }
        for (way, torn) in ways.into_iter().enumerate() {
            // A write that is whole and open, and one that is stable, leave the same.
            let media = if way == 0 { media } else { mix(media.wrapping_add(way as u64)) };
            if self.seen.insert(media) {
                each(Cut { point, crash, kept, torn }, media, chance);
            }
        }
    }
}

impl Chooser {
    /// Keeps a state if its rank is among the lowest.
    fn offer(&mut self, rank: u64, state: State) {
        self.all += 1;
        let best = &mut self.best[usize::from(state.lost != 0)];
        if best.len() == self.most {
            if best.peek().is_some_and(|(highest, _)| rank >= *highest) {
                return;
            }
            let (_, place) = best.pop().unwrap_or_default();
            self.states[place] = state;
            best.push((rank, place));
        } else {
            best.push((rank, self.states.len()));
            self.states.push(state);
        }
    }

    /// Half of the states are ones without a loss, as long as there are that many.
    fn choose(self, sampled: bool) -> States {
        let [alone, with] = self.best.map(BinaryHeap::into_sorted_vec);
        let losses = with.len().min(self.most - alone.len().min(self.most / 2));
        let alone = alone.into_iter().take(self.most - losses);
        let places = alone.chain(with.into_iter().take(losses)).map(|(_, place)| place);
        let mut chosen: Vec<State> = places.map(|place| self.states[place]).collect();
        chosen.sort_unstable_by_key(|s| (s.cut.point, s.cut.crash as u8, s.cut.kept, s.lost));
        States { sampled: sampled || (chosen.len() as u64) < self.all, chosen }
    }
}

/// Stands for a write in the sum that stands for a set of writes.
fn name(write: usize) -> u64 {
    mix(write as u64 + 0x5bd1_e995)
}
