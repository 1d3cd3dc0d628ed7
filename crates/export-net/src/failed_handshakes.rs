//! Failed negotiations, which count against their address for a while: a peer that repeatedly violates the protocol and
//! reconnects at once costs little more than one that does so occasionally.

use std::collections::VecDeque;
use std::net::IpAddr;
use strake_units::Nanos;

/// The most recent failed negotiations.
pub(crate) struct FailedHandshakes {
    /// The entries in the order of their expiry.
    last: VecDeque<(IpAddr, Nanos)>,
    max: usize,
    time: Nanos,
}

impl FailedHandshakes {
    /// Creates a list of at most `max` entries that each last for `time`; with a zero time there are none.
    pub(crate) fn new(max: usize, time: Nanos) -> Self {
        Self { last: VecDeque::new(), max, time }
    }

    /// Records a failed negotiation with a peer at `address`.
    pub(crate) fn add(&mut self, address: Option<IpAddr>, now: Nanos) {
        let Some(address) = address.filter(|_| self.time > Nanos::default()) else { return };
        self.forget(now);
        // If there are too many entries, the oldest is removed.
        if self.last.len() >= self.max {
            self.last.pop_front();
        }
        self.last.push_back((address, now.plus(self.time)));
    }

    /// The number of entries of an address.
    pub(crate) fn of(&mut self, address: IpAddr, now: Nanos) -> usize {
        self.forget(now);
        self.last.iter().filter(|(other, _)| *other == address).count()
    }

    fn forget(&mut self, now: Nanos) {
        while self.last.front().is_some_and(|(_, until)| now >= *until) {
            self.last.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FailedHandshakes;
    use std::net::{IpAddr, Ipv4Addr};
    use strake_units::Nanos;

    const A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn they_count_for_their_address_and_their_time() {
        let mut failed_handshakes = FailedHandshakes::new(3, Nanos(100));
        failed_handshakes.add(Some(A), Nanos(0));
        failed_handshakes.add(Some(A), Nanos(50));
        failed_handshakes.add(Some(B), Nanos(60));
        failed_handshakes.add(None, Nanos(60));
        assert_eq!(
            (failed_handshakes.of(A, Nanos(99)), failed_handshakes.of(B, Nanos(99))),
            (2, 1)
        );
        assert_eq!(
            (failed_handshakes.of(A, Nanos(100)), failed_handshakes.of(B, Nanos(159))),
            (1, 1)
        );
        assert_eq!(
            (failed_handshakes.of(A, Nanos(159)), failed_handshakes.of(B, Nanos(160))),
            (0, 0)
        );
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut failed_handshakes = FailedHandshakes::new(2, Nanos(100));
        for address in [A, B, B] {
            failed_handshakes.add(Some(address), Nanos(1));
        }
        assert_eq!((failed_handshakes.of(A, Nanos(2)), failed_handshakes.of(B, Nanos(2))), (0, 2));
        let mut never = FailedHandshakes::new(2, Nanos(0));
        never.add(Some(A), Nanos(1));
        assert_eq!(never.of(A, Nanos(1)), 0, "for no time at all");
    }
}
