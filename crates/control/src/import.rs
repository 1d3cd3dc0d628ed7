//! From drives to running arrays: by themselves at start, and on request.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use strake_api::v1::{Array as ArrayMessage, ImportArraysRequest, ImportArraysResponse};
use strake_dev_uring::control_wait;
use strake_engine::{Array, AssemblePolicy, Drive, Options, Outcome, assemble};
use strake_units::Uuid;

use crate::arrays::remembered;
use crate::error::ControlError;
use crate::label::inspect;
use crate::manager::{Manager, Running, fresh_uuid};
use crate::scan;
use crate::store::ArrayRecord;

/// How often arrays are looked for once they are later than the assemble timeout.
const RETRY_EVERY: Duration = Duration::from_secs(15);

/// How long after its start the daemon tries recorded drives again that are there and cannot be opened: the kernel
/// lets go of the files of a killed process only when it has taken its rings apart, some time after its end.
const RELEASE_WAIT: Duration = Duration::from_secs(3);

/// Time between two such tries.
const RELEASE_RETRY: Duration = Duration::from_millis(20);

/// The labelled drives of one array.
struct Found {
    name: String,
    drives: Vec<Drive>,
}

impl Manager {
    /// Starts what is recorded and not running. What cannot be started is noted in `offline`.
    pub(crate) fn start_recorded(&mut self) {
        let late =
            self.options.assemble_timeout.is_some_and(|limit| self.started.elapsed() >= limit);
        if late && self.last_retry.is_some_and(|at| at.elapsed() < RETRY_EVERY) {
            return;
        }
        self.last_retry = late.then(Instant::now);
        let policy = AssemblePolicy { allow_degraded: late, accept_loss: false };
        for record in self.config.arrays.clone() {
            if self.find(&record.uuid).is_some() {
                continue;
            }
            if let Err(error) = self.start_one(&record, policy)
                && self.offline.insert(record.uuid.clone(), error.what.clone()).as_ref()
                    != Some(&error.what)
            {
                tracing::warn!(array = %record.name, reason = %error.what, "array not started");
            }
        }
        self.close_unused_drives();
    }

    fn start_one(
        &mut self,
        record: &ArrayRecord,
        policy: AssemblePolicy,
    ) -> Result<(), ControlError> {
        let mut trouble = Vec::new();
        let mut drives = Vec::new();
        let mut look = record.drives.clone();
        if record.drives.iter().any(|path| path.starts_with("/dev/") && fs::metadata(path).is_err())
        {
            // Names of kernel devices change from start to start; labels do not.
            look.extend(scan::block_paths());
        }
        for path in &look {
            let recorded = record.drives.contains(path);
            let opened = if recorded { self.open_released(path) } else { self.open_labelled(path) };
            match opened {
                Ok(Some((uuid, _, drive))) if uuid.to_string() == record.uuid => {
                    push_once(&mut drives, drive)
                }
                Ok(_) => {}
                Err(error) if recorded => trouble.push(error.what),
                Err(_) => {}
            }
        }
        if drives.is_empty() {
            let why = if trouble.is_empty() {
                "none of its drives was found".to_owned()
            } else {
                trouble.join("; ")
            };
            return Err(ControlError::state(format!(
                "{why}; bring its drives back, or: strake array import --drives ..."
            )));
        }
        self.assemble_one(&drives, policy)
    }

    /// The same as [`open_labelled`](Self::open_labelled), with patience for drives that a daemon killed just now
    /// still seems to hold.
    fn open_released(&mut self, path: &str) -> Result<Option<(Uuid, String, Drive)>, ControlError> {
        loop {
            let outcome = self.open_labelled(path);
            if outcome.is_ok()
                || self.started.elapsed() >= RELEASE_WAIT
                || fs::metadata(path).is_err()
            {
                return outcome;
            }
            thread::sleep(RELEASE_RETRY);
        }
    }

    /// Opens `path` and reads its label; `None` when it has none that counts.
    fn open_labelled(&mut self, path: &str) -> Result<Option<(Uuid, String, Drive)>, ControlError> {
        let drive = self.drives.open(path)?;
        let label = inspect(&drive)?.label.filter(|label| !label.destroyed);
        Ok(label.map(|label| (label.array, label.name.to_string(), drive)))
    }

    /// Assembles and starts the one array that `drives` belong to, with its exports.
    fn assemble_one(
        &mut self,
        drives: &[Drive],
        policy: AssemblePolicy,
    ) -> Result<(), ControlError> {
        let epoch = fresh_uuid()?;
        let mut wait = control_wait();
        let (outcomes, unreadable) =
            assemble(drives, policy, &|_, _| true, &mut || epoch, &mut wait);
        for error in unreadable {
            tracing::warn!(reason = %error, "drive not readable");
        }
        let assembled = match outcomes.into_iter().next() {
            Some(Outcome::Ready(assembled)) => *assembled,
            Some(Outcome::Waiting { what, .. } | Outcome::Refused { what, .. }) => {
                return Err(ControlError::refused(what));
            }
            None => return Err(ControlError::state("no member with a valid label was found")),
        };
        let (regions, resync_bytes) = assembled.resync_regions();
        let array = Array::start(assembled, &self.core_handles(), Options::default())?;
        let here = |path: &str| drives.iter().find(|d| d.path == path).cloned();
        let slots = array.status().members.iter().map(|m| here(&m.path)).collect();
        let uuid = array.uuid().to_string();
        tracing::info!(array = %array.name(), %uuid, resync_regions = regions, resync_bytes, "array started");
        self.offline.remove(&uuid);
        self.running.push(Running::new(array, slots, false, resync_bytes));
        self.offer_recorded_exports(&uuid);
        Ok(())
    }

