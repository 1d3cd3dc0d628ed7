//! The newest state of each array that this machine has seen, kept beside the configuration: `newest.json`.
//!
//! Labels tell which of the drives that are here is newest. They cannot tell that a newer one is not here: a mirror
//! that went out first and comes back alone looks like an array in which nothing has happened since. This machine ran
//! the array, so it knows better, and only an operator starts an array whose drives are all older than that.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use strake_api::v1::ListDrivesRequest;
use strake_ondisk::{RecordedState, Superblock};
use strake_units::Uuid;
use strake_wording::say;

use crate::drives::label::Labelled;
use crate::error::{ControlError, OfflineReason};
use crate::events::{EventKind, Note};
use crate::record::files::StateFolder;
use crate::record::store::{ArrayRecord, Config};
use crate::remedy::{LOSSY, start};
use crate::state::running::Running;

/// The file.
const FILE: &str = "newest.json";

/// Largest file that is read: far more than all members of all arrays of one daemon need.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What was last seen of each array, by its identity.
pub(crate) type Marks = BTreeMap<String, Mark>;

/// What was last seen of each recorded array.
pub(crate) struct Newest {
    marks: Marks,
    /// The same as it is on disk; `None` until it was written.
    written: Option<Marks>,
}

impl Newest {
    /// What the directory holds, and what to report if the file is there and cannot be read. It says nothing then: the
    /// labels decide alone, and the file is put aside for the operator to inspect.
    pub(crate) fn read(state: &StateFolder) -> (Self, Option<Note>) {
        let known = |marks| Self { marks, written: None };
        let why = match read(&state.file(FILE)) {
            Ok(marks) => return (known(marks), None),
            Err(why) => why,
        };
        let aside = format!("{FILE}.damaged");
        let kept = match state.rename(FILE, &aside) {
            Ok(()) => format!("; the file was renamed to {aside}"),
            Err(error) => format!("; the file cannot be renamed to {aside}: {error}"),
        };
        let what = format!(
            "{} cannot be read: an array may start from an older copy of its data, if the drives with the newer one \
             are absent",
            state.file(FILE).display()
        );
        let note = Note::new(EventKind::NewestUnknown, "daemon", what).cause(why + &kept).next(
            say("check that all drives of all arrays are present: ").run(ListDrivesRequest {}),
        );
        (known(Marks::new()), Some(note))
    }

    /// Takes note of what the running arrays are like; forgets arrays that are no longer recorded.
    pub(crate) fn note(&mut self, running: &[Running], config: &Config) {
        for running in running {
            self.marks.insert(running.uuid(), Mark::of(running));
        }
        self.marks.retain(|uuid, _| config.arrays.iter().any(|a| a.uuid == *uuid));
    }

    /// What is to be written, unless it is there already.
    pub(crate) fn unwritten(&self) -> Option<Marks> {
        (self.written.as_ref() != Some(&self.marks)).then(|| self.marks.clone())
    }

    /// Takes note of what was written.
    pub(crate) fn note_written(&mut self, marks: Marks) {
        self.written = Some(marks);
    }

    /// Why the labels `here` must not start the array `record`; see [`Mark::objection`].
    pub(crate) fn objection(
        &self,
        record: &ArrayRecord,
        here: &[Labelled],
    ) -> Option<ControlError> {
        let usable = here.iter().filter(|l| l.is_usable());
        let usable: Vec<Labelled> = usable.cloned().collect();
        self.marks.get(&record.uuid)?.objection(record, &usable)
    }
}

/// The newest label of an array, as far as it matters for telling older ones from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    generation: u64,
    epoch: String,
    /// Who holds it.
    holders: Vec<Holder>,
}

/// A member that was in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    member: usize,
    uuid: String,
    path: String,
}

impl Mark {
    fn of(running: &Running) -> Self {
        let label = running.array.newest_label();
        let paths = running.array.status().members;
        let in_sync = label.members.iter().zip(&paths).enumerate();
        let in_sync = in_sync.filter(|(_, (row, _))| row.state == RecordedState::InSync);
        Self {
            generation: label.generation,
            epoch: label.epoch.to_string(),
            holders: in_sync
                .map(|(member, (row, now))| Holder {
                    member,
                    uuid: row.uuid.to_string(),
                    path: now.path.clone(),
                })
                .collect(),
        }
    }

    fn is_continued_by(&self, label: &Superblock) -> bool {
        // What cannot be read says nothing.
        let Ok(epoch) = self.epoch.parse::<Uuid>() else { return true };
        let holders: Result<Vec<Uuid>, _> =
            self.holders.iter().map(|holder| holder.uuid.parse()).collect();
        holders.map_or(true, |holders| label.continues(self.generation, epoch, &holders))
    }

    /// Why an array must not be started from the labels `here`, when none of them continues this.
    fn objection(&self, record: &ArrayRecord, here: &[Labelled]) -> Option<ControlError> {
        if here.is_empty() || here.iter().any(|found| self.is_continued_by(&found.label)) {
            return None;
        }
        let newest = here.iter().map(|found| found.label.generation).max().unwrap_or(0);
        let is_here =
            |holder: &Holder| here.iter().any(|l| l.label.member.to_string() == holder.uuid);
        let away: Vec<String> = self
            .holders
            .iter()
            .filter(|holder| !is_here(holder))
            .map(|Holder { member, path, .. }| format!("member {member}, last at {path}"))
            .collect();
        let holders = if away.is_empty() {
            "no absent drive: these drives hold older copies of the array".to_owned()
        } else {
            away.join(" or ")
        };
        let name = &record.name;
        let what = format!(
            "array {name} is not started: its drives are older than the state that this host last saw, or were used \
             without it (generation {newest} here, {} seen), so acknowledged writes would be missing. That state is \
             on: {holders}. Attach it; or, to start without it and discard its writes: ",
            self.generation
        );
        Some(
            ControlError::refused(say(what).run(start(name, LOSSY)))
                .because(OfflineReason::Consent),
        )
    }
}

/// What the file says; nothing if it is not there.
///
/// # Errors
/// Why it cannot be read.
fn read(path: &Path) -> Result<Marks, String> {
    let mut text = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Marks::new()),
        Err(error) => return Err(error.to_string()),
        Ok(file) => {
            file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(|error| error.to_string())?
        }
    };
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

/// Writes what was seen.
pub(crate) fn write(state: &StateFolder, newest: &Marks) -> io::Result<()> {
    state.replace(FILE, &serde_json::to_vec_pretty(newest)?)
}
