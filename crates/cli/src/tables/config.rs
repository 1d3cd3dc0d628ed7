//! What the daemon has recorded.

use super::{sentence, steps, wrapped};
use serde_json::Value;
use std::fmt::Write as _;
use strake_api::v1::{ConfigChange, ConfigDocument};

/// Deepest that a document is shown; deeper it is printed as JSON.
const DEPTH_MAX: usize = 8;

/// The document, a value a line.
#[must_use]
pub fn show(document: &ConfigDocument, width: usize) -> String {
    match serde_json::from_str::<Value>(&document.json) {
        Ok(value) => {
            let mut out = String::new();
            inside(&value, 0, width, &mut out);
            out
        }
        // What cannot be read is still what was recorded.
        Err(_) => document.json.clone(),
    }
}

/// The fields of an object or the items of a list, below one another.
fn inside(value: &Value, depth: usize, width: usize, out: &mut String) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                entry(&format!("{}{name}: ", "  ".repeat(depth)), field, depth, width, out);
            }
        }
        Value::Array(items) => {
            for (nth, item) in items.iter().enumerate() {
                entry(&format!("{}{}: ", "  ".repeat(depth), nth + 1), item, depth, width, out);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            entry(&"  ".repeat(depth), value, depth, width, out);
        }
    }
}

/// One value after `label`: on the same line when it is a single one.
fn entry(label: &str, value: &Value, depth: usize, width: usize, out: &mut String) {
    let several = match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    };
    if several && depth < DEPTH_MAX {
        let _ = writeln!(out, "{}", label.trim_end());
        inside(value, depth + 1, width, out);
        return;
    }
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Object(fields) if fields.is_empty() => "none".to_owned(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Number(_) | Value::Object(_) | Value::Array(_) => value.to_string(),
    };
    let indent = 2 * (depth + 2);
    let _ = writeln!(out, "{label}{}", wrapped_after(label, &text, width, indent));
}

/// `text` after `label`, folded at `width`.
fn wrapped_after(label: &str, text: &str, width: usize, indent: usize) -> String {
    let room = width.saturating_sub(label.chars().count());
    match text.chars().count() <= room {
        true => text.to_owned(),
        false => format!("\n{}{}", " ".repeat(indent), wrapped(text, width, indent)),
    }
}

/// What putting a document in force did.
#[must_use]
pub fn change(change: &ConfigChange, width: usize) -> String {
    let mut out = match change.result.as_str() {
        "planned" if change.plan.is_empty() => {
            return sentence("configuration: nothing would change", width);
        }
        "planned" => sentence("configuration: Dry run. Would:", width),
        result => sentence(&format!("configuration: {result}"), width),
    };
    steps(&mut out, &change.plan, width);
    out
}
