//! The file of events, with one JSON object per line. Events are appended, the file is rotated, and a start reads it.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use strake_api::v1::Event;

use crate::limits::EVENTS_FILE_BYTES;
use crate::record::files::{StateFolder, open_to_read};

/// Name of the present file.
const PRESENT: &str = "events.jsonl";

/// Name of the previous file.
const OLD: &str = "events.old.jsonl";

/// The file that events are appended to.
pub(super) struct EventFile(StateFolder);

impl EventFile {
    pub(super) const fn new(state: StateFolder) -> Self {
        Self(state)
    }

    /// Reads all valid events of both files, the oldest first. Incomplete or damaged lines are skipped, because each
    /// event is independent.
    pub(super) fn read(&self) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        for name in [OLD, PRESENT] {
            let mut text = Vec::new();
            let opened = open_to_read(&self.0.file(name));
            // An unreadable file counts as missing. Writes will show that the directory has a problem.
            let _ = opened.and_then(|f| f.take(2 * EVENTS_FILE_BYTES).read_to_end(&mut text));
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let here = lines.filter_map(|line| serde_json::from_slice::<Event>(line).ok());
            events.extend(here.filter(|event| event.number > 0));
        }
        // Numbers must not decrease, because clients request the events after a known number.
        let mut last = 0;
        events.retain(|event| {
            let grows = event.number > last;
            last = last.max(event.number);
            grows
        });
        events
    }

    /// Appends `events` and makes them durable. After an error, the partial write is removed if possible. Otherwise, a
    /// line break before the next event separates it from an incomplete line.
    pub(super) fn append(&self, events: &[Arc<Event>]) -> io::Result<()> {
        let mut text = Vec::new();
        for event in events {
            serde_json::to_writer(&mut text, event.as_ref())?;
            text.push(b'\n');
        }
        let (bytes, is_cut_short) = look(&self.0.file(PRESENT))?;
        if bytes > 0 && bytes + text.len() as u64 > EVENTS_FILE_BYTES {
            self.0.rename(PRESENT, OLD)?;
        } else if is_cut_short {
            text.insert(0, b'\n');
        }
        self.0.append(PRESENT, &text)
    }
}

/// Returns the length of a file, and true if its last line is incomplete.
fn look(path: &Path) -> io::Result<(u64, bool)> {
    let mut file = match open_to_read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, false)),
        opened => opened?,
    };
    let bytes = file.metadata()?.len();
    if bytes == 0 {
        return Ok((0, false));
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(bytes - 1))?;
    file.read_exact(&mut last)?;
    Ok((bytes, last != [b'\n']))
}
