//! Offering arrays to clients.

use std::sync::Arc;

use strake_api::v1::{
    CreateExportRequest, Export as ExportMessage, ExportChange, RemoveExportRequest,
};
use strake_export_nbd::Removal;
use strake_export_nvmet::Leaving;

use crate::control::Control;
use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Note};
use crate::exports::keys::keys_of;
use crate::exports::requests::{forget_kept, record_of, request_of};
use crate::exports::servers::{self, ExportServer};
use crate::manager::Manager;
use crate::record::reserved;
use crate::record::store::{Config, ExportRecord};

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
        let server = |e: &ExportRecord| Some((e.clone(), Arc::clone(m.servers.get(&e.listen)?)));
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
        let at = self.find_running(&request.array)?;
        let array = (self.running[at].array.name().to_string(), self.running[at].uuid());
        let (mut record, known) = record_of(request, &self.records, array)?;
        if known {
            return Ok(export_change(self, "unchanged", &record));
        }
        // Those of an export that was removed are not in force again.
        self.records.finish_ending(&record.array)?;
        let name = record.name.clone();
        // Space for the change is made sure of before anything is offered; the address may still get its port.
        let mut config = self.records.config.clone();
        config.exports.push(record.clone());
        forget_kept(&mut config, |kept| kept.name == name && kept.array == record.array);
        self.records.check(&config)?;
        record.listen = offer(self, &record)?;
        if let Some(last) = config.exports.last_mut() {
            last.listen.clone_from(&record.listen);
        }
        if let Err(error) = self.records.put(&config) {
            withdraw(self, &record, Removal::Force)?;
            return Err(error);
        }
        let what = format!(
            "array {} is offered as {name} on {}",
            self.running[at].array.name(),
            record.listen
        );
        self.record(Note::new(EventKind::ExportCreated, format!("export/{name}"), what));
        Ok(export_change(self, "created", &record))
    }

    /// Every export with what it has done.
    #[must_use]
    pub fn exports(&self) -> Vec<ExportMessage> {
        self.records.exports.iter().map(|record| export_message(self, record)).collect()
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
            let mut config = self.records.config.clone();
            forget_kept(&mut config, |other| *other == kept);
            self.records.put(&config)?;
            return Ok(export_change(self, "removed", &kept));
        }
        let record = self.records.export_record(&request.name)?.clone();
        let change = export_change(self, "removed", &record);
        let config = self.records.without_export(&record);
        let prepared = self.records.store.prepare(&config)?;
        withdraw(self, &record, if request.force { Removal::Force } else { Removal::IfUnused })?;
        self.records.config = prepared.commit()?;
        remove_reservations_of(self, &record);
        tell_withdrawn(self, &record, "by a command");
        Ok(change)
    }
}

