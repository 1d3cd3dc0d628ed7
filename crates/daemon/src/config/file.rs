//! Parses the configuration file into lines of keys and texts.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

/// Maximum size of the file.
const BYTES_MAX: u64 = 64 << 10;

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name of the option.
    pub key: String,
    /// The value of the option, as on the command line.
    pub value: String,
    /// The line number, counted from 1.
    pub line: usize,
}

/// Returns the content of the file `path`.
pub fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    // One byte more shows that the file is too long.
    let length = file.take(BYTES_MAX + 1).read_to_string(&mut text);
    match length.map_err(|error| error.to_string())? as u64 {
        0..=BYTES_MAX => Ok(text),
        _ => Err(format!("it has more than {BYTES_MAX} bytes")),
    }
}

/// Returns the entries of `text` in the order of their lines.
///
/// # Errors
/// A line is invalid. The error contains its number and the reason.
pub fn parse(text: &str) -> Result<Vec<Entry>, (usize, String)> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        (
            line_of(text, &at),
            format!("{}; write KEY = \"VALUE\"", error.message().replace('\n', "; ")),
        )
    })?;
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<_>)| {
        let (line, key): (usize, &std::borrow::Cow<str>) =
            (line_of(text, &key.span()), key.get_ref());
        match text_of(value.get_ref()) {
            Ok(value) => Ok(Entry { key: key.to_string(), value, line }),
            Err(why) => Err((line, format!("{key}: {why}"))),
        }
    };
    let mut entries: Vec<Entry> = table.get_ref().iter().map(entry).collect::<Result<_, _>>()?;
    entries.sort_by_key(|entry| entry.line);
    Ok(entries)
}

/// Converts a value to its form on the command line.
fn text_of(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) if text.contains(['\n', '\0']) => {
            Err("a text of one line is needed".to_owned())
        }
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        other => Err(format!(
            "a text in quotes or a decimal whole number is needed, and this is {}",
            named(other)
        )),
    }
}

fn named(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number of another base",
        DeValue::Float(_) => "a floating-point number",
        DeValue::Boolean(_) => "a truth value",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// Returns the number of the line in which `at` starts.
fn line_of(text: &str, at: &Range<usize>) -> usize {
    1 + text.bytes().take(at.start).filter(|byte| *byte == b'\n').count()
}
