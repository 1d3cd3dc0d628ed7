//! The record of the settings and exports of an array on every member.

use std::thread;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use strake_dev_uring::control_wait_for;
use strake_engine::{ArrayError, Drive, config_sequence, load_config, store_config_as};
use strake_units::{Nanos, Uuid};

use crate::bounded;
use crate::error::ControlError;
use crate::limits::RECORD_LIMIT;
use crate::record::store::{
    Covered, ExportRecord, HostRecord, PausedJobs, Settings, SubsystemRecord,
};

/// Version of the record.
pub(crate) const VERSION: u32 = 1;

/// The record. Unknown fields of a record are reported, and the record is kept ([`Recalled`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberConfig {
    pub(crate) version: u32,
    #[serde(default)]
    pub(crate) settings: Settings,
    #[serde(default)]
    pub(crate) exports: Vec<MemberExport>,
    /// Hosts of these exports that must authenticate or use TLS. Records of earlier versions lack this field.
    #[serde(default)]
    pub(crate) hosts: Vec<MemberHost>,
}

/// A host and the kinds of secrets that it needs, without the secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberHost {
    pub(crate) nqn: String,
    #[serde(default)]
    pub(crate) needs: Covered,
}

impl From<&HostRecord> for MemberHost {
    fn from(record: &HostRecord) -> Self {
        let HostRecord { nqn, covered: needs, .. } = record.masked();
        Self { nqn, needs }
    }
}

impl MemberHost {
    /// Returns the host without its secrets. It cannot connect before it gets new secrets.
    pub(crate) fn locked(&self) -> HostRecord {
        HostRecord { nqn: self.nqn.clone(), covered: self.needs, ..HostRecord::default() }
    }
}

impl MemberConfig {
    /// Returns the settings of the operator for comparisons: with sorted exports, and without a pause, which ends
    /// automatically.
    pub(crate) fn without_order_and_pause(mut self) -> Self {
        self.settings = self.settings.without_pause();
        self.exports.sort_by(|a, b| a.name.cmp(&b.name));
        self.hosts.sort_by(|a, b| a.nqn.cmp(&b.nqn));
        self
    }
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
        let ExportRecord { name, listen, read_only, nvme, array: _, volume: _ } = record;
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
            volume: None,
            listen: listen.clone(),
            read_only: *read_only,
            nvme: nvme.clone(),
        }
    }
}

/// A record to write.
pub(crate) struct Due {
    pub(crate) array: String,
    pub(crate) uuid: Uuid,
    pub(crate) content: Vec<u8>,
    pub(crate) drives: Vec<Drive>,
}

/// Runs `job` on all `drives` concurrently, each with the time limit [`RECORD_LIMIT`].
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
/// The error of the first member that did not store the record.
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

/// Returns the newest record on `drives`. Each drive has the time limit [`RECORD_LIMIT`]; an unresponsive drive counts
/// as a drive without a record.
pub(crate) fn newest_side_by_side(uuid: Uuid, drives: &[Drive]) -> Option<Vec<u8>> {
    let read = on_each(drives, move |drive, wait| {
        let own = std::slice::from_ref(drive);
        let sequence = config_sequence(own, uuid, wait);
        Ok(load_config(own, uuid, wait).map(|content| (sequence, content)))
    });
    let found = read.into_iter().filter_map(|read| read.ok().flatten());
    found.max_by_key(|(sequence, _)| *sequence).map(|(_, content)| content)
}

/// The supported parts of a record on the members.
pub(crate) struct Recalled {
    /// The content on the members.
    pub(crate) content: Vec<u8>,
    /// The reason why the whole record is unsupported, if applicable.
    pub(crate) unsupported: Option<String>,
    pub(crate) settings: Settings,
    /// Exports with their positions in the record.
    pub(crate) exports: Vec<(usize, MemberExport)>,
    pub(crate) hosts: Vec<MemberHost>,
    /// True if `hosts` contains all hosts that need a secret or a key.
    pub(crate) names_all_hosts: bool,
    /// Unsupported parts with reasons.
    pub(crate) ignored: Vec<String>,
}

