//! The order in which costly steps of negotiations are executed: fair between addresses, and within a budget of each.

use crate::limits::{COMPUTE_TIME_PER_ADDRESS, COMPUTE_WINDOW};
use std::collections::HashMap;
use std::net::IpAddr;
use strake_units::Nanos;

/// Waiting items, and the time that each address has used in the current window.
pub(crate) struct FairQueue<T> {
    /// In the order of their arrival. An item without an address came over a unix socket, which has no budget.
    waiting: Vec<(Option<IpAddr>, T)>,
    used: HashMap<IpAddr, Nanos>,
    window_ends: Nanos,
}

/// What to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<T> {
    /// Execute this item.
    Item(Option<IpAddr>, T),
    /// Every address that waits has used its budget until this time.
    At(Nanos),
    /// Nothing waits.
    Nothing,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { waiting: Vec::new(), used: HashMap::new(), window_ends: Nanos::default() }
    }
}

impl<T> FairQueue<T> {
    /// Adds an item of an address.
    pub(crate) fn push(&mut self, place: Option<IpAddr>, item: T) {
        self.waiting.push((place, item));
    }

    /// Removes the items for which `keep` is false.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        self.waiting.retain(|(_, item)| keep(item));
    }

    /// Removes the next item: the first of the address that has used the least time.
    pub(crate) fn next(&mut self, now: Nanos) -> Next<T> {
        if now >= self.window_ends {
            self.used.clear();
            self.window_ends = now.plus(COMPUTE_WINDOW);
        }
        let items = self.waiting.iter().enumerate();
        let least = items.map(|(index, (place, _))| (self.used(*place), index)).min();
        match least {
            None => Next::Nothing,
            Some((used, _)) if used >= COMPUTE_TIME_PER_ADDRESS => Next::At(self.window_ends),
            Some((_, index)) => {
                let (place, item) = self.waiting.remove(index);
                Next::Item(place, item)
            }
        }
    }

    /// Counts the time that an item of an address took.
    pub(crate) fn count(&mut self, place: Option<IpAddr>, time: Nanos) {
        if let Some(place) = place {
            let used = self.used.entry(place).or_default();
            *used = used.plus(time);
        }
    }

    fn used(&self, place: Option<IpAddr>) -> Nanos {
        place.and_then(|place| self.used.get(&place)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Nanos = Nanos::MILLI;

    fn at(last: u8) -> Option<IpAddr> {
        Some([192, 0, 2, last].into())
    }

    /// Executes items, each of which takes `time`, until there is none or `now` would pass `until`; returns them.
    fn run(queue: &mut FairQueue<u32>, mut now: Nanos, time: Nanos, until: Nanos) -> Vec<u32> {
        let mut done = Vec::new();
        while let Next::Item(place, item) = queue.next(now) {
            done.push(item);
            queue.count(place, time);
            now = now.plus(time);
            if now >= until {
                break;
            }
        }
        done
    }

    #[test]
    fn an_address_behind_a_flood_is_served_second() {
        let mut queue = FairQueue::default();
        (0..16).for_each(|item| queue.push(at(1), item));
        queue.push(at(2), 100);
        queue.push(at(2), 101);
        let done = run(&mut queue, Nanos::SECOND, MILLI, Nanos(u64::MAX));
        assert_eq!(done[..4], [0, 100, 1, 101]);
        assert_eq!(done.len(), 18);
    }

    #[test]
    fn an_address_gets_no_more_than_its_budget_in_a_window() {
        let mut queue = FairQueue::default();
        let most = COMPUTE_TIME_PER_ADDRESS.0 / MILLI.0;
        (0..2 * most as u32).for_each(|item| queue.push(at(1), item));
        let began = Nanos::SECOND;
        let done = run(&mut queue, began, MILLI, Nanos(u64::MAX));
        assert_eq!(done.len() as u64, most);
        let ends = began.plus(COMPUTE_WINDOW);
        assert_eq!(queue.next(Nanos(ends.0 - 1)), Next::At(ends));
        queue.push(None, 1000);
        assert_eq!(
            queue.next(Nanos(ends.0 - 1)),
            Next::Item(None, 1000),
            "a unix socket has no budget"
        );
        assert_eq!(queue.next(ends), Next::Item(at(1), most as u32));
    }

    #[test]
    fn removed_items_are_not_executed() {
        let mut queue = FairQueue::default();
        (0..4).for_each(|item| queue.push(at(1), item));
        queue.retain(|item| item % 2 == 1);
        assert_eq!(run(&mut queue, Nanos::SECOND, MILLI, Nanos(u64::MAX)), [1, 3]);
        assert_eq!(queue.next(Nanos::SECOND), Next::Nothing);
    }
}
