//! The catalogue read, doubted, and turned into cargo's words.

use super::catalogue::{NONE_YET, Shown, parse, tests_of};
use super::{Wish, chosen, ids, parse as parse_arguments, repeat, table};
use crate::tidy::repo::Repo;
use crate::tidy::source::Source;

#[test]
fn rows_become_scenarios() {
    let text = "\
| id | meaning | shown by |
|---|---|---|
| F01 | crash | `a.rs::f`, `tests/e2e/x.sh`; but not all |
| F02 | other | none yet; there is no log |
| B01 | empty | |
| two | cells |
";
    let rows = parse(text);
    let by = Shown::By(vec!["a.rs::f".to_string(), "tests/e2e/x.sh".to_string()]);
    let found: Vec<(&str, usize, &Shown, &str)> =
        rows.iter().map(|r| (r.id.as_str(), r.line, &r.tests, r.note.as_str())).collect();
    let expected = [
        ("F01", 3, &by, "but not all"),
        ("F02", 4, &Shown::NoneYet(NONE_YET), "there is no log"),
        ("B01", 5, &Shown::By(Vec::new()), ""),
    ];
    assert_eq!(found, expected);
    let json = serde_json::to_string(&rows[1]).expect("plain data");
    assert_eq!(
        json,
        r#"{"id":"F02","meaning":"other","tests":"none yet","note":"there is no log"}"#
    );
    assert!(table(&rows).ends_with("1 of 3 scenarios have a test\n"));
    assert!(chosen(&rows[0], "e2e") && chosen(&rows[0], "f01") && !chosen(&rows[1], "e2e"));
}

#[test]
fn tests_are_known_by_their_attribute() {
    let text = "\
#[test]
fn one() {}
#[tokio::test(flavor = \"current_thread\")]
#[cfg(unix)]
async fn two() {}
#[cfg(test)]
fn helper() {}
// #[test] fn comment() {}
#[derive(Latest)]
fn not_a_test() {}
";
    let source = Source::new("crates/high/src/tests.rs", text);
    let found: Vec<(String, usize)> = tests_of(&source).collect();
    assert_eq!(found, [("one".to_string(), 2), ("two".to_string(), 5)]);
}

#[test]
fn names_belong_to_the_longest_scenario_that_fits() {
    let all = ids::all();
    for (function, id) in [
        ("f15_a_member", &["F15"][..]),
        ("b04", &["B04"]),
        ("b06_f16_a_member", &["B06", "F16"]),
        ("b64_decodes", &[]),
        ("f15a", &[]),
        ("md_05r1_re_add_copies_little", &["05r1-re-add"]),
        ("md_05r1_re_add_nosuper", &["05r1-re-add-nosuper"]),
        ("md_03r5assemv1", &["03r5assemV1"]),
        ("md_00raid5_zero", &["00raid5-zero"]),
        ("unrelated", &[]),
    ] {
        assert_eq!(ids::named_after(function, &all), id, "{function}");
    }
}

#[test]
fn a_source_says_which_binary_it_is_part_of() {
    let mut repo = Repo::default();
    repo.add("crates/high/src/lib.rs", "");
    repo.add("crates/tool/src/main.rs", "");
    for (claim, target, test) in [
        ("crates/high/src/tests/part.rs::f", "-p strake-high --lib", "tests::part::f"),
        ("crates/high/src/lib.rs::f", "-p strake-high --lib", "f"),
        ("crates/tool/src/part/tests.rs::f", "-p strake-tool --bins", "part::tests::f"),
        ("crates/high/tests/array.rs::f", "-p strake-high --test array", "f"),
        ("crates/high/tests/faults/main.rs::f", "-p strake-high --test faults", "f"),
        ("crates/high/tests/faults/writes.rs::f", "-p strake-high --test faults", "writes::f"),
    ] {
        let (words, name) = repeat::place(claim, &repo).expect("a Rust test");
        assert_eq!((words.join(" ").as_str(), name.as_str()), (target, test), "{claim}");
    }
    assert_eq!(repeat::place("tests/e2e/x.sh", &repo), None);
}

#[test]
fn arguments_parse_or_say_why_not() {
    let parse = |text: &str| {
        parse_arguments(&text.split_whitespace().map(str::to_string).collect::<Vec<_>>())
    };
    let wish = Wish { json: true, repeat: Some(100), filter: "md_".to_string() };
    assert_eq!(parse("--output json --repeat 100 --filter MD_"), Ok(wish));
    assert_eq!(parse(""), Ok(Wish::default()));
    for wrong in ["--output", "--output xml", "--repeat 0", "--repeat x", "--what"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
