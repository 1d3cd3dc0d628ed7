//! The newest state of each array that this host has seen, in the file `newest.json`.
//!
//! Labels show which of the present drives is newest. They cannot show that a newer drive is missing: a half of a
//! mirror that went out first and returns alone looks like an unchanged array. This host ran the array, so it knows the
//! newest state, and only an operator may start an array from older drives.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
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

/// Name of the file.
const FILE: &str = "newest.json";

/// Maximum size of a file. It is far larger than all members of all arrays need.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The last known state of each array, by identity.
pub(crate) type Marks = BTreeMap<String, Mark>;

/// The last known state of each recorded array.
pub(crate) struct Newest {
    marks: Marks,
    /// The state on disk; `None` before the first write.
    written: Option<Marks>,
    /// Arrays whose configuration was lost, and that are not recorded again.
    lost: BTreeSet<String>,
}

impl Newest {
    /// Reads the file in the directory. If the file is unreadable, returns an event and no state: the labels alone
    /// decide, and the file is renamed for an inspection by the operator.
    pub(crate) fn read(state: &StateFolder) -> (Self, Option<Note>) {
        let known = |marks| Self { marks, written: None, lost: BTreeSet::new() };
        let why = match read(state) {
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

    /// Records that the configuration of all known arrays is lost. Their states are kept until the arrays are recorded
    /// again.
    pub(crate) fn note_lost(&mut self) {
        self.lost = self.marks.keys().cloned().collect();
    }

    /// Describes the loss of the configuration in `file`; `None` if all known arrays are recorded.
    pub(crate) fn lost(&self, file: &Path, config: &Config) -> Option<String> {
        let is_recorded = |uuid: &&String| config.arrays.iter().any(|array| array.uuid == **uuid);
        let whose = match self.lost.iter().filter(|uuid| !is_recorded(uuid)).count() {
            0 => return None,
            1 => "an array".to_owned(),
            count => format!("{count} arrays"),
        };
        Some(format!("the configuration of {whose} is lost: {} was missing", file.display()))
    }

    /// Records the states of running arrays, and removes arrays that are no longer recorded.
    pub(crate) fn note(&mut self, running: &[Running], config: &Config) {
        for running in running {
            self.marks.insert(running.uuid(), Mark::of(running));
        }
        let is_recorded = |uuid: &String| config.arrays.iter().any(|a| a.uuid == *uuid);
        self.lost.retain(|uuid| !is_recorded(uuid));
        self.marks.retain(|uuid, _| is_recorded(uuid) || self.lost.contains(uuid));
    }

    /// Returns the state to write, unless it is already on disk.
    pub(crate) fn unwritten(&self) -> Option<Marks> {
        (self.written.as_ref() != Some(&self.marks)).then(|| self.marks.clone())
    }

    /// Records the written state.
    pub(crate) fn note_written(&mut self, marks: Marks) {
        self.written = Some(marks);
    }

    /// Returns the reason why the labels `here` must not start the array `record`, see [`Mark::objection`].
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

/// The fields of the newest label of an array that distinguish older labels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    generation: u64,
    epoch: String,
    /// The members with this label.
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
        // An unreadable label proves nothing.
        let Ok(epoch) = self.epoch.parse::<Uuid>() else { return true };
        let holders: Result<Vec<Uuid>, _> =
            self.holders.iter().map(|holder| holder.uuid.parse()).collect();
        holders.map_or(true, |holders| label.continues(self.generation, epoch, &holders))
    }

    /// Returns the reason why an array must not be started from the labels `here`, if none of them continues this
    /// label.
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
            "no absent drive: these drives contain older copies of the array".to_owned()
        } else {
            away.join(" or ")
        };
        let name = &record.name;
        let what = format!(
            "array {name} is not started, because acknowledged writes would be missing: its drives do not continue \
                the newest state that this host recorded (generation {newest} on these drives, generation {} \
                recorded). The recorded state is on: {holders}. Attach the drives with this state; or, to start \
                without this state and discard its writes: ",
            self.generation
        );
        Some(
            ControlError::refused(say(what).run(start(name, LOSSY)))
                .because(OfflineReason::Consent),
        )
    }
}

/// Reads the file; empty if it does not exist.
///
/// # Errors
/// The reason why the file cannot be read.
fn read(state: &StateFolder) -> Result<Marks, String> {
    match state.read(FILE, FILE_BYTES_MAX).map_err(|error| error.to_string())? {
        None => Ok(Marks::new()),
        Some(text) => serde_json::from_slice(&text).map_err(|error| error.to_string()),
    }
}

/// Writes the state.
pub(crate) fn write(state: &StateFolder, newest: &Marks) -> io::Result<()> {
    state.replace(FILE, &serde_json::to_vec_pretty(newest)?)
}
