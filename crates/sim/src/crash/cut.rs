//! The cut of a history, and the writes that reached the media.

use std::fmt;
use std::str::FromStr;

use strake_raid::Geometry;

use super::disk::{DiskSpec, Event, Lie};
use super::image::{Image, Torn};
use crate::drive::Crash;
use crate::rng::mix;

/// Most open writes of a cut: each may or may not have reached the media. If there are more, the oldest count as done.
const OPEN_MAX: usize = 64;

/// A crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The number of events before it.
    pub(super) point: usize,
    /// A power cut empties the caches, a killed process does not.
    pub(super) crash: Crash,
    /// The open writes that reached the media, the oldest in the lowest bit.
    pub(super) kept: u64,
    /// The part of the last of them that reached the medium.
    pub(super) torn: Torn,
}

/// The writes of a history before a point, by the numbers of their events.
pub(super) struct Writes {
    /// Writes that certainly reached the media.
    pub(super) stable: Vec<usize>,
    /// Writes that may have reached the media, oldest first.
    pub(super) open: Vec<usize>,
    /// The number of stable writes that are in fact open, above the limit.
    pub(super) taken_as_done: u64,
}

impl Writes {
    pub(super) fn before(events: &[Event], point: usize, crash: Crash, spec: &DiskSpec) -> Self {
        let events = &events[..point];
        let mut done_at = vec![usize::MAX; events.len()];
        // By drive: writes that completed before this event are stable.
        let mut flushed = Vec::new();
        for (at, event) in events.iter().enumerate() {
            match event {
                Event::Done { of } => done_at[*of] = at,
                Event::FlushDone { .. } if spec.lie == Lie::Flush => {}
                Event::FlushDone { drive, of } => {
                    flushed.resize(flushed.len().max(drive + 1), 0);
                    flushed[*drive] = flushed[*drive].max(*of);
                }
                Event::Issue { .. }
                | Event::FlushIssue
                | Event::Begin { .. }
                | Event::Ack { .. }
                | Event::FlushBegin { .. }
                | Event::FlushAck { .. }
                | Event::Promise { .. } => {}
            }
        }
        let kept = crash == Crash::Kill || spec.cache == strake_block::VolatileCache::Absent;
        let mut writes = Self { stable: Vec::new(), open: Vec::new(), taken_as_done: 0 };
        for (at, event) in events.iter().enumerate() {
            let Event::Issue { drive, fua, .. } = event else { continue };
            let done = done_at[at];
            let flushed = flushed.get(*drive).is_some_and(|before| done < *before);
            if done != usize::MAX && (kept || (*fua && spec.lie != Lie::Fua) || flushed) {
                writes.stable.push(at);
            } else {
                writes.open.push(at);
            }
        }
        let surplus = writes.open.len().saturating_sub(OPEN_MAX);
        writes.stable.extend(writes.open.drain(..surplus));
        writes.taken_as_done = surplus as u64;
        writes.stable.sort_unstable();
        writes
    }

    /// The last write of a subset.
    pub(super) fn last(&self, kept: u64) -> Option<usize> {
        (kept != 0).then(|| self.open[63 - kept.leading_zeros() as usize])
    }

    /// The content of the media after a cut, from their initial content.
    pub(super) fn images(&self, base: &[Image], events: &[Event], cut: &Cut) -> Vec<Image> {
        let mut images = base.to_vec();
        let last = self.last(cut.kept);
        let mut open = self.open.iter().enumerate().peekable();
        let mut stable = self.stable.iter().peekable();
        loop {
            // In the order of their submission, so that the later of two overlapping writes wins.
            let next_open = open.peek().map_or(usize::MAX, |(_, event)| **event);
            let next_stable = stable.peek().map_or(usize::MAX, |event| **event);
            if next_stable < next_open {
                stable.next();
                apply(&mut images, &events[next_stable], Torn::Whole);
            } else if let Some((bit, event)) = open.next() {
                if cut.kept >> bit & 1 == 1 {
                    let torn = if last == Some(*event) { cut.torn } else { Torn::Whole };
                    apply(&mut images, &events[*event], torn);
                }
            } else {
                return images;
            }
        }
    }
}

fn apply(images: &mut [Image], event: &Event, torn: Torn) {
    let Event::Issue { drive, offset, change, .. } = event else { return };
    match torn {
        Torn::Whole => images[*drive].apply(*offset, change),
        Torn::Head(_) | Torn::Tail(_) => images[*drive].apply_torn(*offset, change, torn),
    }
}

/// The ways in which a write may be torn: at a block, and at 4 KiB. `chance` selects the position.
pub(super) fn tears(
    event: &Event,
    geometry: &Geometry,
    spec: &DiskSpec,
    chance: u64,
) -> impl Iterator<Item = Torn> + use<> {
    let (offset, len) = if let Event::Issue { offset, change, .. } = event {
        (*offset, change.len())
    } else {
        (0, 0)
    };
    let data = strake_ondisk::HEAD_BYTES..spec.bytes - strake_ondisk::TAIL_BYTES;
    // A block of the array is never torn, even if the blocks of the drive are smaller.
    let block = if data.contains(&offset) { geometry.block_size() } else { spec.block_size };
    let block = u64::from(block.bytes());
    [(0, block), (1, 4096)].into_iter().filter_map(move |(at, unit)| {
        let units = len / unit;
        if units < 2 || (at == 1 && unit == block) {
            return None;
        }
        let chance = chance.rotate_right(20 * at);
        let bytes = unit * (1 + chance % (units - 1));
        Some(if chance >> 19 & 1 == 0 { Torn::Head(bytes) } else { Torn::Tail(bytes) })
    })
}

