//! The exchanges that are kept.
//!
//! A file is a story in lines that begin with `#`, a line that says who speaks to whom, such as `as io`, and the parts
//! of what is said, each a line of hexadecimal digits; `5a*4096` is that byte so many times.

use std::fmt::Write as _;
use std::fs;

use crate::home;

/// An exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Its file.
    pub name: String,
    /// As whom it is said: the word behind `as`.
    pub role: String,
    /// What is said, one part after the other.
    pub parts: Vec<Vec<u8>>,
}

/// The exchanges in `folder` of the corpus, in order of their names.
///
/// # Panics
/// When a file cannot be read or is none: a test without its corpus shows less than it says.
#[must_use]
pub fn corpus(folder: &str) -> Vec<Case> {
    let folder = home().join("corpus").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<_> =
        entries.map(|entry| entry.expect("a folder can be read to its end").path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text =
                fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            parse(&name, &text).unwrap_or_else(|line| panic!("{}: {line}", path.display()))
        })
        .collect()
}

/// Reads a file, or says which line is none.
pub(crate) fn parse(name: &str, text: &str) -> Result<Case, String> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let role = first.strip_prefix("as ").ok_or_else(|| first.to_owned())?.to_owned();
    let parts = lines.map(|line| bytes_of(line).ok_or_else(|| line.to_owned()));
    Ok(Case { name: name.to_owned(), role, parts: parts.collect::<Result<_, _>>()? })
}

fn bytes_of(line: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for word in line.split_whitespace() {
        let (digits, times) = word.split_once('*').unwrap_or((word, "1"));
        bytes.extend(digits_of(digits)?.repeat(times.parse().ok()?));
    }
    Some(bytes)
}

fn digits_of(word: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = word.chars().map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect())
}

/// `bytes` as the corpus has them.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    /// Fewer equal bytes are written out.
    const MANY: usize = 8;
    let mut text = String::new();
    for run in bytes.chunk_by(|one, next| one == next) {
        let byte = run.first().copied().unwrap_or_default();
        // Writing to a string does not fail.
        let _ = if run.len() < MANY {
            run.iter().try_for_each(|byte| write!(text, "{byte:02x}"))
        } else {
            write!(text, " {byte:02x}*{} ", run.len())
        };
    }
    text.trim().to_owned()
}

impl Case {
    /// An exchange that has no file.
    #[must_use]
    pub fn of(role: &str, parts: Vec<Vec<u8>>) -> Self {
        Self { name: String::new(), role: role.to_owned(), parts }
    }

    /// As a file has it.
    #[must_use]
    pub fn text(&self) -> String {
        let parts = self.parts.iter().map(|part| hex(part));
        [format!("as {}", self.role)].into_iter().chain(parts).collect::<Vec<_>>().join("\n")
    }
}
