//! The files of the audit log. Entries are appended to the newest file. A full file is renamed after its first entry,
//! and the oldest files are removed when all files together exceed their limit.

use std::fs::{self, File};
use std::io::{self, Read};

use strake_api::v1::AuditEntry;

use super::chain::{Ends, Head, Verifier, line_of, lines, parse};
use super::phase;
use crate::error::{ControlError, ControlErrorKind};
use crate::limits::{AUDIT_BYTES_MAX, AUDIT_FILE_BYTES_MAX};
use crate::record::files::{StateFolder, open_to_read};

/// Name of the newest file.
const NEWEST: &str = "audit.log";

/// Name of the file with the ends of the log.
const ENDS: &str = "audit.ends";

/// Maximum size of that file.
const ENDS_BYTES_MAX: u64 = 128;

/// The beginning of every report of a change.
const CHANGED: &str = "the audit log was changed outside of the daemon";

/// Sizes of the log in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Maximum size of a file.
    pub(super) file: u64,
    /// Maximum size of all full files together.
    pub(super) all: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file: AUDIT_FILE_BYTES_MAX, all: AUDIT_BYTES_MAX }
    }
}

/// What a write has done and found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Number of written entries.
    pub(super) written: usize,
    /// How another process has changed the newest file.
    pub(super) changed: Option<String>,
    /// What was removed, because the log exceeds its limit.
    pub(super) removed: Option<String>,
}

/// A file of the log that is open for reading. A rotation does not disturb the reader.
pub(super) struct Opened {
    pub(super) name: String,
    file: File,
    bytes_max: u64,
}

impl Opened {
    /// Returns the content.
    pub(super) fn read(&self) -> Result<Vec<u8>, ControlError> {
        let mut bytes = Vec::new();
        let read = (&self.file).take(self.bytes_max).read_to_end(&mut bytes);
        read.map_err(|error| unreadable(&self.name, &error))?;
        Ok(bytes)
    }
}

fn unreadable(name: &str, error: &io::Error) -> ControlError {
    ControlError::new(
        ControlErrorKind::Store,
        format!("cannot read {name} in the state directory: {error}"),
    )
}

/// The files of the log.
pub(super) struct Segments {
    state: StateFolder,
    limits: Limits,
    ends: Ends,
    /// Size of the newest file in bytes.
    bytes: u64,
    /// Number of the first entry of the newest file; 0 while the file is empty.
    first: u64,
    /// True if the next write must go to a new file, because the newest one has an interrupted or changed end.
    must_rotate: bool,
    /// What was found by a write that then failed.
    unreported: Found,
    /// A found change that has no event yet.
    news: Option<String>,
}

impl Segments {
    /// Reads the end of the log, and says what another process has changed there.
    pub(super) fn open(state: StateFolder, limits: Limits) -> (Self, Vec<String>) {
        let mut faults = Vec::new();
        let full = full_files(&state).unwrap_or_else(|error| {
            faults.push(format!("the audit log cannot be read: {error}"));
            Vec::new()
        });
        let mut read = |name: &str, bytes_max| match state.read(name, bytes_max) {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(error) => {
                faults.push(format!("the audit log cannot be read: {name}: {error}"));
                Vec::new()
            }
        };
        let bytes = read(NEWEST, bytes_max(limits));
        let text = read(ENDS, ENDS_BYTES_MAX);
        // A crash may have interrupted the first write to a file, which then has no line.
        let mut older = Vec::new();
        let mut end = End::of(&bytes);
        for full in full.iter().rev() {
            if !matches!(end, End::Empty) {
                break;
            }
            older = read(full, bytes_max(limits));
            end = End::of(&older);
        }
        let last = if older.is_empty() { &bytes } else { &older };
        let first = lines(&bytes).next().and_then(|line| parse(line).ok());
        let first = first.map_or(0, |line| line.entry.number);
        let recorded = Ends::parse(&text);
        if faults.is_empty() {
            let change = change(last, &end, recorded.as_ref());
            faults.extend(change.map(|what| format!("{CHANGED}: {what}")));
        }
        let found = end.head().unwrap_or_default();
        let there = full.first().map_or(first, |name| first_of(name));
        let there = if found.number == 0 { 0 } else { there };
        let Ends { oldest, head: recorded } = recorded.unwrap_or_default();
        // A crash may have interrupted the write after the first one.
        let oldest = if oldest == 0 { there } else { oldest };
        let head = if recorded.number > found.number { recorded } else { found };
        // What follows the last line feed is an entry that a crash interrupted, and stays where it is.
        let is_torn = bytes.last().is_some_and(|byte| *byte != b'\n');
        let must_rotate = is_torn || !faults.is_empty();
        let (bytes, ends) = (bytes.len() as u64, Ends { oldest, head });
        let unreported = Found::default();
        (Self { state, limits, ends, bytes, first, must_rotate, unreported, news: None }, faults)
    }