/// The complete description of a state, without the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    pub(super) cut: Cut,
    /// Members that are lost in the same event, as a mask.
    pub(super) lost: u64,
    /// A second crash during the recovery from the first.
    pub(super) then: Option<Cut>,
    /// Members that are lost permanently in the second crash, as a mask.
    pub(super) later: u64,
    /// A third crash during the recovery from the second.
    pub(super) again: Option<Cut>,
    pub(super) back: Back,
}

/// The time at which the lost members return, with their content from the first crash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Back {
    /// The lost members never return.
    #[default]
    Never,
    /// After the second crash.
    Second,
    /// After the third.
    Third,
}

impl Back {
    /// True if they are present at the start of this number; the first start follows the first crash.
    pub(super) const fn is_by(self, start: u64) -> bool {
        match self {
            Self::Never => false,
            Self::Second => start >= 2,
            Self::Third => start >= 3,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Never => "",
            Self::Second => "back",
            Self::Third => "back3",
        }
    }
}

impl State {
    /// The state after one crash, with members lost in it.
    pub(super) const fn first(cut: Cut, lost: u64) -> Self {
        Self { cut, lost, then: None, later: 0, again: None, back: Back::Never }
    }

    /// Members that are absent at the start of this number, and members that were lost at any time before it.
    pub(super) const fn lost_by(&self, start: u64) -> (u64, u64) {
        let later = if start >= 2 { self.later } else { 0 };
        let first = if self.back.is_by(start) { 0 } else { self.lost };
        (first | later, self.lost | later)
    }

    /// A number that distinguishes it from other states.
    pub(super) fn name(&self) -> u64 {
        mix(self.cut.kept ^ mix(self.lost ^ mix(self.cut.point as u64)))
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let crash = if self.crash == Crash::Kill { 'k' } else { 'p' };
        write!(f, "{}.{crash}.{:x}.", self.point, self.kept)?;
        match self.torn {
            Torn::Whole => f.write_str("w"),
            Torn::Head(bytes) => write!(f, "h{bytes}"),
            Torn::Tail(bytes) => write!(f, "t{bytes}"),
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:x}", self.cut, self.lost)?;
        for cut in [self.then, self.again].into_iter().flatten() {
            write!(f, ":{cut}")?;
        }
        if self.later != 0 {
            write!(f, ":lost{:x}", self.later)?;
        }
        if self.back == Back::Never { Ok(()) } else { write!(f, ":{}", self.back.word()) }
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is no cut: POINT.CRASH.KEPT.TORN is wanted");
        let words: Vec<&str> = text.split('.').collect();
        let [point, crash, kept, torn] = words[..] else { return Err(wrong()) };
        let bytes = || torn[1..].parse().map_err(|_| wrong());
        Ok(Self {
            point: point.parse().map_err(|_| wrong())?,
            crash: match crash {
                "k" => Crash::Kill,
                "p" => Crash::Power,
                _ => return Err(wrong()),
            },
            kept: u64::from_str_radix(kept, 16).map_err(|_| wrong())?,
            torn: match torn.chars().next() {
                Some('w') => Torn::Whole,
                Some('h') => Torn::Head(bytes()?),
                Some('t') => Torn::Tail(bytes()?),
                Some(_) | None => return Err(wrong()),
            },
        })
    }
}

impl FromStr for State {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split(':');
        let cut = words.next().unwrap_or_default().parse()?;
        let lost = words.next().and_then(|lost| u64::from_str_radix(lost, 16).ok());
        let lost = lost.ok_or(format!("{text} does not say which members are lost"))?;
        let mut state = Self::first(cut, lost);
        for word in words {
            let back = [Back::Second, Back::Third].into_iter().find(|back| back.word() == word);
            let later = word.strip_prefix("lost").and_then(|m| u64::from_str_radix(m, 16).ok());
            match (back, state.then, state.again) {
                (None, Some(_), _) if later.is_some() => state.later = later.unwrap_or_default(),
                (Some(back), ..) if state.back == Back::Never => state.back = back,
                (None, None, _) => state.then = Some(word.parse()?),
                (None, Some(_), None) => state.again = Some(word.parse()?),
                _ => return Err(format!("{word} is nothing that a state goes on with")),
            }
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::State;

    /// Parsing the printed form of a state must return the state.
    fn check(key: &str) {
        let state: State = key.parse().unwrap_or_else(|what| panic!("{what}"));
        assert_eq!(state.to_string(), key);
    }

    #[test]
    fn a_state_is_found_by_what_it_is_called() {
        check("110.p.204.t2048:0");
        check("61.k.1d.w:6:3.p.1.h512");
        check("61.k.1d.w:6:3.p.1.h512:back");
        check("61.k.1d.w:6:3.p.1.w:9.k.0.w");
        check("61.k.1d.w:6:3.p.1.w:9.k.0.w:back");
        check("61.k.1d.w:6:3.p.1.w:9.k.0.w:back3");
        check("61.k.1d.w:6:3.p.1.w:lost8:back");
        for wrong in ["61.k.1d.w", "61.k.1d.w:6:back:back", "61.k.1d.w:0:1.k.0.w:1.k.0.w:1.k.0.w"] {
            assert!(wrong.parse::<State>().is_err(), "{wrong}");
        }
    }
}
