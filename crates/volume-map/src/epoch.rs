//! Epochs: the sets of I/Os that read the map before a change.
//!
//! An I/O enters the current epoch before it reads the map and leaves it when its transfers have completed. A change
//! closes the current epoch. When every epoch up to this one is empty, no I/O uses map data from before the change.

use std::collections::VecDeque;

/// A number of an epoch. Epochs only increase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// I/Os in progress, by epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Epochs {
    /// The epoch of the first count.
    first: u64,
    /// I/Os in progress of each epoch; the last is the current one.
    counts: VecDeque<u32>,
}

impl Epochs {
    pub(crate) fn new() -> Self {
        Self { first: 1, counts: VecDeque::from([0]) }
    }

    /// Adds an I/O to the current epoch, and returns the epoch.
    pub(crate) fn enter(&mut self) -> Epoch {
        let last = self.counts.len() - 1;
        self.counts[last] += 1;
        Epoch(self.first + last as u64)
    }

    /// Removes a completed I/O. Returns true if all I/Os of an epoch have now completed.
    ///
    /// # Panics
    /// If no I/O of the epoch is in progress.
    pub(crate) fn leave(&mut self, epoch: Epoch) -> bool {
        let count = &mut self.counts[(epoch.0 - self.first) as usize];
        *count = count.checked_sub(1).expect("an I/O leaves the epoch it entered");
        let is_last = *count == 0;
        while self.counts.len() > 1 && self.counts[0] == 0 {
            self.counts.pop_front();
            self.first += 1;
        }
        is_last
    }

    /// Closes the current epoch. The result covers every I/O that is in progress.
    pub(crate) fn close(&mut self) -> Epoch {
        let last = self.counts.len() - 1;
        if self.counts[last] == 0 {
            return Epoch(self.first + last as u64 - 1);
        }
        self.counts.push_back(0);
        Epoch(self.first + last as u64)
    }

    /// True if a later epoch is the current one.
    pub(crate) fn is_closed(&self, epoch: Epoch) -> bool {
        self.first + self.counts.len() as u64 - 1 > epoch.0
    }

    /// True if no I/O is in progress.
    #[cfg(test)]
    pub(crate) fn are_idle(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }

    /// Returns the first epoch with an I/O in progress, or that an I/O may enter.
    pub(crate) fn oldest(&self) -> Epoch {
        let open = self.counts.iter().position(|count| *count > 0);
        Epoch(self.first + open.unwrap_or(self.counts.len()) as u64)
    }

    /// True if no I/O of `epoch` or of an earlier one is in progress.
    pub(crate) fn are_back(&self, epoch: Epoch) -> bool {
        self.oldest() > epoch
    }
}
