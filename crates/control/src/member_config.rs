//! What every member knows of the control plane: settings and exports of its array. With the state directory lost,
//! importing an array brings them back (F36).

use std::thread;

use serde::{Deserialize, Serialize};
use strake_api::v1::CreateExportRequest;
use strake_dev_uring::{control_wait, control_wait_for};
use strake_engine::{ArrayError, Drive, config_sequence, load_config, store_config_as};
use strake_units::{Nanos, Uuid};

use crate::actions::Pace;
use crate::bounded;
use crate::control::Control;
use crate::error::ControlError;
use crate::exports::request_of;
use crate::limits::{RECORD_LIMIT, RECORD_RETRY};
use crate::manager::{Manager, array_key};
use crate::members::is_out;
use crate::store::{ExportRecord, Settings, SubsystemRecord};

/// Version of the record.
const VERSION: u32 = 1;

/// The record. Fields of later versions are passed over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MemberConfig {
    version: u32,
    #[serde(default)]
    settings: Settings,
    #[serde(default)]
    exports: Vec<MemberExport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MemberExport {
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
    fn record(&self, array: &str) -> ExportRecord {
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

/// What was last written to the members of an array.
#[derive(Default)]
pub(crate) struct Written {
    content: Vec<u8>,
    /// Identities of the drives it was written to.
    drives: Vec<String>,
    /// When that failed last.
    failed: Option<std::time::Instant>,
}

/// A record that is to be written.
struct Due {
    array: String,
    uuid: Uuid,
    content: Vec<u8>,
    drives: Vec<Drive>,
}

impl Control {
    /// Writes to the members what changed of their arrays' exports and settings, and what new members do not know.
    pub(crate) fn record_on_members(&self, pace: Pace) -> Result<(), ControlError> {
        let due = self.run(|m| Ok(if m.stopping { Vec::new() } else { m.due_on_members() }))?;
        for array in due.into_iter().map(|due| due.array) {
            self.act(pace, format!("record on members of {array}"), move |control| {
                let Some(_reserved) = control.try_reserve(vec![array_key(&array)])? else {
                    return Ok(());
                };
                // Looked at again: whoever had the array until now may have changed what is to be written.
                control.record_before_leaving(&array)
            })?;
        }
        Ok(())
    }

    /// Writes to the members of one array what they do not know yet, for whoever imports it elsewhere. The caller has
    /// reserved the array.
    ///
    /// # Errors
    /// When an earlier command panicked. Members that could not be written are logged, as ever.
    pub(crate) fn record_before_leaving(&self, array: &str) -> Result<(), ControlError> {
        match self.run(|m| Ok(m.due_on_members().into_iter().find(|due| due.array == array)))? {
            Some(due) => self.store_on_members(due),
            None => Ok(()),
        }
    }

    /// Writes to all members side by side: one that does not answer keeps the record from none of the others.
    fn store_on_members(&self, due: Due) -> Result<(), ControlError> {
        let stored = store_side_by_side(&due);
        self.run(|m| {
            m.noted_on_members(due, stored.err());
            Ok(())
        })
    }

    /// Brings back what the members know of an array that has just been imported and was not recorded here: its
    /// settings, and its exports without offering them. What cannot be brought back is returned in words.
    pub(crate) fn recall_from_members(&self, array: &str, drives: &[Drive]) -> Vec<String> {
        let Some(config) = recall(array, drives) else { return Vec::new() };
        let exports: Vec<_> = config.exports.iter().map(|export| export.record(array)).collect();
        let settings = self.run(|m| m.put_settings(array, config.settings));
        let kept = self.run(|m| m.keep_exports(array, exports));
        let what = [("settings", settings.err()), ("exports", kept.err())];
        let wrong = what.into_iter().filter_map(|(what, error)| Some((what, error?)));
        wrong.map(|(what, error)| format!("{what}: {error}")).collect()
    }

    /// Offers the exports of an array that its members record and that are not offered here. What cannot be offered is
    /// returned in words.
    pub(crate) fn offer_kept(&self, array: &str) -> Vec<String> {
        let kept = self.run(|m| Ok(m.kept_exports(array))).unwrap_or_default();
        let mut warnings = Vec::new();
        for export in kept {
            if let Err(error) = self.run(|m| m.create_export(&request_of(&export))) {
                warnings.push(format!(
                    "export {} on {}, which the members remember, is not offered: {error}",
                    export.name, export.listen
                ));
            }
        }
        warnings
    }
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
fn store_side_by_side(due: &Due) -> Result<(), ControlError> {
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

/// What is said of an export that the members of array `name` record and that is not offered here.
pub(crate) fn not_offered(export: &ExportRecord, name: &str) -> String {
    let CreateExportRequest { via, listen, read_only, nqn, allow_hosts, secure, .. } =
        request_of(export);
    let mut command =
        format!("strake export create {name} --name {} --via {via} --listen {listen}", export.name);
    if !nqn.is_empty() {
        command.push_str(&format!(" --nqn {nqn}"));
    }
    command.extend(allow_hosts.iter().map(|host| format!(" --allow-host {host}")));
    command.push_str(if secure { " --secure" } else { "" });
    command.push_str(if read_only { " --read-only" } else { "" });
    format!(
        "the members record export {} on {listen}, which is not offered here; to offer it: {command}; to offer all \
         that they record: strake array import {name} --exports; to forget it: strake export remove {}",
        export.name, export.name
    )
}

/// The settings that the members of an array remember.
pub(crate) fn remembered_by(array: &str, drives: &[Drive]) -> Option<Settings> {
    recall(array, drives).map(|config| config.settings)
}

fn recall(array: &str, drives: &[Drive]) -> Option<MemberConfig> {
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

impl Manager {
    /// Exports that the members of an array record and that are not offered here.
    pub(crate) fn kept_exports(&self, array: &str) -> Vec<ExportRecord> {
        let record = self.config.arrays.iter().find(|a| a.uuid == array);
        record.map(|a| a.kept_exports.clone()).unwrap_or_default()
    }

    /// Records exports of an array that are not to be offered yet.
    fn keep_exports(
        &mut self,
        array: &str,
        exports: Vec<ExportRecord>,
    ) -> Result<(), ControlError> {
        let mut config = self.config.clone();
        let Some(record) = config.arrays.iter_mut().find(|a| a.uuid == array) else {
            return Ok(());
        };
        record.kept_exports = exports;
        self.config = self.store.prepare(&config)?.commit()?;
        Ok(())
    }

    fn due_on_members(&self) -> Vec<Due> {
        let due = self.running.iter().filter_map(|running| {
            let array = running.uuid();
            let status = running.array.status();
            // Not beside a loss: nothing is to be written to what is left.
            if status.lost {
                return None;
            }
            let serving = running.drives.iter().zip(&status.members).filter(|(_, m)| !is_out(m));
            let drives: Vec<Drive> = serving.filter_map(|(drive, _)| drive.clone()).collect();
            let content = self.member_config(&array)?;
            let known = self.written.get(&array);
            let late = |w: &Written| w.failed.is_none_or(|at| at.elapsed() >= RECORD_RETRY);
            let same = |w: &Written| {
                w.failed.is_none() && w.content == content && w.drives == identities(&drives)
            };
            if known.is_some_and(|w| same(w) || !late(w)) {
                return None;
            }
            Some(Due { uuid: running.array.uuid(), array, content, drives })
        });
        due.collect()
    }

    fn member_config(&self, array: &str) -> Option<Vec<u8>> {
        let exports = self.config.exports.iter().filter(|e| e.array == array);
        let kept = self.kept_exports(array);
        let exports = exports.chain(&kept);
        let config = MemberConfig {
            version: VERSION,
            settings: self.settings(array),
            exports: exports.map(MemberExport::from).collect(),
        };
        serde_json::to_vec(&config).ok()
    }

    fn noted_on_members(&mut self, due: Due, error: Option<ControlError>) {
        let failed = error.map(|error| {
            tracing::warn!(array = %due.array, reason = %error, "configuration not recorded on all members");
            std::time::Instant::now()
        });
        let written = Written { content: due.content, drives: identities(&due.drives), failed };
        self.written.insert(due.array, written);
    }
}

fn identities(drives: &[Drive]) -> Vec<String> {
    drives.iter().map(|drive| drive.device.identity()).collect()
}
