//! The lines of the audit log, and the chain of their hashes.
//!
//! A line is `HASH PREVIOUS JSON`. HASH is the SHA-256 of the bytes after it, up to the end of the line, and PREVIOUS
//! is the hash of the line before, in hexadecimal. So each line can be checked with `sha256sum`, and a change of any
//! line shows in every check of the lines after it.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use strake_api::v1::{AuditEntry, AuditFault};

/// Maximum number of faults in one report.
pub(super) const FAULTS_MAX: usize = 100;

/// Digits of a hash.
const DIGITS: usize = 64;

/// The newest entry: its number and its hash in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) number: u64,
    pub(super) hash: String,
}

impl Default for Head {
    /// Before the first entry: number 0, and a hash of zeros.
    fn default() -> Self {
        Self { number: 0, hash: "0".repeat(DIGITS) }
    }
}

/// The ends of the log, which a file records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ends {
    /// Number of the oldest entry; 0 if there is none.
    pub(super) oldest: u64,
    pub(super) head: Head,
}

impl Ends {
    /// The content of the file.
    pub(super) fn text(&self) -> String {
        let Self { oldest, head: Head { number, hash } } = self;
        format!("{oldest} {number} {hash}\n")
    }

    /// Parses the content of the file; `None` if it is damaged.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
        let mut words = text.split(' ');
        let (oldest, number) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let hash = words.next().filter(|hash| is_hash(hash))?.to_owned();
        Some(Self { oldest, head: Head { number, hash } })
    }
}

/// Whether a text has the form of a hash.
pub(super) fn is_hash(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn hash_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::with_capacity(DIGITS), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The line of `entry` after the line of `head`, and the new head. The number of the entry is set by the caller.
pub(super) fn line_of(head: &Head, entry: &AuditEntry) -> (String, Head) {
    let entry = AuditEntry { hash: String::new(), ..entry.clone() };
    // An entry consists of texts and numbers, which JSON can represent.
    let json = serde_json::to_string(&entry).unwrap_or_default();
    let rest = format!("{} {json}", head.hash);
    let hash = hash_of(rest.as_bytes());
    (format!("{hash} {rest}\n"), Head { number: entry.number, hash })
}

/// A line whose hash is right.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) previous: String,
    /// The entry with its hash.
    pub(super) entry: AuditEntry,
}

/// Parses a line without its line feed; an error says what is wrong.
pub(super) fn parse(line: &[u8]) -> Result<Line, &'static str> {
    let text = std::str::from_utf8(line).map_err(|_| "the line is not text")?;
    let (hash, rest) = text.split_once(' ').ok_or("the line is not an entry")?;
    if hash_of(rest.as_bytes()) != hash {
        return Err("the line was changed: its hash differs");
    }
    let (previous, json) = rest.split_once(' ').ok_or("the line is not an entry")?;
    let entry: AuditEntry = serde_json::from_str(json).map_err(|_| "the line is not an entry")?;
    if entry.number == u64::MAX {
        return Err("the line is not an entry");
    }
    Ok(Line { previous: previous.to_owned(), entry: AuditEntry { hash: hash.to_owned(), ..entry } })
}

/// The complete lines of a file, without their line feeds. What a crash left after the last line feed is no entry.
pub(super) fn lines(bytes: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n');
    let complete = end.map(|end| bytes[..end].split(|byte| *byte == b'\n'));
    complete.into_iter().flatten()
}

/// Checks the files of a log, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Verifier {
    /// The newest entry so far; `None` before the first.
    head: Option<Head>,
    pub(super) first: u64,
    pub(super) entries: u64,
    pub(super) faults: Vec<AuditFault>,
    pub(super) faults_omitted: u64,
    /// The hash that was given from outside, with the number of its entry.
    given: Option<Head>,
}

impl Verifier {
    /// Creates a verifier that also compares the entry of `given`.
    pub(super) fn new(given: Option<Head>) -> Self {
        Self { given, ..Self::default() }
    }

    /// Adds a fault; file and line are empty and 0 for the whole log.
    pub(super) fn fault(&mut self, file: &str, line: usize, number: u64, what: impl Into<String>) {
        if self.faults.len() == FAULTS_MAX {
            self.faults_omitted += 1;
            return;
        }
        let (file, what) = (file.to_owned(), what.into());
        self.faults.push(AuditFault { file, line: line as u64, number, what });
    }

    /// Checks the lines of the next file.
    pub(super) fn file(&mut self, name: &str, bytes: &[u8]) {
        for (at, line) in lines(bytes).enumerate() {
            match parse(line) {
                Ok(line) => self.line(name, at + 1, line),
                Err(what) => self.fault(name, at + 1, 0, what),
            }
        }
    }

    fn line(&mut self, name: &str, at: usize, Line { previous, entry }: Line) {
        let AuditEntry { number, hash, .. } = entry;
        match &self.head {
            None => self.first = number,
            Some(head) if head.hash == previous && head.number + 1 == number => {}
            Some(head) => {
                let what = format!("the entry does not follow entry {}", head.number);
                self.fault(name, at, number, what);
            }
        }
        if let Some(given) = self.given.take_if(|given| given.number == number)
            && given.hash != hash
        {
            self.fault(name, at, number, "the entry does not have the given hash");
        }
        self.entries += 1;
        self.head = Some(Head { number, hash });
    }

    /// Compares the oldest and the newest entry with those that the daemon wrote.
    pub(super) fn end(&mut self, Ends { oldest, head }: &Ends) {
        // A crash may have prevented the removal of the oldest files after their removal was recorded.
        if self.first > *oldest || (self.first == 0) != (*oldest == 0) {
            let what = format!("the log begins with entry {}, not {oldest}", self.first);
            self.fault("", 0, *oldest, what);
        }
        let found = self.head.clone().unwrap_or_default();
        if found != *head {
            let what = format!("the log ends with entry {}, not {}", found.number, head.number);
            self.fault("", 0, head.number, what);
        }
        if let Some(given) = self.given.take() {
            let what = match given.number < self.first {
                true => "the entry with the given hash was removed with the oldest entries",
                false => "no entry has the number that was given with the hash",
            };
            self.fault("", 0, given.number, what);
        }
    }
}
