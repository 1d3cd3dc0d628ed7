//! Labels of every format, golden ones and those of programs to come, are opened or refused by the field that is not
//! known, and the document says which.

#[path = "../../../ondisk/tests/releases/images.rs"]
#[allow(dead_code, reason = "the test of the codecs reads more of it")]
mod images;
mod table;

use std::path::Path;

use images::{GOLDEN, Outcome, geometries};
use table::{outcome, tables};

/// Where the tables are in the document.
const DOCUMENT: &str = "docs/on-disk.md";
const BEGIN: &str = "<!-- releases: printed by cargo xtask releases -->\n";
const END: &str = "<!-- releases: end -->\n";

#[test]
fn the_document_has_the_tables_of_releases() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(DOCUMENT);
    let document = std::fs::read_to_string(path).expect("the document is there");
    let (_, rest) = document.split_once(BEGIN).expect("the document has the mark");
    let (found, _) = rest.split_once(END).expect("the document has the mark of the end");
    assert_eq!(found, tables(), "run: cargo xtask releases --write");
}

#[test]
fn every_golden_image_opens() {
    for (what, image) in GOLDEN {
        assert_eq!(outcome(image), Outcome::Opens, "{what}");
    }
}

#[test]
fn a_geometry_that_is_not_known_is_refused_with_both_values() {
    for image in geometries() {
        match outcome(&image.bytes) {
            Outcome::Refused(why) => {
                assert!(why.starts_with("has "), "{}: {why}", image.what);
                let both = ["; this version supports", "that this version does not support"];
                assert!(both.iter().any(|part| why.contains(part)), "{}: {why}", image.what);
            }
            other => panic!("{}: {other:?}", image.what),
        }
    }
}
