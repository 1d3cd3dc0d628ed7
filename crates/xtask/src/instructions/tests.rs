use super::profile::Profile;
use super::{Each, Kept, case, compare, drive};

fn kept(kernel: &str, cases: &[(&str, f64)]) -> Kept {
    let each = |instructions| Each { instructions, ..Each::default() };
    let per_request =
        cases.iter().map(|(name, count)| ((*name).to_owned(), each(*count))).collect();
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
        (105.0, 950.0, [4, 0, 0], None),
        (105.1, 1000.0, [3, 1, 0], Some("a: 105 instructions instead of 100, +5.1 %")),
        (
            100.0,
            900.0,
            [4, 0, 0],
            Some("b: -10.0 %: keep that with cargo xtask instructions --update"),
        ),
        (200.0, 2000.0, [2, 2, 0], Some("+100.0 %")),
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
    assert_eq!(tally, [1, 0, 1], "only the allocations are checked");
    assert!(note.contains("avx2") && note.contains("ssse3"), "{note}");
    assert!(note.contains("no counts are compared"), "{note}");
    let (tally, note) = check(&then, &kept("avx2", &[("new", 1.0)]));
    assert_eq!(tally, [1, 1, 0]);
    assert!(note.contains("--update"), "{note}");
}

#[test]
fn a_request_that_allocates_fails() {
    let then = kept("avx2", &[("a", 100.0)]);
    let mut now = then.clone();
    now.per_request
        .insert("a".into(), Each { instructions: 100.0, allocations: 0.1, ..Each::default() });
    let (tally, note) = check(&then, &now);
    assert_eq!(tally, [1, 1, 0]);
    assert!(note.contains("a: 0.1 allocations per request"), "{note}");
}

/// A file of callgrind: `main` calls a kernel twice and allocates three times; the kernel allocates once.
const FILE: &str = "\
version: 1
creator: callgrind-3.19.0
positions: line
events: Ir
summary: 1000

fl=(1) main.rs
fn=(1) program::main
10 5
cfi=(2) x86.rs
cfn=(2) strake_parity::kernels::x86::avx2::dot
calls=2 20
+1 300
cfn=(3) malloc
calls=3 0
* 60
fi=(3) other.rs
-2 7
fe=(1)
fn=(2)
20 280
cfn=(3)
calls=1 0
20 20
fn=(3)
0 80

totals: 372
";

#[test]
fn counts_are_taken_from_the_file_of_callgrind() {
    let profile = Profile { instructions: 372, parity: 280, driver: 0, allocations: 4 };
    assert_eq!(Profile::parse(FILE), Some(profile));
    assert_eq!(Profile::parse(""), None);
    assert_eq!(Profile::parse(&FILE.replace("totals: 372", "")), None, "it was cut off");
    assert_eq!(Profile::parse(&FILE.replace("10 5\n", "")), None, "a line is missing");
    assert_eq!(Profile::parse("fn=(1) a\n10 many\n"), None);
    assert_eq!(Profile::parse("cfn=(7)\n"), None, "a name that was never given");
}

#[test]
fn a_run_that_counts_no_allocation_or_parity_is_none() {
    let whole = Profile { instructions: 9, parity: 1, driver: 1, allocations: 1 };
    assert_eq!(whole.check(true, true), Ok(()));
    assert_eq!(Profile { parity: 0, driver: 0, ..whole }.check(false, false), Ok(()));
    assert!(Profile { parity: 0, ..whole }.check(true, false).is_err());
    assert!(Profile { driver: 0, ..whole }.check(false, true).is_err());
    assert!(Profile { allocations: 0, ..whole }.check(false, false).is_err());
}

#[test]
fn what_the_first_requests_cost_does_not_count() {
    let few = Profile { instructions: 1000, parity: 200, driver: 70, allocations: 9 };
    let many = Profile { instructions: 1300, parity: 250, driver: 90, allocations: 9 };
    let each = Each { instructions: 30.0, parity_kernel: 5.0, ..Each::default() };
    assert_eq!(Each::of(many - few, 10, &case("", "")), each);
    let each = Each { instructions: 2.0, limit: Some(160.0), ..each };
    assert_eq!(Each::of(many - few, 10, &drive("", "")), each, "the load does not count");
}

/// As above, `main` calls the driver, which calls itself and a function of its own, and the model.
#[test]
fn what_the_driver_calls_is_counted_once_and_the_model_not_at_all() {
    const DRIVER: &str = "<strake_dev_nvme::queue::NvmeQueue as strake_block::device::IoQueue>";
    let file = format!(
        "fn=(1) main\n1 5\ncfn=(2) {DRIVER}::submit\ncalls=3 0\n2 60\n\
         cfn=(3) strake_nvme_model::controller::Controller::step\ncalls=1 0\n3 500\n\
         fn=(2)\n4 20\ncfn=(4) {DRIVER}::submit_read\ncalls=3 0\n5 40\n\
         fn=(4)\n6 30\ncfn=(5) strake_dev_nvme::queue::take_slowly\ncalls=1 0\n7 10\n\
         fn=(5)\n8 10\nfn=(3)\n9 500\ntotals: 565\n"
    );
    let profile = Profile { instructions: 565, driver: 60, ..Profile::default() };
    assert_eq!(Profile::parse(&file), Some(profile));
}

#[test]
fn a_limit_fails_whatever_was_kept() {
    let mut now = kept("avx2", &[("a", 161.0)]);
    for each in now.per_request.values_mut() {
        each.limit = Some(160.0);
    }
    let (tally, note) = check(&now, &now.clone());
    assert_eq!(tally, [2, 1, 0]);
    assert!(note.contains("a: 161.0 instructions, the limit is 160"), "{note}");
    for each in now.per_request.values_mut() {
        each.instructions = 160.0;
    }
    assert_eq!(check(&now, &now.clone()).0, [3, 0, 0]);
}

/// The driver computes no parity, and no request may allocate with any kernel.
#[test]
fn limits_and_allocations_are_checked_with_every_kernel() {
    let then = kept("avx2", &[("a", 100.0), ("b", 100.0)]);
    let mut now = kept("ssse3", &[("a", 161.0), ("b", 900.0)]);
    now.per_request.get_mut("a").expect("it is there").limit = Some(160.0);
    now.per_request.get_mut("b").expect("it is there").allocations = 0.1;
    let (tally, note) = check(&then, &now);
    assert_eq!(tally, [1, 2, 1], "{note}");
    assert!(note.contains("a: 161.0 instructions, the limit is 160"), "{note}");
    assert!(note.contains("b: 0.1 allocations per request"), "{note}");
    assert!(!note.contains("instead of"), "{note}");
    now.per_request.get_mut("a").expect("it is there").instructions = 160.0;
    now.per_request.get_mut("b").expect("it is there").allocations = 0.0;
    assert_eq!(check(&then, &now).0, [3, 0, 1]);
}
