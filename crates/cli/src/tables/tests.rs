//! Every screen in every state, as people see it. After a change on purpose, `STRAKE_BLESS=1` writes them again.

mod arrays;
mod fixtures;
mod maintenance;
mod rest;
mod volumes;

use crate::tables::clock::Clock;
use std::path::{Path, PathBuf};
use strake_api::v1::{
    Array, DoctorCheck, DoctorReport, Event, Job, ListArraysResponse, ListJobsResponse, Problem,
    SystemStatus,
};
use strake_wording::{Text, replace, say};

/// Width that every screen is made for.
const WIDTH: usize = 80;

/// Other widths that must not tear anything apart.
const WIDTHS: [usize; 4] = [40, 60, 100, 160];

/// Whether a command begins in the first `width` columns of `line`. A command is not broken, so the line may be longer.
fn has_command(line: &str, width: usize) -> bool {
    line.find("strake ").is_some_and(|begin| begin < width)
}

/// Holds the `screen` at 80 columns against `tests/golden/NAME.txt`, every line of it against that width, and the
/// other widths against what a screen must never do.
fn check(name: &str, screen: impl Fn(usize) -> String) {
    let text = screen(WIDTH);
    for line in text.lines() {
        let fits = line.chars().count() <= WIDTH || has_command(line, WIDTH);
        assert!(fits, "{name}: longer than {WIDTH} columns: {line:?}");
        assert_eq!(line, line.trim_end(), "{name}: blanks at the end");
    }
    assert!(text.ends_with('\n') && text.is_ascii(), "{name} ends its last line, in ASCII");
    let path = golden(name);
    if std::env::var_os("STRAKE_BLESS").is_some() {
        std::fs::write(&path, &text).expect("the golden folder is writable");
    }
    let golden = std::fs::read_to_string(&path).expect("every screen has its file in tests/golden");
    assert_eq!(text, golden, "{name} changed");
    for width in WIDTHS {
        whole(name, &text, &screen(width), width);
    }
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"))
}

/// At another `width`, no number is cut or missing, and a line is too long only because of one word.
fn whole(name: &str, at_80: &str, text: &str, width: usize) {
    for line in text.lines().filter(|line| line.chars().count() > width) {
        let long = line.split_whitespace().map(|w| w.chars().count()).max().unwrap_or(0);
        let words = line.split_whitespace().count();
        let fits = words <= 2 && long > width / 2 || has_command(line, width);
        assert!(fits, "{name} at {width}: {line:?}\n{text}");
    }
    // Paths may be cut, and what is folded is not looked at: the rest must be there at any width.
    let numbers = at_80.split_whitespace().filter(|w| w.bytes().any(|b| b.is_ascii_digit()));
    for number in numbers.filter(|w| !w.contains('/') && !w.contains("...")) {
        let found = text.split_whitespace().any(|w| w.eq_ignore_ascii_case(number));
        assert!(found, "{name} at {width}: {number} is not whole\n{text}");
    }
}

#[test]
fn every_golden_file_belongs_to_a_screen() {
    let sources = ["arrays.rs", "maintenance.rs", "rest.rs", "volumes.rs"].map(|file| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tables/tests").join(file);
        std::fs::read_to_string(path).expect("the source is there")
    });
    let folder = golden("x").parent().expect("it has a folder").to_owned();
    for entry in std::fs::read_dir(folder).expect("the golden folder is there") {
        let path = entry.expect("it can be listed").path();
        let name = path.file_stem().and_then(|n| n.to_str()).expect("a plain name").to_owned();
        let used = sources.iter().any(|s| s.contains(&format!("\"{name}\"")));
        assert!(used, "no screen is held against tests/golden/{name}.txt");
    }
}

/// Every table prints a remedy from its parts; the text beside them is for clients that do not.
#[test]
fn remedies_are_worded_here() {
    let Text { parts: remedy, .. } = say("return it, or: ").run(replace("tank", Some(1), ""));
    let (next_action, reason) = ("other words".to_owned(), "member 1 is missing".to_owned());
    let array = Array {
        name: "tank".into(),
        next_action: next_action.clone(),
        remedy: remedy.clone(),
        reason,
        ..Array::default()
    };
    let problem =
        Problem { next_action: next_action.clone(), remedy: remedy.clone(), ..Problem::default() };
    let status = SystemStatus { problems: vec![problem], ..SystemStatus::default() };
    let job = Job { next_action: next_action.clone(), remedy: remedy.clone(), ..Job::default() };
    let check = DoctorCheck {
        next_action: next_action.clone(),
        remedy: remedy.clone(),
        ..DoctorCheck::default()
    };
    let event = Event { next_action, remedy, ..Event::default() };
    let width = 200;
    for printed in [
        super::array::line(&array, width),
        super::array::list(&ListArraysResponse { arrays: vec![array.clone()] }, width),
        super::show::array(&array, &Clock::new(true), width),
        super::status::show(&status, width),
        super::job::list(&ListJobsResponse { jobs: vec![job] }, width),
        super::doctor::show(&DoctorReport { health: "ok".into(), checks: vec![check] }, width),
        super::event::one(&event, &Clock::new(true), width),
    ] {
        let is =
            printed.contains("return it, or: strake array replace tank --member 1 --with DRIVE");
        assert!(is && !printed.contains("other words"), "{printed}");
    }
}
