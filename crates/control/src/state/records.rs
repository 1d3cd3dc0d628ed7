//! The recorded configuration in force, and the one way to change it.

use std::ops::Deref;

use strake_engine::Drive;
use strake_export_nbd::Rights;
use strake_export_nvmet::{Ledger, nqn};
use strake_units::Uuid;

use crate::drives::address::remembered;
use crate::error::ControlError;
use crate::limits::ARRAYS_MAX;
use crate::names::fresh_uuid;
use crate::policy::members::with_old_paths;
use crate::record::reserved::ReservationFile;
use crate::record::store::{
    Config, CopyRecord, HostRecord, RemoteRecord, ScrubRecord, SilentRecord, Store,
};
use crate::state::running::Place;
use crate::{ArrayRecord, ExportRecord};

/// What is recorded, and where.
pub struct Records {
    pub(crate) store: Store,
    pub(crate) config: Config,
}

/// What is in force is read as it is; only [`put`](Records::put) and what it commits change it.
impl Deref for Records {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.config
    }
}

impl Records {
    /// Records `config`, which is in force from then on.
    ///
    /// # Errors
    /// When the state directory refuses; what was in force stays in force.
    pub(crate) fn put(&mut self, config: &Config) -> Result<(), ControlError> {
        self.config = self.store.prepare(config)?.commit()?;
        Ok(())
    }

