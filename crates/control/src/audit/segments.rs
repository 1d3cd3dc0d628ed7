//! The files of the audit log. Entries are appended to the newest file. A full file is renamed after its first entry,
//! and the oldest files are removed when all files together exceed their limit.

use std::fs::{self, File};
use std::io::{self, Read};

use strake_api::v1::AuditEntry;

use super::chain::{Ends, Head, line_of, lines, parse};
use super::phase;
use crate::error::{ControlError, ControlErrorKind};
use crate::limits::{AUDIT_BYTES_MAX, AUDIT_FILE_BYTES_MAX};
use crate::record::files::StateFolder;

/// Name of the newest file.
const NEWEST: &str = "audit.log";

/// Name of the file with the ends of the log.
const HEAD: &str = "audit.head";

/// Maximum size of that file.
const HEAD_BYTES_MAX: u64 = 128;

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
    /// True if the newest file must not be continued.
    is_broken: bool,
}

impl Segments {
    /// Reads the end of the log, and says what another process has changed there.
    pub(super) fn open(state: StateFolder, limits: Limits) -> (Self, Vec<String>) {
        let mut faults = Vec::new();
        let mut read = |name: &str, bytes_max| match state.read(name, bytes_max) {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(error) => {
                faults.push(format!("the audit log cannot be read: {name}: {error}"));
                Vec::new()
            }
        };
        let bytes = read(NEWEST, bytes_max(limits));
        let kept = Ends::parse(&read(HEAD, HEAD_BYTES_MAX));
        let full = full_files(&state).unwrap_or_default();
        let mut end = end_of(&bytes);
        if let (None, Some(full)) = (&end, full.last()) {
            // A crash may have interrupted the first write to the newest file.
            end = end_of(&read(full, bytes_max(limits)));
        }
        let is_damaged = matches!(end, Some(None));
        let found = end.flatten().unwrap_or_default();
        let first = lines(&bytes).next().and_then(|line| parse(line).ok());
        let first = first.map_or(0, |line| line.entry.number);
        // A power loss may have prevented a write of the file with the ends, so the head may be older than the log.
        let there = full.first().map_or(first, |name| first_of(name));
        let Ends { oldest, head: kept } =
            kept.unwrap_or(Ends { oldest: there, head: Head::default() });
        let missing = kept.number.saturating_sub(found.number);
        if missing > 0 {
            let to = kept.number;
            faults.push(format!(
                "the audit log was changed outside of the daemon: its last {missing} entries, up to {to}, are missing"
            ));
        } else if is_damaged {
            let what = "the audit log was changed outside of the daemon: its last entry is damaged";
            faults.push(what.to_owned());
        }
        let head = if missing > 0 { kept } else { found };
        // What follows the last line feed is an entry that a crash interrupted, and stays where it is.
        let is_torn = bytes.last().is_some_and(|byte| *byte != b'\n');
        let is_broken = is_torn || !faults.is_empty();
        let (bytes, ends) = (bytes.len() as u64, Ends { oldest, head });
        (Self { state, limits, ends, bytes, first, is_broken }, faults)
    }

    /// The ends of the written log.
    pub(super) const fn ends(&self) -> &Ends {
        &self.ends
    }

    /// Appends as many of the entries durably as one write has.
    ///
    /// # Errors
    /// The errors of the file system. No entry was written then.
    pub(super) fn append(&mut self, entries: &[AuditEntry]) -> io::Result<Found> {
        let mut found = Found { changed: self.changed(), ..Found::default() };
        self.is_broken |= found.changed.is_some();
        if self.is_broken || self.bytes >= self.limits.file {
            self.rotate()?;
            found.removed = self.remove_oldest()?;
        }
        let (mut text, mut head) = (String::new(), self.ends.head.clone());
        for entry in entries {
            if text.len() as u64 >= self.limits.file {
                break;
            }
            let (line, next) = line_of(&head, entry);
            text += &line;
            head = next;
            found.written += 1;
        }
        if let Err(error) = self.state.append(NEWEST, text.as_bytes()) {
            // A part of the entries may have remained.
            self.is_broken |= self.changed().is_some();
            return Err(error);
        }
        let first = entries.first().map_or(0, |entry| entry.number);
        for oldest in [&mut self.first, &mut self.ends.oldest] {
            *oldest = if *oldest == 0 { first } else { *oldest };
        }
        self.bytes += text.len() as u64;
        if entries.get(found.written - 1).is_some_and(|entry| entry.phase != phase::STARTED) {
            tracing::info!(number = head.number, hash = head.hash, "audit");
        }
        self.ends.head = head;
        // The entries are written in any case. Without this file, a start notices less.
        if let Err(error) = self.state.overwrite(HEAD, self.ends.text().as_bytes()) {
            tracing::warn!(%error, "cannot write {HEAD} in the state directory");
        }
        Ok(found)
    }

