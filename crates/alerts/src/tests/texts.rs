//! Tests of text for lines.

use super::event;
use crate::limits::TEXT_BYTES_MAX;
use crate::text::{bounded, cut, one_line, utc};

#[test]
fn nothing_in_a_line_begins_another() {
    for (text, expected) in [
        ("plain", "plain"),
        ("two\r\nlines", "two lines"),
        ("  a \t b\n", "a b"),
        ("nul\0 escape\x1b[2J", "nul escape [2J"),
        ("next\u{85}line\u{2028}and\u{2029}paragraph", "next line and paragraph"),
        ("turned\u{202e}around\u{2066}", "turned around"),
        ("Gr\u{fc}\u{df}e \u{1f600}", "Gr\u{fc}\u{df}e \u{1f600}"),
        ("", ""),
    ] {
        assert_eq!(one_line(text), expected, "{text:?}");
    }
}

#[test]
fn a_cut_falls_between_characters() {
    assert_eq!(cut("abc", 3), "abc");
    assert_eq!(cut("abcd", 3), "abc [...]");
    assert_eq!(cut("a\u{20ac}\u{20ac}", 3), "a [...]");
    assert_eq!(cut("\u{20ac}", 0), " [...]");
}

#[test]
fn every_text_of_an_event_has_a_bound() {
    let long = "\u{20ac}".repeat(1_000_000);
    let mut event = event(1, "info");
    for text in
        [&mut event.kind, &mut event.object, &mut event.what, &mut event.cause, &mut event.severity]
    {
        text.clone_from(&long);
    }
    event.next_action.clone_from(&long);
    event.remedy = strake_wording::say(long.clone()).parts;
    event.actor.clone_from(&long);
    let bytes = serde_json::to_vec(&bounded(&event)).unwrap().len();
    assert!(bytes < 8 * (TEXT_BYTES_MAX + 10), "{bytes}");
}

#[test]
fn dates_are_those_of_the_calendar() {
    for (seconds, expected) in [
        (0, "1970-01-01 00:00:00 UTC"),
        (951_782_399, "2000-02-28 23:59:59 UTC"),
        (951_782_400, "2000-02-29 00:00:00 UTC"),
        (951_868_800, "2000-03-01 00:00:00 UTC"),
        (1_790_000_000, "2026-09-21 14:13:20 UTC"),
        (4_107_542_399, "2100-02-28 23:59:59 UTC"),
        (4_107_542_400, "2100-03-01 00:00:00 UTC"),
    ] {
        assert_eq!(utc(seconds * 1_000_000 + 999_999), expected);
    }
    // Every number is a valid date.
    utc(u64::MAX);
}