    /// The ends of the written log.
    pub(super) const fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Appends the first of the entries durably: as many as fit into one write.
    ///
    /// # Errors
    /// The errors of the file system. No entry was written then.
    pub(super) fn append(&mut self, entries: &[AuditEntry]) -> io::Result<Found> {
        if let Some(what) = self.changed() {
            self.must_rotate = true;
            self.news = Some(what.clone());
            self.unreported.changed = Some(what);
        }
        if self.ends.head.number == 0 {
            // From here on, a log without a record of its ends was changed.
            self.record_ends()?;
        }
        // A rotation that failed is repeated: its file may already have another name.
        self.must_rotate |= self.bytes >= self.limits.file;
        if self.must_rotate {
            self.rotate()?;
            self.remove_oldest()?;
        }
        let mut written = 0;
        let (mut text, mut head) = (String::new(), self.ends.head.clone());
        for entry in entries {
            if text.len() as u64 >= self.limits.file {
                break;
            }
            let (line, next) = line_of(&head, entry);
            text += &line;
            head = next;
            written += 1;
        }
        if let Err(error) = self.state.append(NEWEST, text.as_bytes()) {
            // A part of the entries may have remained.
            self.must_rotate |= self.changed().is_some();
            return Err(error);
        }
        let first = entries.first().map_or(0, |entry| entry.number);
        if self.first == 0 {
            self.first = first;
        }
        if self.ends.oldest == 0 {
            self.ends.oldest = first;
        }
        self.bytes += text.len() as u64;
        if entries.get(written - 1).is_some_and(|entry| entry.phase != phase::STARTED) {
            tracing::info!(number = head.number, hash = head.hash, "audit");
        }
        self.ends.head = head;
        // The entries are written in any case. With an older record of the ends, a start notices less.
        if let Err(error) = self.record_ends() {
            tracing::warn!(%error, "cannot write {ENDS} in the state directory");
        }
        Ok(Found { written, ..std::mem::take(&mut self.unreported) })
    }

    /// Returns a change that was found since the last call.
    pub(super) fn take_news(&mut self) -> Option<String> {
        self.news.take()
    }

    /// Returns how another process has changed the newest file, if it has, also if this is not reported yet.
    pub(super) fn known_change(&self) -> Option<String> {
        self.changed().or_else(|| self.unreported.changed.clone())
    }

    fn record_ends(&self) -> io::Result<()> {
        self.state.replace(ENDS, self.ends.text().as_bytes())
    }

    /// Returns how another process has changed the newest file, if it has.
    fn changed(&self) -> Option<String> {
        if self.must_rotate {
            return None;
        }
        let bytes = match fs::metadata(self.state.file(NEWEST)) {
            Ok(about) => about.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            // The write shows the error.
            Err(_) => return None,
        };
        (bytes != self.bytes)
            .then(|| format!("{CHANGED}: {NEWEST} has {bytes} bytes instead of {}", self.bytes))
    }

    /// Renames the newest file after its first entry. The next write creates a new one.
    fn rotate(&mut self) -> io::Result<()> {
        if self.state.file(NEWEST).try_exists()? {
            // A file without a valid first entry is named after the next entry, so that it keeps its place.
            let first = if self.first > 0 { self.first } else { self.ends.head.number + 1 };
            let mut name = full(first, 1);
            // Only a damaged log has two files with one first entry.
            for again in 2.. {
                if !self.state.file(&name).try_exists()? {
                    break;
                }
                name = full(first, again);
            }
            self.state.rename(NEWEST, &name)?;
        }
        (self.bytes, self.first, self.must_rotate) = (0, 0, false);
        Ok(())
    }

    /// Removes the oldest full files while all together exceed their limit. The new oldest entry is recorded first, so
    /// that a crash leaves no gap without a record.
    fn remove_oldest(&mut self) -> io::Result<()> {
        let mut sizes = Vec::new();
        for name in full_files(&self.state)? {
            sizes.push((fs::metadata(self.state.file(&name))?.len(), name));
        }
        let mut all: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
        let mut kept = sizes.into_iter();
        let mut removed = Vec::new();
        while all > self.limits.all
            && let Some((bytes, name)) = kept.next()
        {
            all -= bytes;
            removed.push(name);
        }
        if removed.is_empty() {
            return Ok(());
        }
        let next = self.ends.head.number + 1;
        self.ends.oldest = kept.next().map_or(next, |(_, name)| first_of(&name));
        self.record_ends()?;
        self.unreported.removed = Some(format!(
            "entries before {} removed: the log exceeds its limit of {} bytes",
            self.ends.oldest, self.limits.all
        ));
        removed.iter().try_for_each(|name| self.state.remove(name))
    }

