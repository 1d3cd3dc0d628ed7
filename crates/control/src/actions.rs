//! Work of upkeep that waits for drives: each piece an action of its own, on a thread of its own.
//!
//! A round of upkeep decides under the lock what is to be done, starts an action for each piece, and waits for none.
//! An action has a name, made of what it does and the array or drive it does that to. While one of a name is under
//! way, no other of that name begins. So a drive that hangs holds up what concerns that drive, and nothing else.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use crate::control::Control;
use crate::error::ControlError;

/// Names of the actions under way.
#[derive(Clone, Default)]
pub(crate) struct Actions {
    names: Arc<Mutex<BTreeSet<String>>>,
}

/// An action under way, until it is dropped.
struct UnderWay {
    actions: Actions,
    name: String,
}

impl Actions {
    /// Begins the action `name`, unless it is in progress.
    fn begin(&self, name: String) -> Option<UnderWay> {
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
    /// One piece after the other, for whoever wants to see the outcome of a round.
    InTurn,
}

impl Control {
    /// Does `job`, the action `name`.
    ///
    /// # Errors
    /// When it was done in turn and an earlier command panicked.
    pub(crate) fn act(
        &self,
        pace: Pace,
        name: String,
        job: impl FnOnce(&Self) -> Result<(), ControlError> + Send + 'static,
    ) -> Result<(), ControlError> {
        if pace == Pace::InTurn {
            return job(self);
        }
        let Some(under_way) = self.actions().begin(name) else { return Ok(()) };
        let control = self.clone();
        let run = move || {
            if let Err(error) = job(&control) {
                tracing::warn!(action = %under_way.name, reason = %error, "not done");
            }
            drop(under_way);
        };
        // Without a thread the next round tries again.
        if let Err(error) = thread::Builder::new().name("upkeep".to_owned()).spawn(run) {
            tracing::warn!(reason = %error, "no thread for upkeep");
        }
        Ok(())
    }
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
