//! Work of upkeep that waits for drives: each piece an action of its own, on a thread of its own.
//!
//! A round of upkeep decides under the lock what is to be done, starts an action for each piece, and waits for none.
//! An action has a name, made of what it does and the array or drive it does that to. While one of a name is under
//! way, no other of that name begins. So a drive that hangs holds up what concerns that drive, and nothing else.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Names of the actions under way.
#[derive(Clone, Default)]
pub(crate) struct Actions {
    names: Arc<Mutex<BTreeSet<String>>>,
}

/// An action under way, until it is dropped.
pub(crate) struct UnderWay {
    actions: Actions,
    pub(crate) name: String,
}

impl Actions {
    /// Begins the action `name`, unless it is in progress.
    pub(crate) fn begin(&self, name: String) -> Option<UnderWay> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.insert(name.clone()).then(|| UnderWay { actions: self.clone(), name })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        // A set of names is right whatever panicked beside it.
        let mut names = self.actions.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.remove(&self.name);
    }
}

/// How a round does what waits for drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// By actions that it does not wait for.
    Beside,
    /// One piece after the other, for a caller that wants to see the outcome of a round.
    InTurn,
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
