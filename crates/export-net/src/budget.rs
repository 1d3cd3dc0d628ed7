//! Budgets for I/Os that take no buffers.
//!
//! A peer needs buffers for reads and writes, and [`Stock`](crate::Stock) limits these. A command without data, such as
//! a Write Zeroes, can order much more work with a few bytes. The budget limits this work for all connections of one
//! peer on a core, for each device.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// The budgets of a core.
#[derive(Default)]
pub struct Budgets(RefCell<Vec<Weak<Account>>>);

/// The bytes in flight of one peer at one device.
#[derive(Default)]
struct Account {
    peer: String,
    /// The name of the export, and the number of the device in it.
    device: (String, u32),
    spent: Cell<u64>,
}

impl Budgets {
    /// The budget of a connection of this peer for a device: the name of its export, and its number there. Connections
    /// of one name share it. Allocates, so it is called when a device is opened.
    #[must_use]
    pub fn of(&self, peer: &str, (export, number): (&str, u32)) -> Budget {
        let mut known = self.0.borrow_mut();
        known.retain(|account| account.strong_count() > 0);
        let is_it = |account: &Rc<Account>| {
            account.peer == peer && account.device.0 == export && account.device.1 == number
        };
        let found = known.iter().filter_map(Weak::upgrade).find(is_it);
        let account = found.unwrap_or_else(|| {
            let (peer, device) = (peer.to_owned(), (export.to_owned(), number));
            let account = Rc::new(Account { peer, device, spent: Cell::new(0) });
            known.push(Rc::downgrade(&account));
            account
        });
        Budget { account, here: 0 }
    }
}

/// The budget of a connection, which it shares with the other connections of its peer.
#[derive(Default)]
pub struct Budget {
    account: Rc<Account>,
    /// The part that this connection has spent.
    here: u64,
}

impl Budget {
    /// Spends `bytes` if less than `most` bytes are in flight. Returns whether the I/O may start. An I/O of any length
    /// starts then, because many short ones would otherwise keep a long one waiting forever.
    pub fn spend(&mut self, bytes: u64, most: u64) -> bool {
        let may_start = self.permits(most);
        if may_start {
            self.account.spent.set(self.account.spent.get() + bytes);
            self.here += bytes;
        }
        may_start
    }

    /// True if less than `most` bytes are in flight.
    #[must_use]
    pub fn permits(&self, most: u64) -> bool {
        self.account.spent.get() < most
    }

    /// Returns bytes that were spent, after their I/O.
    pub fn give_back(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.here, "more is returned than was spent");
        let bytes = bytes.min(self.here);
        self.here -= bytes;
        self.account.spent.set(self.account.spent.get() - bytes);
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.give_back(self.here);
    }
}

#[cfg(test)]
mod tests {
    use super::Budgets;

    const A: (&str, u32) = ("array", 1);

    #[test]
    fn connections_of_a_peer_share_the_budget_of_a_device() {
        let budgets = Budgets::default();
        let (mut one, mut two) = (budgets.of("host", A), budgets.of("host", A));
        assert!(one.spend(3, 5) && two.spend(2, 5));
        assert!(!two.spend(1, 5) && !one.spend(1, 5), "too much for both");
        one.give_back(3);
        assert!(two.spend(1, 5));
        let mut others = [("other", A), ("host", ("array", 2)), ("host", ("another", 1))]
            .map(|(peer, device)| budgets.of(peer, device));
        assert!(
            others.iter_mut().all(|other| other.spend(5, 5)),
            "these have budgets of their own"
        );
    }

    #[test]
    fn short_ios_do_not_keep_a_long_one_waiting() {
        let mut budget = Budgets::default().of("host", A);
        assert!(budget.spend(4, 5) && budget.spend(9, 5));
        assert!(!budget.spend(1, 5));
        budget.give_back(9);
        assert!(budget.spend(9, 5), "short ones may be in flight");
    }

    #[test]
    fn a_connection_that_ends_returns_what_it_spent() {
        let budgets = Budgets::default();
        let (mut one, mut two) = (budgets.of("host", A), budgets.of("host", A));
        assert!(one.spend(5, 5) && !two.spend(1, 5));
        drop(one);
        assert!(two.spend(5, 5));
        drop(two);
        drop(budgets.of("other", A));
        assert_eq!(budgets.0.borrow().len(), 1, "unused accounts are removed");
    }
}
