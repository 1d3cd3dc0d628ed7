//! Selection of a path.

use super::{PathCandidate, PathId, Used, choose, share_cache};
use crate::identify::Facts;
use crate::queue::tests::facts;
use strake_block::VolatileCache::{self, Absent, Present};
use strake_nvme_wire::log::Access;

const fn candidate(path: u64, access: Option<Access>) -> PathCandidate {
    PathCandidate { path: PathId(path), access, leaving: false, shares_cache: true, poor: false }
}

/// A path that has been in use for a while.
const fn long(path: u64) -> Option<Used> {
    Some(Used { path: PathId(path), lately: false })
}

/// The selected path among paths with these access states; the first has number 1.
fn chosen(access: &[Option<Access>], used: Option<u64>) -> Option<u64> {
    let candidates: Vec<_> =
        access.iter().zip(1..).map(|(access, path)| candidate(path, *access)).collect();
    choose(&candidates, used.and_then(long)).map(|path| path.0)
}

const BEST: Option<Access> = Some(Access::Optimized);
const ROUNDABOUT: Option<Access> = Some(Access::NonOptimized);
const USELESS: [Option<Access>; 3] =
    [Some(Access::Inaccessible), Some(Access::Lost), Some(Access::Changing)];

#[test]
fn the_best_path_is_used_and_kept_as_long_as_it_is_as_good() {
    assert_eq!(chosen(&[], None), None);
    assert_eq!(chosen(&[], Some(1)), None);
    assert_eq!(chosen(&[BEST, BEST], None), Some(1));
    assert_eq!(chosen(&[BEST, BEST], Some(2)), Some(2), "no reason to change");
    assert_eq!(chosen(&[BEST, BEST], Some(3)), Some(1), "the one in use is gone");
    assert_eq!(chosen(&[ROUNDABOUT, None], None), Some(2), "who does not tell is as good");
    assert_eq!(chosen(&[ROUNDABOUT, BEST], Some(1)), Some(2));
    assert_eq!(chosen(&[ROUNDABOUT, BEST], Some(2)), Some(2));
}

#[test]
fn a_path_over_which_nothing_is_reached_is_used_only_where_there_is_no_other() {
    for useless in USELESS {
        assert_eq!(chosen(&[useless, ROUNDABOUT], None), Some(2));
        assert_eq!(chosen(&[useless, ROUNDABOUT], Some(1)), Some(2));
        assert_eq!(chosen(&[useless, useless], Some(2)), Some(2), "what is held is tried");
        assert_eq!(chosen(&[useless], None), Some(1));
    }
}

#[test]
fn what_is_not_flushed_is_not_given_up_for_speed() {
    let alone = PathCandidate { shares_cache: false, ..candidate(2, BEST) };
    assert_eq!(choose(&[candidate(1, ROUNDABOUT), alone], long(1)), Some(PathId(1)));
    assert_eq!(choose(&[candidate(1, USELESS[0]), alone], long(1)), Some(PathId(2)));
}

#[test]
fn a_path_is_used_for_a_while_before_it_is_left_for_a_better_one() {
    let lately = Some(Used { path: PathId(1), lately: true });
    for (access, expected) in [(ROUNDABOUT, 1), (USELESS[0], 2)] {
        assert_eq!(
            choose(&[candidate(1, access), candidate(2, BEST)], lately),
            Some(PathId(expected))
        );
    }
}

#[test]
fn a_path_that_connects_no_queue_is_used_only_where_nothing_serves_better() {
    let poor = PathCandidate { poor: true, ..candidate(1, BEST) };
    for (access, expected) in [(ROUNDABOUT, 2), (USELESS[0], 1)] {
        let other = PathCandidate { shares_cache: false, ..candidate(2, access) };
        assert_eq!(choose(&[poor, other], long(1)), Some(PathId(expected)));
    }
    assert_eq!(
        choose(&[poor, PathCandidate { path: PathId(2), ..poor }], long(2)),
        Some(PathId(2))
    );
    assert_eq!(choose(&[poor, candidate(2, ROUNDABOUT)], long(2)), Some(PathId(2)), "and stays so");
}

#[test]
fn a_path_that_is_removed_is_left_for_any_other_that_serves() {
    let leaving = PathCandidate { leaving: true, ..candidate(1, BEST) };
    assert_eq!(choose(&[leaving, candidate(2, ROUNDABOUT)], long(1)), Some(PathId(2)));
    assert_eq!(choose(&[leaving, candidate(2, USELESS[0])], long(1)), Some(PathId(1)));
}

/// A target that reports no instance may have a separate cache at the end of each path.
#[test]
fn a_flush_covers_another_path_only_to_what_is_known_to_be_the_same() {
    let of = |cache: VolatileCache, instance: Option<u8>| Facts {
        cache,
        instance: instance.map(|byte| [byte; 16]),
        ..facts()
    };
    for (one, other, shared) in [
        ((Present, Some(1)), (Present, Some(1)), true),
        ((Present, Some(1)), (Present, Some(2)), false),
        ((Present, Some(1)), (Present, None), false),
        ((Present, None), (Present, None), false),
        ((Present, None), (Absent, None), false),
        ((Absent, None), (Absent, None), true),
        ((Absent, Some(1)), (Absent, Some(2)), true),
    ] {
        let [a, b] = [one, other].map(|(cache, instance)| of(cache, instance));
        let is = (share_cache(&a, &b), share_cache(&b, &a));
        assert_eq!(is, (shared, shared), "{one:?} and {other:?}");
    }
}