    /// Opens the files with entries before number `before`, or all files if it is 0, for reading. The oldest is first.
    ///
    /// # Errors
    /// If the directory or a file cannot be read.
    pub(super) fn files(&self, before: u64) -> Result<Vec<Opened>, ControlError> {
        let mut names = full_files(&self.state).map_err(|error| unreadable("the files", &error))?;
        names.retain(|name| before == 0 || first_of(name) < before);
        let full = names.into_iter().map(|name| (name, bytes_max(self.limits)));
        // Entries that are written from now on are not for this reader, who knows only the present head.
        let present = if self.changed().is_none() { self.bytes } else { bytes_max(self.limits) };
        let mut files = Vec::new();
        for (name, bytes_max) in full.chain([(NEWEST.to_owned(), present)]) {
            match open_to_read(&self.state.file(&name)) {
                Ok(file) => files.push(Opened { name, file, bytes_max }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(&name, &error)),
            }
        }
        Ok(files)
    }
}

/// The name of the full file number `again`, from 1, whose first entry has the number `first`. Names sort by age.
fn full(first: u64, again: u32) -> String {
    format!("audit.{first:020}-{again:03}.log")
}

/// The names of the full files, the oldest first.
fn full_files(state: &StateFolder) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(state.path())? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        let is_full = parts_of(&name).is_some_and(|(first, again)| full(first, again) == name);
        if is_full {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The last line of a file.
enum End {
    /// There is no line.
    Empty,
    /// The line is no entry with its hash.
    Damaged,
    /// The newest entry of the file.
    Valid(Head),
}

impl End {
    fn of(bytes: &[u8]) -> Self {
        let Some(line) = lines(bytes).next_back() else { return Self::Empty };
        match parse(line) {
            Ok(line) => Self::Valid(Head { number: line.entry.number, hash: line.entry.hash }),
            Err(_) => Self::Damaged,
        }
    }

    fn head(self) -> Option<Head> {
        match self {
            Self::Valid(head) => Some(head),
            Self::Empty | Self::Damaged => None,
        }
    }
}

/// The first change that a start finds: in `bytes`, the newest file that has lines, whose last line is `end`, and in
/// the record of the ends.
fn change(bytes: &[u8], end: &End, recorded: Option<&Ends>) -> Option<String> {
    let mut verifier = Verifier::new(None);
    verifier.file(NEWEST, bytes);
    if let Some(fault) = verifier.faults.first() {
        return Some(format!("line {} of its newest file: {}", fault.line, fault.what));
    }
    let (found, recorded) = match (end, recorded) {
        (End::Damaged, _) => return Some("its last entry is damaged".to_owned()),
        (End::Empty, None) => return None,
        (End::Valid(_), None) => return Some(format!("{ENDS} is missing or damaged")),
        (End::Empty, Some(recorded)) => (0, recorded),
        (End::Valid(found), Some(recorded)) => (found.number, recorded),
    };
    // A crash may have prevented the last record of the ends, so the log may be ahead of it.
    let Head { number, hash } = &recorded.head;
    if *number > found {
        let missing = number - found;
        return Some(format!("its last {missing} entries, up to {number}, are missing"));
    }
    let entry =
        lines(bytes).filter_map(|line| parse(line).ok()).find(|l| l.entry.number == *number);
    let is_other = entry.is_some_and(|line| line.entry.hash != *hash);
    is_other.then(|| format!("entry {number} differs from the entry that was written"))
}

/// Maximum size of a file: a full one has at most one write more than its limit.
const fn bytes_max(limits: Limits) -> u64 {
    2 * limits.file + (64 << 10)
}

/// The number of the first entry, and the number of the file, in the name of a full file.
fn parts_of(name: &str) -> Option<(u64, u32)> {
    let parts = name.strip_prefix("audit.")?.strip_suffix(".log")?;
    let (first, again) = parts.split_once('-')?;
    Some((first.parse().ok()?, again.parse().ok()?))
}

/// The number of the first entry of a full file.
fn first_of(name: &str) -> u64 {
    parts_of(name).map_or(0, |(first, _)| first)
}
