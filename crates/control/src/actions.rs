//! Work of upkeep that waits for drives. Each piece is a separate action on its own thread.
//!
//! A round of upkeep decides under the lock which work is due, starts an action for each piece, and waits for none. The
//! name of an action consists of the work and the array or drive concerned. While an action is in progress, no other
//! action of the same name starts. Therefore an unresponsive drive delays only the work on this drive.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Names of the actions in progress.
#[derive(Clone, Default)]
pub(crate) struct Actions {
    names: Arc<Mutex<BTreeSet<String>>>,
}

/// An action in progress, until this value is dropped.
pub(crate) struct UnderWay {
    actions: Actions,
    pub(crate) name: String,
}

impl Actions {
    /// Starts the action `name`, unless it is in progress.
    pub(crate) fn begin(&self, name: String) -> Option<UnderWay> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(name.clone()).then(|| UnderWay { actions: self.clone(), name })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // The set of names is valid even if a thread panicked while it held the lock.
        let mut names = self.actions.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.remove(&self.name);
    }
}

/// The execution of work that waits for drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As actions for which the round does not wait.
    Beside,
    /// One piece after the other, for a caller that waits for the results of a round.
    InTurn,
}

/// Who wants a member to be re-added, or a spare to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// An operator.
    Command,
    /// Upkeep, which may do it only while the array has auto-readd or auto-replace on.
    Upkeep,
}

#[cfg(test)]
mod tests {
    use super::Actions;

    #[test]
    fn one_action_of_a_name_is_under_way_at_a_time() {
        let actions = Actions::default();
        let first = actions.begin("return a".to_owned());
        assert!(first.is_some());
        assert!(actions.begin("return a".to_owned()).is_none(), "it is in progress");
        assert!(actions.begin("return b".to_owned()).is_some(), "another array is another matter");
        drop(first);
        assert!(actions.begin("return a".to_owned()).is_some(), "it has ended");
    }
}
