//! The stock: memory of a core that it lends to its connections.
//!
//! ```text
//! Supply of a connection --+-- buffers of the core's Stock, within the limit of its Borrower
//!                          '-- own buffers: not resident until they are used, and never shared
//! ```
//! Data is usually in lent buffers: they are resident, in huge pages if available, and the buffer that was returned
//! last is warm in the cache. A borrower, which stands for all connections of one peer, gets no more than it leaves, so
//! that the next one finds buffers. Peers that keep lent buffers may still exhaust the stock: the only guarantee of a
//! connection is its own memory, with which it works without the stock.

use crate::limits::REST_AFTER_USE;
use crate::pools::{Need, Pools, Size};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use strake_block::{Sg, SgMut};
use strake_units::Nanos;

/// The memory that a core lends.
pub struct Stock {
    pools: RefCell<Pools>,
    borrowers: RefCell<Vec<Weak<Borrower>>>,
}

impl Stock {
    /// Creates a stock with these buffers.
    #[must_use]
    pub fn new(pools: Pools) -> Self {
        Self { pools: RefCell::new(pools), borrowers: RefCell::default() }
    }

    /// The borrower of this name.
    fn borrower(&self, name: &str) -> Rc<Borrower> {
        let mut known = self.borrowers.borrow_mut();
        known.retain(|borrower| borrower.strong_count() > 0);
        let found = known.iter().filter_map(Weak::upgrade).find(|known| known.name == name);
        found.unwrap_or_else(|| {
            let borrower = Rc::new(Borrower { name: name.to_owned(), lent: Counts::default() });
            known.push(Rc::downgrade(&borrower));
            borrower
        })
    }
}

/// The borrower for all connections of one peer on a core.
struct Borrower {
    name: String,
    lent: Counts,
}

/// The numbers of buffers of both sizes.
#[derive(Default)]
struct Counts {
    small: Cell<usize>,
    large: Cell<usize>,
}

impl Counts {
    const fn of(&self, size: Size) -> &Cell<usize> {
        match size {
            Size::Small => &self.small,
            Size::Large => &self.large,
        }
    }

    fn add(&self, need: Need) {
        let count = self.of(need.size);
        count.set(count.get() + need.buffers);
    }

    fn subtract(&self, need: Need) {
        let count = self.of(need.size);
        count.set(count.get() - need.buffers);
    }

    fn have(&self, need: Need) -> bool {
        self.of(need.size).get() >= need.buffers
    }
}

/// The buffers that a connection has borrowed.
struct Loan {
    stock: Rc<Stock>,
    borrower: Rc<Borrower>,
    /// The part that this connection has borrowed.
    here: Counts,
}

impl Loan {
    fn take(&self, bytes: usize) -> Option<SgMut> {
        let mut pools = self.stock.pools.borrow_mut();
        let need = pools.need(bytes);
        let left = pools.available(need.size).checked_sub(need.buffers)?;
        if self.borrower.lent.of(need.size).get() + need.buffers > left {
            return None;
        }
        let list = pools.take(bytes)?;
        self.borrower.lent.add(need);
        self.here.add(need);
        Some(list)
    }

    /// True if the buffers were lent, and are not the connection's own. If a drive kept all of them and other buffers
    /// were returned, this is ambiguous: the own buffers are assumed if some of them are in use.
    fn has(&self, list: &SgMut, own: &Pools) -> bool {
        let pools = self.stock.pools.borrow();
        let mut parts = list.parts().iter();
        if parts.clone().any(|part| pools.are_in(part.arena())) {
            return true;
        }
        let need = pools.need(list.len());
        self.here.have(need)
            && !own.misses(need.size)
            && !parts.any(|part| own.are_in(part.arena()))
    }

    fn put(&self, list: SgMut) {
        let mut pools = self.stock.pools.borrow_mut();
        if self.give_back(pools.need(list.len())) {
            pools.put(list);
        }
    }

