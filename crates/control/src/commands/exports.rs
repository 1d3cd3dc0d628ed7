//! Offering arrays to clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use strake_api::v1::{
    CreateExportRequest, Export as ExportMessage, ExportChange, ReleaseExportRequest,
    RemoveExportRequest,
};
use strake_export_nbd::Removal;
use strake_wording::say;

use crate::commands::exported::{offered_of, size_of, subject_name, wanted_of};
use crate::commands::hosts::put_host;
use crate::commands::pools::Pools;
use crate::commands::reservations::refusal;
use crate::commands::volumes::split;
use crate::control::Control;
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Note};
use crate::exports::limits_in_use::limits_message;
use crate::exports::requests::{Wanted, forget_kept, record_of, request_of};
use crate::exports::servers::{self, ExportServer};
use crate::manager::Manager;
use crate::record::reserved;
use crate::record::store::{Config, ExportRecord, HostRecord, Limited};
use crate::remedy::remove_export;
use crate::upkeep::pools::put_pool_status;

/// Time between two tries to offer exports that could not be offered, and to record the end of replaced secrets.
pub(crate) const RETRY: Duration = Duration::from_secs(5);

/// Offers an array or a volume to clients. The same request again is "unchanged".
///
/// # Errors
/// When the array or volume is not there, the name is taken, or the address cannot be listened on.
pub fn create_export(
    control: &Control,
    request: &CreateExportRequest,
) -> Result<ExportChange, ControlError> {
    if !request.array.contains('/') {
        return control.run(|m| m.create_export(request));
    }
    let (pool, name) = split(&request.array)?;
    let pool = Pools::of(control).in_pool(pool)?;
    let id = pool.row(&name)?.id;
    let device = pool.handle.device(id)?;
    control.run(|m| {
        put_pool_status(m, &pool.handle, pool.status.clone());
        m.put_volume_device(&pool.handle, id, device);
        m.create_export(request)
    })
}

impl Control {
    /// Withdraws an export. Requests that its clients have in flight are waited for without the lock.
    ///
    /// # Errors
    /// When there is none of that name, or it has clients and `force` was not given.
    pub fn remove_export(
        &self,
        request: &RemoveExportRequest,
    ) -> Result<ExportChange, ControlError> {
        if request.force {
            disconnect(self, |export| export.name == request.name)?;
        }
        self.run(|m| m.remove_export(request))
    }
}

/// Disconnects the clients of `exports` and waits without the lock for their requests, which a drive that hangs
/// holds up. The exports are still recorded.
pub(crate) fn disconnect(
    control: &Control,
    exports: impl Fn(&ExportRecord) -> bool,
) -> Result<(), ControlError> {
    let offered: Vec<(ExportRecord, Arc<ExportServer>)> = control.run(|m| {
        m.check_open()?;
        // What cannot be recorded is not begun.
        m.records.check(&m.records)?;
        let wanted = m.records.exports.iter().filter(|export| exports(export));
        let server = |e: &ExportRecord| Some((e.clone(), Arc::clone(m.exports.at(&e.listen)?)));
        Ok(wanted.filter_map(server).collect())
    })?;
    for (record, server) in offered {
        if server.offers(&record) {
            server.remove(&record, Removal::Force)?;
        }
    }
    Ok(())
}

impl Manager {
    /// Offers an array to clients. The same request again is "unchanged".
    ///
    /// # Errors
    /// When the array is not there, the name is taken, or the address cannot be listened on.
    pub fn create_export(
        &mut self,
        request: &CreateExportRequest,
    ) -> Result<ExportChange, ControlError> {
        self.check_open()?;
        let wanted = wanted_of(self, request)?;
        let kept = kept_hosts(self, request, &wanted.array);
        let mut planned = self.records.config.clone();
        planned.hosts.extend(kept.iter().cloned());
        // A refusal changes nothing, so the hosts are locked after it.
        let (mut record, known) = record_of(request, &planned, wanted)?;
        kept.into_iter().try_for_each(|host| put_host(self, host).map(drop))?;
        if known {
            if !self.exports.trouble.contains_key(&record.name) {
                return Ok(export_change(self, "unchanged", &record));
            }
            offer_recorded(self, &record)?;
            note_online(self, &record);
            return Ok(export_change(self, "changed", &record));
        }
        // Those of an export that was removed are not in force again.
        self.records.finish_ending(&record.subject())?;
        let name = record.name.clone();
        // Space for the change is made sure of before anything is offered; the address may still get its port.
        let mut config = self.records.config.clone();
        config.exports.push(record.clone());
        forget_kept(&mut config, |kept| kept.name == name && kept.array == record.array);
        self.records.check(&config)?;
        let (offered, cores) = (offered_of(self, &record)?, self.core_handles());
        record.listen = self.exports.offer(&record, &offered, &self.records, cores)?;
        if let Some(last) = config.exports.last_mut() {
            last.listen.clone_from(&record.listen);
        }
        if let Err(error) = self.records.put(&config) {
            self.exports.withdraw(&record, Removal::Force)?;
            self.exports.reread_rights(&record.subject(), &self.records);
            return Err(error);
        }
        let word = if record.volume.is_some() { "volume" } else { "array" };
        let subject = subject_name(self, &record);
        let what = format!("{word} {subject} is offered as {name} on {}", record.listen);
        self.record(Note::new(EventKind::ExportCreated, format!("export/{name}"), what));
        Ok(export_change(self, "created", &record))
    }

