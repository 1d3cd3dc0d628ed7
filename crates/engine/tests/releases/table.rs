//! The tables of releases, as `docs/on-disk.md` has them.

use std::fmt::Write as _;

use super::images::{
    BEFORE, GOLDEN, Image, Outcome, UNKNOWN, damaged, feature, geometries, refused,
};

/// What this version makes of a label on every member of an array.
pub fn outcome(bytes: &[u8]) -> Outcome {
    Outcome::of(bytes, |label| match strake_engine::understood(label) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.what),
    })
}

/// All of it: golden images by program, then what this version makes of labels that it does not know.
pub fn tables() -> String {
    let mut out = golden();
    out += "\n| Label | This version |\n| --- | --- |\n";
    for Image { what, bytes } in refused().into_iter().chain(geometries()).chain(damaged()) {
        row(&mut out, &[&what, &said(&outcome(&bytes))]);
    }
    unknown_rows(&mut out);
    out
}

/// What each program makes of each golden image.
fn golden() -> String {
    let mut out = String::new();
    let mut titles = vec!["Golden image"];
    titles.extend(BEFORE.iter().map(|program| program.name));
    titles.push("This version");
    row(&mut out, &titles);
    row(&mut out, &vec!["---"; titles.len()]);
    for (what, bytes) in GOLDEN {
        let mut cells = vec![what.to_owned()];
        cells.extend(BEFORE.iter().map(|program| program.outcome(bytes)));
        cells.push(said(&outcome(bytes)));
        row(&mut out, &cells.iter().map(String::as_str).collect::<Vec<_>>());
    }
    out
}

fn row(out: &mut String, cells: &[&str]) {
    writeln!(out, "| {} |", cells.join(" | ")).expect("a string");
}

/// The outcome of a set of bits that no program knows, each by itself: the same of all, but for the bit's number.
fn unknown_rows(out: &mut String) {
    for (name, at, bits) in UNKNOWN {
        let (first, last) = (bits.start, bits.end - 1);
        let outcomes = bits.map(|bit| {
            let own = format!("bit {bit};");
            match outcome(&feature(at, bit)) {
                Outcome::Refused(why) => {
                    assert!(why.contains(&own), "{name} bit {bit}: {why}");
                    format!("refused: {}", why.replacen(&own, "bit N;", 1))
                }
                other => said(&other),
            }
        });
        let outcomes: Vec<String> = outcomes.collect();
        assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "{name}: {outcomes:?}");
        row(out, &[&format!("format 2, `{name}` bit N, {first} to {last}"), &outcomes[0]]);
    }
}

fn said(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Opens => "opens".to_owned(),
        Outcome::Refused(why) => format!("refused: {why}"),
        Outcome::Passed(why) => format!("no label: {why}; the newest valid label is used"),
    }
}
