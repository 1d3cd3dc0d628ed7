//! Who is connected to discovery.
//!
//! Discovery goes by names and asks for no proof, so whoever knows the name of a host can connect to it. That must not
//! take the places of hosts that have something to do here: discovery has few, and few for each address.

use crate::controller::CONTROLLER_MAX;
use crate::limits::{VISITORS_MAX, VISITORS_PER_ADDRESS_MAX};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_export_net::place_of;
use strake_units::Nanos;

/// All of them.
pub(crate) struct Visitors {
    /// Where each is; `None` when the kernel did not say.
    places: Mutex<Vec<Option<IpAddr>>>,
    silence_max: Nanos,
    /// Numbers that were given to their controllers.
    numbered: AtomicU64,
}

impl Visitors {
    /// Nobody yet. Whoever asks for no other time is given up after so long a silence.
    pub(crate) const fn new(silence_max: Nanos) -> Self {
        Self { places: Mutex::new(Vec::new()), silence_max, numbered: AtomicU64::new(0) }
    }

    /// Nothing panics while holding the lock, so a poisoned one guards a sound list. It is taken when a host comes or
    /// goes.
    fn lock(&self) -> MutexGuard<'_, Vec<Option<IpAddr>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number for a controller. Nobody connects a second queue to one by it, so it does not matter that they come
    /// around. Relaxed: a count orders nothing.
    pub(crate) fn next_number(&self) -> u16 {
        (self.numbered.fetch_add(1, Ordering::Relaxed) % u64::from(CONTROLLER_MAX) + 1) as u16
    }

    /// Takes a place; `None` when there is none, for this address or for anybody.
    pub(crate) fn receive(self: &Arc<Self>, from: Option<IpAddr>) -> Option<Visit> {
        let from = from.map(place_of);
        let mut places = self.lock();
        let of_it = places.iter().filter(|&&other| other == from).count();
        if places.len() >= VISITORS_MAX || of_it >= VISITORS_PER_ADDRESS_MAX {
            return None;
        }
        places.push(from);
        Some(Visit { visitors: Arc::clone(self), from })
    }
}

/// A place at discovery; free again once this is dropped.
pub(crate) struct Visit {
    visitors: Arc<Visitors>,
    from: Option<IpAddr>,
}

impl Visit {
    /// How long its host may be silent that asked for no other time.
    pub(crate) fn silence_max(&self) -> Nanos {
        self.visitors.silence_max
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut places = self.visitors.lock();
        if let Some(place) = places.iter().position(|&other| other == self.from) {
            places.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Visit, Visitors};
    use crate::limits::{VISITORS_MAX, VISITORS_PER_ADDRESS_MAX};
    use std::net::IpAddr;
    use std::sync::Arc;
    use strake_units::Nanos;

    #[test]
    fn places_are_few_and_few_for_each_address_and_come_back() {
        let visitors = Arc::new(Visitors::new(Nanos::SECOND));
        let from = |last: usize| Some(IpAddr::from([192, 0, 2, last as u8]));
        let mut all: Vec<Visit> = Vec::new();
        for address in 0..VISITORS_MAX / VISITORS_PER_ADDRESS_MAX {
            for _ in 0..VISITORS_PER_ADDRESS_MAX {
                all.push(visitors.receive(from(address)).expect("there is room for this address"));
            }
            assert!(visitors.receive(from(address)).is_none(), "one too many of an address");
        }
        assert!(visitors.receive(from(200)).is_none(), "one too many in all");
        drop(all.pop());
        assert!(visitors.receive(from(0)).is_none(), "that was not of this address");
        assert!(visitors.receive(from(200)).is_some());
    }
}
