//! Changes without data of a queue at one device: Write Zeroes and deallocations, within the budget of their host.

use crate::limits::{EFFECT_BYTES_OF_HOST_MAX, IO_ENTRIES};
use crate::slots::SlotIndex;
use std::collections::VecDeque;
use strake_export_net::Budget;

/// The changes without data of a queue at one device.
pub(super) struct Effects {
    pub(super) budget: Budget,
    /// Commands that wait for the budget, in order.
    pub(super) line: VecDeque<SlotIndex>,
}

impl Effects {
    /// Creates an empty list with a budget of its own.
    pub(super) fn new() -> Self {
        Self { budget: Budget::default(), line: VecDeque::with_capacity(IO_ENTRIES.into()) }
    }

    /// Spends the budget for `bytes` bytes of a command. Returns whether the change may start: no command overtakes a
    /// waiting one.
    pub(super) fn spend(&mut self, index: SlotIndex, bytes: u64) -> bool {
        let is_next = self.line.front().is_none_or(|first| *first == index);
        is_next && self.budget.spend(bytes, EFFECT_BYTES_OF_HOST_MAX)
    }

    /// The first waiting command, and whether the budget permits it.
    #[inline]
    pub(super) fn first(&self) -> Option<(SlotIndex, bool)> {
        let first = *self.line.front()?;
        Some((first, self.budget.permits(EFFECT_BYTES_OF_HOST_MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::Effects;
    use crate::limits::EFFECT_BYTES_OF_HOST_MAX;
    use crate::slots::SlotIndex;

    /// Commands of a host that sends without a pause would otherwise keep an earlier one waiting.
    #[test]
    fn no_command_overtakes_one_that_waits_for_the_budget() {
        let mut effects = Effects::new();
        assert!(effects.spend(SlotIndex(0), EFFECT_BYTES_OF_HOST_MAX));
        assert!(!effects.spend(SlotIndex(1), 1));
        effects.line.push_back(SlotIndex(1));
        assert_eq!(effects.first(), Some((SlotIndex(1), false)));
        effects.budget.give_back(EFFECT_BYTES_OF_HOST_MAX);
        assert!(!effects.spend(SlotIndex(2), 1), "another one waits");
        assert_eq!(effects.first(), Some((SlotIndex(1), true)));
        assert!(effects.spend(SlotIndex(1), 1));
    }
}
