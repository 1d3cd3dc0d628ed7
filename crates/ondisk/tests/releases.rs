//! Labels of every format are opened, or refused by the field that is not known, and the document says which.

#[path = "releases/images.rs"]
mod images;

use std::path::Path;

use images::{BEGIN, DOCUMENT, END, Outcome, images, table};
use strake_ondisk::recovery::CONSTANTS;

#[test]
fn the_document_has_the_table_of_releases() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(DOCUMENT);
    let document = std::fs::read_to_string(path).expect("the document is there");
    let (_, rest) = document.split_once(BEGIN).expect("the document has the mark");
    let (found, _) = rest.split_once(END).expect("the document has the mark of the end");
    assert_eq!(found, table(), "run: cargo xtask formats");
}

#[test]
fn every_constant_is_refused_by_name_with_both_values() {
    let all = images();
    for (name, value) in CONSTANTS {
        let wanted = format!("records {} as {name}, where this version has {value}", value * 2);
        let of = |image: &&images::Image| image.what.contains(&format!(", {name} "));
        let image = all.iter().find(of).expect("each has an image");
        match Outcome::of(&image.bytes) {
            Outcome::Refused(why) => assert!(why.starts_with(&wanted), "{why}"),
            other => panic!("{}: {other:?}", image.what),
        }
    }
}

#[test]
fn what_is_not_understood_is_refused_and_never_passed_over() {
    for image in images() {
        let outcome = Outcome::of(&image.bytes);
        let what = &image.what;
        let opens = ["format 1, without history", "format 1", "format 2"].contains(&what.as_str());
        let damaged = what.contains("torn") || what.contains("cut short") || what.contains("flag");
        match outcome {
            Outcome::Opens => assert!(opens, "{what} opens"),
            Outcome::Passed(why) => assert!(damaged, "{what} counts as no label: {why}"),
            Outcome::Refused(why) => {
                assert!(!opens && !damaged, "{what} is refused: {why}");
                assert!(!why.contains("invalid"), "{what}: {why}");
            }
        }
    }
}