impl Recalled {
    pub(crate) fn of(content: Vec<u8>) -> Self {
        let value = serde_json::from_slice::<Value>(&content);
        let unsupported = match &value {
            Ok(value) if value["version"] == VERSION => None,
            Ok(value) => Some(format!("version {} is not supported", value["version"])),
            Err(error) => Some(format!("it is not JSON: {error}")),
        };
        let (settings, exports, hosts) = (Settings::default(), Vec::new(), Vec::new());
        let (names_all_hosts, ignored) = (false, Vec::new());
        let mut all =
            Self { content, unsupported, settings, exports, hosts, names_all_hosts, ignored };
        if let (Ok(value), None) = (value, &all.unsupported) {
            all.take(value);
        }
        all
    }

    fn take(&mut self, mut value: Value) {
        drop_unknown(&mut value, &every_field(), "", &mut self.ignored);
        let settings = value.get_mut("settings").map(Value::take);
        match settings.map(serde_json::from_value).transpose() {
            Ok(settings) => self.settings = settings.unwrap_or_default(),
            Err(error) => self.ignored.push(format!("settings: {error}")),
        }
        match value.get_mut("exports").map(Value::take) {
            None => {}
            Some(Value::Array(exports)) => {
                for (at, export) in exports.into_iter().enumerate() {
                    match serde_json::from_value(export) {
                        Ok(export) => self.exports.push((at, export)),
                        Err(error) => self.ignored.push(format!("exports[{at}]: {error}")),
                    }
                }
            }
            Some(_) => self.ignored.push("exports: not a list".to_owned()),
        }
        self.take_hosts(value.get_mut("hosts").map(Value::take));
    }

    /// A host with unsupported needs is accepted without them, and is locked nevertheless.
    fn take_hosts(&mut self, hosts: Option<Value>) {
        let Some(hosts) = hosts else { return };
        let Value::Array(hosts) = hosts else {
            self.ignored.push("hosts: not a list".to_owned());
            return;
        };
        self.names_all_hosts = true;
        for (at, host) in hosts.into_iter().enumerate() {
            let nqn = host["nqn"].as_str().map(str::to_owned);
            match serde_json::from_value(host) {
                Ok(host) => self.hosts.push(host),
                Err(error) => {
                    self.ignored.push(format!("hosts[{at}]: {error}"));
                    let needs = Covered::default();
                    self.names_all_hosts &= nqn.is_some();
                    self.hosts.extend(nqn.map(|nqn| MemberHost { nqn, needs }));
                }
            }
        }
    }
}

/// Returns a record in which every field is present.
fn every_field() -> Value {
    let paused_jobs = PausedJobs { rebuild: true, ..PausedJobs::default() };
    let nvme = Some(SubsystemRecord {
        nqn: String::new(),
        hosts: Vec::new(),
        namespace: 2,
        secure: true,
        insecure: true,
    });
    let config = MemberConfig {
        version: VERSION,
        settings: Settings { paused_jobs, ..Settings::default() },
        exports: vec![MemberExport {
            name: String::new(),
            listen: String::new(),
            read_only: true,
            nvme,
        }],
        hosts: vec![MemberHost { nqn: String::new(), needs: Covered::default() }],
    };
    serde_json::to_value(config).unwrap_or_default()
}

/// Removes the fields that `known` does not have, and lists them.
fn drop_unknown(value: &mut Value, known: &Value, at: &str, unknown: &mut Vec<String>) {
    match (value, known) {
        (Value::Object(fields), Value::Object(known)) => {
            let dot = if at.is_empty() { "" } else { "." };
            fields.retain(|name, _| {
                let is_known = known.contains_key(name);
                if !is_known {
                    unknown.push(format!("{at}{dot}{}: unknown field", name.escape_debug()));
                }
                is_known
            });
            for (name, field) in fields {
                drop_unknown(field, &known[name], &format!("{at}{dot}{name}"), unknown);
            }
        }
        (Value::Array(list), Value::Array(known)) => {
            let Some(known) = known.first() else { return };
            for (place, one) in list.iter_mut().enumerate() {
                drop_unknown(one, known, &format!("{at}[{place}]"), unknown);
            }
        }
        _ => {}
    }
}
