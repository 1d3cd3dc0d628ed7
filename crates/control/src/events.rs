//! Numbered events. They are kept in memory for lists, and in a file that survives a restart.
//!
//! [`Events::record`] takes a lock for a short time and never waits for the file: a separate thread writes, and retries
//! while the state directory refuses writes. Numbers continue over restarts. The wall clock is only recorded, never
//! used for decisions.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use strake_api::v1::{Event, ListEventsRequest};
use strake_wording::Text;

mod file;
mod kind;

pub use kind::{EventKind, Severity};

use crate::error::ControlError;
use crate::limits::{EVENT_TEXT_BYTES, EVENTS_KEPT, EVENTS_RETRY, EVENTS_STOP};
use crate::record::files::StateFolder;
use file::EventFile;

/// Maximum number of events in one write.
const BATCH: usize = 256;

/// A clock with microseconds since 1970. Nothing is ordered or decided by this clock.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl WallClock {
    /// Creates a clock that calls `read` for the time, in microseconds since 1970.
    #[must_use]
    pub fn new(read: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Returns the time in microseconds since 1970.
    pub(crate) fn now_us(&self) -> u64 {
        (self.0)()
    }
}

impl Default for WallClock {
    /// Returns the clock of the host.
    fn default() -> Self {
        Self::new(|| {
            // A clock before 1970 is wrong, and counts as 1970.
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
        })
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WallClock")
    }
}

/// An event without number and time.
#[derive(Clone, Debug)]
pub struct Note {
    kind: EventKind,
    severity: Severity,
    event: Event,
}

impl Note {
    /// Creates an event of `kind` about `object`, which is `array/NAME`, `drive/PATH`, `export/NAME` or `daemon`.
    /// `what` is the text.
    #[must_use]
    pub fn new(kind: EventKind, object: impl Into<String>, what: impl Into<String>) -> Self {
        let event = Event { object: object.into(), what: what.into(), ..Event::default() };
        Self { kind, severity: kind.severity(), event }
    }

    /// Creates an event about the array `name`.
    pub(crate) fn of_array(
        kind: EventKind,
        name: &impl fmt::Display,
        what: impl Into<String>,
    ) -> Self {
        Self::new(kind, format!("array/{name}"), what)
    }

    /// Sets the member concerned.
    #[must_use]
    pub fn member(mut self, member: usize) -> Self {
        self.event.member = Some(member as u32);
        self
    }

    /// Sets the reason.
    #[must_use]
    pub fn cause(mut self, cause: impl Into<String>) -> Self {
        self.event.cause = cause.into();
        self
    }

    /// Sets the remedy.
    #[must_use]
    pub fn next(mut self, action: impl Into<Text>) -> Self {
        Text { words: self.event.next_action, parts: self.event.remedy } = action.into();
        self
    }

    /// Sets the caller.
    #[must_use]
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.event.actor = actor.into();
        self
    }

    /// Sets a severity other than the usual severity of the kind.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }
}

type Listener = Box<dyn Fn(&Arc<Event>) + Send>;

#[derive(Default)]
struct State {
    kept: VecDeque<Arc<Event>>,
    /// Number of the newest event.
    last: u64,
    listeners: Vec<Listener>,
    /// Events that are not in the file yet, the oldest first.
    unwritten: VecDeque<Arc<Event>>,
    /// Number of events dropped because too many waited.
    dropped: u64,
    trouble: Option<String>,
    stopping: bool,
    writer_gone: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete before a panic can happen, so the data are valid even if the lock is poisoned.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All events. The drop waits for the file for a short time.
pub struct Events {
    shared: Arc<Shared>,
    clock: WallClock,
}

impl Events {
    /// Reads the events in the directory, and starts to write there.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn open(dir: &Path, clock: WallClock) -> Result<Self, ControlError> {
        Self::open_in(StateFolder::of(dir), clock)
    }