/// Whether an export would be made with `config` in force, which is not yet; refuses what
/// [`create_export`](Manager::create_export) does. `array` is the name and identity of its array.
pub(crate) fn would_export(
    manager: &Manager,
    request: &CreateExportRequest,
    config: &Config,
    array: (String, String),
) -> Result<Option<ExportRecord>, ControlError> {
    manager.check_open()?;
    let (record, known) = record_of(request, config, array)?;
    if known {
        return Ok(None);
    }
    let shared = manager.servers.contains_key(&record.listen)
        || config.exports.iter().any(|other| other.listen == record.listen);
    if !shared {
        servers::try_listen(&record)?;
    }
    Ok(Some(record))
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

/// Puts an export on its server, which is started if need be. Returns the address, with its port.
fn offer(manager: &mut Manager, record: &ExportRecord) -> Result<String, ControlError> {
    let at = manager.find_running(&record.array)?;
    if let Some(server) = manager.servers.get(&record.listen) {
        server.add(record, &manager.running[at].array, manager.records.ledger_of(record))?;
        return Ok(record.listen.clone());
    }
    let server = start_server(manager, record)?;
    server.add(record, &manager.running[at].array, manager.records.ledger_of(record))?;
    let listen =
        server.address().map_or_else(|| record.listen.clone(), |address| address.to_string());
    manager.servers.insert(listen.clone(), Arc::new(server));
    Ok(listen)
}

fn start_server(manager: &Manager, record: &ExportRecord) -> Result<ExportServer, ControlError> {
    let server = ExportServer::start(record, manager.core_handles())?;
    // Known before there is anything to connect to.
    for host in &manager.records.hosts {
        server.set_keys(&host.nqn, &keys_of(host)?);
    }
    server.refer(&manager.records.referrals)?;
    Ok(server)
}

/// Lets hosts find all recorded exports before the first array is started: one that comes back sooner than its
/// array must be told to wait, not that there is nothing. What cannot be offered now is tried again with its array,
/// and told of then.
pub(crate) fn announce_recorded_exports(manager: &mut Manager) {
    for record in manager.records.exports.clone() {
        if record.nvme.is_none() {
            continue;
        }
        if let Err(error) = announce(manager, &record) {
            tracing::warn!(export = %record.name, reason = %error, "export not announced");
        }
    }
}

/// Lets hosts find an export that cannot be offered, if its address allows that, so that they wait until somebody
/// has decided what is to be done: one whose reservations cannot be read, for example.
fn announce_if_absent(manager: &mut Manager, record: &ExportRecord) {
    let server = manager.servers.get(&record.listen);
    if record.nvme.is_none() || server.is_some_and(|server| server.offers(record)) {
        return;
    }
    if let Err(error) = announce(manager, record) {
        tracing::warn!(export = %record.name, reason = %error, "export not announced");
    }
}

fn announce(manager: &mut Manager, record: &ExportRecord) -> Result<(), ControlError> {
    if let Some(server) = manager.servers.get(&record.listen) {
        return server.announce(record);
    }
    let server = start_server(manager, record)?;
    server.announce(record)?;
    manager.servers.insert(record.listen.clone(), Arc::new(server));
    Ok(())
}

pub(crate) fn withdraw(
    manager: &mut Manager,
    record: &ExportRecord,
    removal: Removal,
) -> Result<(), ControlError> {
    let Some(server) = manager.servers.get(&record.listen) else { return Ok(()) };
    if server.offers(record) {
        server.remove(record, removal)?;
    }
    if server.is_empty()
        && let Some(server) = manager.servers.remove(&record.listen)
    {
        servers::stop(server)?;
    }
    Ok(())
}

/// Has hosts of an array wait that goes out of service and will come back. What is in flight yet is returned.
pub(crate) fn suspend_exports_of(manager: &Manager, uuid: &str) -> Vec<Leaving> {
    let suspend = |(record, server): (_, &ExportServer)| server.suspend(record);
    offered_of(manager, uuid).filter_map(suspend).collect()
}

/// The same for an array that is started again at once: what they send meanwhile waits for it.
pub(crate) fn pause_exports_of(manager: &Manager, uuid: &str) -> Vec<Leaving> {
    let pause = |(record, server): (_, &ExportServer)| server.pause(record);
    offered_of(manager, uuid).filter_map(pause).collect()
}

/// Has these hosts go on with the array when it is back: it has everything that it acknowledged.
pub(crate) fn keep_instances_of(manager: &Manager, uuid: &str) {
    offered_of(manager, uuid).for_each(|(record, server)| server.keep_instance(record));
}

/// Has hosts that find it not back begin anew with it, whenever it comes.
pub(crate) fn forget_instances_of(manager: &Manager, uuid: &str) {
    offered_of(manager, uuid).for_each(|(record, server)| server.forget_instance(record));
}

/// The exports of an array, each with what serves its address.
pub(crate) fn offered_of<'a>(
    manager: &'a Manager,
    uuid: &str,
) -> impl Iterator<Item = (&'a ExportRecord, &'a ExportServer)> {
    let of_it = manager.records.exports.iter().filter(move |e| e.array == uuid);
    of_it.filter_map(|record| Some((record, &**manager.servers.get(&record.listen)?)))
}

/// Disconnects the clients of such an array that cannot be told to wait. Nothing of it is in flight any more.
pub(crate) fn disconnect_clients_of(manager: &mut Manager, uuid: &str) {
    let of_it = |e: &&ExportRecord| e.array == uuid && e.nvme.is_none();
    let records: Vec<_> = manager.records.exports.iter().filter(of_it).cloned().collect();
    for record in records {
        if let Err(error) = withdraw(manager, &record, Removal::Force) {
            tracing::warn!(export = %record.name, reason = %error, "clients not disconnected");
        }
    }
}

