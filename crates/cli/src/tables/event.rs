//! What happened.

use super::clock::Clock;
use super::grid::{Column, Grid};
use super::wrapped;
use crate::fold::kept;
use std::fmt::Write as _;
use strake_api::v1::{Event, ListEventsResponse};
use strake_terminal::text::KEPT_BLANK;
use strake_wording::shown;

/// Events of the past, oldest first.
#[must_use]
pub fn list(answer: &ListEventsResponse, clock: &Clock, width: usize) -> String {
    if answer.events.is_empty() {
        return "No events.\n".to_owned();
    }
    let mut grid = Grid::new(&[
        Column::Number("number"),
        Column::Word("time"),
        Column::Word("severity"),
        Column::Text("what"),
    ]);
    for event in &answer.events {
        grid.row([
            event.number.to_string(),
            clock.show(event.time_us),
            event.severity.clone(),
            kept(&story(event)),
        ]);
    }
    grid.render(width)
}

/// What happened, why, what to do, and who did it: a line each.
fn story(event: &Event) -> String {
    let mut out = format!("{}{}", about(event), event.what);
    if !event.cause.is_empty() {
        let _ = write!(out, "\ncause: {}", event.cause);
    }
    let next = shown(&event.remedy, &event.next_action);
    if !next.is_empty() {
        let _ = write!(out, "\nnext:{KEPT_BLANK}{next}");
    }
    if !event.actor.is_empty() && event.actor != "straked" {
        let _ = write!(out, "\nby: {}", event.actor);
    }
    out
}

/// What an event is about, with the colon after it; nothing where the sentence says it already.
fn about(event: &Event) -> String {
    let name = event.object.split_once('/').map_or(event.object.as_str(), |(_, name)| name);
    let object = if event.what.contains(name) { "" } else { event.object.as_str() };
    let member = event.member.map(|m| format!("member {m}"));
    let member = member.filter(|m| !event.what.contains(m));
    match (object, member) {
        ("", None) => String::new(),
        ("", Some(member)) => format!("{member}: "),
        (object, None) => format!("{object}: "),
        (object, Some(member)) => format!("{object} {member}: "),
    }
}

/// One event, as it happens.
#[must_use]
pub fn one(event: &Event, clock: &Clock, width: usize) -> String {
    let begin = format!("{} {:<8} ", clock.show(event.time_us), event.severity);
    // Under the sentence where there is room, otherwise a little to the right.
    let indent = if begin.len() + 40 <= width { begin.len() } else { 4 };
    let mut out = String::new();
    for (nth, line) in story(event).lines().enumerate() {
        let line = if nth == 0 { format!("{begin}{line}") } else { line.to_owned() };
        if nth > 0 {
            let _ = write!(out, "\n{}{}", " ".repeat(indent), wrapped(&line, width, indent));
        } else {
            out.push_str(&first(&line, width, indent));
        }
    }
    out
}

/// The first line of an event: it begins at the margin, what is folded of it does not.
fn first(line: &str, width: usize, indent: usize) -> String {
    let (begin, rest) = line.split_at(line.len().min(indent));
    match line.is_char_boundary(indent) && begin.len() == indent {
        true => format!("{begin}{}", wrapped(rest, width, indent)),
        false => wrapped(line, width, 0),
    }
}
