use super::{EventKind, Events, Note, WallClock};
use crate::limits::{EVENTS_FILE_BYTES, EVENTS_KEPT};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use strake_api::v1::ListEventsRequest;
use strake_testkit::Folder;

fn folder() -> Folder {
    Folder::new("strake-events")
}

fn open(folder: &Path) -> Events {
    Events::open(folder, WallClock::new(|| 7)).expect("events open")
}

fn note(what: &str) -> Note {
    Note::new(EventKind::ArrayCreated, "array/tank", what)
}

fn numbers(events: &Events) -> Vec<u64> {
    let all = events.list(&ListEventsRequest::default()).expect("the request is fine");
    all.into_iter().map(|event| event.number).collect()
}

fn append(dir: &Path, bytes: &[u8]) {
    let mut text = fs::read(dir.join("events.jsonl")).expect("it is there");
    text.extend_from_slice(bytes);
    fs::write(dir.join("events.jsonl"), text).expect("it can be written");
}

#[test]
fn numbers_count_up_over_restarts_and_a_damaged_tail() {
    let folder = folder();
    let events = open(&folder);
    events.record(note("one"));
    events.record(note("two"));
    drop(events);
    // A crash in the middle of an event, after rubbish in the middle of the file.
    append(&folder, b"\xff\xfe{}\n{\"number\":3,\"what\":\"cut sh");
    let events = open(&folder);
    assert_eq!(numbers(&events), [1, 2]);
    assert_eq!(events.record(note("three")).number, 3);
    drop(events);
    let events = open(&folder);
    assert_eq!(numbers(&events), [1, 2, 3]);
    // An older event follows newer ones.
    drop(events);
    append(&folder, b"{\"number\":1}\n");
    assert_eq!(numbers(&open(&folder)), [1, 2, 3]);
}

#[test]
fn what_is_kept_is_bounded_in_memory_and_in_the_files() {
    let folder = folder();
    let events = open(&folder);
    let long = "x".repeat(10_000);
    for _ in 0..EVENTS_KEPT + 100 {
        events.record(note(&long));
        // Waiting keeps this test from dropping events, which another one shows.
        if events.last().is_multiple_of(512) {
            assert!(events.flush());
        }
    }
    assert_eq!(numbers(&events).len(), EVENTS_KEPT);
    assert_eq!(numbers(&events).first(), Some(&101));
    assert!(events.flush());
    for name in ["events.jsonl", "events.old.jsonl"] {
        let bytes = fs::metadata(folder.join(name)).expect("it is there").len();
        assert!(bytes <= EVENTS_FILE_BYTES, "{name} has {bytes} bytes");
    }
    let last = events.last();
    drop(events);
    assert_eq!(open(&folder).last(), last);
}

#[test]
fn listeners_hear_every_event_in_order() {
    let folder = folder();
    let events = open(&folder);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let ears = Arc::clone(&heard);
    events.listen(move |event| ears.lock().expect("nobody panics").push(event.number));
    (0..100).for_each(|_| drop(events.record(note("something"))));
    assert_eq!(*heard.lock().expect("nobody panics"), (1..=100).collect::<Vec<u64>>());
}

/// docs/events.md is what people read; it names every kind once, with its severity and its meaning.
#[test]
fn the_documentation_lists_every_kind() {
    let page = include_str!("../../../../docs/events.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = EventKind::ALL
        .iter()
        .map(|kind| {
            format!("| `{}` | {} | {} |", kind.word(), kind.severity().word(), kind.meaning())
        })
        .collect();
    assert_eq!(rows, expected);
    let words: BTreeSet<&str> = EventKind::ALL.iter().map(|kind| kind.word()).collect();
    assert_eq!(words.len(), EventKind::ALL.len(), "two kinds have one word");
}