pub(crate) fn withdraw_exports_of(manager: &mut Manager, uuid: &str) -> Result<(), ControlError> {
    let records: Vec<ExportRecord> =
        manager.records.exports.iter().filter(|e| e.array == uuid).cloned().collect();
    for record in records {
        withdraw(manager, &record, Removal::Force)?;
        tell_withdrawn(manager, &record, "together with its array");
    }
    Ok(())
}

/// Offers the recorded exports of an array that has just been started.
pub(crate) fn offer_recorded_exports(manager: &mut Manager, uuid: &str) {
    let records: Vec<ExportRecord> =
        manager.records.exports.iter().filter(|e| e.array == uuid).cloned().collect();
    for record in records {
        match offer(manager, &record) {
            Ok(_) => {
                tracing::info!(export = %record.name, listen = %record.listen, "export offered again");
                manager.export_trouble.remove(&record.name);
            }
            Err(error) => {
                announce_if_absent(manager, &record);
                let what = format!("export {} cannot be offered on {}", record.name, record.listen);
                let note =
                    Note::new(EventKind::ExportOffline, format!("export/{}", record.name), what);
                let remedy = match error.kind {
                    ControlErrorKind::Store => {
                        format!("see what it says, or: strake export release {}", record.name)
                    }
                    _ => format!(
                        "free the address, or: strake export remove {}, then strake export create",
                        record.name
                    ),
                };
                manager.record(note.cause(error.what.clone()).next(remedy));
                manager.export_trouble.insert(record.name, error.what);
            }
        }
    }
}

pub(crate) fn export_message(manager: &Manager, record: &ExportRecord) -> ExportMessage {
    let done = manager.servers.get(&record.listen).and_then(|server| server.done(record));
    let running = manager.running.iter().find(|r| r.uuid() == record.array);
    let name =
        manager.records.arrays.iter().find(|a| a.uuid == record.array).map(|a| a.name.clone());
    let reason = match (&done, running) {
        (Some(_), _) => unrecorded_why(manager, record).unwrap_or_default(),
        (None, None) if manager.entries.get(&record.array).starting.is_some() => {
            "its array is being started".to_owned()
        }
        (None, None) => "its array is not running".to_owned(),
        (None, Some(_)) => manager.export_trouble.get(&record.name).cloned().unwrap_or_default(),
    };
    let CreateExportRequest { via, nqn, allow_hosts, namespace, secure, .. } = request_of(record);
    let mut message = ExportMessage {
        name: record.name.clone(),
        array: name.unwrap_or_else(|| record.array.clone()),
        via,
        listen: record.listen.clone(),
        read_only: record.read_only,
        nqn,
        allow_hosts,
        namespace,
        secure,
        uri: servers::uri(record),
        size_bytes: running.map_or(0, |r| r.array.device().info().bytes()),
        state: if done.is_some() { "online" } else { "offline" }.to_owned(),
        reason,
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
    let server = manager.servers.get(&record.listen);
    message.reservation =
        server.and_then(|server| server.reservations(record)).and_then(|r| reserved::message(&r));
    message
}

fn tell_withdrawn(manager: &mut Manager, record: &ExportRecord, cause: &str) {
    manager.export_trouble.remove(&record.name);
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
    if let Err(error) = manager.records.finish_ending(&record.array) {
        let what = format!("the reservations of export {} did not go with it", record.name);
        let object = format!("export/{}", record.name);
        let next = "make the state directory writable; they are removed with the next start, or before the array \
                    is exported again";
        let note = Note::new(EventKind::ReservationsUnrecorded, object, what);
        manager.record(note.cause(error.what).next(next));
    }
}

/// Why hosts of an export could not change reservations the last time.
pub(crate) fn unrecorded_why(manager: &Manager, record: &ExportRecord) -> Option<String> {
    let why = manager.servers.get(&record.listen)?.reservation_trouble(record)?;
    Some(format!("a change of its reservations was not recorded, and refused: {why}"))
}