    /// Returns how another process has changed the newest file, if it has.
    pub(super) fn changed(&self) -> Option<String> {
        if self.is_broken {
            return None;
        }
        let bytes = match fs::metadata(self.state.file(NEWEST)) {
            Ok(about) => about.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            // The write shows the error.
            Err(_) => return None,
        };
        (bytes != self.bytes).then(|| {
            format!(
                "the audit log was changed outside of the daemon: {NEWEST} has {bytes} bytes instead of {}",
                self.bytes
            )
        })
    }

    /// Renames the newest file after its first entry. The next write creates a new one.
    fn rotate(&mut self) -> io::Result<()> {
        if self.state.file(NEWEST).try_exists()? {
            let mut name = full(self.first);
            // Only a damaged log has two files with one first entry.
            for again in 2.. {
                if !self.state.file(&name).try_exists()? {
                    break;
                }
                name = format!("audit.{:020}-{again}.log", self.first);
            }
            self.state.rename(NEWEST, &name)?;
        }
        (self.bytes, self.first, self.is_broken) = (0, 0, false);
        Ok(())
    }

    /// Removes the oldest full files while all together exceed their limit.
    fn remove_oldest(&mut self) -> io::Result<Option<String>> {
        let mut sizes = Vec::new();
        for name in full_files(&self.state)? {
            sizes.push((fs::metadata(self.state.file(&name))?.len(), name));
        }
        let mut all: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
        let mut removed = Vec::new();
        for (bytes, name) in sizes {
            if all <= self.limits.all {
                break;
            }
            self.state.remove(&name)?;
            all -= bytes;
            removed.push(name);
        }
        if !removed.is_empty() {
            // If no full file is left, the next entry is the oldest.
            self.ends.oldest = full_files(&self.state)?.first().map_or(0, |name| first_of(name));
        }
        Ok((!removed.is_empty()).then(|| {
            format!(
                "{} removed: the log exceeds its limit of {} bytes",
                removed.join(", "),
                self.limits.all
            )
        }))
    }

    /// Opens all files for reading, the oldest first.
    ///
    /// # Errors
    /// If the directory or a file cannot be read.
    pub(super) fn files(&self) -> Result<Vec<Opened>, ControlError> {
        let names = full_files(&self.state).map_err(|error| unreadable("the files", &error))?;
        let full = names.into_iter().map(|name| (name, bytes_max(self.limits)));
        // Entries that are written from now on are not for this reader, who knows only the present head.
        let present = if self.changed().is_none() { self.bytes } else { bytes_max(self.limits) };
        let mut files = Vec::new();
        for (name, bytes_max) in full.chain([(NEWEST.to_owned(), present)]) {
            match File::open(self.state.file(&name)) {
                Ok(file) => files.push(Opened { name, file, bytes_max }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(unreadable(&name, &error)),
            }
        }
        Ok(files)
    }
}

/// The name of a full file whose first entry has the number `first`.
fn full(first: u64) -> String {
    format!("audit.{first:020}.log")
}

/// The names of the full files, the oldest first.
fn full_files(state: &StateFolder) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(state.path())? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        let is_full = name.strip_prefix("audit.").and_then(|rest| rest.strip_suffix(".log"));
        let is_full = is_full.is_some_and(|rest| {
            !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
        });
        if is_full {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The newest entry in the content of a file: `None` if there is none, and `Some(None)` if it is damaged.
fn end_of(bytes: &[u8]) -> Option<Option<Head>> {
    let line = lines(bytes).next_back()?;
    let entry = parse(line).ok().map(|line| line.entry);
    Some(entry.map(|AuditEntry { number, hash, .. }| Head { number, hash }))
}

/// Maximum size of a file: a full one has at most one write more than its limit.
const fn bytes_max(limits: Limits) -> u64 {
    2 * limits.file + (64 << 10)
}

/// The number of the first entry of a full file; 0 if the name has none.
fn first_of(name: &str) -> u64 {
    let number = name.strip_prefix("audit.").and_then(|rest| rest.split(['.', '-']).next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
