//! Arenas of the pools of `BufPool::new`, announced to drivers that map memory for their devices.
//!
//! A follower is notified of each arena before a buffer of the arena can be submitted, and of its removal before its
//! addresses can be reused.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A driver that follows the arenas of the process. The calls come one at a time, from any thread that creates or drops
/// a pool. The calls themselves must not create or drop a pool.
pub trait Follower: Send + Sync {
    /// An arena was created at these addresses, which are whole pages.
    fn added(&self, arena: Range<usize>);

    /// An arena is removed. No buffer of the arena remains, and its memory is freed after this call.
    fn removed(&self, arena: Range<usize>);
}

struct State {
    /// The ends of all arenas that were announced, by their starts.
    arenas: BTreeMap<usize, usize>,
    followers: Vec<Weak<dyn Follower>>,
}

static STATE: Mutex<State> = Mutex::new(State { arenas: BTreeMap::new(), followers: Vec::new() });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Calls all followers, and returns handles that the caller must drop without the lock: the drop of the last handle
    /// of a follower may drop a pool.
    #[must_use]
    fn each(&mut self, does: impl Fn(&dyn Follower)) -> Vec<Arc<dyn Follower>> {
        let alive: Vec<_> = self.followers.iter().filter_map(Weak::upgrade).collect();
        alive.iter().for_each(|follower| does(&**follower));
        self.followers.retain(|follower| follower.strong_count() > 0);
        alive
    }
}

/// Registers `follower` for the arenas of all pools, including existing pools, for the lifetime of the follower.
pub fn follow(follower: &Arc<dyn Follower>) {
    let mut state = state();
    state.arenas.iter().for_each(|(start, end)| follower.added(*start..*end));
    state.followers.push(Arc::downgrade(follower));
}

pub(super) fn added(arena: Range<usize>) {
    let mut state = state();
    state.arenas.insert(arena.start, arena.end);
    let called = state.each(|follower| follower.added(arena.clone()));
    drop(state);
    drop(called);
}

pub(super) fn removed(arena: Range<usize>) {
    let mut state = state();
    state.arenas.remove(&arena.start);
    let called = state.each(|follower| follower.removed(arena.clone()));
    drop(state);
    drop(called);
}

#[cfg(test)]
mod tests {
    use super::{Follower, follow};
    use crate::BufPool;
    use std::ops::Range;
    use std::sync::{Arc, Mutex};

    #[derive(Default)]
    struct Seen(Mutex<Vec<(bool, usize)>>);

    impl Follower for Seen {
        fn added(&self, arena: Range<usize>) {
            self.0.lock().expect("no test panics here").push((true, arena.start));
        }

        fn removed(&self, arena: Range<usize>) {
            self.0.lock().expect("no test panics here").push((false, arena.start));
        }
    }

    #[test]
    fn pools_are_announced_while_their_memory_exists() {
        let before = BufPool::new(2, 8192);
        let seen = Arc::new(Seen::default());
        let follower: Arc<dyn Follower> = Arc::<Seen>::clone(&seen);
        follow(&follower);
        let mut after = BufPool::new(2, 8192);
        let untouched = BufPool::untouched(2, 8192);
        let starts = [&before, &after, &untouched].map(|pool| pool.arena().address_range().start);
        let of = |start| {
            let seen = seen.0.lock().expect("no test panics here");
            let of: Vec<bool> =
                seen.iter().filter(|(_, at)| *at == start).map(|(added, _)| *added).collect();
            of
        };
        // Other tests create pools too, possibly at these addresses before or after these pools.
        let is_added = |start| of(start).last() == Some(&true);
        assert_eq!(starts.map(is_added), [true, true, false]);
        let buf = after.get(8192).expect("it is full");
        drop(after);
        assert!(is_added(starts[1]), "a buffer of it is left");
        let known = of(starts[1]).len();
        drop(buf);
        assert!(!of(starts[1])[known], "its memory goes");
    }
}
