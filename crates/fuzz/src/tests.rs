use crate::corpus::parse;
use crate::{Case, Chance, corpus, damage, disorder, hex, runs};

#[test]
fn a_seed_means_the_same_run() {
    let make = |seed| {
        let mut chance = Chance::new(seed);
        let mut parts = vec![chance.bytes(100), chance.bytes(8)];
        damage(&mut parts[0], &mut chance);
        disorder(&mut parts, &mut chance);
        parts
    };
    for seed in 0..100 {
        assert_eq!(make(seed), make(seed));
    }
    assert_ne!(make(1), make(2));
}

/// Damage of every kind to anything, also to what is hardly there.
#[test]
fn damage_is_done_to_anything_and_mostly_changes_it() {
    let mut changed = 0;
    for seed in 0..2000 {
        let mut chance = Chance::new(seed);
        let length = chance.below(200);
        let whole = chance.bytes(length);
        let mut bytes = whole.clone();
        damage(&mut bytes, &mut chance);
        changed += u32::from(bytes != whole);
        let mut parts = vec![Vec::new(); chance.below(4)];
        disorder(&mut parts, &mut chance);
    }
    assert!(changed > 1500, "{changed} of 2000");
}

#[test]
fn half_of_all_runs_are_always_the_same() {
    let seeds = || {
        let mut seeds = Vec::new();
        runs(10, |seed| seeds.push(seed));
        seeds
    };
    let found = seeds();
    assert_eq!(found.iter().copied().step_by(2).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(found[3], found[1] + 1);
}

#[test]
fn files_are_stories_roles_and_parts() {
    let text = "# why\nas io\n\n00ff\n# more\n10\n";
    let case = Case { name: "a".into(), role: "io".into(), parts: vec![vec![0, 255], vec![16]] };
    assert_eq!(parse("a", text), Ok(case));
    let bytes = [&[0, 255, 16][..], &[7; 300], &[1], &[0; 20]].concat();
    assert_eq!(hex(&bytes), "00ff10 07*300 01 00*20");
    let again = parse("a", &format!("as io\n{}\n", hex(&bytes)));
    assert_eq!(again.map(|case| case.parts), Ok(vec![bytes]));
    for (text, line) in [
        ("00\n", "00"),
        ("as io\n0\n", "0"),
        ("as io\n0g\n", "0g"),
        ("as io\n00*x\n", "00*x"),
        ("", ""),
    ] {
        assert_eq!(parse("a", text), Err(line.to_owned()));
    }
}

#[test]
fn the_corpus_can_be_read() {
    for folder in ["to-target", "to-host"] {
        let cases = corpus(folder);
        assert!(!cases.is_empty() && cases.iter().all(|case| !case.parts.is_empty()), "{folder}");
    }
}