    /// Records what is in force with a change.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub(crate) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Config) -> T,
    ) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        change(&mut config);
        self.put(&config)
    }

    /// Whether `config` could be recorded.
    ///
    /// # Errors
    /// When the state directory refuses.
    pub(crate) fn check(&self, config: &Config) -> Result<(), ControlError> {
        self.store.prepare(config).map(drop)
    }

    /// Makes sure that there is room to record a further array.
    pub(crate) fn check_recordable(&self, record: &ArrayRecord) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        config.arrays.push(record.clone());
        self.check(&config)
    }

    /// Records `config`, unless it is in force: a member comes back to where it was whatever the state directory does.
    pub(crate) fn put_config(&mut self, config: &Config) -> Result<(), ControlError> {
        if self.config != *config {
            self.put(config)?;
        }
        Ok(())
    }

    /// Records `drive` beside the array's drives before any label names it: after a crash in between it is looked
    /// at, and found to be the member that the labels on the others wait for.
    pub(crate) fn remember_also(&mut self, uuid: &str, drive: &Drive) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == uuid) else { return Ok(()) };
        for path in remembered(std::slice::from_ref(drive)) {
            if !record.drives.contains(&path) {
                record.drives.push(path);
            }
        }
        self.put_config(&config)
    }

    /// Records an array that is being imported. True when it was not known here.
    pub(crate) fn record_import(&mut self, record: ArrayRecord) -> Result<bool, ControlError> {
        let mut config = self.config.clone();
        let known = config.arrays.iter_mut().find(|a| a.uuid == record.uuid);
        let new = known.is_none();
        match known {
            // A member that is not here now may come back to where it was.
            Some(known) => known.drives = with_old_paths(record.drives, &known.drives),
            None => config.arrays.push(record),
        }
        self.put(&config)?;
        Ok(new)
    }

    /// Records exports of an array that are not to be offered yet, and their hosts that need secrets or keys.
    pub(crate) fn keep_exports(
        &mut self,
        array: &str,
        exports: Vec<ExportRecord>,
        hosts: Vec<HostRecord>,
    ) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == array) else {
            return Ok(());
        };
        record.kept_exports = exports;
        record.kept_hosts = hosts;
        self.put(&config)
    }

    /// Records that the member of `place` is to be copied to `drive`.
    pub(crate) fn remember_copy(
        &mut self,
        place: &Place,
        drive: &Drive,
    ) -> Result<(), ControlError> {
        let copy = CopyRecord {
            slot: place.member.0,
            member: place.was.to_string(),
            path: drive.path.clone(),
            identity: drive.device.identity(),
        };
        let mut config = self.config.clone();
        config.drop_copy(&place.array, place.member);
        if let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == place.array) {
            record.copies.push(copy);
        }
        self.put(&config)
    }

    /// Records the members of an array that are taken back when they answer. A directory that refuses is asked again.
    pub(crate) fn record_silent(&mut self, uuid: &str, silent: Vec<SilentRecord>) {
        let mut config = self.config.clone();
        let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == uuid) else { return };
        record.silent = silent;
        // The trouble of the directory is reported elsewhere; the next look tries again.
        if let Err(error) = self.put(&config) {
            tracing::debug!(reason = %error, "members that hang are not recorded");
        }
    }

    /// Records the name that the labels have: a crash may have come between the two when it was renamed.
    pub(crate) fn follow_label(&mut self, uuid: &str, name: &str) {
        let mut config = self.config.clone();
        let taken = config.arrays.iter().any(|a| a.name == name && a.uuid != uuid);
        let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == uuid && a.name != name)
        else {
            return;
        };
        if taken {
            tracing::warn!(%uuid, %name, "array has the name of another one in its labels");
            return;
        }
        record.name = name.to_owned();
        if let Err(error) = self.put(&config) {
            tracing::warn!(%name, reason = %error, "new name not recorded");
        }
    }

    /// Records when an array was scrubbed, and what is being scrubbed.
    pub(crate) fn put_scrub(&mut self, uuid: &str, scrub: ScrubRecord) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        match config.arrays.iter_mut().find(|array| array.uuid == uuid) {
            Some(array) if array.scrub != scrub => array.scrub = scrub,
            Some(_) | None => return Ok(()),
        }
        self.put(&config)
    }

    /// Removes the reservations of an array that are marked as ended, and then the mark. Those of other arrays stay:
    /// an array that is imported or undeleted keeps its reservations.
    pub(crate) fn finish_ending(&mut self, array: &str) -> Result<(), ControlError> {
        if !self.config.ended_reservations.iter().any(|ended| ended == array) {
            return Ok(());
        }
        ReservationFile::of_array(self.store.folder(), array)
            .write(None)
            .map_err(ControlError::device)?;
        self.change(|config| config.ended_reservations.retain(|ended| ended != array))
    }

    /// Removes the reservations that a crash left behind between the removal of their export and their own.
    pub(crate) fn finish_endings(&mut self) {
        for array in self.config.ended_reservations.clone() {
            if let Err(error) = self.finish_ending(&array) {
                tracing::warn!(%array, reason = %error, "reservations of a removed export are not removed yet");
            }
        }
    }

    /// Records a drive, which is connected to from then on.
    pub(crate) fn put_remote(&mut self, record: &RemoteRecord) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        config.remotes.retain(|known| known.address != record.address);
        config.remotes.push(record.clone());
        self.put(&config)
    }

    /// Who we are to targets: the name asked for, or one that is generated once and kept.
    pub(crate) fn host_name(&mut self, asked: &str) -> Result<(String, String), ControlError> {
        if !asked.is_empty() {
            nqn::check(asked).map_err(|error| {
                ControlError::usage(format!("{asked:?} is not a valid NQN: {error}"))
            })?;
            // A name always goes with one identifier (Base, section 1.5.27): the one in it, as Linux hosts do.
            let of_name = asked.strip_prefix(nqn::UUID_PREFIX).and_then(|id| id.parse().ok());
            let used = self.config.remotes.iter().find(|record| record.host_nqn == asked);
            let id = match (of_name, used) {
                (Some(id), _) => Uuid::to_string(&id),
                (None, Some(used)) => used.host_id.clone(),
                (None, None) => fresh_uuid()?.to_string(),
            };
            return Ok((asked.to_owned(), id));
        }
        if self.config.host.is_empty() {
            let host = fresh_uuid()?.to_string();
            self.change(|config| config.host = host)?;
        }
        let id = self.config.host.clone();
        Ok((format!("{}{id}", nqn::UUID_PREFIX), id))
    }

    /// Where the reservations of an export are recorded.
    pub(crate) fn ledger_of(&self, record: &ExportRecord) -> ReservationFile {
        ReservationFile::new(self.store.folder(), record)
    }

    /// What the recorded reservations of an array leave to clients that cannot register: nothing when they cannot be
    /// read.
    pub(crate) fn recorded_rights(&self, array: &str) -> Rights {
        if self.config.ended_reservations.iter().any(|ended| ended == array) {
            return Rights::All;
        }
        match ReservationFile::of_array(self.store.folder(), array).read() {
            Ok(recorded) => recorded.unwrap_or_default().rights_of_others(),
            Err(_) => Rights::Nothing,
        }
    }

    /// Refuses an array that cannot be recorded beside those that are.
    pub(crate) fn check_import(&self, record: &ArrayRecord) -> Result<(), ControlError> {
        let ArrayRecord { uuid, name, .. } = record;
        let arrays = &self.config.arrays;
        if let Some(other) = arrays.iter().find(|a| a.name == *name && a.uuid != *uuid) {
            return Err(ControlError::refused(format!(
                "array {name} ({uuid}) has the name of another array here ({}); unload or rename that one first",
                other.uuid
            )));
        }
        let is_new = arrays.iter().all(|a| a.uuid != *uuid);
        if is_new && arrays.len() >= ARRAYS_MAX {
            return Err(ControlError::state(format!(
                "there are {ARRAYS_MAX} arrays, the limit of one daemon; unload or destroy one first"
            )));
        }
        self.check_recordable(record)
    }
}
