//! What may have been lost with a target's cache, counted on several cores at a time: in every order in which the steps
//! can happen, and with every value that the memory model of C11 lets them read. loom runs the very source of the
//! product, `src/cache.rs`, on atomics of its own.
//!
//! Not covered: how associations, connections and queues learn of each other (`src/path_manager.rs`, `src/link.rs`),
//! which goes through locks and descriptors. Here a queue knows its association, as there.
//!
//! `LOOM_MAX_PREEMPTIONS` sets how often a thread may be interrupted where it did not have to wait.

// The source has more than its models use.
#[allow(dead_code, unreachable_pub)]
#[path = "../src/cache.rs"]
mod cache;

/// What the source is built on here.
mod atomic {
    pub(crate) use loom::sync::atomic::Ordering;
    use loom::sync::atomic::fence;
    use std::cell::Cell;

    /// loom takes sequentially consistent accesses for acquiring and releasing ones, and has fences that are. A program
    /// whose accesses are all of this kind is the same with such a fence in front of each, and with one behind each
    /// (as compilers do it for machines without such accesses). One access that asks for less has none, and each way
    /// shows one half of what that breaks; so every model is run in both.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fence {
        InFront,
        Behind,
    }

    thread_local! {
        // loom runs all threads of a model on the one that checks it.
        static FENCE: Cell<Fence> = const { Cell::new(Fence::InFront) };
    }

    pub(crate) fn put(place: Fence) {
        FENCE.set(place);
    }

    #[derive(Debug)]
    pub(crate) struct AtomicU64(loom::sync::atomic::AtomicU64);

    fn in_order<T>(order: Ordering, weaker: Ordering, access: impl FnOnce(Ordering) -> T) -> T {
        if order != Ordering::SeqCst {
            return access(order);
        }
        if FENCE.get() == Fence::InFront {
            fence(Ordering::SeqCst);
        }
        let value = access(weaker);
        if FENCE.get() == Fence::Behind {
            fence(Ordering::SeqCst);
        }
        value
    }

    impl AtomicU64 {
        pub(crate) fn new(value: u64) -> Self {
            Self(loom::sync::atomic::AtomicU64::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> u64 {
            in_order(order, Ordering::Acquire, |order| self.0.load(order))
        }

        pub(crate) fn store(&self, value: u64, order: Ordering) {
            in_order(order, Ordering::Release, |order| self.0.store(value, order));
        }

        pub(crate) fn fetch_add(&self, more: u64, order: Ordering) -> u64 {
            in_order(order, Ordering::AcqRel, |order| self.0.fetch_add(more, order))
        }

        pub(crate) fn fetch_max(&self, least: u64, order: Ordering) -> u64 {
            in_order(order, Ordering::AcqRel, |order| self.0.fetch_max(least, order))
        }
    }
}

use atomic::Fence;
use cache::{Cache, Instance};
use loom::sync::Arc;
use loom::thread;

/// Enough for every known way to break this; the night has more.
const PREEMPTIONS: usize = 2;

fn check(model: impl Fn() + Sync + Send + Copy + 'static) {
    for fence in [Fence::InFront, Fence::Behind] {
        atomic::put(fence);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(PREEMPTIONS);
        builder.check(model);
    }
}

/// A change completes over an association that is just being followed by one with another instance. Whatever comes
/// first, it counts as lost for users of the old association, and for no others.
#[test]
fn a_change_that_meets_another_instance_counts_as_lost() {
    check(|| {
        let cache = Arc::new(Cache::new());
        let queue = Arc::clone(&cache);
        let queue = thread::spawn(move || queue.changed(1));
        cache.association_ended(1);
        cache.association_began(2, Instance::PerhapsAnother);
        queue.join().unwrap();
        assert!(cache.has_lost(1));
        assert!(!cache.has_lost(2));
    });
}

/// The same with a flush that was answered before: what it covered is not lost, what came after it is.
#[test]
fn a_change_after_a_flush_is_not_covered_by_it() {
    check(|| {
        let cache = Arc::new(Cache::new());
        cache.changed(1);
        cache.flushed(cache.changes());
        let queue = Arc::clone(&cache);
        let queue = thread::spawn(move || queue.changed(1));
        cache.association_began(2, Instance::PerhapsAnother);
        queue.join().unwrap();
        assert!(cache.has_lost(1));
    });
}

/// A flush over the old association is answered while another queue changes something over the next one, which it does
/// not cover: either it is sent again, or it does not count that change.
#[test]
fn a_flush_over_an_association_that_has_ended_covers_nothing_of_the_next() {
    check(|| {
        let cache = Arc::new(Cache::new());
        let old = Arc::clone(&cache);
        // As a queue does it: what it covers when it is sent, and whether it counts when it is answered.
        let old = thread::spawn(move || {
            let covers = old.changes();
            if 1 >= old.current() {
                old.flushed(covers);
            }
        });
        cache.association_ended(1);
        cache.association_began(2, Instance::Same);
        cache.changed(2);
        old.join().unwrap();
        cache.association_ended(2);
        cache.association_began(3, Instance::PerhapsAnother);
        assert!(cache.has_lost(2), "it was in the cache, and nothing flushed it");
    });
}
