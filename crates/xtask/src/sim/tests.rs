//! What may be asked for.

use super::numbers;

/// Splits `line` into words and says what is made of them.
fn check(line: &str, expected: Option<(&str, Option<&str>)>) {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let expected = expected.map(|(count, seed)| (count.to_owned(), seed.map(str::to_owned)));
    assert_eq!(numbers(&words[0], &words[1..]).ok(), expected, "{line}");
}

#[test]
fn counts_and_seeds_are_numbers_under_their_names() {
    check("crash --states 10", Some(("10", None)));
    check("sim --seeds 10 --seed 7", Some(("10", Some("7"))));
    check("corrupt --runs 10 --seed 7", Some(("10", Some("7"))));
    check("corrupt --states 10", None);
    check("sim --states 10", None);
    check("crash --states many", None);
    check("crash --states 10 --seed", None);
    check("sim", None);
}
