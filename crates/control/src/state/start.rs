//! A start in progress.

use std::collections::BTreeMap;
use std::time::Instant;

use strake_api::v1 as api;

/// A start in progress.
pub(crate) struct Starting {
    since: Instant,
    /// Objects for which the start waits, with the start times of the waits.
    waits: BTreeMap<String, (&'static str, Instant)>,
    /// True if the labels may already record that the array runs.
    pub(crate) assembling: bool,
}

impl Starting {
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), waits: BTreeMap::new(), assembling: false }
    }

    /// Records a wait for `object`; `None` ends the wait.
    pub(crate) fn wait_for(&mut self, object: &str, what: Option<&'static str>) {
        match what {
            Some(what) => drop(self.waits.insert(object.to_owned(), (what, Instant::now()))),
            None => drop(self.waits.remove(object)),
        }
    }

    /// Returns the waits as messages, the longest first.
    pub(crate) fn waits(&self) -> Vec<api::Wait> {
        let wait = |(object, (what, since)): (&String, &(&str, Instant))| api::Wait {
            object: object.clone(),
            what: (*what).to_owned(),
            waited_us: since.elapsed().as_micros() as u64,
        };
        let mut waits: Vec<api::Wait> = self.waits.iter().map(wait).collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.waited_us));
        waits
    }

    /// Returns the waits as text.
    pub(crate) fn words(&self) -> String {
        let since = self.since.elapsed().as_secs();
        let longest = self.waits().into_iter().next();
        match longest {
            Some(wait) => format!(
                "it has been starting for {since} s; waiting for {} to {} ({} s so far)",
                wait.object,
                wait.what,
                wait.waited_us / 1_000_000
            ),
            None => format!("it has been starting for {since} s"),
        }
    }
}
