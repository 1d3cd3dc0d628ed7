//! Tests the grace periods of I/Os that do not pass the pool core, in every order of the steps and with every value
//! that the memory model of C11 allows. loom runs the original source `src/grace.rs` with its own atomics.
//!
//! A view is one atomic number here: the generation of the cluster that a part has. A cluster that is used again while
//! an I/O of the former generation is in progress is the damage that grace periods prevent.

// The models do not use all of the source.
#[allow(dead_code, unreachable_pub)]
#[path = "../src/grace.rs"]
mod grace;

/// The atomics of the source in this test.
mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
}

use grace::{Grace, Section};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use loom::thread;

/// Sufficient for every known defect. The nightly tests use a larger number.
const PREEMPTIONS: usize = 3;

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(PREEMPTIONS);
    builder.check(model);
}

/// A pool with one part, and one queue.
struct Pool {
    grace: Grace,
    section: Section,
    /// The cluster that the view shows.
    shown: AtomicU32,
    /// Clusters that were used again.
    reused: [AtomicBool; 4],
    /// True if writes began after the snapshot was reported.
    is_reported: AtomicBool,
}

impl Pool {
    fn new() -> Self {
        let reused = std::array::from_fn(|_| AtomicBool::new(false));
        let (grace, section) = (Grace::new(), Section::new());
        let is_reported = AtomicBool::new(false);
        Self { grace, section, shown: AtomicU32::new(0), reused, is_reported }
    }

    /// Flips, and waits for earlier I/Os.
    fn wait_for_older(&self) {
        let half = self.grace.flip();
        while !self.section.is_empty(half) {
            thread::yield_now();
        }
    }

    fn read(&self) {
        let half = self.section.enter(&self.grace);
        let cluster = self.shown.load(Ordering::Acquire) as usize;
        // The I/O is in progress.
        assert!(!self.reused[cluster].load(Ordering::Relaxed), "another volume has the cluster");
        self.section.leave(half);
    }
}

#[test]
fn a_cluster_is_used_again_after_all_older_io() {
    check(|| {
        let pool = Arc::new(Pool::new());
        let user = Arc::clone(&pool);
        let reader = thread::spawn(move || (0..2).for_each(|_| user.read()));
        pool.shown.store(1, Ordering::Release);
        pool.wait_for_older();
        pool.reused[0].store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

#[test]
fn a_cluster_is_used_again_after_all_older_io_of_two_flips() {
    check(|| {
        let pool = Arc::new(Pool::new());
        let user = Arc::clone(&pool);
        let reader = thread::spawn(move || user.read());
        for cluster in 0..2 {
            pool.shown.store(cluster + 1, Ordering::Release);
            pool.wait_for_older();
            pool.reused[cluster as usize].store(true, Ordering::Relaxed);
        }
        reader.join().unwrap();
    });
}

#[test]
fn overlapping_io_of_one_queue_keeps_the_cluster() {
    check(|| {
        let pool = Arc::new(Pool::new());
        let user = Arc::clone(&pool);
        let reader = thread::spawn(move || {
            let first = user.section.enter(&user.grace);
            let second = user.section.enter(&user.grace);
            let cluster = user.shown.load(Ordering::Acquire) as usize;
            user.section.leave(first);
            assert!(!user.reused[cluster].load(Ordering::Relaxed), "another volume has it");
            user.section.leave(second);
        });
        pool.shown.store(1, Ordering::Release);
        pool.wait_for_older();
        pool.reused[0].store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

#[test]
fn no_write_from_before_a_hold_is_in_progress_after_it() {
    check(|| {
        let pool = Arc::new(Pool::new());
        let user = Arc::clone(&pool);
        let writer = thread::spawn(move || {
            let half = user.section.enter(&user.grace);
            if !user.grace.holds_writes() {
                // The write is in progress.
                assert!(!user.is_reported.load(Ordering::Relaxed), "it changes a snapshot");
            }
            user.section.leave(half);
        });
        pool.grace.hold_writes(true);
        pool.wait_for_older();
        pool.is_reported.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
}

#[test]
fn nothing_is_in_progress_after_the_end() {
    check(|| {
        let pool = Arc::new(Pool::new());
        let user = Arc::clone(&pool);
        let writer = thread::spawn(move || {
            let half = user.section.enter(&user.grace);
            if !user.grace.is_closed() {
                assert!(!user.is_reported.load(Ordering::Relaxed), "the pool has ended");
            }
            user.section.leave(half);
        });
        pool.grace.close();
        while !pool.section.is_idle() {
            thread::yield_now();
        }
        pool.is_reported.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
}

#[test]
fn a_lost_write_is_known_before_it_leaves() {
    check(|| {
        let pool = Arc::new(Pool::new());
        let user = Arc::clone(&pool);
        let half = pool.section.enter(&pool.grace);
        let writer = thread::spawn(move || {
            user.grace.lose_write();
            user.section.leave(half);
        });
        pool.wait_for_older();
        assert!(pool.grace.has_lost_write());
        writer.join().unwrap();
    });
}