    /// Every export with what it has done.
    #[must_use]
    pub fn exports(&self) -> Vec<ExportMessage> {
        self.records.exports.iter().map(|record| export_message(self, record)).collect()
    }

    /// Returns the listening addresses of exports, each with the number of connections that it closed because its
    /// connection limit was reached.
    #[must_use]
    pub fn refused_connections(&self) -> Vec<(String, u64)> {
        self.exports.turned_away()
    }

    /// Withdraws an export.
    ///
    /// # Errors
    /// When there is none of that name, or it has clients and `force` was not given.
    pub fn remove_export(
        &mut self,
        request: &RemoveExportRequest,
    ) -> Result<ExportChange, ControlError> {
        self.check_open()?;
        if let Some(kept) = self.records.kept_export(&request.name) {
            self.records.change(|config| forget_kept(config, |other| *other == kept))?;
            return Ok(export_change(self, "removed", &kept));
        }
        let record = self.records.export_record(&request.name)?.clone();
        let change = export_change(self, "removed", &record);
        let config = self.records.without_export(&record);
        let prepared = self.records.store.prepare(&config)?;
        self.exports
            .withdraw(&record, if request.force { Removal::Force } else { Removal::IfUnused })?;
        match prepared.commit() {
            Ok(config) => {
                self.records.config = config;
                self.exports.limits.follow(&self.records);
            }
            Err(error) => {
                // It is still recorded, so it is offered again.
                self.exports.trouble.insert(record.name.clone(), error.what.clone());
                self.exports.reread_rights(&record.subject(), &self.records);
                return Err(error);
            }
        }
        remove_reservations_of(self, &record);
        tell_withdrawn(self, &record, "by a command");
        Ok(change)
    }
}

/// Whether an export would be made with `config` in force, which is not yet; refuses what
/// [`create_export`](Manager::create_export) does. `wanted` is what is exported.
pub(crate) fn would_export(
    manager: &Manager,
    request: &CreateExportRequest,
    config: &Config,
    wanted: Wanted,
) -> Result<Option<ExportRecord>, ControlError> {
    manager.check_open()?;
    let (record, known) = record_of(request, config, wanted)?;
    if known {
        return Ok(None);
    }
    let shared = manager.exports.at(&record.listen).is_some()
        || config.exports.iter().any(|other| other.listen == record.listen);
    if !shared {
        servers::try_listen(&record)?;
    }
    Ok(Some(record))
}

/// Returns the hosts of a request that are not known, and whose secrets or keys the array's members record as missing.
fn kept_hosts(manager: &Manager, request: &CreateExportRequest, array: &str) -> Vec<HostRecord> {
    let kept = manager.records.record_of(array).map(|a| a.kept_hosts.clone()).unwrap_or_default();
    let is_unknown =
        |host: &HostRecord| manager.records.hosts.iter().all(|known| known.nqn != host.nqn);
    let wanted = kept.into_iter().filter(|host| request.allow_hosts.contains(&host.nqn));
    wanted.filter(is_unknown).collect()
}

pub(crate) fn export_change(
    manager: &Manager,
    result: &str,
    record: &ExportRecord,
) -> ExportChange {
    ExportChange {
        result: result.to_owned(),
        export: Some(export_message(manager, record)),
        plan: Vec::new(),
    }
}

pub(crate) fn withdraw_exports_of(manager: &mut Manager, uuid: &str) -> Result<(), ControlError> {
    let records: Vec<ExportRecord> =
        manager.records.exports.iter().filter(|e| e.array == uuid).cloned().collect();
    for record in records {
        manager.exports.withdraw(&record, Removal::Force)?;
        tell_withdrawn(manager, &record, "together with its array");
        manager.exports.forget_rights(&record.subject());
    }
    manager.exports.forget_rights(uuid);
    Ok(())
}

/// Offers a recorded export whose array runs.
fn offer_recorded(manager: &mut Manager, record: &ExportRecord) -> Result<(), ControlError> {
    let cores = manager.core_handles();
    let offered = offered_of(manager, record).and_then(|offered| {
        manager.exports.offer(record, &offered, &manager.records, cores.clone())
    });
    match offered {
        Ok(_) => {
            tracing::info!(export = %record.name, listen = %record.listen, "export offered again");
            manager.exports.trouble.remove(&record.name);
            Ok(())
        }
        Err(error) => {
            manager.exports.announce_if_absent(record, &manager.records, cores);
            manager.exports.trouble.insert(record.name.clone(), error.what.clone());
            Err(error)
        }
    }
}

