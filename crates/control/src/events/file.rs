//! The file of events: one JSON object a line, appended, rotated, read back at start.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use strake_api::v1::Event;

use crate::limits::EVENTS_FILE_BYTES;
use crate::record::files::StateFolder;

/// Name of the file that is written.
const PRESENT: &str = "events.jsonl";

/// Name of the one before it.
const OLD: &str = "events.old.jsonl";

/// The file that events are appended to.
pub(super) struct EventFile(StateFolder);

impl EventFile {
    pub(super) const fn new(state: StateFolder) -> Self {
        Self(state)
    }

    /// Everything that both files hold and that can be understood, oldest first. Lines that a crash cut short or
    /// damage made unreadable are passed over: each event stands for itself.
    pub(super) fn read(&self) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        for name in [OLD, PRESENT] {
            let mut text = Vec::new();
            let opened = File::open(self.0.file(name));
            // What cannot be read is as if it were not there; that the directory is in trouble is seen by writing.
            let _ = opened.and_then(|f| f.take(2 * EVENTS_FILE_BYTES).read_to_end(&mut text));
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let here = lines.filter_map(|line| serde_json::from_slice::<Event>(line).ok());
            events.extend(here.filter(|event| event.number > 0));
        }
        // A number that went backwards would break clients that ask for what came after one they know.
        let mut last = 0;
        events.retain(|event| {
            let grows = event.number > last;
            last = last.max(event.number);
            grows
        });
        events
    }

    /// Appends `events` and makes them durable. After an error, what was written of them is removed as far as that is
    /// possible; the line end put before the next event separates it from an incomplete line.
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

/// How long a file is, and whether its last line has no end.
fn look(path: &Path) -> io::Result<(u64, bool)> {
    let mut file = match File::open(path) {
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