    pub(crate) fn open_in(state: StateFolder, clock: WallClock) -> Result<Self, ControlError> {
        let file = EventFile::new(state);
        let mut past = file.read();
        let last = past.last().map_or(0, |event| event.number);
        past.drain(..past.len().saturating_sub(EVENTS_KEPT));
        let kept = past.into_iter().map(Arc::new).collect();
        let state = State { kept, last, ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("strake-events".to_owned())
            .spawn(move || write_all(&theirs, file))
            .map_err(|e| ControlError::device(format!("cannot start a thread for events: {e}")))?;
        Ok(Self { shared, clock })
    }

    /// Assigns a number and a time to `note`, stores it, and notifies all listeners. Never waits for the file.
    pub fn record(&self, note: Note) -> Arc<Event> {
        let Note { kind, severity, mut event } = note;
        if event.next_action.len() > EVENT_TEXT_BYTES {
            event.remedy.clear();
        }
        for text in [
            &mut event.object,
            &mut event.what,
            &mut event.cause,
            &mut event.next_action,
            &mut event.actor,
        ] {
            cut(text, EVENT_TEXT_BYTES);
        }
        if event.actor.is_empty() {
            event.actor = "straked".to_owned();
        }
        event.kind = kind.word().to_owned();
        event.severity = severity.word().to_owned();
        event.time_us = self.clock.now_us();
        log(severity, &event);
        let mut state = self.shared.lock();
        state.last += 1;
        event.number = state.last;
        let event = Arc::new(event);
        state.kept.push_back(Arc::clone(&event));
        if state.kept.len() > EVENTS_KEPT {
            state.kept.pop_front();
        }
        state.unwritten.push_back(Arc::clone(&event));
        if state.unwritten.len() > EVENTS_KEPT {
            state.unwritten.pop_front();
            state.dropped += 1;
        }
        for listener in &state.listeners {
            listener(&event);
        }
        drop(state);
        self.shared.changed.notify_all();
        event
    }

    /// Registers `listener` for every event from now on. The listener must return immediately, because it runs under
    /// the lock of the events.
    pub fn listen(&self, listener: impl Fn(&Arc<Event>) + Send + 'static) {
        self.shared.lock().listeners.push(Box::new(listener));
    }

    /// Returns the past events that match `request`, the oldest first.
    ///
    /// # Errors
    /// If the request names a severity or a kind that does not exist.
    pub fn list(&self, request: &ListEventsRequest) -> Result<Vec<Event>, ControlError> {
        let filter = Filter::new(&request.object, &request.kind, &request.severity)?;
        let mut found = self.since(request.from, &filter);
        if request.last > 0 {
            found.drain(..found.len().saturating_sub(request.last as usize));
        }
        Ok(found)
    }

    /// Returns the events from number `from` that pass `filter`, the oldest first.
    #[must_use]
    pub fn since(&self, from: u64, filter: &Filter) -> Vec<Event> {
        let state = self.shared.lock();
        let start = state.kept.partition_point(|event| event.number < from);
        let wanted = state.kept.range(start..).filter(|event| filter.passes(event));
        wanted.map(|event| event.as_ref().clone()).collect()
    }

    /// Returns the number of the newest event; 0 before the first event.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.shared.lock().last
    }

    /// Returns the reason why events cannot be written now, if any.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.shared.lock().trouble.clone()
    }

    /// Returns the number of events dropped since the last call.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.shared.lock().dropped)
    }

    /// Waits until every event is in the file. Returns false if the directory refuses writes or takes too long.
    pub fn flush(&self) -> bool {
        let deadline = Instant::now() + EVENTS_STOP;
        let mut state = self.shared.lock();
        while !state.unwritten.is_empty() && state.trouble.is_none() && !state.writer_gone {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.unwritten.is_empty()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.flush();
        self.shared.lock().stopping = true;
        self.shared.changed.notify_all();
    }
}

/// The selection of events by a client.
#[derive(Clone, Debug)]
pub struct Filter {
    object: String,
    kind: String,
    severity: Severity,
}

impl Filter {
    /// Creates a filter. Empty fields match everything. An object without a part after `/`, such as `array`, matches
    /// all objects of this kind.
    ///
    /// # Errors
    /// If a severity or a kind does not exist.
    pub fn new(object: &str, kind: &str, severity: &str) -> Result<Self, ControlError> {
        if !kind.is_empty() && EventKind::from_word(kind).is_none() {
            let what = format!("unknown kind of event {kind:?}; docs/events.md lists all kinds");
            return Err(ControlError::usage(what));
        }
        let severity = parse_severity(severity, Severity::Info)?;
        Ok(Self { object: object.to_owned(), kind: kind.to_owned(), severity })
    }

    /// True if `event` matches.
    #[must_use]
    pub fn passes(&self, event: &Event) -> bool {
        let about = self.object.is_empty()
            || event.object == self.object
            || event.object.split_once('/').is_some_and(|(class, _)| class == self.object);
        let severity = Severity::from_word(&event.severity).unwrap_or(Severity::Critical);
        about && (self.kind.is_empty() || event.kind == self.kind) && severity >= self.severity
    }
}

/// Parses a severity. An empty word means `usual`.
pub(crate) fn parse_severity(word: &str, usual: Severity) -> Result<Severity, ControlError> {
    if word.is_empty() {
        return Ok(usual);
    }
    Severity::from_word(word).ok_or_else(|| {
        ControlError::usage(format!("unknown severity {word:?}; use info, warning or critical"))
    })
}

/// Truncates a text that is longer than `bytes_max`.
pub(crate) fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let mut end = bytes_max;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
}

fn log(severity: Severity, event: &Event) {
    let Event { kind, object, what, cause, actor, .. } = event;
    match severity {
        Severity::Info => tracing::info!(%kind, %object, %cause, %actor, "{what}"),
        Severity::Warning => tracing::warn!(%kind, %object, %cause, %actor, "{what}"),
        Severity::Critical => tracing::error!(%kind, %object, %cause, %actor, "{what}"),
    }
}

/// The thread that writes events.
fn write_all(shared: &Shared, file: EventFile) {
    loop {
        let mut state = shared.lock();
        while state.unwritten.is_empty() && !state.stopping {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.unwritten.is_empty() || (state.stopping && state.trouble.is_some()) {
            state.writer_gone = true;
            drop(state);
            shared.changed.notify_all();
            return;
        }
        let batch: Vec<Arc<Event>> = state.unwritten.iter().take(BATCH).cloned().collect();
        drop(state);
        let written = file.append(&batch);
        let mut state = shared.lock();
        match written {
            Ok(()) => {
                let last = batch.last().map_or(0, |event| event.number);
                state.unwritten.retain(|event| event.number > last);
                state.trouble = None;
            }
            Err(error) => {
                state.trouble = Some(error.to_string());
                // Every event and the stop wake the thread, and the next attempt is soon enough.
                if !state.stopping {
                    let waited = shared.changed.wait_timeout(state, EVENTS_RETRY);
                    drop(waited);
                }
            }
        }
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
