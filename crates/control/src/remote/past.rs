//! Requests of an earlier daemon that may still be in flight at remote drives: `associations.json`.
//!
//! The file lists every remote drive that was used since the last clean stop, the time for which its target may execute
//! requests after the end of an association, and the last activations of arrays on these drives. The file is written
//! and made durable before a drive is used. A daemon that finds the file changes none of these drives until their time
//! has passed since its own start. At that start the earlier daemon had ended, because otherwise the directory could
//! not have been locked. The time is counted in the same way after a restart of the host. If the earlier process still
//! runs, because the directory was copied or its lock has no effect, the time does not start.
//!
//! The loss of the file does not reduce the protection of arrays. Their labels state that they were not stopped, and a
//! start waits after an activation that the file does not list for the longest time that any target may need
//! (`strake_engine::settling`).

use crate::ControlError;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use strake_block::BlockDevice;
use strake_dev_fabrics::FabricsDevice;
use strake_engine::settling::{Candidate, LastUse, wait_until};
use strake_engine::{Drive, Ids};
use strake_ondisk::Superblock;
use strake_reactor::monotonic;
use strake_units::{Nanos, Uuid};

use super::process::Process;
use crate::drives::label::Labelled;
use crate::record::files::{StateFolder, open_to_read};

/// The file.
const FILE: &str = "associations.json";

/// Maximum size of the file that is read; much more than the drives and arrays of one daemon need.
const FILE_BYTES_MAX: u64 = 1 << 20;

const VERSION: u32 = 1;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Associations {
    version: u32,
    /// The processes that used the drives.
    processes: Vec<Process>,
    /// The time in milliseconds for which the target of a drive may execute requests after the end of an association,
    /// by the identity of the namespace.
    drives: BTreeMap<String, u64>,
    /// The last activations of each array on such drives, by its identity.
    epochs: BTreeMap<String, Vec<String>>,
}

/// The earlier use of remote drives, and the use by this daemon that is recorded.
pub(crate) struct Past {
    state: StateFolder,
    /// The record of the previous daemon.
    before: Associations,
    /// The latest time at which the previous daemon ended, on the monotonic clock.
    ended_at: Nanos,
    /// The record of this daemon.
    ours: Associations,
    /// The time at which an unrecorded activation was first seen, by its epoch.
    seen: BTreeMap<Uuid, Nanos>,
}

impl Past {
    /// Reads the record of the previous daemon from the state directory; `now` is the time on the monotonic clock. A
    /// file that cannot be parsed counts as empty; the labels of arrays still provide the protection.
    pub(crate) fn open(state: StateFolder, now: Nanos) -> Self {
        let before = read(&state.file(FILE));
        // This applies also after a start of the host: the process may have run on another host, and may have ended
        // just before.
        let ended_at = now;
        let ours = Associations {
            version: VERSION,
            processes: Process::this().into_iter().collect(),
            ..Associations::default()
        };
        Self { state, before, ended_at, ours, seen: BTreeMap::new() }
    }

    /// Returns the process ID of an earlier process that used drives and still runs.
    pub(crate) fn still_runs(&mut self, now: Nanos) -> Option<u32> {
        let alive = self.before.processes.iter().find(|process| process.is_alive());
        let pid = alive.map(|process| process.pid);
        match pid {
            Some(_) => self.ended_at = now,
            None => self.before.processes.clear(),
        }
        pid
    }

    /// Returns the time after which no request of an earlier daemon is in flight at the drive `identity`; `None` if no
    /// use is recorded.
    pub(crate) fn settled_at(&mut self, identity: &str, now: Nanos) -> Option<Nanos> {
        self.still_runs(now);
        let settle_ms = *self.before.drives.get(identity)?;
        Some(self.ended_at.plus(Nanos::MILLI.times(settle_ms)))
    }

    /// Returns the time after which no request of an earlier daemon is in flight at any drive. It applies to a drive
    /// whose identity is not known yet.
    pub(crate) fn all_settled_at(&mut self, now: Nanos) -> Nanos {
        self.still_runs(now);
        let longest = self.before.drives.values().max();
        longest.map_or(Nanos(0), |settle_ms| self.ended_at.plus(Nanos::MILLI.times(*settle_ms)))
    }

