//! The lights of slots: what each is to show, and what it shows.
//!
//! A light belongs to a slot, and facts belong to drives. [`Known::decide`] combines them: values in, values out. A
//! drive that failed keeps its light after a spare has replaced it in the array, because the operator finds the drive
//! by this light.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use strake_api::v1::{Drive, SlotLight};
use strake_dev_uring::{Light, Pattern, Slot};

use crate::policy::lights::{Fact, Facts, pattern_of};

/// Where a drive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// Name of the slot.
    pub(crate) slot: String,
    /// Its light.
    pub(crate) light: Light,
    /// What identifies the drive in it, whatever driver it has.
    pub(crate) drive: String,
}

/// The drives that are in slots with lights, by path.
pub(crate) type Survey = BTreeMap<String, Spot>;

/// What is remembered from one look to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// Lights that the operator asked for, by name.
    located: BTreeMap<String, Light>,
    /// Where each drive was while it was in use, by path.
    places: Survey,
    /// Drives that failed or were sick: until they are no longer there, or serve again.
    kept: BTreeMap<Place, (Spot, Pattern)>,
}

/// The name of a light, and the identity of a drive that has it. Two drives may share one: functions of a device, or
/// drives on a carrier.
type Place = (String, String);

/// What each light is to show, by its name.
pub(crate) type Wanted = BTreeMap<String, (Light, Pattern)>;

impl Known {
    /// What lights are to show when `facts` are known of drives that are where `survey` says, and what is to be
    /// remembered.
    pub(crate) fn decide(&self, facts: &Facts, survey: &Survey) -> (Wanted, Self) {
        let mut next = Self { located: self.located.clone(), ..Self::default() };
        let mut drives: BTreeMap<String, BTreeSet<&String>> = BTreeMap::new();
        for spot in survey.values() {
            drives.entry(spot.light.name()).or_default().insert(&spot.drive);
        }
        // Whether there are other drives in the slot by now.
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

/// How to look: at what differs from what was shown last, or at what each light shows now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Changed,
    All,
}

/// What is to be switched: what differs between `shown` and `wanted`, and `cleared` in any case. A light that nothing
/// asks for any more goes dark.
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

/// The lights of this daemon.
#[derive(Default)]
pub(crate) struct Lights {
    pub(crate) known: Known,
    /// What each light shows, as far as it was switched.
    shown: Wanted,
    /// Lights that are to be switched although nothing differs: a command has asked for that, or it is not known what
    /// they show because they could not be switched.
    cleared: BTreeMap<String, Light>,
    /// Why lights could not be switched, by name.
    trouble: BTreeMap<String, String>,
    /// Counts what commands changed.
    commands: u64,
    /// What was known at the last look, and when that was.
    last: Option<(Facts, u64, Instant)>,
    /// Held while lights are switched: two that switch one light would leave it as neither wants it.
    pub(crate) gate: Arc<Mutex<()>>,
}

/// What a look begins with.
pub(crate) struct Look {
    pub(crate) known: Known,
    pub(crate) facts: Facts,
    pub(crate) shown: Wanted,
    pub(crate) cleared: BTreeMap<String, Light>,
    pub(crate) depth: Depth,
    commands: u64,
}

impl Look {
    /// Whether the light called `name` shows `pattern` as far as is known, so that it is only to be compared.
    pub(crate) fn is_shown(&self, name: &str, pattern: Pattern) -> bool {
        let is_it = |(_, shown): &(Light, Pattern)| *shown == pattern;
        self.shown.get(name).is_some_and(is_it) && !self.cleared.contains_key(name)
    }
}

/// What became of a light: what it shows, or why that is not so.
pub(crate) type Switched = (String, Light, Result<Pattern, String>);

impl Lights {
    /// Whether there is something to look at: what is known has changed, or the last look was longer ago than `every`.
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

    /// Begins a look with `facts`. The first one, and one after `every`, is at what each light shows.
    pub(crate) fn begin(&mut self, facts: Facts, every: Duration) -> Look {
        let recent = self.last.as_ref().map(|(_, _, at)| *at).filter(|at| at.elapsed() < every);
        let depth = if recent.is_some() { Depth::Changed } else { Depth::All };
        let at = recent.unwrap_or_else(Instant::now);
        self.last = Some((facts.clone(), self.commands, at));
        let (known, shown) = (self.known.clone(), self.shown.clone());
        let cleared = std::mem::take(&mut self.cleared);
        Look { known, facts, shown, cleared, depth, commands: self.commands }
    }

    /// Ends `look`: `next` is to be remembered, and `switched` says what became of each light. Returns what failed and
    /// was not reported yet.
    pub(crate) fn end(
        &mut self,
        look: &Look,
        next: Known,
        switched: Vec<Switched>,
    ) -> Vec<(String, String)> {
        // What a command changed meanwhile is decided by the look that follows.
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
                    // It may show something, also if nothing asks for that any more.
                    self.cleared.insert(name.clone(), light);
                    if self.trouble.insert(name.clone(), why.clone()).is_none() {
                        new.push((name, why));
                    }
                }
            }
        }
        new
    }

    /// The operator asks where the drive with this light is, or no longer does.
    pub(crate) fn locate(&mut self, light: &Light, is_asked: bool) {
        self.commands += 1;
        if is_asked {
            self.known.located.insert(light.name(), light.clone());
        } else {
            self.known.located.remove(&light.name());
            self.cleared.insert(light.name(), light.clone());
        }
    }

    /// Forgets what is known of the drive in the slot with this light, which goes dark unless something asks for it.
    pub(crate) fn clear(&mut self, light: &Light) {
        let name = light.name();
        self.locate(light, false);
        self.known.kept.retain(|(light, _), _| *light != name);
        self.known.places.retain(|_, spot| spot.light.name() != name);
    }

    /// What lights show.
    pub(crate) fn shown(&self) -> Shown {
        Shown { shown: self.shown.clone(), trouble: self.trouble.clone() }
    }
}

/// What lights show, to be read without the manager.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    shown: Wanted,
    trouble: BTreeMap<String, String>,
}

impl Shown {
    /// What the light shows, as far as this daemon switched it, and why it does not show what it should.
    pub(crate) fn of(&self, light: &Light) -> (Pattern, &str) {
        let name = light.name();
        let pattern = self.shown.get(&name).map(|(_, pattern)| *pattern).unwrap_or_default();
        (pattern, self.trouble.get(&name).map_or("", String::as_str))
    }

    /// Adds the slot of a drive and its light to what is said of the drive.
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
