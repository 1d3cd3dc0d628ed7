//! Connections to discovery controllers.
//!
//! Discovery requires no authentication, so any peer that knows the NQN of a host can connect. Such peers must not take
//! the connection slots of authenticated hosts: discovery has a small limit, and a smaller one for each address. A few
//! addresses must not close discovery for others either: at the total limit, an address with few connections replaces a
//! connection of the address with the most.

use crate::controller::{CONTROLLER_MAX, Controller};
use crate::limits::{DISCOVERY_CONNECTIONS_MAX, DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use strake_export_net::place_of;
use strake_units::Nanos;

/// All connections to discovery controllers.
pub(crate) struct DiscoveryConnections {
    taken: Mutex<Taken>,
    silence_max: Nanos,
    /// The number of controller IDs assigned so far.
    numbered: AtomicU64,
}

/// The connections, oldest first.
#[derive(Default)]
struct Taken {
    slots: Vec<Slot>,
    /// The number of connections so far.
    count: u64,
}

/// A connection.
struct Slot {
    /// The number of the connection.
    number: u64,
    /// The address of the peer; `None` if the kernel did not report one.
    from: Option<IpAddr>,
    controller: Weak<Controller>,
}

impl Taken {
    fn of(&self, from: Option<IpAddr>) -> usize {
        self.slots.iter().filter(|slot| slot.from == from).count()
    }

    /// Removes the oldest connection of the address with the most connections. `None` if that address would then have
    /// fewer connections than `from` with one more.
    fn replace_for(&mut self, from: Option<IpAddr>) -> Option<Slot> {
        let counts = self.slots.iter().enumerate().map(|(index, slot)| (index, self.of(slot.from)));
        // Of several addresses with the same number of connections, the one with the oldest connection.
        let (index, most) = counts.rev().max_by_key(|&(_, count)| count)?;
        (most > self.of(from) + 1).then(|| self.slots.remove(index))
    }
}

impl DiscoveryConnections {
    /// Creates an empty list. `silence_max` is the keep-alive timeout of a host that requests none.
    pub(crate) fn new(silence_max: Nanos) -> Self {
        Self { taken: Mutex::new(Taken::default()), silence_max, numbered: AtomicU64::new(0) }
    }

    /// No code panics while it holds the lock, so the list of a poisoned lock is consistent. The lock is taken when a
    /// host connects or disconnects.
    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An ID for a controller. A discovery controller has no second queue, so IDs may repeat. Relaxed: a count orders
    /// no other access.
    pub(crate) fn next_number(&self) -> u16 {
        (self.numbered.fetch_add(1, Ordering::Relaxed) % u64::from(CONTROLLER_MAX) + 1) as u16
    }

    /// Takes a connection slot. At the total limit, dismisses a controller of the address with the most connections.
    /// `None` at the limit of the address, or if no address has at least two connections more.
    pub(crate) fn receive(
        self: &Arc<Self>,
        from: Option<IpAddr>,
        controller: &Arc<Controller>,
    ) -> Option<DiscoveryConnection> {
        let from = from.map(place_of);
        let mut taken = self.lock();
        if taken.of(from) >= DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX {
            return None;
        }
        if taken.slots.len() >= DISCOVERY_CONNECTIONS_MAX {
            let replaced = taken.replace_for(from)?;
            if let Some(controller) = replaced.controller.upgrade() {
                controller.dismiss();
            }
        }
        let number = taken.count;
        taken.count += 1;
        taken.slots.push(Slot { number, from, controller: Arc::downgrade(controller) });
        Some(DiscoveryConnection { discovery_connections: Arc::clone(self), number })
    }
}

/// A connection slot of discovery; it is free again after the drop.
pub(crate) struct DiscoveryConnection {
    discovery_connections: Arc<DiscoveryConnections>,
    number: u64,
}

impl DiscoveryConnection {
    /// The keep-alive timeout of a host that requests none.
    pub(crate) fn silence_max(&self) -> Nanos {
        self.discovery_connections.silence_max
    }
}

impl Drop for DiscoveryConnection {
    fn drop(&mut self) {
        // A replaced connection has no slot any more.
        self.discovery_connections.lock().slots.retain(|slot| slot.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::{DiscoveryConnection, DiscoveryConnections};
    use crate::controller::{Controller, Host};
    use crate::limits::{DISCOVERY_CONNECTIONS_MAX, DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX};
    use std::net::IpAddr;
    use std::sync::Arc;
    use strake_units::Nanos;

    const EACH: usize = DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX;
    const ADDRESSES: usize = DISCOVERY_CONNECTIONS_MAX / EACH;

    struct Visitor {
        from: usize,
        controller: Arc<Controller>,
        slot: DiscoveryConnection,
    }

    fn visit(all: &Arc<DiscoveryConnections>, from: usize) -> Option<Visitor> {
        let host = Host { nqn: String::new(), id: [0; 16] };
        let controller = Arc::new(Controller::new(1, host, None, Vec::new()));
        let slot = all.receive(Some(IpAddr::from([192, 0, 2, from as u8])), &controller)?;
        Some(Visitor { from, controller, slot })
    }

    /// The addresses of connections that were replaced.
    fn replaced(visitors: &[Visitor]) -> Vec<usize> {
        let gone = visitors.iter().filter(|visitor| visitor.controller.is_dismissed());
        gone.map(|visitor| visitor.from).collect()
    }

    fn full() -> (Arc<DiscoveryConnections>, Vec<Visitor>) {
        let all = Arc::new(DiscoveryConnections::new(Nanos::SECOND));
        let from = (0..ADDRESSES).flat_map(|address| [address; EACH]);
        let visitors = from.map(|from| visit(&all, from).expect("there is room")).collect();
        (all, visitors)
    }

    #[test]
    fn an_address_has_few_connections_and_they_are_free_again() {
        let all = Arc::new(DiscoveryConnections::new(Nanos::SECOND));
        let mut visitors: Vec<_> = (0..EACH).map(|_| visit(&all, 1).expect("room")).collect();
        assert!(visit(&all, 1).is_none(), "one too many of an address");
        drop(visitors.pop());
        assert!(visit(&all, 1).is_some());
    }

    /// Four addresses with eight connections each excluded every other host from discovery.
    #[test]
    fn addresses_with_many_connections_exclude_no_other_address() {
        let (all, mut visitors) = full();
        assert_eq!(replaced(&visitors), []);
        for address in 0..ADDRESSES {
            visitors.push(visit(&all, 100 + address).expect("an address without a connection"));
            assert_eq!(replaced(&visitors).len(), address + 1);
            assert_eq!(all.lock().slots.len(), DISCOVERY_CONNECTIONS_MAX);
        }
        assert_eq!(replaced(&visitors), [0, 1, 2, 3], "one of each address, in turn");
        assert!(visitors[0].controller.is_dismissed(), "the oldest one of an address");
        drop(visitors.remove(0).slot);
        assert_eq!(all.lock().slots.len(), DISCOVERY_CONNECTIONS_MAX, "its slot had gone before");
    }

    /// Hosts that replaced each other in turn would reconnect forever.
    #[test]
    fn a_connection_is_replaced_only_if_this_is_fairer() {
        let all = Arc::new(DiscoveryConnections::new(Nanos::SECOND));
        let mut visitors: Vec<_> =
            (0..DISCOVERY_CONNECTIONS_MAX).map(|from| visit(&all, from).expect("room")).collect();
        assert!(visit(&all, 100).is_none(), "each address has one");
        assert!(visit(&all, 0).is_none());
        drop(visitors.pop());
        visitors.push(visit(&all, 0).expect("room"));
        assert_eq!(replaced(&visitors), []);
        visitors.push(visit(&all, 100).expect("an address has two"));
        assert_eq!(replaced(&visitors), [0]);
    }
}