    fn put_shared(&self, list: Sg) {
        let mut pools = self.stock.pools.borrow_mut();
        if self.give_back(pools.need(list.len())) {
            pools.put_shared(list);
        }
    }

    /// Records that buffers were returned. Returns false if other buffers were returned in their place before: the
    /// stock then has all buffers that it lent.
    fn give_back(&self, need: Need) -> bool {
        let is_lent = self.here.have(need);
        if is_lent {
            self.borrower.lent.subtract(need);
            self.here.subtract(need);
        }
        is_lent
    }
}

impl Drop for Loan {
    /// Buffers that a closing connection has not returned were lost (or were counted as its own): the stock creates
    /// replacements.
    fn drop(&mut self) {
        for size in [Size::Small, Size::Large] {
            let need = Need { size, buffers: self.here.of(size).get() };
            self.stock.pools.borrow_mut().replace(need);
            self.borrower.lent.subtract(need);
        }
    }
}

/// The state of the memory that belongs to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Own {
    /// The memory is not resident.
    Untouched,
    /// Some of it was used.
    Used,
    /// All of it was returned at this time.
    Rests(Nanos),
}

/// The memory of a connection: its own buffers, and the buffers that it borrows.
pub struct Supply {
    own: Pools,
    state: Own,
    loan: Option<Loan>,
}

impl Supply {
    /// Creates a supply with its own memory only.
    #[must_use]
    pub const fn alone(own: Pools) -> Self {
        Self { own, state: Own::Untouched, loan: None }
    }

    /// Creates a supply with its own memory, and a loan from the stock of its core for the peer of this name. The small
    /// buffers of both have the same size.
    #[must_use]
    pub fn borrowing(own: Pools, stock: &Rc<Stock>, peer: &str) -> Self {
        let (stock, borrower) = (Rc::clone(stock), stock.borrower(peer));
        let loan = Some(Loan { stock, borrower, here: Counts::default() });
        Self { own, state: Own::Untouched, loan }
    }

    /// Takes buffers for `bytes` bytes, at most the size of one list of large buffers; `None` until enough are
    /// returned.
    pub fn take(&mut self, bytes: usize) -> Option<SgMut> {
        if let Some(lent) = self.loan.as_ref().and_then(|loan| loan.take(bytes)) {
            return Some(lent);
        }
        self.state = Own::Used;
        self.own.take(bytes)
    }

    /// Accepts a returned list that was taken in one call, as [`Pools::put`] does.
    pub fn put(&mut self, list: SgMut) {
        match &self.loan {
            _ if list.parts().is_empty() => {}
            Some(loan) if loan.has(&list, &self.own) => loan.put(list),
            Some(_) | None => self.own.put(list),
        }
    }

    /// Accepts returned buffers that were the source of a write.
    pub fn put_shared(&mut self, list: Sg) {
        let Some(first) = list.parts().first() else { return };
        match &self.loan {
            Some(loan) if !self.own.are_in(first.arena()) => loan.put_shared(list),
            Some(_) | None => self.own.put_shared(list),
        }
    }

    /// Returns the connection's own memory to the system when the memory has been unused for a time.
    pub fn rest(&mut self, now: Nanos) {
        match self.state {
            Own::Untouched => {}
            Own::Used if self.own.is_whole() => self.state = Own::Rests(now),
            Own::Used => {}
            Own::Rests(since) if now.since(since) >= REST_AFTER_USE => {
                self.own.give_back();
                self.state = Own::Untouched;
            }
            Own::Rests(_) => {}
        }
    }

    /// The time at which [`rest`](Self::rest) has an effect, if no buffer is taken before.
    #[must_use]
    pub fn rests_at(&self) -> Option<Nanos> {
        match self.state {
            Own::Rests(since) => Some(since.plus(REST_AFTER_USE)),
            Own::Untouched | Own::Used => None,
        }
    }
}

#[cfg(test)]
mod tests;
