use std::collections::BTreeSet;
use std::time::Duration;

use strake_dev_mem::Profile;

use super::{all, asks, find};
use crate::run::RUNS;
use crate::scenario::Options;

fn options() -> Options {
    Options {
        filter: None,
        repeats: Some(1),
        span: Duration::from_millis(1),
        profile: Profile::SN861,
        cold_bytes: 64 << 20,
    }
}

#[test]
fn the_page_lists_all_goals_and_whatever_else_can_be_run() {
    let ids: Vec<&str> = all().iter().map(|goal| goal.id).collect();
    let numbered = |letter, count| (1..=count).map(move |number| format!("{letter}{number}"));
    let goals: Vec<String> = numbered('G', 15).chain(numbered('D', 3)).collect();
    assert_eq!(ids[..18], goals);
    let unlisted: Vec<&str> = RUNS.into_iter().filter(|id| !ids.contains(id)).collect();
    assert!(unlisted.is_empty(), "{unlisted:?}");
    assert_eq!(ids.len(), RUNS.len() + 1, "all but G15 can be run");
    for goal in all() {
        let cells = [goal.work, goal.anchor, goal.goal, goal.moonshot];
        assert!(cells.iter().all(|cell| !cell.is_empty()), "{goal:?}");
    }
}

/// A number of a target is on the page, as people write it.
fn is_written(cell: &str, value: f64) -> bool {
    let plain = [value, value / 1e3, value / 1e6, value / 1e9];
    let words: BTreeSet<&str> = cell
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .map(|word| word.trim_matches('.'))
        .collect();
    let texts = plain.iter().flat_map(|v| [format!("{v}"), format!("{v:.1}"), format!("{v:.2}")]);
    texts.into_iter().any(|text| words.contains(text.as_str()))
}

#[test]
fn targets_are_those_of_the_page() {
    for goal in all() {
        for ask in asks(goal.id, &options()).unwrap_or_default() {
            let target = ask.target;
            for (value, cell) in [(target.goal, goal.goal), (target.moonshot, goal.moonshot)] {
                let Some(value) = value else { continue };
                assert!(
                    is_written(cell, value),
                    "{}: {}: {value} is not in {cell:?}",
                    goal.id,
                    ask.name
                );
            }
        }
    }
}

#[test]
fn rows_have_names_of_their_own() {
    for goal in all() {
        let asks = asks(goal.id, &options()).unwrap_or_default();
        let names: BTreeSet<&str> = asks.iter().map(|ask| ask.name.as_str()).collect();
        assert_eq!(names.len(), asks.len(), "{}", goal.id);
    }
}

#[test]
fn names_are_those_that_people_look_for() {
    let names = |id: &str| -> Vec<String> {
        asks(id, &options()).expect("known").into_iter().map(|ask| ask.name).collect()
    };
    assert_eq!(names("G1")[3], "raid6 6+2 randread 4KiB qd128 null cores=1");
    assert_eq!(names("G2")[0], "raid6 6+2 randwrite 4KiB qd128 null cores=1");
    assert_eq!(names("G3")[0], "raid1 x2 randwrite 4KiB qd128 null cores=1");
    assert_eq!(names("G4")[1], "raid5 7+1 write 896KiB qd32 null cores=1");
    assert_eq!(names("G5")[1], "raid6 6+2 write 768KiB qd4 cold null cores=1");
    assert!(find("G16").is_none());
}
