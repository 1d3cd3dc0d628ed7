//! Selection of the states of a history that are checked.
//!
//! At every point, the states are every subset of the open writes (a sample of the subsets, if there are more than
//! twelve open writes), once whole and once for each way to tear the last write, times every set of members that may be
//! lost. Two points with the same writes kept have the same media; the last of them counts, because the most is then
//! known about the required content. If these are more states than requested, a uniform random selection is made, from
//! the seed.

use std::collections::{BinaryHeap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use super::cut::{Cut, State, Writes, tears};
use super::disk::{DiskSpec, Event, Pace};
use super::image::Torn;
use super::promise::of_history;
use super::record::{Record, promise};
use crate::drive::Crash;
use crate::rng::{Rng, mix};

/// The largest number of open writes whose subsets are all checked.
const EXHAUSTIVE_MAX: usize = 12;

/// The largest number of members that a history may lose with the crash.
pub(super) const LOST_MAX: u32 = 2;

/// The number of bits by which a state with a late open write is more likely to be chosen.
const LATE: u32 = 3;

/// The number of drawn subsets if there are more.
const SAMPLE: u64 = 256;

/// The states to check, ordered by point.
pub(super) struct States {
    pub(super) chosen: Vec<State>,
    /// The set from which they are chosen.
    pub(super) covered: Covered,
}

/// The number of cuts of a history, and the part that is checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Covered {
    /// Cuts with all subsets of the open writes. A cut is a point and a kind of crash.
    pub(super) every_subset: u64,
    /// Cuts with more open writes, whose subsets are drawn.
    pub(super) some_subsets: u64,
    /// Cuts that are not checked separately: the next point has the same open writes, and its promises are not weaker.
    pub(super) as_next: u64,
    /// Open writes that count as done at a cut, because there are too many.
    pub(super) taken_as_done: u64,
    /// Distinct states of those subsets, including losses.
    pub(super) states: u64,
    /// Chosen states.
    pub(super) chosen: u64,
}

impl Covered {
    /// True if some state of the history is not checked.
    pub(super) const fn sampled(&self) -> bool {
        self.some_subsets > 0 || self.taken_as_done > 0 || self.chosen < self.states
    }

    /// The counts by name.
    pub(super) const fn counts(&self) -> [(&'static str, u64); 6] {
        [
            ("cuts_with_every_subset", self.every_subset),
            ("cuts_with_some_subsets", self.some_subsets),
            ("cuts_judged_at_the_next", self.as_next),
            ("open_writes_taken_as_done", self.taken_as_done),
            ("states_there_are", self.states),
            ("states_chosen", self.chosen),
        ]
    }
}

struct Chooser {
    /// The states of lowest rank, without losses and with losses.
    best: [BinaryHeap<(u64, usize)>; 2],
    states: Vec<State>,
    most: usize,
    all: u64,
}

impl States {
    /// At most `most` states of a history, with at most `lost_max` lost members.
    pub(super) fn of(record: &Record, most: usize, lost_max: u32) -> Self {
        let losses = losses(record, lost_max);
        let best = [BinaryHeap::new(), BinaryHeap::new()];
        let mut chooser = Chooser { best, states: Vec::new(), most, all: 0 };
        // The losses of the last point, because its cuts are adjacent.
        let (mut of_point, mut here) = (usize::MAX, Vec::new());
        let covered =
            every_cut(record, &record.events, &mut |Reached { cut, media, chance, late }| {
                if of_point != cut.point {
                    here = spared(record, cut.point, &losses);
                    of_point = cut.point;
                }
                for &lost in &here {
                    let rank = mix(media ^ mix(lost ^ chance));
                    let rank = if late { rank >> LATE } else { rank };
                    chooser.offer(rank, State::first(cut, lost));
                }
            });
        chooser.choose(covered)
    }
}

/// The `losses` that the array tolerates at a point: a label may record a member as out before the member goes out.
fn spared(record: &Record, point: usize, losses: &[u64]) -> Vec<u64> {
    let out = record.promise(point).out;
    let spared = |lost: &u64| *lost == 0 || record.tolerates(out, *lost);
    losses.iter().copied().filter(spared).collect()
}

/// A cut and its result.
pub(super) struct Reached {
    pub(super) cut: Cut,
    /// A hash of the content of the media.
    media: u64,
    /// A random number.
    chance: u64,
    /// Whether a write is open for which some I/Os of these drives were slow enough: the promise of the labels changed
    /// after the write was submitted to a drive.
    late: bool,
}

/// Calls `each` for every cut of `events`, the events of the history or of a recovery from one of its states. Returns
/// the number of cuts.
pub(super) fn every_cut(
    record: &Record,
    events: &[Event],
    each: &mut dyn FnMut(Reached),
) -> Covered {
    let covered = Covered::default();
    let spec = record.case.disk_spec();
    let mut walk = Walk { record, events, spec, seen: HashSet::default(), covered };
    // Without a cache, a power cut and a killed process leave the same content.
    let crashes: &[Crash] =
        if record.case.cached { &[Crash::Power, Crash::Kill] } else { &[Crash::Power] };
    for point in (0..=events.len()).rev() {
        for &crash in crashes {
            if differs(events, point, crash, record.case.cached) {
                walk.point(point, crash, each);
            } else {
                walk.covered.as_next += 1;
            }
        }
    }
    walk.covered
}

/// The hash function for numbers that are already mixed.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = mix(self.0 ^ u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

struct Walk<'a> {
    record: &'a Record,
    events: &'a [Event],
    spec: DiskSpec,
    seen: HashSet<u64, BuildHasherDefault<Mixed>>,
    covered: Covered,
}

