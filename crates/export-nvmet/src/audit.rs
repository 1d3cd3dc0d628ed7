//! Reports of rejected hosts for the operator.
//!
//! The number, addresses and names of rejected hosts are under the control of the hosts. Rejections are therefore
//! counted: the first of each address and reason is reported at once, later ones as a number at intervals. If there are
//! too many addresses, further ones are reported together. The thread that accepts connections counts a rejection when
//! it rejects the connection.

use crate::limits::{REJECTION_PLACES_MAX, REJECTIONS_REPORTED_EVERY};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use strake_units::Nanos;

/// The reason of a rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The host is not on the list of the subsystem, or no subsystem lists the host.
    NotListed,
    /// The host must use TLS and did not.
    Bare,
    /// The host used a TLS key of another host or of another subsystem.
    OtherNames,
    /// The TLS handshake failed: the identity or key is unknown, or the peer violated the protocol.
    Tls,
    /// The host did not complete its authentication (DH-HMAC-CHAP).
    Unproven,
    /// The host identifier is in use by another host NQN.
    IdInUse,
}

/// Rejected hosts of one address and one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The address of the hosts; `None` for addresses that are not reported one by one.
    pub from: Option<IpAddr>,
    /// The reason.
    pub reason: Reason,
    /// The NQN that the first of them sent, which is not authenticated; empty if it sent none.
    pub host: String,
    /// The number of rejections since the last report.
    pub count: u64,
}

/// The state of one address and reason.
#[derive(Default)]
struct Entry {
    /// The NQN of the first unreported host.
    host: String,
    /// The number of unreported rejections.
    count: u64,
    /// The time of the last report.
    reported: Option<Nanos>,
}

impl Entry {
    /// Whether the last report is too recent for another one.
    fn rests(&self, now: Nanos) -> bool {
        self.reported.is_some_and(|reported| now < reported.plus(REJECTIONS_REPORTED_EVERY))
    }
}

type Entries = BTreeMap<(Option<IpAddr>, Reason), Entry>;

/// The rejections of one target.
#[derive(Default)]
pub(crate) struct Audit(Mutex<Entries>);

impl Audit {
    /// No code panics while it holds the lock, so the entries of a poisoned lock are consistent.
    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a rejection.
    pub(crate) fn note(&self, from: Option<IpAddr>, reason: Reason, host: &str) {
        let mut entries = self.lock();
        let is_known = entries.contains_key(&(from, reason));
        let has_room =
            entries.keys().filter(|(from, _)| from.is_some()).count() < REJECTION_PLACES_MAX;
        let from = from.filter(|_| is_known || has_room);
        let entry = entries.entry((from, reason)).or_default();
        if entry.count == 0 {
            host.clone_into(&mut entry.host);
        }
        entry.count = entry.count.saturating_add(1);
    }

    /// The rejections that are due for a report.
    pub(crate) fn take(&self, now: Nanos) -> Vec<Rejection> {
        let mut entries = self.lock();
        let mut due = Vec::new();
        for (&(from, reason), entry) in entries.iter_mut() {
            if entry.count > 0 && !entry.rests(now) {
                let (host, count) =
                    (std::mem::take(&mut entry.host), std::mem::take(&mut entry.count));
                due.push(Rejection { from, reason, host, count });
                entry.reported = Some(now);
            }
        }
        entries.retain(|_, entry| entry.count > 0 || entry.rests(now));
        due
    }
}

#[cfg(test)]
mod tests {
    use super::{Audit, Reason, Rejection};
    use crate::limits::{REJECTION_PLACES_MAX, REJECTIONS_REPORTED_EVERY};
    use std::net::IpAddr;
    use strake_units::Nanos;

    fn address(number: usize) -> IpAddr {
        IpAddr::from([192, 0, 2, number as u8])
    }

    /// The fields of a rejection in order: address, reason, name, number.
    fn reported(rejection: &Rejection) -> (Option<IpAddr>, Reason, &str, u64) {
        (rejection.from, rejection.reason, &rejection.host, rejection.count)
    }

    #[test]
    fn the_first_is_reported_at_once_and_the_rest_as_a_number() {
        let (audit, a) = (Audit::default(), Some(address(1)));
        let at = |seconds| Nanos(seconds * Nanos::SECOND.0);
        audit.note(a, Reason::NotListed, "first");
        let [first] = &audit.take(at(1))[..] else { panic!("one") };
        assert_eq!(reported(first), (a, Reason::NotListed, "first", 1));
        for name in ["second", "third"] {
            audit.note(a, Reason::NotListed, name);
        }
        assert_eq!(audit.take(at(600)), []);
        // Another reason, and another address, are reported at once.
        audit.note(a, Reason::Tls, "");
        audit.note(Some(address(2)), Reason::NotListed, "other");
        let both = audit.take(at(600));
        assert_eq!(
            both.iter().map(reported).collect::<Vec<_>>(),
            [(a, Reason::Tls, "", 1), (Some(address(2)), Reason::NotListed, "other", 1)]
        );
        let [more] = &audit.take(at(601))[..] else { panic!("the rest") };
        assert_eq!(reported(more), (a, Reason::NotListed, "second", 2));
        assert_eq!(audit.take(at(1201)), [], "none came since");
        audit.note(a, Reason::NotListed, "much later");
        assert_eq!(audit.take(at(1201)).len(), 1, "after so long one is a first one again");
    }

    #[test]
    fn a_flood_from_everywhere_takes_no_more_room_than_this() {
        let audit = Audit::default();
        for round in 0..1000 {
            audit.note(Some(address(round % 200)), Reason::Bare, "nqn.x");
        }
        let mut first = audit.take(Nanos(1));
        assert_eq!(first.len(), REJECTION_PLACES_MAX + 1);
        assert_eq!(first.iter().map(|some| some.count).sum::<u64>(), 1000, "all are counted");
        let others = first.remove(0);
        assert_eq!((others.from, others.count), (None, 1000 - 5 * REJECTION_PLACES_MAX as u64));
        audit.note(Some(address(201)), Reason::Bare, "nqn.x");
        assert_eq!(audit.take(Nanos(2)), [], "it is one of the others, who were told of just now");
        // Addresses without recent rejections are removed.
        let later = Nanos(2).plus(REJECTIONS_REPORTED_EVERY);
        assert_eq!(audit.take(later).len(), 1, "the one above");
        audit.note(Some(address(202)), Reason::Bare, "nqn.x");
        assert_eq!(audit.take(later)[0].from, Some(address(202)));
    }
}