    /// Scans drives for labels and starts the arrays found.
    ///
    /// # Errors
    /// When a drive named cannot be opened, or nothing that was asked for could be started.
    pub fn import_arrays(
        &mut self,
        request: &ImportArraysRequest,
    ) -> Result<ImportArraysResponse, ControlError> {
        self.check_open()?;
        let outcome = self.try_import(request);
        self.close_unused_drives();
        outcome
    }

    fn try_import(
        &mut self,
        request: &ImportArraysRequest,
    ) -> Result<ImportArraysResponse, ControlError> {
        let name = request.name.as_str();
        let mut found = self.find_labelled(request)?;
        found.retain(|uuid, array| name.is_empty() || array.name == name || uuid == name);
        let mut response =
            ImportArraysResponse { result: "unchanged".into(), ..Default::default() };
        if let Some(at) = self.find(name) {
            response.arrays.push(self.view(at));
            return Ok(response);
        }
        if found.is_empty() {
            return Err(ControlError::not_found(if name.is_empty() {
                "no drive with the label of an array was found; name drives with --drives"
                    .to_owned()
            } else {
                format!(
                    "no drive with the label of array {name} was found; name its drives with --drives"
                )
            }));
        }
        let policy = AssemblePolicy {
            allow_degraded: request.allow_degraded,
            accept_loss: request.accept_loss,
        };
        for (uuid, array) in found {
            if let Some(at) = self.find(&uuid) {
                response.arrays.push(self.view(at));
                continue;
            }
            match self.import_one(&uuid, &array, policy) {
                Ok(view) => {
                    response.result = "changed".into();
                    response.arrays.push(view);
                }
                Err(error) if !name.is_empty() => return Err(error),
                Err(error) => response.warnings.push(error.what),
            }
        }
        if response.result == "unchanged" && !response.warnings.is_empty() {
            return Err(ControlError::refused(response.warnings.join("\n")));
        }
        Ok(response)
    }

    fn find_labelled(
        &mut self,
        request: &ImportArraysRequest,
    ) -> Result<BTreeMap<String, Found>, ControlError> {
        let mut found: BTreeMap<String, Found> = BTreeMap::new();
        let mut add = |labelled: Option<(Uuid, String, Drive)>| {
            if let Some((uuid, name, drive)) = labelled {
                let array =
                    found.entry(uuid.to_string()).or_insert(Found { name, drives: Vec::new() });
                push_once(&mut array.drives, drive);
            }
        };
        for path in &request.drives {
            add(self.open_labelled(path)?);
        }
        let known = |a: &&ArrayRecord| {
            request.name.is_empty() || a.name == request.name || a.uuid == request.name
        };
        let mut look: Vec<String> =
            self.config.arrays.iter().filter(known).flat_map(|a| a.drives.clone()).collect();
        if request.drives.is_empty() {
            look.extend(scan::block_paths());
        }
        for path in look {
            // Drives that were not named may be missing or busy; the label check of the others will tell.
            if let Ok(labelled) = self.open_labelled(&path) {
                add(labelled);
            }
        }
        Ok(found)
    }

    fn import_one(
        &mut self,
        uuid: &str,
        found: &Found,
        policy: AssemblePolicy,
    ) -> Result<ArrayMessage, ControlError> {
        if let Some(other) =
            self.config.arrays.iter().find(|a| a.name == found.name && a.uuid != uuid)
        {
            return Err(ControlError::refused(format!(
                "array {} ({uuid}) has the name of another array here ({}); unload that one first",
                found.name, other.uuid
            )));
        }
        let mut config = self.config.clone();
        let drives = remembered(&found.drives);
        match config.arrays.iter_mut().find(|a| a.uuid == uuid) {
            Some(record) => record.drives = drives,
            None => config.arrays.push(ArrayRecord {
                uuid: uuid.to_owned(),
                name: found.name.clone(),
                drives,
            }),
        }
        let prepared = self.store.prepare(&config)?;
        self.assemble_one(&found.drives, policy)?;
        self.config = prepared.commit()?;
        self.array(uuid)
    }
}

/// Adds a drive unless it is there already under another path.
fn push_once(drives: &mut Vec<Drive>, drive: Drive) {
    let identity = drive.device.info().identity;
    if drives.iter().all(|d| d.device.info().identity != identity) {
        drives.push(drive);
    }
}
