//! Addresses that had no room for a connection.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use strake_api::v1::ListExportsRequest;

use crate::events::{EventKind, Note};

/// How often an address is reported at most: a client that is turned away comes again at once.
const REPORTED_EVERY: Duration = Duration::from_secs(60);

/// What was reported of an address.
struct Crowd {
    /// Connections that it had turned away by then.
    turned_away: u64,
    when: Instant,
}

/// Whether to report that so many were turned away.
fn is_news(reported: Option<&Crowd>, turned_away: u64, now: Instant) -> bool {
    turned_away > reported.map_or(0, |reported| reported.turned_away)
        && reported.is_none_or(|reported| now.duration_since(reported.when) >= REPORTED_EVERY)
}

/// What was reported of each address.
#[derive(Default)]
pub(crate) struct Crowds {
    addresses: BTreeMap<String, Crowd>,
}

impl Crowds {
    /// Forgets addresses that are no longer served.
    pub(crate) fn keep(&mut self, is_served: impl Fn(&str) -> bool) {
        self.addresses.retain(|listen, _| is_served(listen));
    }

    /// What to report of addresses that have turned so many away in all.
    pub(crate) fn news(&mut self, counts: Vec<(String, u64)>, now: Instant) -> Vec<Note> {
        let mut notes = Vec::new();
        for (listen, turned_away) in counts {
            if !is_news(self.addresses.get(&listen), turned_away, now) {
                continue;
            }
            let reported = Crowd { turned_away, when: now };
            let before = self.addresses.insert(listen.clone(), reported);
            let more = turned_away - before.map_or(0, |before| before.turned_away);
            let what = format!(
                "connection limit of {listen} reached: {more} more connections were closed at once"
            );
            let note = Note::new(EventKind::ConnectionsRefused, "daemon".to_owned(), what);
            notes.push(note.next(ListExportsRequest {}));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::{Crowd, REPORTED_EVERY, is_news};
    use std::time::Instant;

    #[test]
    fn a_crowd_is_reported_once_a_minute() {
        let start = Instant::now();
        assert!(!is_news(None, 0, start));
        assert!(is_news(None, 1, start));
        let reported = Crowd { turned_away: 1, when: start };
        assert!(!is_news(Some(&reported), 1, start + REPORTED_EVERY), "nobody came");
        assert!(!is_news(Some(&reported), 9, start), "not yet");
        assert!(is_news(Some(&reported), 9, start + REPORTED_EVERY));
    }
}
