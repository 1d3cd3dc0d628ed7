use super::{Ended, Mutant, Tried, spread, unoptimized, verdict, words_of};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const TEXT: &str = "A flag is not set, so that nobody knows.\n\nfile a.rs\ntier unit strake-raid plan\ntier crash 500\n\
                    <<<<<<<\n    set(1);\n=======\n    set(0);\n>>>>>>>\n";

#[test]
fn a_mutant_is_read_and_applied_once() {
    let mutant = Mutant::parse("flag", TEXT).expect("it is whole");
    assert_eq!(mutant.story, "A flag is not set, so that nobody knows.");
    assert_eq!((mutant.file.as_str(), mutant.tiers.len()), ("a.rs", 2));
    assert_eq!(mutant.applied("{\n    set(1);\n}").as_deref(), Ok("{\n    set(0);\n}"));
    assert!(mutant.applied("{\n}").is_err(), "the text is not there any more");
    assert!(mutant.applied("    set(1);\n    set(1);\n").is_err(), "which of them?");
}

#[test]
fn what_is_not_whole_is_refused() {
    for (from, to) in [
        ("<<<<<<<", "<<"),
        ("=======", "=="),
        (">>>>>>>", ">>"),
        ("file a.rs", ""),
        ("tier unit strake-raid plan\ntier crash 500\n", ""),
        ("tier crash 500", "tier hope"),
        ("A flag is not set, so that nobody knows.", ""),
        ("set(0)", "set(1)"),
    ] {
        assert!(Mutant::parse("flag", &TEXT.replace(from, to)).is_err(), "{from:?} -> {to:?}");
    }
}

#[test]
fn tiers_are_commands_that_end() {
    for tier in [
        "unit strake-raid",
        "bins strake-daemon x",
        "test strake-engine faults redo",
        "crash 10",
        "corrupt 10",
        "sim 10",
    ] {
        let words = words_of(tier).expect("a tier");
        assert_eq!(words[0], "timeout", "{tier}");
    }
}

#[test]
fn tests_are_built_without_optimization_and_the_simulator_as_ever() {
    let commands = ["unit strake-raid single::", "crash 10"].map(|tier| {
        let words = words_of(tier).expect("a tier");
        (unoptimized(&words).join(" "), words.join(" "))
    });
    assert_eq!(
        commands[0].0,
        "timeout --kill-after=5 300 cargo test --config mutants/profile.toml -q -p strake-raid --lib single::"
    );
    assert_eq!(commands[1].0, commands[1].1);
}

/// The texts of all mutants are where they say, so that a change of the code changes its mutants in the same commit.
#[test]
fn every_mutant_fits_the_code() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mutants = super::load(&root.join("mutants")).expect("all can be read");
    for mutant in mutants {
        let text = std::fs::read_to_string(root.join(&mutant.file)).expect("its file is there");
        mutant.applied(&text).unwrap_or_else(|why| panic!("{}: {why}", mutant.name));
    }
}

#[test]
fn those_that_no_test_found_are_named() {
    let killers = BTreeMap::from([("crash".to_owned(), 2)]);
    let tried = Tried { mutants: 4, tried: 3, killers, left: vec!["flag".to_owned()] };
    let line = r#"{"killed":2,"left":["flag"],"mutants":4,"tiers":{"crash":2},"tried":3}"#;
    assert_eq!(tried.counts().to_string(), line);
}

/// When time is short, no part of the code is left out only because of its name.
#[test]
fn the_beginning_of_the_order_is_spread_over_all() {
    let named = |at: usize| {
        let mutant = Mutant::parse(&at.to_string(), TEXT).expect("it is whole");
        Mutant { file: format!("{}.rs", at / 6), ..mutant }
    };
    for seed in [0, 1, 77, u64::MAX] {
        let order = spread((0..54).map(named).collect(), seed);
        let parts: BTreeSet<&str> = order[..18].iter().map(|m| m.file.as_str()).collect();
        assert_eq!(parts.len(), 9, "seed {seed}: a third of them, from all nine parts");
        let names: BTreeSet<&str> = order.iter().map(|m| m.name.as_str()).collect();
        assert_eq!(names.len(), 54, "seed {seed}: all of them");
    }
}

/// Once every mutant was called killed that a tier was tried on whose command was wrong.
#[test]
fn a_tier_that_did_nothing_kills_no_mutant() {
    let tests = "\nrunning 3 tests\n.F.\ntest result: FAILED.";
    let states = "seed 1\n{\"runs\":10,\"violations\":2,\"seed\":1}\n";
    for (code, reported, found) in [
        (Some(101), tests, true),
        (Some(1), states, true),
        (Some(134), "", true),
        (Some(0), "running 3 tests\n", false),
        (Some(0), "{\"runs\":10,\"violations\":0,\"seed\":1}\n", false),
    ] {
        let wanted = if found { Ended::Found } else { Ended::Passed };
        assert_eq!(verdict(code, reported), wanted, "{code:?} {reported}");
    }
    assert_eq!(verdict(Some(124), ""), Ended::Hung);
    for (code, reported) in [
        (Some(0), "running 0 tests\n"),
        (Some(101), "running 0 tests\n"),
        (Some(3), "no such option"),
        (Some(1), "{\"runs\":10,\"violations\":0}\n"),
        (None, ""),
    ] {
        assert!(matches!(verdict(code, reported), Ended::Broken(_)), "{code:?} {reported}");
    }
}
