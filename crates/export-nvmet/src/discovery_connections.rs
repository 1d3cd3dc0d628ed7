//! Connections to discovery controllers.
//!
//! Discovery requires no authentication, so any peer that knows the NQN of a host can connect. Such peers must not take
//! the connection slots of authenticated hosts: discovery has a small limit, and a smaller one for each address.

use crate::controller::CONTROLLER_MAX;
use crate::limits::{DISCOVERY_CONNECTIONS_MAX, DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_export_net::place_of;
use strake_units::Nanos;

/// All connections to discovery controllers.
pub(crate) struct DiscoveryConnections {
    /// The addresses of the peers; `None` if the kernel did not report one.
    places: Mutex<Vec<Option<IpAddr>>>,
    silence_max: Nanos,
    /// The number of controller IDs assigned so far.
    numbered: AtomicU64,
}

impl DiscoveryConnections {
    /// Creates an empty list. `silence_max` is the keep-alive timeout of a host that requests none.
    pub(crate) const fn new(silence_max: Nanos) -> Self {
        Self { places: Mutex::new(Vec::new()), silence_max, numbered: AtomicU64::new(0) }
    }

    /// No code panics while it holds the lock, so the list of a poisoned lock is consistent. The lock is taken when a
    /// host connects or disconnects.
    fn lock(&self) -> MutexGuard<'_, Vec<Option<IpAddr>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An ID for a controller. A discovery controller has no second queue, so IDs may repeat. Relaxed: a count orders
    /// no other access.
    pub(crate) fn next_number(&self) -> u16 {
        (self.numbered.fetch_add(1, Ordering::Relaxed) % u64::from(CONTROLLER_MAX) + 1) as u16
    }

    /// Takes a connection slot; `None` at the total limit or at the limit of the address.
    pub(crate) fn receive(self: &Arc<Self>, from: Option<IpAddr>) -> Option<DiscoveryConnection> {
        let from = from.map(place_of);
        let mut places = self.lock();
        let of_it = places.iter().filter(|&&other| other == from).count();
        if places.len() >= DISCOVERY_CONNECTIONS_MAX
            || of_it >= DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX
        {
            return None;
        }
        places.push(from);
        Some(DiscoveryConnection { discovery_connections: Arc::clone(self), from })
    }
}

/// A connection slot of discovery; it is free again after the drop.
pub(crate) struct DiscoveryConnection {
    discovery_connections: Arc<DiscoveryConnections>,
    from: Option<IpAddr>,
}

impl DiscoveryConnection {
    /// The keep-alive timeout of a host that requests none.
    pub(crate) fn silence_max(&self) -> Nanos {
        self.discovery_connections.silence_max
    }
}

impl Drop for DiscoveryConnection {
    fn drop(&mut self) {
        let mut places = self.discovery_connections.lock();
        if let Some(place) = places.iter().position(|&other| other == self.from) {
            places.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DiscoveryConnection, DiscoveryConnections};
    use crate::limits::{DISCOVERY_CONNECTIONS_MAX, DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX};
    use std::net::IpAddr;
    use std::sync::Arc;
    use strake_units::Nanos;

    #[test]
    fn places_are_few_and_few_for_each_address_and_come_back() {
        let discovery_connections = Arc::new(DiscoveryConnections::new(Nanos::SECOND));
        let from = |last: usize| Some(IpAddr::from([192, 0, 2, last as u8]));
        let mut all: Vec<DiscoveryConnection> = Vec::new();
        for address in 0..DISCOVERY_CONNECTIONS_MAX / DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX {
            for _ in 0..DISCOVERY_CONNECTIONS_PER_ADDRESS_MAX {
                all.push(
                    discovery_connections
                        .receive(from(address))
                        .expect("there is room for this address"),
                );
            }
            assert!(
                discovery_connections.receive(from(address)).is_none(),
                "one too many of an address"
            );
        }
        assert!(discovery_connections.receive(from(200)).is_none(), "one too many in all");
        drop(all.pop());
        assert!(discovery_connections.receive(from(0)).is_none(), "that was not of this address");
        assert!(discovery_connections.receive(from(200)).is_some());
    }
}
