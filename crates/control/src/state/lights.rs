//! The LEDs of slots: intended and present patterns.
//!
//! An LED belongs to a slot, and facts belong to drives. The pure function [`Known::decide`] combines them. A failed
//! drive keeps its LED pattern after a spare has replaced it in the array, because the operator finds the drive by this
//! LED.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use strake_api::v1::{Drive, SlotLight};
use strake_dev_uring::{Light, Pattern, Slot};

use crate::policy::lights::{Fact, Facts, pattern_of};

/// The location of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Name of the slot.
    pub(crate) slot: String,
    /// LED of the slot.
    pub(crate) light: Light,
    /// Identity of the drive in the slot, independent of its driver.
    pub(crate) drive: String,
}

/// The drives in slots with LEDs, by path.
pub(crate) type Survey = BTreeMap<String, Spot>;

/// The state that is kept between two checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// LEDs that the operator requested, by name.
    located: BTreeMap<String, Light>,
    /// Location of each drive while it was in use, by path.
    places: Survey,
    /// Drives that failed or should be replaced, until they are removed or serve again.
    kept: BTreeMap<Place, (Spot, Pattern)>,
}

/// The name of an LED, and the identity of its drive. Two drives may share an LED: functions of a device, or drives on
/// a carrier.
type Place = (String, String);

/// The intended pattern of each LED, by name.
pub(crate) type Wanted = BTreeMap<String, (Light, Pattern)>;

impl Known {
    /// Returns the intended patterns for `facts` about drives with the locations in `survey`, and the state to keep.
    pub(crate) fn decide(&self, facts: &Facts, survey: &Survey) -> (Wanted, Self) {
        let mut next = Self { located: self.located.clone(), ..Self::default() };
        let mut drives: BTreeMap<String, BTreeSet<&String>> = BTreeMap::new();
        for spot in survey.values() {
            drives.entry(spot.light.name()).or_default().insert(&spot.drive);
        }
        // True if other drives are in the slot now.
        let is_replaced = |spot: &Spot| {
            drives.get(&spot.light.name()).is_some_and(|all| !all.contains(&spot.drive))
        };
        let mut by_drive: BTreeMap<Place, (Spot, BTreeSet<Fact>)> = BTreeMap::new();
        for (path, facts) in facts {
            let (now, was) = (survey.get(path), self.places.get(path));
            let is_used = facts.iter().any(|fact| fact.is_use());
            let spot = if is_used { now.or(was) } else { was.or(now) };
            let Some(spot) = spot.filter(|spot| is_used || !is_replaced(spot)) else { continue };
            next.places.insert(path.clone(), spot.clone());
            let entry = by_drive.entry((spot.light.name(), spot.drive.clone()));
            entry.or_insert_with(|| (spot.clone(), BTreeSet::new())).1.extend(facts);
        }
        let kept = self
            .kept
            .iter()
            .filter(|(place, (spot, _))| !by_drive.contains_key(*place) && !is_replaced(spot));
        let kept = kept.map(|(place, (spot, pattern))| (place.clone(), spot.clone(), *pattern));
        let mut found: Vec<(Place, Spot, Pattern)> = kept.collect();
        found.extend(
            by_drive.into_iter().map(|(place, (spot, facts))| (place, spot, pattern_of(&facts))),
        );
        let mut wanted = Wanted::new();
        for (place, spot, pattern) in found {
            let of_light = wanted.entry(place.0.clone());
            let (_, shown) = of_light.or_insert_with(|| (spot.light.clone(), pattern));
            *shown = pattern.max(*shown);
            if matches!(pattern, Pattern::Fail | Pattern::Pfa) {
                next.kept.insert(place, (spot, pattern));
            }
        }
        for (name, light) in &self.located {
            wanted.insert(name.clone(), (light.clone(), pattern_of(&[Fact::Located].into())));
        }
        (wanted, next)
    }
}

/// The depth of a check: only differences from the last switched patterns, or the present pattern of each LED.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Changed,
    All,
}

/// Returns the LEDs to switch: the differences between `shown` and `wanted`, and always `cleared`. An LED without an
/// intended pattern is switched off.
pub(crate) fn changes(
    shown: &Wanted,
    wanted: &Wanted,
    cleared: &BTreeMap<String, Light>,
    depth: Depth,
) -> Wanted {
    let mut changes: Wanted =
        cleared.iter().map(|(name, light)| (name.clone(), (light.clone(), Pattern::Off))).collect();
    let gone = shown.iter().filter(|(name, _)| !wanted.contains_key(*name));
    changes.extend(gone.map(|(name, (light, _))| (name.clone(), (light.clone(), Pattern::Off))));
    let differs = |name: &String, pattern: Pattern| {
        depth == Depth::All
            || cleared.contains_key(name)
            || shown.get(name).is_none_or(|(_, shown)| *shown != pattern)
    };
    let new = wanted.iter().filter(|(name, (_, pattern))| differs(name, *pattern));
    changes.extend(new.map(|(name, what)| (name.clone(), what.clone())));
    changes
}

