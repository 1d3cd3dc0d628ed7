//! What may be asked for.

use super::{counts, request};

/// Splits `line` into words and says what is made of them: what the simulator is asked for, and the seed.
fn check(line: &str, expected: Option<(&str, Option<&str>)>) {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let expected = expected.map(|(asked, seed)| (asked.to_owned(), seed.map(str::to_owned)));
    let found = request(&words[0], &words[1..]).ok();
    assert_eq!(found.map(|(asked, seed)| (asked.join(" "), seed)), expected, "{line}");
}

#[test]
fn counts_and_seeds_are_numbers_under_their_names() {
    check("crash --states 10", Some(("--crash 10", None)));
    check("crash --pairs", Some(("--crash-pairs", None)));
    check("crash --restart 10 --seed 7", Some(("--restart 10", Some("7"))));
    check("sim --restart 10", None);
    check("crash --pairs --seed 7", Some(("--crash-pairs", Some("7"))));
    check("sim --seeds 10 --seed 7", Some(("--kept --seeds 10", Some("7"))));
    check("sim --shrink 7", Some(("--shrink", Some("7"))));
    check("sim --shrink", None);
    check("corrupt --shrink 7", None);
    check("corrupt --runs 10 --seed 7", Some(("--corrupt 10", Some("7"))));
    check("corrupt --states 10", None);
    check("corrupt --pairs", None);
    check("sim --states 10", None);
    check("crash --states many", None);
    check("crash --states 10 --seed", None);
    check("crash --pairs 10", None);
    check("sim", None);
}

#[test]
fn a_summary_says_what_a_run_covered() {
    let reported = "seed 1\n{\"runs\":3000011,\"violations\":0,\"faults\":{},\"shapes\":{\"raid_60\":7},\"seed\":1}";
    assert_eq!(counts(reported), ": runs 3000011, violations 0, shapes {\"raid_60\":7}");
    assert_eq!(counts("nothing of the kind"), "");
    assert_eq!(counts("{\"seed\":1}"), "");
}
