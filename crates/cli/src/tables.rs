//! What people see. Every function here is text out of a message and a width, so that tests can hold them.

pub mod array;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod doctor;
pub mod drive;
pub mod errors;
pub mod event;
pub mod export;
pub mod firmware;
pub mod health;
pub mod hook;
pub mod host;
pub mod job;
pub mod log;
pub mod pool;
pub mod qos;
mod queue;
pub mod rates;
pub mod scrub;
pub mod show;
pub mod spare;
pub mod stats;
pub mod status;
pub mod telemetry;
pub mod top;
pub mod trace;
pub mod volume;

#[cfg(test)]
mod tests;

use crate::fold::{sentence, wrapped};
use std::fmt::Write as _;
use strake_terminal::grid;
use strake_units::ByteSize;

/// Where the values of a list of `name value` lines begin.
const INDENT: usize = 11;

/// A byte count for people.
fn size(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}

/// `one` thing or several of them, with their number.
fn count(number: u64, one: &str) -> String {
    match number {
        1 => format!("1 {one}"),
        n => format!("{n} {one}s"),
    }
}

/// `text`, or `-` when there is none.
pub(crate) fn or_dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// Adds `name value` to `out`, folded at `width`; nothing when there is no value.
fn field(out: &mut String, name: &str, value: &str, width: usize) {
    if !value.is_empty() {
        let indent = INDENT.max(name.len() + 1);
        let _ = writeln!(out, "{name:<10} {}", wrapped(value, width, indent));
    }
}

/// Adds the steps of a plan to `out`.
fn steps(out: &mut String, plan: &[String], width: usize) {
    for step in plan {
        let _ = writeln!(out, "  - {}", wrapped(step, width, 4));
    }
}