/// Tries again, every [`RETRY`], to offer exports of running arrays that could not be offered.
pub(crate) fn retry_exports(manager: &mut Manager, now: Instant) {
    let is_due = manager.exports.retried.is_none_or(|last| now >= last + RETRY);
    if !is_due || manager.exports.trouble.is_empty() {
        return;
    }
    manager.exports.retried = Some(now);
    let is_wanted = |record: &&ExportRecord| {
        let runs = manager.running_of(&record.array).is_some();
        runs && manager.exports.trouble.contains_key(&record.name)
    };
    let wanted: Vec<ExportRecord> =
        manager.records.exports.iter().filter(is_wanted).cloned().collect();
    for record in wanted {
        if offer_recorded(manager, &record).is_ok() {
            note_online(manager, &record);
        }
    }
}

fn note_online(manager: &mut Manager, record: &ExportRecord) {
    let what = format!("export {} is offered on {} again", record.name, record.listen);
    manager.record(Note::new(EventKind::ExportOnline, format!("export/{}", record.name), what));
}

/// Offers the recorded exports of an array that has just been started.
pub(crate) fn offer_recorded_exports(manager: &mut Manager, uuid: &str) {
    let records: Vec<ExportRecord> =
        manager.records.exports.iter().filter(|e| e.array == uuid).cloned().collect();
    for record in records {
        offer_or_report(manager, &record);
    }
}

/// Offers a recorded export whose array runs, or reports why that is not possible.
pub(crate) fn offer_or_report(manager: &mut Manager, record: &ExportRecord) {
    let Err(error) = offer_recorded(manager, record) else { return };
    let what = format!("export {} cannot be offered on {}", record.name, record.listen);
    let note = Note::new(EventKind::ExportOffline, format!("export/{}", record.name), what);
    let remedy = match error.kind {
        ControlErrorKind::Store => {
            let release = ReleaseExportRequest { name: record.name.clone() };
            say("read the reason, or: ").run(release)
        }
        _ => say("free the address: the export is offered within seconds; or: ")
            .run(remove_export(&record.name))
            .say(", then ")
            .run(CreateExportRequest::default()),
    };
    manager.record(note.cause(error.what).next(remedy));
}

pub(crate) fn export_message(manager: &Manager, record: &ExportRecord) -> ExportMessage {
    let done = manager.exports.at(&record.listen).and_then(|server| server.done(record));
    let running = manager.running_of(&record.array);
    let reason = match (&done, running) {
        (Some(_), _) => {
            let refused = || refusal(manager, record);
            manager.exports.unrecorded(record).or_else(refused).unwrap_or_default()
        }
        (None, None) if manager.entries.get(&record.array).starting.is_some() => {
            "its array is being started".to_owned()
        }
        (None, None) => "its array is not running".to_owned(),
        (None, Some(_)) => manager.exports.trouble.get(&record.name).cloned().unwrap_or_default(),
    };
    let CreateExportRequest { via, nqn, allow_hosts, namespace, secure, insecure, .. } =
        request_of(record);
    let mut message = ExportMessage {
        name: record.name.clone(),
        array: subject_name(manager, record),
        via,
        listen: record.listen.clone(),
        read_only: record.read_only,
        nqn,
        allow_hosts,
        namespace,
        secure,
        insecure,
        uri: servers::uri(record),
        size_bytes: size_of(manager, record),
        state: if done.is_some() { "online" } else { "offline" }.to_owned(),
        reason,
        limits: limits_message(&manager.records, &Limited::Export(record.name.clone())),
        ..ExportMessage::default()
    };
    if let Some(done) = done {
        message.connections = done.connections;
        message.reads = done.reads;
        message.read_bytes = done.read_bytes;
        message.writes = done.writes;
        message.write_bytes = done.written_bytes;
        message.flushes = done.flushes;
        message.errors = done.errors;
    }
    let server = manager.exports.at(&record.listen);
    message.reservation =
        server.and_then(|server| server.reservations(record)).and_then(|r| reserved::message(&r));
    message
}

fn tell_withdrawn(manager: &mut Manager, record: &ExportRecord, cause: &str) {
    manager.exports.trouble.remove(&record.name);
    let what = format!("export {} was withdrawn", record.name);
    let note = Note::new(EventKind::ExportWithdrawn, format!("export/{}", record.name), what);
    manager.record(note.cause(cause));
}

/// Removes what is recorded of an export that has just gone. Reports what is left behind: the next start, and the
/// next export of the array, try again.
fn remove_reservations_of(manager: &mut Manager, record: &ExportRecord) {
    if record.nvme.is_none() {
        return;
    }
    if let Err(error) = manager.records.finish_ending(&record.subject()) {
        let what = format!("the reservations of export {} were not removed with it", record.name);
        let object = format!("export/{}", record.name);
        let next = "make the state directory writable; the reservations are then removed at the next start of the \
            daemon, or before the array is exported again";
        let note = Note::new(EventKind::ReservationsUnrecorded, object, what);
        manager.record(note.cause(error.what).next(next));
    }
    manager.exports.reread_rights(&record.subject(), &manager.records);
}
