//! The file of events: one JSON object a line, appended, rotated, read back at start.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strake_api::v1::Event;

use crate::limits::EVENTS_FILE_BYTES;

/// Name of the file that is written.
const PRESENT: &str = "events.jsonl";

/// Name of the one before it.
const OLD: &str = "events.old.jsonl";

/// The file that events are appended to.
pub(super) struct EventFile {
    dir: PathBuf,
    open: Option<Open>,
}

struct Open {
    file: File,
    bytes: u64,
}

impl EventFile {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), open: None }
    }

    /// Everything that both files hold and that can be understood, oldest first. Lines that a crash cut short or
    /// damage made unreadable are passed over: each event stands for itself.
    pub(super) fn read(&self) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        for name in [OLD, PRESENT] {
            let mut text = Vec::new();
            let opened = File::open(self.dir.join(name));
            // What cannot be read is as if it were not there; that the directory is in trouble is seen by writing.
            let _ = opened.and_then(|f| f.take(2 * EVENTS_FILE_BYTES).read_to_end(&mut text));
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let here = lines.filter_map(|line| serde_json::from_slice::<Event>(line).ok());
            events.extend(here.filter(|event| event.number > 0));
        }
        // A number that went backwards would break everybody who asks for what came after one they know.
        let mut last = 0;
        events.retain(|event| {
            let grows = event.number > last;
            last = last.max(event.number);
            grows
        });
        events
    }

    /// Appends `events` and makes them durable. What was written of them before an error is taken back as far as
    /// that goes; a rest without an end of line is told from the next event by the line end put before that.
    pub(super) fn append(&mut self, events: &[Arc<Event>]) -> io::Result<()> {
        let mut text = Vec::new();
        for event in events {
            serde_json::to_writer(&mut text, event.as_ref())?;
            text.push(b'\n');
        }
        // Somebody may have removed the file; what is appended to it would go with it.
        let linked = |open: &Open| open.file.metadata().is_ok_and(|meta| meta.nlink() > 0);
        let mut open = match self.open.take().filter(linked) {
            Some(open) => open,
            None => open_file(&self.dir)?,
        };
        if open.bytes + text.len() as u64 > EVENTS_FILE_BYTES && open.bytes > 0 {
            fs::rename(self.dir.join(PRESENT), self.dir.join(OLD))?;
            open = open_file(&self.dir)?;
        }
        let written = open.file.write_all(&text).and_then(|()| open.file.sync_data());
        if let Err(error) = written {
            // When even this fails, the next opening finds a line cut short and ends it.
            let _ = open.file.set_len(open.bytes);
            return Err(error);
        }
        open.bytes += text.len() as u64;
        self.open = Some(open);
        Ok(())
    }
}

fn open_file(dir: &Path) -> io::Result<Open> {
    let path = dir.join(PRESENT);
    let mut file = File::options().read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut bytes = file.metadata()?.len();
    if bytes > 0 {
        let mut last = [0];
        file.seek(SeekFrom::Start(bytes - 1))?;
        file.read_exact(&mut last)?;
        if last != [b'\n'] {
            file.write_all(b"\n")?;
            bytes += 1;
        }
    }
    Ok(Open { file, bytes })
}
