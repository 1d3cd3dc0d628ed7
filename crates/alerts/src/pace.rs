//! Decides what a hook delivers next, and when: a queue, a token bucket, and a summary of the events that did not fit.
//!
//! The module is pure: time is an argument, so tests can cover every order of events.

use std::collections::VecDeque;
use std::time::Duration;

use strake_api::v1::{Event, ListEventsRequest};
use strake_wording::Text;

use crate::limits::{Limits, QUEUE_EVENTS};
use crate::severity::Severity;

/// The kind of the event that summarizes several events.
pub(crate) const KIND_SUMMARY: &str = "events_held_back";

/// The next action.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// Deliver this event.
    Deliver(Box<Event>),
    /// Ask again after this time.
    Wait(Duration),
    /// There is nothing to deliver.
    Idle,
}

/// Events that will be delivered in one message.
#[derive(Debug)]
struct Held {
    events: u64,
    critical: u64,
    warnings: u64,
    /// The newest of the events with the highest severity.
    worst: Event,
    last: Event,
}

/// The pace of one hook.
#[derive(Debug)]
pub(crate) struct Pace {
    burst: u32,
    interval: Duration,
    tokens: u32,
    /// The time at which the last token was added.
    filled: Duration,
    waiting: VecDeque<Event>,
    held: Option<Held>,
    /// No token was available at the last request. The events since then are delivered in one message.
    dry: bool,
    held_back: u64,
}

impl Pace {
    pub(crate) fn new(limits: &Limits, now: Duration) -> Self {
        let burst = limits.burst.max(1);
        let waiting = VecDeque::with_capacity(QUEUE_EVENTS);
        let interval = limits.interval;
        Self {
            burst,
            interval,
            tokens: burst,
            filled: now,
            waiting,
            held: None,
            dry: false,
            held_back: 0,
        }
    }

    /// Returns the number of events that were delivered only in a summary.
    pub(crate) const fn held_back(&self) -> u64 {
        self.held_back
    }

    /// Adds an event. Events that do not fit are summarized.
    pub(crate) fn offer(&mut self, event: Event) {
        if self.waiting.len() < QUEUE_EVENTS && self.held.is_none() {
            self.waiting.push_back(event);
        } else {
            self.hold(event);
        }
    }

    /// Returns the action at `now`.
    pub(crate) fn take(&mut self, now: Duration) -> Next {
        self.fill(now);
        if self.waiting.is_empty() && self.held.is_none() {
            return Next::Idle;
        }
        if self.tokens == 0 {
            self.dry = true;
            return Next::Wait((self.filled + self.interval).saturating_sub(now));
        }
        self.tokens -= 1;
        if self.dry {
            self.dry = false;
            return self.take_all();
        }
        match self.waiting.pop_front() {
            Some(event) => Next::Deliver(Box::new(event)),
            None => self.take_all(),
        }
    }

    /// Returns all events in one message, without regard to the pace, for the stop.
    pub(crate) fn take_all(&mut self) -> Next {
        // Held events came after waiting events, so the order of events is kept.
        let later = self.held.take();
        while let Some(event) = self.waiting.pop_front() {
            self.hold(event);
        }
        if let Some(later) = later {
            self.hold_sum(later);
        }
        match self.held.take() {
            None => Next::Idle,
            Some(held) if held.events == 1 => Next::Deliver(Box::new(held.last)),
            Some(held) => {
                self.held_back += held.events;
                Next::Deliver(Box::new(summary(&held)))
            }
        }
    }

    fn fill(&mut self, now: Duration) {
        while self.tokens < self.burst && now >= self.filled + self.interval {
            self.tokens += 1;
            self.filled += self.interval;
        }
        if self.tokens == self.burst {
            self.filled = now;
        }
    }

    fn hold(&mut self, event: Event) {
        let severity = Severity::of(&event);
        self.hold_sum(Held {
            events: 1,
            critical: u64::from(severity == Severity::Critical),
            warnings: u64::from(severity == Severity::Warning),
            worst: event.clone(),
            last: event,
        });
    }

    fn hold_sum(&mut self, later: Held) {
        let Some(held) = &mut self.held else {
            self.held = Some(later);
            return;
        };
        held.events += later.events;
        held.critical += later.critical;
        held.warnings += later.warnings;
        if Severity::of(&later.worst) >= Severity::of(&held.worst) {
            held.worst = later.worst;
        }
        held.last = later.last;
    }
}

/// Returns one event that summarizes all events in `held`.
fn summary(held: &Held) -> Event {
    let mut what = format!("{} more events", held.events);
    if held.critical > 0 {
        what += &format!(", {} critical", held.critical);
    }
    if held.warnings > 0 {
        let plural = if held.warnings == 1 { "" } else { "s" };
        what += &format!(", {} warning{plural}", held.warnings);
    }
    if held.worst.number != held.last.number {
        what += &format!("; worst: {}: {}", held.worst.object, held.worst.what);
    }
    what += &format!("; last: {}: {}", held.last.object, held.last.what);
    let last = u32::try_from(held.events).unwrap_or(u32::MAX);
    let next = Text::from(ListEventsRequest { last, ..Default::default() });
    Event {
        number: held.last.number,
        time_us: held.last.time_us,
        severity: Severity::of(&held.worst).word().to_string(),
        kind: KIND_SUMMARY.to_string(),
        object: "daemon".to_string(),
        member: None,
        what,
        cause: "more events occurred than are delivered one by one".to_string(),
        next_action: next.words,
        actor: "straked".to_string(),
        remedy: next.parts,
    }
}