    /// Records that a drive is used from now on. A record that is already written is not written again.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub(crate) fn use_drive(&mut self, device: &dyn BlockDevice, now: Nanos) -> io::Result<()> {
        let settle_ms = device.settle_time().0.div_ceil(Nanos::MILLI.0);
        let identity = device.identity();
        if self.ours.drives.get(&identity).is_some_and(|known| *known >= settle_ms) {
            return Ok(());
        }
        self.ours.drives.insert(identity.clone(), settle_ms);
        let written = self.write(now);
        if written.is_err() {
            // The next call tries again.
            self.ours.drives.remove(&identity);
        }
        written
    }

    /// Records that `epoch` is an activation, by this daemon, of an array whose newest label is `newest`.
    ///
    /// # Errors
    /// The directory cannot be written. The activation nevertheless counts as one by this daemon.
    pub(crate) fn begin(&mut self, newest: &Superblock, epoch: Uuid, now: Nanos) -> io::Result<()> {
        let current = newest.epoch.to_string();
        let epochs = self.ours.epochs.entry(newest.array.to_string()).or_default();
        epochs.retain(|known| *known == current);
        epochs.push(epoch.to_string());
        self.write(now)
    }

    /// Records that `epoch` is the first activation, by this daemon, of an array that is being created.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) fn begin_first(&mut self, array: Uuid, epoch: Uuid, now: Nanos) -> io::Result<()> {
        self.ours.epochs.insert(array.to_string(), vec![epoch.to_string()]);
        self.write(now)
    }

    /// Returns the time at which the array on these drives may be started; `None` if it may be started immediately.
    pub(crate) fn wait_until(&mut self, here: &[Labelled], now: Nanos) -> Option<Nanos> {
        let candidates: Vec<Candidate<'_>> = here
            .iter()
            .map(|found| Candidate {
                label: &found.label,
                settle_time: found.drive.device.settle_time(),
                settled_at: self.settled_at(&found.identity(), now),
            })
            .collect();
        let array = here.first()?.label.array.to_string();
        let (ours, before) = (self.ours.epochs.get(&array), self.before.epochs.get(&array));
        let is_in = |known: Option<&Vec<String>>, epoch: &String| {
            known.is_some_and(|epochs| epochs.contains(epoch))
        };
        let seen = &mut self.seen;
        let until = wait_until(&candidates, |epoch| {
            let text = epoch.to_string();
            if is_in(ours, &text) {
                LastUse::Ours
            } else if is_in(before, &text) {
                LastUse::Recorded
            } else {
                LastUse::Unknown { first_seen: *seen.entry(epoch).or_insert(now) }
            }
        });
        until.filter(|until| *until > now)
    }

    /// Records a clean stop: no request of this daemon is in flight, except at the drives `owing`.
    ///
    /// # Errors
    /// The directory cannot be written. The next daemon then waits longer than necessary.
    pub(crate) fn end(&mut self, owing: &[String], now: Nanos) -> io::Result<()> {
        self.ours.drives.retain(|identity, _| owing.contains(identity));
        self.ours.epochs.clear();
        if self.ours.drives.is_empty() && self.all_settled_at(now) <= now {
            return self.state.remove(FILE);
        }
        self.write(now)
    }

    /// Replaces the file with the record of this daemon and, while its time has not passed, the record of the previous
    /// daemon.
    fn write(&mut self, now: Nanos) -> io::Result<()> {
        let mut all = self.ours.clone();
        if self.all_settled_at(now) > now {
            all.processes.extend(self.before.processes.iter().cloned());
            for (identity, settle_ms) in &self.before.drives {
                let longest = all.drives.entry(identity.clone()).or_default();
                *longest = (*longest).max(*settle_ms);
            }
            for (array, epochs) in &self.before.epochs {
                all.epochs.entry(array.clone()).or_insert_with(|| epochs.clone());
            }
        }
        self.state.replace(FILE, &serde_json::to_vec_pretty(&all)?)
    }

    /// Returns the time, on the monotonic clock, from which remote drives that are connected now may be changed.
    ///
    /// # Errors
    /// Another process that used the drives with the same state directory still runs.
    pub(crate) fn may_connect(&mut self) -> Result<Nanos, ControlError> {
        let now = monotonic();
        match self.still_runs(now) {
            None => Ok(self.all_settled_at(now)),
            Some(pid) => Err(ControlError::state(format!(
                "process {pid}, an earlier daemon with this state directory, still runs and may write to the drive; \
                    end that process first"
            ))),
        }
    }

    /// Records the use of a drive before the drive is used. The drive is used even if the record fails, because the
    /// labels of arrays also cause the next daemon to wait.
    pub(crate) fn note_use(&mut self, device: &FabricsDevice) {
        if let Err(error) = self.use_drive(device, monotonic()) {
            tracing::warn!(drive = %device.address(), %error, "the use of a remote drive is not recorded");
        }
    }

    /// Records that `epoch` is an activation by this daemon, if the array has remote drives.
    pub(crate) fn note_activation(&mut self, here: &[Labelled], epoch: Uuid) {
        let remote = here.iter().any(|found| found.drive.device.settle_time() > Nanos(0));
        let newest = here.iter().map(|found| &found.label).max_by_key(|label| label.generation);
        let Some(newest) = newest.filter(|_| remote) else { return };
        if let Err(error) = self.begin(newest, epoch, monotonic()) {
            tracing::warn!(array = %newest.name, %error, "the start of an array is not recorded");
        }
    }

    /// Records the first activation of an array that is being created on `drives`, if it has remote drives.
    pub(crate) fn note_first_activation(&mut self, drives: &[Drive], ids: &Ids) {
        if drives.iter().all(|drive| drive.device.settle_time() == Nanos(0)) {
            return;
        }
        if let Err(error) = self.begin_first(ids.array, ids.epoch, monotonic()) {
            tracing::warn!(array = %ids.array, %error, "the start of an array is not recorded");
        }
    }
}

fn read(path: &Path) -> Associations {
    let opened = open_to_read(path);
    let small = |file: &File| file.metadata().is_ok_and(|meta| meta.len() <= FILE_BYTES_MAX);
    let Some(mut file) = opened.ok().filter(small) else { return Associations::default() };
    let mut text = Vec::new();
    // A file that cannot be read is invalid.
    let _ = file.read_to_end(&mut text);
    match serde_json::from_slice::<Associations>(&text) {
        Ok(read) if read.version == VERSION => read,
        Ok(_) | Err(_) => {
            tracing::warn!(path = %path.display(), "invalid: arrays on remote drives wait longer");
            Associations::default()
        }
    }
}

#[cfg(test)]
mod tests;
