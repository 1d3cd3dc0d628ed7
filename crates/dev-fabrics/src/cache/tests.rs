//! Detection of losses, from counters and associations alone.

use crate::cache::{Cache, Instance};

/// The association ends, and another one starts, while its completions are still being received.
#[test]
fn a_change_that_completes_after_the_end_of_its_association_is_not_covered() {
    for instance in [Instance::PerhapsAnother, Instance::Same] {
        let cache = Cache::new();
        cache.changed(1);
        cache.flushed(cache.changes());
        cache.association_ended(1);
        cache.association_began(2, instance);
        assert!(!cache.has_lost(1), "it was flushed");
        cache.changed(1);
        assert_eq!(cache.has_lost(1), instance == Instance::PerhapsAnother);
        assert!(!cache.has_lost(2), "who came later does not rely on it");
    }
}

/// The cache outlives associations: a change over one association may be lost after another one.
#[test]
fn a_change_is_in_the_cache_until_a_flush_over_whatever_association() {
    for (flushed, expected) in [(false, true), (true, false)] {
        let cache = Cache::new();
        cache.changed(1);
        cache.association_ended(1);
        let since = cache.current();
        cache.association_began(2, Instance::Same);
        if flushed {
            cache.flushed(cache.changes());
        }
        cache.association_ended(2);
        cache.association_began(3, Instance::PerhapsAnother);
        assert_eq!((cache.has_lost(1), cache.has_lost(since)), (expected, expected));
        assert!(!cache.has_lost(cache.current()));
    }
}

/// A target that reports no instance is not known to be the same.
#[test]
fn an_instance_is_the_same_only_if_the_target_says_so() {
    let (a, b) = (Some([1; 16]), Some([2; 16]));
    for (was, is) in [(None, None), (None, a), (a, None), (a, b)] {
        assert_eq!(Instance::of(was, is), Instance::PerhapsAnother);
    }
    assert_eq!(Instance::of(a, a), Instance::Same);
}
