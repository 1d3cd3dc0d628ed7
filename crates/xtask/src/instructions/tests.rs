use super::{Kept, collected, compare};

fn kept(kernel: &str, cases: &[(&str, f64)]) -> Kept {
    let per_request = cases.iter().map(|(name, each)| ((*name).to_owned(), *each)).collect();
    Kept { kernel: kernel.to_owned(), per_request }
}

/// Passed, failed and skipped checks, and what is said.
fn check(then: &Kept, now: &Kept) -> ([u64; 3], String) {
    let outcome = compare(then, now);
    let tally = outcome.tally;
    ([tally.passed, tally.failed, tally.skipped], outcome.note)
}

#[test]
fn a_twentieth_more_fails_and_as_much_less_is_to_be_kept() {
    let then = kept("avx2", &[("a", 100.0), ("b", 1000.0)]);
    for (a, b, tally, said) in [
        (105.0, 950.0, [2, 0, 0], None),
        (105.1, 1000.0, [1, 1, 0], Some("a: 105 instructions instead of 100, +5.1 %")),
        (
            100.0,
            900.0,
            [2, 0, 0],
            Some("b: -10.0 %: keep that with cargo xtask instructions --update"),
        ),
        (200.0, 2000.0, [0, 2, 0], Some("+100.0 %")),
    ] {
        let (found, note) = check(&then, &kept("avx2", &[("a", a), ("b", b)]));
        assert_eq!(found, tally, "{a} {b}: {note}");
        match said {
            Some(said) => assert!(note.contains(said), "{note}"),
            None => assert_eq!(note, ""),
        }
    }
}

#[test]
fn what_cannot_be_compared_is_no_success() {
    let then = kept("avx2", &[("a", 100.0)]);
    let (tally, note) = check(&then, &kept("ssse3", &[("a", 100.0)]));
    assert_eq!(tally, [0, 0, 1]);
    assert!(note.contains("avx2") && note.contains("ssse3"), "{note}");
    let (tally, note) = check(&then, &kept("avx2", &[("new", 1.0)]));
    assert_eq!(tally, [0, 1, 0]);
    assert!(note.contains("--update"), "{note}");
}

#[test]
fn the_count_of_callgrind_is_found() {
    let said = "==1== Events    : Ir\n==1== Collected : 202182536\n==1== \n==1== I   refs:      202,182,536\n";
    assert_eq!(collected(said), Some(202_182_536));
    assert_eq!(collected("valgrind: not found"), None);
}