/// The LEDs of this daemon.
#[derive(Default)]
pub(crate) struct Lights {
    pub(crate) known: Known,
    /// The last switched pattern of each LED.
    shown: Wanted,
    /// LEDs to switch without a difference, because a command requested it, or because their pattern is unknown after a
    /// failure.
    cleared: BTreeMap<String, Light>,
    /// Reasons why LEDs could not be switched, by name.
    trouble: BTreeMap<String, String>,
    /// Counts changes by commands.
    commands: u64,
    /// The facts and the time of the last check.
    last: Option<(Facts, u64, Instant)>,
    /// Held while LEDs are switched, because two concurrent switches of one LED could leave a wrong pattern.
    pub(crate) gate: Arc<Mutex<()>>,
}

/// The initial state of a check.
pub(crate) struct Look {
    pub(crate) known: Known,
    pub(crate) facts: Facts,
    pub(crate) shown: Wanted,
    pub(crate) cleared: BTreeMap<String, Light>,
    pub(crate) depth: Depth,
    commands: u64,
}

impl Look {
    /// True if the LED `name` probably shows `pattern`, so that it only needs a comparison.
    pub(crate) fn is_shown(&self, name: &str, pattern: Pattern) -> bool {
        let is_it = |(_, shown): &(Light, Pattern)| *shown == pattern;
        self.shown.get(name).is_some_and(is_it) && !self.cleared.contains_key(name)
    }
}

/// The result of an LED: its pattern, or the reason of a failure.
pub(crate) type Switched = (String, Light, Result<Pattern, String>);

impl Lights {
    /// True if a check is due: the facts have changed, or the last check is older than `every`.
    pub(crate) fn is_due(&self, facts: &Facts, every: Duration) -> bool {
        let nothing = facts.is_empty() && self.shown.is_empty() && self.cleared.is_empty();
        match &self.last {
            _ if nothing && self.known == Known::default() => false,
            None => true,
            Some((last, commands, at)) => {
                last != facts || *commands != self.commands || at.elapsed() >= every
            }
        }
    }

    /// Starts a check with `facts`. The first check, and a check after `every`, reads the present pattern of each LED.
    pub(crate) fn begin(&mut self, facts: Facts, every: Duration) -> Look {
        let recent = self.last.as_ref().map(|(_, _, at)| *at).filter(|at| at.elapsed() < every);
        let depth = if recent.is_some() { Depth::Changed } else { Depth::All };
        let at = recent.unwrap_or_else(Instant::now);
        self.last = Some((facts.clone(), self.commands, at));
        let (known, shown) = (self.known.clone(), self.shown.clone());
        let cleared = std::mem::take(&mut self.cleared);
        Look { known, facts, shown, cleared, depth, commands: self.commands }
    }

    /// Ends the check `look`. `next` is the state to keep, and `switched` contains the result of each LED. Returns
    /// failures that were not reported yet.
    pub(crate) fn end(
        &mut self,
        look: &Look,
        next: Known,
        switched: Vec<Switched>,
    ) -> Vec<(String, String)> {
        // The next check handles changes of commands meanwhile.
        if self.commands == look.commands {
            self.known = next;
        }
        let mut new = Vec::new();
        for (name, light, result) in switched {
            match result {
                Ok(pattern) => {
                    self.trouble.remove(&name);
                    if pattern == Pattern::Off {
                        self.shown.remove(&name);
                    } else {
                        self.shown.insert(name, (light, pattern));
                    }
                }
                Err(why) => {
                    self.shown.remove(&name);
                    // The LED may show a pattern even if none is intended any longer.
                    self.cleared.insert(name.clone(), light);
                    if self.trouble.insert(name.clone(), why.clone()).is_none() {
                        new.push((name, why));
                    }
                }
            }
        }
        new
    }

    /// Records that the operator locates the drive with this LED, or no longer does.
    pub(crate) fn locate(&mut self, light: &Light, is_asked: bool) {
        self.commands += 1;
        if is_asked {
            self.known.located.insert(light.name(), light.clone());
        } else {
            self.known.located.remove(&light.name());
            self.cleared.insert(light.name(), light.clone());
        }
    }

    /// Clears the state of the drive in the slot with this LED. The LED is switched off unless a fact requires a
    /// pattern.
    pub(crate) fn clear(&mut self, light: &Light) {
        let name = light.name();
        self.locate(light, false);
        self.known.kept.retain(|(light, _), _| *light != name);
        self.known.places.retain(|_, spot| spot.light.name() != name);
    }

    /// Returns the patterns of the LEDs.
    pub(crate) fn shown(&self) -> Shown {
        Shown { shown: self.shown.clone(), trouble: self.trouble.clone() }
    }
}

/// The patterns of the LEDs, readable without the manager.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    shown: Wanted,
    trouble: BTreeMap<String, String>,
}

impl Shown {
    /// Returns the last switched pattern of an LED, and the reason why it differs from the intended pattern.
    pub(crate) fn of(&self, light: &Light) -> (Pattern, &str) {
        let name = light.name();
        let pattern = self.shown.get(&name).map(|(_, pattern)| *pattern).unwrap_or_default();
        (pattern, self.trouble.get(&name).map_or("", String::as_str))
    }

    /// Adds the slot of a drive and its LED to the message about the drive.
    pub(crate) fn add_to(&self, message: &mut Drive, slot: Slot) {
        message.slot = slot.name;
        message.light = slot.light.map(|light| {
            let (pattern, note) = self.of(&light);
            SlotLight {
                pattern: pattern.word().to_owned(),
                seen: light.seen(pattern).word().to_owned(),
                backend: light.backend().to_owned(),
                note: note.to_owned(),
            }
        });
    }
}

#[cfg(test)]
mod tests;
