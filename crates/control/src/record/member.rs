//! What every member records of the settings and exports of its array.

use std::thread;

use serde::{Deserialize, Serialize};
use strake_dev_uring::{control_wait, control_wait_for};
use strake_engine::{ArrayError, Drive, config_sequence, load_config, store_config_as};
use strake_units::{Nanos, Uuid};

use crate::bounded;
use crate::error::ControlError;
use crate::limits::RECORD_LIMIT;
use crate::record::store::{ExportRecord, Settings, SubsystemRecord};

/// Version of the record.
pub(crate) const VERSION: u32 = 1;

/// The record. Fields of later versions are passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberConfig {
    pub(crate) version: u32,
    #[serde(default)]
    pub(crate) settings: Settings,
    #[serde(default)]
    pub(crate) exports: Vec<MemberExport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberExport {
    name: String,
    listen: String,
    #[serde(default)]
    read_only: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nvme: Option<SubsystemRecord>,
}

impl From<&ExportRecord> for MemberExport {
    fn from(record: &ExportRecord) -> Self {
        let ExportRecord { name, listen, read_only, nvme, array: _ } = record;
        let (name, listen, nvme) = (name.clone(), listen.clone(), nvme.clone());
        Self { name, listen, read_only: *read_only, nvme }
    }
}

impl MemberExport {
    pub(crate) fn record(&self, array: &str) -> ExportRecord {
        let Self { name, listen, read_only, nvme } = self;
        ExportRecord {
            name: name.clone(),
            array: array.to_owned(),
            listen: listen.clone(),
            read_only: *read_only,
            nvme: nvme.clone(),
        }
    }
}

/// A record that is to be written.
pub(crate) struct Due {
    pub(crate) array: String,
    pub(crate) uuid: Uuid,
    pub(crate) content: Vec<u8>,
    pub(crate) drives: Vec<Drive>,
}

/// Runs `job` on each of `drives` side by side; each has [`RECORD_LIMIT`].
fn on_each<T: Send + 'static>(
    drives: &[Drive],
    job: impl Fn(&Drive, &mut dyn FnMut() -> Option<Nanos>) -> Result<T, ArrayError>
    + Clone
    + Send
    + Sync
    + 'static,
) -> Vec<Result<T, ControlError>> {
    let ask = &|drive: &Drive| {
        let (drive, job) = (drive.clone(), job.clone());
        let path = drive.path.clone();
        let limit = Nanos(RECORD_LIMIT.as_nanos() as u64);
        let run = move || job(&drive, &mut control_wait_for(limit));
        Ok(bounded::ask(&path, RECORD_LIMIT, run)??)
    };
    let panicked = |_| Err(ControlError::state("writing to a member ended in a panic"));
    thread::scope(|scope| {
        let asked: Vec<_> = drives.iter().map(|drive| scope.spawn(move || ask(drive))).collect();
        asked.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    })
}

/// Stores a record on all members that answer.
///
/// # Errors
/// What the first that did not take it says.
pub(crate) fn store_side_by_side(due: &Due) -> Result<(), ControlError> {
    let uuid = due.uuid;
    let known = on_each(&due.drives, move |drive, wait| {
        Ok(config_sequence(std::slice::from_ref(drive), uuid, wait))
    });
    let sequence =
        known.iter().filter_map(|known| known.as_ref().ok()).max().map_or(1, |max| max + 1);
    let content = due.content.clone();
    let stored = on_each(&due.drives, move |drive, wait| {
        store_config_as(drive, uuid, sequence, &content, wait)
    });
    stored.into_iter().collect()
}

/// The settings that the members of an array remember.
pub(crate) fn remembered_by(array: &str, drives: &[Drive]) -> Option<Settings> {
    recall(array, drives).map(|config| config.settings)
}

pub(crate) fn recall(array: &str, drives: &[Drive]) -> Option<MemberConfig> {
    let uuid: Uuid = array.parse().ok()?;
    let content = load_config(drives, uuid, &mut control_wait())?;
    let config: MemberConfig = match serde_json::from_slice(&content) {
        Ok(config) => config,
        Err(error) => {
            tracing::warn!(%array, reason = %error, "the record on the members is not understood");
            return None;
        }
    };
    (config.version == VERSION).then_some(config)
}
