//! Events of listening addresses whose cause is a counter: connections without room, and panics.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use strake_api::v1::ListExportsRequest;

use crate::events::{EventKind, Note};

/// The shortest time between two reports of an address: a rejected client usually reconnects at once.
const REPORTED_EVERY: Duration = Duration::from_secs(60);

/// The last report of an address.
struct Report {
    /// The counter at that time.
    count: u64,
    when: Instant,
}

/// True if the counter of an address is to be reported.
fn is_news(reported: Option<&Report>, count: u64, now: Instant) -> bool {
    count > reported.map_or(0, |reported| reported.count)
        && reported.is_none_or(|reported| now.duration_since(reported.when) >= REPORTED_EVERY)
}

/// The last reports of one counter, by listening address.
#[derive(Default)]
struct Reports(BTreeMap<String, Report>);

impl Reports {
    /// Returns the addresses to report, each with the increase of its counter. Removes addresses that are no longer
    /// served.
    fn news(&mut self, counts: Vec<(String, u64)>, now: Instant) -> Vec<(String, u64)> {
        self.0.retain(|listen, _| counts.iter().any(|(served, _)| served == listen));
        let mut news = Vec::new();
        for (listen, count) in counts {
            if is_news(self.0.get(&listen), count, now) {
                let before = self.0.insert(listen.clone(), Report { count, when: now });
                news.push((listen, count - before.map_or(0, |before| before.count)));
            }
        }
        news
    }
}

/// The counters of an address.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// Connections that were closed at once because there was no room.
    pub(crate) turned_away: u64,
    /// Panics while connections were negotiated.
    pub(crate) panics: u64,
}

/// The reports of both counters.
#[derive(Default)]
pub(crate) struct AddressReports {
    turned_away: Reports,
    panics: Reports,
}

impl AddressReports {
    /// Returns what to report of the served addresses.
    pub(crate) fn news(&mut self, counts: &[(String, Counts)], now: Instant) -> Vec<Note> {
        let each = |count: fn(&Counts) -> u64| {
            counts.iter().map(|(listen, counts)| (listen.clone(), count(counts))).collect()
        };
        let mut notes = self.room_news(each(|counts| counts.turned_away), now);
        notes.extend(self.panic_news(each(|counts| counts.panics), now));
        notes
    }

    fn room_news(&mut self, counts: Vec<(String, u64)>, now: Instant) -> Vec<Note> {
        let note = |(listen, more)| {
            let what = format!(
                "connection limit of {listen} reached: {more} more connections were closed at once"
            );
            let note = Note::new(EventKind::ConnectionsRefused, "daemon".to_owned(), what);
            note.next(ListExportsRequest {})
        };
        self.turned_away.news(counts, now).into_iter().map(note).collect()
    }

    fn panic_news(&mut self, counts: Vec<(String, u64)>, now: Instant) -> Vec<Note> {
        let note = |(listen, more)| {
            let what = format!(
                "a defect of Strake ended negotiations at {listen}: {more} panics; other connections continue"
            );
            let note = Note::new(EventKind::NegotiationPanicked, "daemon".to_owned(), what);
            note.next("report the defect with the daemon's log, which shows the cause")
        };
        self.panics.news(counts, now).into_iter().map(note).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{AddressReports, Counts, REPORTED_EVERY, Report, Reports, is_news};
    use crate::events::{EventKind, Note};
    use std::time::Instant;

    #[test]
    fn both_counters_of_an_address_are_reported() {
        let mut reports = AddressReports::default();
        let mut news = |turned_away, panics, now| {
            let counts = [("192.0.2.1:4420".to_owned(), Counts { turned_away, panics })];
            reports.news(&counts, now)
        };
        let start = Instant::now();
        assert!(news(0, 0, start).is_empty());
        let check = |notes: Vec<Note>, kind: EventKind, what: &str| {
            let [note] = notes.try_into().expect("one report");
            let note = format!("{note:?}");
            assert!(note.contains(&format!("{kind:?}")) && note.contains(what), "{note}");
        };
        let room = "192.0.2.1:4420 reached: 3 more";
        check(news(3, 0, start), EventKind::ConnectionsRefused, room);
        let panics = "192.0.2.1:4420: 2 panics";
        check(news(3, 2, start), EventKind::NegotiationPanicked, panics);
        assert!(news(9, 9, start).is_empty(), "once a minute");
        assert_eq!(news(9, 9, start + REPORTED_EVERY).len(), 2);
    }

    #[test]
    fn an_increase_is_reported_once_a_minute() {
        let start = Instant::now();
        assert!(!is_news(None, 0, start));
        assert!(is_news(None, 1, start));
        let reported = Report { count: 1, when: start };
        assert!(!is_news(Some(&reported), 1, start + REPORTED_EVERY), "no increase");
        assert!(!is_news(Some(&reported), 9, start), "not yet");
        assert!(is_news(Some(&reported), 9, start + REPORTED_EVERY));
    }

    #[test]
    fn an_address_that_is_served_again_starts_from_zero() {
        let mut reports = Reports::default();
        let now = Instant::now();
        assert_eq!(reports.news(vec![("a".into(), 3)], now), [("a".into(), 3)]);
        assert_eq!(reports.news(Vec::new(), now), []);
        assert_eq!(reports.news(vec![("a".into(), 1)], now), [("a".into(), 1)]);
    }
}
