//! What an earlier daemon may still have in progress at remote drives: `associations.json`.
//!
//! The file names every such drive that was used since the last orderly stop, for how long its target may go on after
//! the end of an association, and the last activations of arrays on them. It is written and made durable before a drive
//! is used. A daemon that finds it changes none of these drives until their time is over, counted from its own start:
//! the earlier one had ended then, or it could not have locked the directory. Where the machine was started again
//! meanwhile, that counts; where the earlier process still runs, because the directory was copied or its lock is of no
//! use, nothing is over.
//!
//! Losing the file loses no protection of arrays: their labels say that they were not stopped, and an activation that
//! the file does not name is waited for as long as any target may take (`strake_engine::settling`).

use crate::ControlError;
use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

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
use crate::record::files::StateFolder;

/// The file.
const FILE: &str = "associations.json";

/// Largest file that is read: far more than all drives and arrays of one daemon need.
const FILE_BYTES_MAX: u64 = 1 << 20;

const VERSION: u32 = 1;

/// What the file holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Associations {
    version: u32,
    /// Who used the drives.
    processes: Vec<Process>,
    /// By the identity of the namespace: milliseconds that its target may go on after the end of an association.
    drives: BTreeMap<String, u64>,
    /// The last activations of each array on such drives, by its identity.
    epochs: BTreeMap<String, Vec<String>>,
}

/// What is known of earlier use of drives of other machines, and what is recorded of ours.
pub(crate) struct Past {
    state: StateFolder,
    /// What the daemon before left.
    before: Associations,
    /// When that one had ended, at the latest, on the monotonic clock.
    ended_at: Nanos,
    /// What this one uses.
    ours: Associations,
    /// When an unrecorded activation was first seen, by its epoch.
    seen: BTreeMap<Uuid, Nanos>,
}

impl Past {
    /// Reads what the daemon before left in the state directory, at this time of the monotonic clock. A file that is
    /// not understood says nothing of single drives; the labels of arrays say enough.
    pub(crate) fn open(state: StateFolder, now: Nanos) -> Self {
        let before = read(&state.file(FILE));
        // Also after a start of the machine: the process may have run on another one, which ended just now.
        let ended_at = now;
        let ours = Associations {
            version: VERSION,
            processes: Process::this().into_iter().collect(),
            ..Associations::default()
        };
        Self { state, before, ended_at, ours, seen: BTreeMap::new() }
    }

    /// The number of an earlier process that used drives and still runs.
    pub(crate) fn still_runs(&mut self, now: Nanos) -> Option<u32> {
        let alive = self.before.processes.iter().find(|process| process.is_alive());
        let pid = alive.map(|process| process.pid);
        match pid {
            Some(_) => self.ended_at = now,
            None => self.before.processes.clear(),
        }
        pid
    }

    /// When requests of an earlier daemon at the drive `identity` are over; `None` when none is known.
    pub(crate) fn settled_at(&mut self, identity: &str, now: Nanos) -> Option<Nanos> {
        self.still_runs(now);
        let settle_ms = *self.before.drives.get(identity)?;
        Some(self.ended_at.plus(Nanos::MILLI.times(settle_ms)))
    }

    /// When requests of an earlier daemon at any drive are over: for one that is not known yet.
    pub(crate) fn all_settled_at(&mut self, now: Nanos) -> Nanos {
        self.still_runs(now);
        let longest = self.before.drives.values().max();
        longest.map_or(Nanos(0), |settle_ms| self.ended_at.plus(Nanos::MILLI.times(*settle_ms)))
    }

    /// Records that a drive is used from now on. What is written already is not written again.
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
            // Tried again with the next look.
            self.ours.drives.remove(&identity);
        }
        written
    }

    /// Records that `epoch` is an activation of ours, of an array whose newest label is `newest`.
    ///
    /// # Errors
    /// When the directory cannot be written. It is one of ours all the same.
    pub(crate) fn begin(&mut self, newest: &Superblock, epoch: Uuid, now: Nanos) -> io::Result<()> {
        let current = newest.epoch.to_string();
        let epochs = self.ours.epochs.entry(newest.array.to_string()).or_default();
        epochs.retain(|known| *known == current);
        epochs.push(epoch.to_string());
        self.write(now)
    }

    /// The same for an array that is made now.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub(crate) fn begin_first(&mut self, array: Uuid, epoch: Uuid, now: Nanos) -> io::Result<()> {
        self.ours.epochs.insert(array.to_string(), vec![epoch.to_string()]);
        self.write(now)
    }

    /// When the array on these drives may be started; `None` when at once.
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

    /// Takes note of an orderly stop: nothing of ours is under way, but at the drives that are `owing`.
    ///
    /// # Errors
    /// When the directory cannot be written; the next daemon waits for longer than it has to then.
    pub(crate) fn end(&mut self, owing: &[String], now: Nanos) -> io::Result<()> {
        self.ours.drives.retain(|identity, _| owing.contains(identity));
        self.ours.epochs.clear();
        if self.ours.drives.is_empty() && self.all_settled_at(now) <= now {
            return self.state.remove(FILE);
        }
        self.write(now)
    }

    /// Replaces the file by what this daemon uses and what is not over of the one before.
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

    /// From when on drives of other machines that are connected to now may be changed, on the monotonic clock.
    ///
    /// # Errors
    /// When another process that used them with the records of this one still runs.
    pub(crate) fn may_connect(&mut self) -> Result<Nanos, ControlError> {
        let now = monotonic();
        match self.still_runs(now) {
            None => Ok(self.all_settled_at(now)),
            Some(pid) => Err(ControlError::state(format!(
                "process {pid}, an earlier daemon with this state directory, still runs and may write to the drive; \
                 end it first"
            ))),
        }
    }

    /// Records that a drive is used, before it is. What cannot be recorded is used all the same: the labels of arrays
    /// have the next daemon wait as well.
    pub(crate) fn note_use(&mut self, device: &FabricsDevice) {
        if let Err(error) = self.use_drive(device, monotonic()) {
            tracing::warn!(drive = %device.address(), %error, "the use of a remote drive is not recorded");
        }
    }

    /// Records that `epoch` is an activation of ours, when that matters: where drives of other machines are used.
    pub(crate) fn note_activation(&mut self, here: &[Labelled], epoch: Uuid) {
        let remote = here.iter().any(|found| found.drive.device.settle_time() > Nanos(0));
        let newest = here.iter().map(|found| &found.label).max_by_key(|label| label.generation);
        let Some(newest) = newest.filter(|_| remote) else { return };
        if let Err(error) = self.begin(newest, epoch, monotonic()) {
            tracing::warn!(array = %newest.name, %error, "the start of an array is not recorded");
        }
    }

    /// The same for an array that is made of these drives.
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
    let small = fs::metadata(path).is_ok_and(|meta| meta.len() <= FILE_BYTES_MAX);
    let text =
        if small { fs::read(path).unwrap_or_default() } else { return Associations::default() };
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
