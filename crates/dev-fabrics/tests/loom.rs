//! A model check of the loss detection of a target's cache, which several cores run concurrently: it covers every order
//! of the steps, and every value that the C11 memory model lets them read. loom runs the source of the product,
//! `src/cache.rs`, with its own atomics.
//!
//! The check does not cover how associations, connections and queues learn of each other (`src/path_manager.rs`,
//! `src/link.rs`), which uses locks and descriptors. As in that code, a queue knows its association here.
//!
//! `LOOM_MAX_PREEMPTIONS` sets the number of preemptions of a thread outside of waits.

// The models use only a part of the source.
#[allow(dead_code, unreachable_pub)]
#[path = "../src/cache.rs"]
mod cache;

/// The atomics that the source uses here.
mod atomic {
    pub(crate) use loom::sync::atomic::Ordering;
    use loom::sync::atomic::fence;
    use std::cell::Cell;

    /// loom treats sequentially consistent accesses as acquire and release accesses, and supports sequentially
    /// consistent fences. A program whose accesses are all sequentially consistent is equivalent with such a fence in
    /// front of each, and with one behind each (as compilers do it for machines without such accesses). A weaker access
    /// has no fence, and each placement shows one half of the resulting failures; so every model runs in both.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fence {
        InFront,
        Behind,
    }

    thread_local! {
        // loom runs all threads of a model on the checking thread.
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

/// Enough for every known way to break the source; the nightly run has more.
const PREEMPTIONS: usize = 2;

fn check(model: impl Fn() + Sync + Send + Copy + 'static) {
    for fence in [Fence::InFront, Fence::Behind] {
        atomic::put(fence);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound.get_or_insert(PREEMPTIONS);
        builder.check(model);
    }
}

/// A change completes over an association while it is being followed by one with another instance. In every order, the
/// change counts as lost for users of the old association, and for no others.
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

/// The same scenario after a completed flush: changes that it covered are not lost, later ones are.
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

/// A flush over the old association completes while another queue changes blocks over the next one, which the flush
/// does not cover: either the flush is sent again, or it does not count that change.
#[test]
fn a_flush_over_an_association_that_has_ended_covers_nothing_of_the_next() {
    check(|| {
        let cache = Arc::new(Cache::new());
        let old = Arc::clone(&cache);
        // The steps of a queue: it reads the covered changes at the submission, and checks at the completion whether
        // they count.
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
