//! Tests that labels of every format are opened, or refused with the name of the unknown field, and that no label is
//! ignored.

#[path = "releases/images.rs"]
#[allow(dead_code, reason = "the table of releases needs more of it")]
mod images;

use images::{GOLDEN, Outcome, UNKNOWN, damaged, feature, refused};
use strake_ondisk::recovery::CONSTANTS;

fn outcome(bytes: &[u8]) -> Outcome {
    Outcome::of(bytes, |label| if label.is_read_only() { Err("ro_compat".into()) } else { Ok(()) })
}

fn reason(what: &str, bytes: &[u8]) -> String {
    match outcome(bytes) {
        Outcome::Refused(why) => why,
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn every_constant_is_refused_by_name_with_both_values() {
    let all = refused();
    for (name, value) in CONSTANTS {
        let other = value + 1;
        let wanted = format!("has the value {other} for \"{name}\"; this version supports {value}");
        let image = all.iter().find(|image| image.what.contains(&format!(", \"{name}\" ")));
        let image = image.expect("each has an image");
        assert_eq!(reason(&image.what, &image.bytes), wanted);
    }
}

#[test]
fn what_is_not_understood_is_refused_and_never_passed_over() {
    for image in refused() {
        let why = reason(&image.what, &image.bytes);
        // The reason names the field, its value, and the supported values.
        assert!(why.contains("; this version supports "), "{}: {why}", image.what);
        assert!(!why.contains("invalid") && !why.contains("impossible"), "{}: {why}", image.what);
    }
    for (name, at, bits) in UNKNOWN {
        for bit in bits {
            let opens = outcome(&feature(at, bit)) == Outcome::Opens;
            assert_eq!(opens, name == "compat", "{name} bit {bit}");
        }
    }
}

#[test]
fn what_is_damaged_counts_as_no_label_and_golden_images_open() {
    for image in damaged() {
        let outcome = outcome(&image.bytes);
        assert!(matches!(outcome, Outcome::Passed(_)), "{}: {outcome:?}", image.what);
    }
    for (what, bytes) in GOLDEN {
        assert_eq!(outcome(bytes), Outcome::Opens, "{what}");
    }
}
