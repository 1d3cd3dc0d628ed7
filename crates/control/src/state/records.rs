//! The effective configuration, and the only way to change it.

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

/// The recorded configuration and its store.
pub struct Records {
    pub(crate) store: Store,
    pub(crate) config: Config,
}

/// The effective configuration is readable directly. Only [`put`](Records::put) changes it.
impl Deref for Records {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.config
    }
}

impl Records {
    /// Records `config`, which is then effective.
    ///
    /// # Errors
    /// If the state directory refuses the write. The present configuration stays effective.
    pub(crate) fn put(&mut self, config: &Config) -> Result<(), ControlError> {
        self.config = self.store.prepare(config)?.commit()?;
        Ok(())
    }

    /// Records the effective configuration with a change.
    ///
    /// # Errors
    /// The errors of [`put`](Self::put).
    pub(crate) fn change<T>(
        &mut self,
        change: impl FnOnce(&mut Config) -> T,
    ) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        change(&mut config);
        self.put(&config)
    }

    /// Checks that `config` can be recorded.
    ///
    /// # Errors
    /// If the state directory refuses the write.
    pub(crate) fn check(&self, config: &Config) -> Result<(), ControlError> {
        self.store.prepare(config).map(drop)
    }

    /// Checks that a further array can be recorded.
    pub(crate) fn check_recordable(&self, record: &ArrayRecord) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        config.arrays.push(record.clone());
        self.check(&config)
    }

    /// Records `config`, unless it is already effective, so that a member can return to its former path while the state
    /// directory refuses writes.
    pub(crate) fn put_config(&mut self, config: &Config) -> Result<(), ControlError> {
        if self.config != *config {
            self.put(config)?;
        }
        Ok(())
    }

    /// Records `drive` in addition to the drives of the array before any label names it. After a crash meanwhile, the
    /// next start reads the drive and finds the member for which the labels of the others wait.
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

    /// Records an array that is being imported. Returns true if it was unknown here.
    pub(crate) fn record_import(&mut self, record: ArrayRecord) -> Result<bool, ControlError> {
        let mut config = self.config.clone();
        let known = config.arrays.iter_mut().find(|a| a.uuid == record.uuid);
        let new = known.is_none();
        match known {
            // A missing member may return to its former path.
            Some(known) => known.drives = with_old_paths(record.drives, &known.drives),
            None => config.arrays.push(record),
        }
        self.put(&config)?;
        Ok(new)
    }

    /// Records exports of an array that are not created yet, and their hosts that need secrets or keys.
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

    /// Records the copy of the member in `place` to `drive`.
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

    /// Records the members of an array to re-add when they answer. A refused write is repeated.
    pub(crate) fn record_silent(&mut self, uuid: &str, silent: Vec<SilentRecord>) {
        let mut config = self.config.clone();
        let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == uuid) else { return };
        record.silent = silent;
        // The problem of the directory is reported elsewhere, and the next check tries again.
        if let Err(error) = self.put(&config) {
            tracing::debug!(reason = %error, "unresponsive members are not recorded");
        }
    }

    /// Records the name in the labels, because a crash may have interrupted a rename.
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

    /// Records the scrubs of an array.
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

    /// Removes the reservations that remained because of a crash after the removal of their export.
    pub(crate) fn finish_endings(&mut self) {
        for array in self.config.ended_reservations.clone() {
            if let Err(error) = self.finish_ending(&array) {
                tracing::warn!(%array, reason = %error, "reservations of a removed export are not removed yet");
            }
        }
    }

    /// Records a remote drive, which is then connected automatically.
    pub(crate) fn put_remote(&mut self, record: &RemoteRecord) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        config.remotes.retain(|known| known.address != record.address);
        config.remotes.push(record.clone());
        self.put(&config)
    }

    /// Returns the NQN and the identifier of this host for controllers: the requested NQN, or one that is generated
    /// once and recorded.
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

    /// Returns the file of the reservations of an export.
    pub(crate) fn ledger_of(&self, record: &ExportRecord) -> ReservationFile {
        ReservationFile::new(self.store.folder(), record)
    }

    /// Returns the rights of clients that cannot register under the recorded reservations of an array: none if the
    /// reservations are unreadable.
    pub(crate) fn recorded_rights(&self, array: &str) -> Rights {
        if self.config.ended_reservations.iter().any(|ended| ended == array) {
            return Rights::All;
        }
        match ReservationFile::of_array(self.store.folder(), array).read() {
            Ok(recorded) => recorded.unwrap_or_default().rights_of_others(),
            Err(_) => Rights::Nothing,
        }
    }

    /// Refuses an array that cannot be recorded together with the recorded arrays.
    pub(crate) fn check_import(&self, record: &ArrayRecord) -> Result<(), ControlError> {
        let ArrayRecord { uuid, name, .. } = record;
        let arrays = &self.config.arrays;
        if let Some(other) = arrays.iter().find(|a| a.name == *name && a.uuid != *uuid) {
            return Err(ControlError::refused(format!(
                "array {name} ({uuid}) has the same name as another array of this host ({}); unload or rename that \
                    array first",
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
