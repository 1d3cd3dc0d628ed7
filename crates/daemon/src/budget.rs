//! Budgets by user, so that one user cannot use up what all share.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of users with a used budget at a time. Further users have none.
const USERS_MAX: usize = 1024;

/// A budget of each user: a number of uses at once, and one more in each interval. It is the generic cell rate
/// algorithm (ITU-T I.371, annex A).
pub struct Budgets {
    every: Duration,
    at_once: u32,
    /// The time at which the budget of a user is whole again.
    whole: Mutex<BTreeMap<u32, Instant>>,
}

impl Budgets {
    /// Creates budgets of `at_once` uses, and one more in each interval `every`.
    pub const fn new(at_once: u32, every: Duration) -> Self {
        Self { every, at_once, whole: Mutex::new(BTreeMap::new()) }
    }

    /// Uses the budget of `user` once. Returns false if nothing is left.
    pub fn take(&self, user: u32, now: Instant) -> bool {
        // Each change is one step, so the map is valid even if the lock is poisoned.
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        whole.retain(|_, whole| *whole > now);
        let at = whole.get(&user).copied().unwrap_or(now);
        let is_new = at == now;
        if at.duration_since(now) > self.every * (self.at_once - 1)
            || (is_new && whole.len() == USERS_MAX)
        {
            return false;
        }
        whole.insert(user, at + self.every);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Budgets, USERS_MAX};
    use std::time::{Duration, Instant};

    #[test]
    fn a_user_has_some_uses_at_once_and_one_more_in_each_interval() {
        let second = Duration::from_secs(1);
        let budgets = Budgets::new(3, second);
        let start = Instant::now();
        let used = |user, after: u32| {
            (0..10).filter(|_| budgets.take(user, start + second * after)).count()
        };
        assert_eq!(used(7, 0), 3);
        assert_eq!(used(8, 0), 3, "another user has a budget of its own");
        assert_eq!(used(7, 1), 1);
        assert_eq!(used(7, 3), 2);
        assert_eq!(used(7, 100), 3);
    }

    #[test]
    fn the_number_of_users_is_bounded() {
        let budgets = Budgets::new(1, Duration::from_secs(60));
        let now = Instant::now();
        let served = (0..2 * USERS_MAX as u32).filter(|user| budgets.take(*user, now)).count();
        assert_eq!(served, USERS_MAX);
    }
}
