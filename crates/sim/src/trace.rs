//! The events of a run in order: a hash of all events, and their text on request.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use strake_ondisk::{Copy, Superblock};
use strake_units::Nanos;

/// Number of lines that are kept for the report of a failed run.
const LINES_KEPT: usize = 400;

#[derive(Debug)]
struct State {
    hash: u64,
    now: Nanos,
    events: u64,
    faults: BTreeMap<&'static str, u64>,
    lines: VecDeque<String>,
    keep: bool,
    print: bool,
    labels: Option<Vec<LabelEvent>>,
}

/// An event of an array's labels, for the [model](crate::model).
#[derive(Clone, Debug)]
pub enum LabelEvent {
    /// A drive contains a label in a ring.
    Written(Copy, Box<Superblock>),
    /// The array was started with the drives of these slots.
    Start(Vec<usize>),
    /// The host crashed.
    Crash,
}

/// The record of one run. Clones share it.
#[derive(Clone, Debug)]
pub struct Trace(Arc<Mutex<State>>);

impl Trace {
    /// An empty record. With `keep` the last lines are kept, with `print` all lines are written to standard error.
    #[must_use]
    pub fn new(keep: bool, print: bool) -> Self {
        Self(Arc::new(Mutex::new(State {
            hash: 0xcbf2_9ce4_8422_2325,
            now: Nanos(0),
            events: 0,
            faults: BTreeMap::new(),
            lines: VecDeque::new(),
            keep: keep || print,
            print,
            labels: None,
        })))
    }

    /// Records label events from now on.
    pub fn keep_labels(&self) {
        self.state().labels = Some(Vec::new());
    }

    /// True if label events are recorded.
    #[must_use]
    pub fn keeps_labels(&self) -> bool {
        self.state().labels.is_some()
    }

    /// Records a label event.
    pub fn label(&self, event: LabelEvent) {
        self.state().labels.iter_mut().for_each(|labels| labels.push(event.clone()));
    }

    /// The recorded label events.
    #[must_use]
    pub fn labels(&self) -> Vec<LabelEvent> {
        self.state().labels.clone().unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("one thread runs the world")
    }

    /// Sets the clock of the event times.
    pub fn set_now(&self, now: Nanos) {
        self.state().now = now;
    }

    /// The time of the run.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.state().now
    }

    /// Records an event: `numbers` are added to the hash, `text` is called only if lines are kept.
    pub fn event(&self, numbers: &[u64], text: impl FnOnce() -> String) {
        let mut state = self.state();
        state.events += 1;
        let now = state.now.0;
        for number in numbers.iter().chain([&now]) {
            for byte in number.to_le_bytes() {
                // FNV-1a (Fowler, Noll, Vo), 64 bits.
                state.hash = (state.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        if state.keep {
            let line = format!("{:>14} {}", now, text());
            if state.print {
                eprintln!("{line}");
            }
            state.lines.push_back(line);
            if state.lines.len() > LINES_KEPT {
                state.lines.pop_front();
            }
        }
    }

    /// Counts an injected fault.
    pub fn fault(&self, kind: &'static str) {
        *self.state().faults.entry(kind).or_insert(0) += 1;
    }

    /// The hash of all events so far.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.state().hash
    }

    /// The number of events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.state().events
    }

    /// The counts of injected faults, by kind.
    #[must_use]
    pub fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.state().faults.clone()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        state.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