/// True if a crash at this point may leave other media than a crash at the next point, or if the promises differ. If it
/// is false, the open writes and the promises of the labels are the same at the next point, and clients have at least
/// the same knowledge there.
fn differs(events: &[Event], point: usize, crash: Crash, cached: bool) -> bool {
    match events.get(point) {
        None | Some(Event::Issue { .. } | Event::FlushDone { .. } | Event::Promise { .. }) => true,
        // A completed write in the cache is as open to a power cut as before. A killed process has no effect on it.
        Some(Event::Done { of }) => {
            crash == Crash::Kill || !cached || matches!(events[*of], Event::Issue { fua: true, .. })
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

/// Sets of at most `lost_max` drives (at most [`LOST_MAX`]) that the array tolerates, in addition to the members that
/// are out at the start of the history.
pub(super) fn losses(record: &Record, lost_max: u32) -> Vec<u64> {
    let out = record.case.out();
    let drives = record.case.drives();
    let mut losses = vec![0];
    for a in 0..drives {
        for b in a..drives {
            let lost = 1u64 << a | 1 << b;
            let enough = record.tolerates(out, lost);
            if lost.count_ones() <= lost_max && lost & out.bits() == 0 && enough {
                losses.push(lost);
            }
        }
    }
    losses
}

impl Walk<'_> {
    fn point(&mut self, point: usize, crash: Crash, each: &mut dyn FnMut(Reached)) {
        let writes = Writes::before(self.events, point, crash, &self.spec);
        let promise = promise(&self.events[..point]);
        let base = mix(promise.logged.bits() ^ mix(promise.out.bits()) ^ mix(crash as u64));
        let base = writes.stable.iter().fold(base, |sum, write| sum.wrapping_add(name(*write)));
        let count = writes.open.len();
        self.covered.taken_as_done += writes.taken_as_done;
        let few = count <= EXHAUSTIVE_MAX;
        self.covered.every_subset += u64::from(few);
        self.covered.some_subsets += u64::from(!few);
        let seed = self.record.case.seed;
        let late = self.record.case.pace == Pace::Uneven && is_late(&writes, &self.events[..point]);
        let names: Vec<u64> = writes.open.iter().map(|write| name(*write)).collect();
        let mut subset = |kept, media| {
            self.subset((point, crash, kept), &writes, (media, late), each);
        };
        if few {
            // The hash of a subset without its first write was computed before.
            let mut media = vec![base];
            for kept in 0..1usize << count {
                if kept != 0 {
                    let without = media[kept & (kept - 1)];
                    media.push(without.wrapping_add(names[kept.trailing_zeros() as usize]));
                }
                subset(kept as u64, media[kept]);
            }
            return;
        }
        let mut subset = |kept: u64| {
            let open = names.iter().enumerate().filter(|(bit, _)| kept >> bit & 1 == 1);
            subset(kept, open.fold(base, |sum, (_, name)| sum.wrapping_add(*name)));
        };
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
        (media, late): (u64, bool),
        each: &mut dyn FnMut(Reached),
    ) {
        let chance = mix(media ^ self.record.case.seed);
        let last = writes.last(kept).map(|last| &self.events[last]);
        let torn = last.map(|last| tears(last, &self.record.geometry, &self.spec, chance));
        let ways = [Torn::Whole].into_iter().chain(torn.into_iter().flatten());
        for (way, torn) in ways.enumerate() {
            // A whole open write and a stable write leave the same content.
            let media = if way == 0 { media } else { mix(media.wrapping_add(way as u64)) };
            if self.seen.insert(media) {
                each(Reached { cut: Cut { point, crash, kept, torn }, media, chance, late });
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

    /// Half of the states are without a loss, if there are enough.
    fn choose(self, covered: Covered) -> States {
        let [alone, with] = self.best.map(BinaryHeap::into_sorted_vec);
        let losses = with.len().min(self.most - alone.len().min(self.most / 2));
        let alone = alone.into_iter().take(self.most - losses);
        let places = alone.chain(with.into_iter().take(losses)).map(|(_, place)| place);
        let mut chosen: Vec<State> = places.map(|place| self.states[place]).collect();
        chosen.sort_unstable_by_key(|s| (s.cut.point, s.cut.crash as u8, s.cut.kept, s.lost));
        let covered = Covered { states: self.all, chosen: chosen.len() as u64, ..covered };
        States { chosen, covered }
    }
}

/// True if a write is open that was submitted to a drive before the last change of the labels' promise.
fn is_late(writes: &Writes, events: &[Event]) -> bool {
    let last = of_history(events).last().map_or(0, |noted| noted.at);
    writes.open.first().is_some_and(|open| *open < last)
}

/// The summand of a write in the hash of a set of writes.
fn name(write: usize) -> u64 {
    mix(write as u64 + 0x5bd1_e995)
}

#[cfg(test)]
mod tests {
    use super::differs;
    use crate::crash::disk::Event;
    use crate::crash::image::Change;
    use crate::drive::Crash;

    fn issue(fua: bool) -> Event {
        Event::Issue { drive: 0, offset: 0, change: Change::Zeroes(512), fua }
    }

    /// A killed process leaves completed writes: every such event is a cut, at odd and at even points.
    #[test]
    fn every_end_of_a_write_is_a_cut_for_the_end_of_a_process() {
        for before in 1..4 {
            let mut events = vec![issue(false)];
            events.resize(before, Event::FlushIssue);
            events.push(Event::Done { of: 0 });
            assert!(differs(&events, before, Crash::Kill, true), "point {before}");
            assert!(!differs(&events, before, Crash::Power, true), "point {before}");
            assert!(differs(&events, before, Crash::Power, false), "point {before}");
            events[0] = issue(true);
            assert!(differs(&events, before, Crash::Power, true), "point {before}");
        }
    }
}
