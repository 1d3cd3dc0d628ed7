//! Offering arrays to clients over NBD.

use std::net::SocketAddr;

use strake_api::v1::{
    CreateExportRequest, Export as ExportMessage, ExportChange, RemoveExportRequest,
};
use strake_export_nbd::{Export, ExportStats, Listen, Removal, Server, ServerConfig, try_listen};
use strake_units::Name;

use crate::error::{ControlError, ControlErrorKind};
use crate::events::{EventKind, Note};
use crate::limits::EXPORTS_MAX;
use crate::manager::Manager;
use crate::store::{Config, ExportRecord};

fn parse_listen(text: &str) -> Result<Listen, ControlError> {
    let bad = || {
        ControlError::usage(format!(
            "cannot listen on {text:?}; write unix:/absolute/path, or a loopback address such as 127.0.0.1:10809"
        ))
    };
    if let Some(path) = text.strip_prefix("unix:") {
        return if path.starts_with('/') { Ok(Listen::unix(path)) } else { Err(bad()) };
    }
    text.parse::<SocketAddr>().map(Listen::Tcp).map_err(|_| bad())
}

/// What a client is given to connect (NBD URI specification).
fn uri(listen: &str, name: &str) -> String {
    match listen.strip_prefix("unix:") {
        Some(path) => format!("nbd+unix:///{name}?socket={path}"),
        None => format!("nbd://{listen}/{name}"),
    }
}

/// What an export of `array`, its name and identity, is recorded as; true when it is in `config` already.
fn record_of(
    request: &CreateExportRequest,
    config: &Config,
    (array, uuid): (String, String),
) -> Result<(ExportRecord, bool), ControlError> {
    if !(request.via.is_empty() || request.via == "nbd") {
        return Err(ControlError::usage(format!(
            "cannot export via {:?}; this version offers nbd",
            request.via
        )));
    }
    if config.exports.len() >= EXPORTS_MAX {
        return Err(ControlError::state(format!(
            "there are {EXPORTS_MAX} exports, which is the most one daemon offers; remove one first"
        )));
    }
    let name = if request.name.is_empty() { array } else { request.name.clone() };
    let name: Name = name.parse().map_err(|e| ControlError::usage(format!("export name: {e}")))?;
    let record = ExportRecord {
        name: name.to_string(),
        array: uuid,
        listen: request.listen.clone(),
        read_only: request.read_only,
    };
    parse_listen(&record.listen)?;
    match config.exports.iter().find(|e| e.name == record.name) {
        Some(existing) if *existing != record => Err(ControlError::new(
            ControlErrorKind::Exists,
            format!(
                "there is an export {name} already; remove it first: strake export remove {name}"
            ),
        )),
        existing => Ok((record, existing.is_some())),
    }
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
        let (mut record, known) = record_of(request, &self.config, array)?;
        if known {
            return Ok(self.export_change("unchanged", &record));
        }
        let name = record.name.clone();
        // Space for the change is made sure of before anything is offered; the address may still get its port.
        let mut config = self.config.clone();
        config.exports.push(record.clone());
        drop(self.store.prepare(&config)?);
        record.listen = self.offer(&record)?;
        if let Some(last) = config.exports.last_mut() {
            last.listen.clone_from(&record.listen);
        }
        match self.store.prepare(&config).and_then(crate::store::Prepared::commit) {
            Ok(config) => self.config = config,
            Err(error) => {
                self.withdraw(&record, Removal::Force)?;
                return Err(error);
            }
        }
        let what = format!(
            "array {} is offered as {name} on {}",
            self.running[at].array.name(),
            record.listen
        );
        self.record(Note::new(EventKind::ExportCreated, format!("export/{name}"), what));
        Ok(self.export_change("created", &record))
    }

    /// Whether an export would be made with `config` in force, which is not yet; refuses what
    /// [`create_export`](Self::create_export) does. `array` is the name and identity of its array.
    pub(crate) fn would_export(
        &self,
        request: &CreateExportRequest,
        config: &Config,
        array: (String, String),
    ) -> Result<Option<ExportRecord>, ControlError> {
        self.check_open()?;
        let (record, known) = record_of(request, config, array)?;
        if known {
            return Ok(None);
        }
        let shared = self.servers.contains_key(&record.listen)
            || config.exports.iter().any(|other| other.listen == record.listen);
        if !shared {
            try_listen(parse_listen(&record.listen)?)?;
        }
        Ok(Some(record))
    }

    fn export_change(&self, result: &str, record: &ExportRecord) -> ExportChange {
        ExportChange {
            result: result.to_owned(),
            export: Some(self.export_message(record)),
            plan: Vec::new(),
        }
    }

    /// Puts an export on its server, which is started if need be. Returns the address, with its port.
    fn offer(&mut self, record: &ExportRecord) -> Result<String, ControlError> {
        let at = self.find_running(&record.array)?;
        let array = &self.running[at].array;
        let export = Export {
            name: record.name.clone(),
            description: format!("Strake array {}", array.name()),
            device: array.device(),
            extents: Some(array.extents()),
            read_only: record.read_only,
        };
        if let Some(server) = self.servers.get(&record.listen) {
            server.add_export(export)?;
            return Ok(record.listen.clone());
        }
        let server = Server::start(
            parse_listen(&record.listen)?,
            self.core_handles(),
            ServerConfig::default(),
        )?;
        server.add_export(export)?;
        let listen =
            server.address().map_or_else(|| record.listen.clone(), |address| address.to_string());
        self.servers.insert(listen.clone(), server);
        Ok(listen)
    }

    fn withdraw(&mut self, record: &ExportRecord, removal: Removal) -> Result<(), ControlError> {
        let Some(server) = self.servers.get(&record.listen) else { return Ok(()) };
        let there = server.exports().iter().any(|e| e.name == record.name);
        if there {
            server.remove_export(&record.name, removal)?;
        }
        if server.exports().is_empty()
            && let Some(server) = self.servers.remove(&record.listen)
        {
            server.stop()?;
        }
        Ok(())
    }

    pub(crate) fn withdraw_exports_of(&mut self, uuid: &str) -> Result<(), ControlError> {
        let records: Vec<ExportRecord> =
            self.config.exports.iter().filter(|e| e.array == uuid).cloned().collect();
        for record in records {
            self.withdraw(&record, Removal::Force)?;
            self.tell_withdrawn(&record, "together with its array");
        }
        Ok(())
    }

    /// Offers the recorded exports of an array that has just been started.
    pub(crate) fn offer_recorded_exports(&mut self, uuid: &str) {
        let records: Vec<ExportRecord> =
            self.config.exports.iter().filter(|e| e.array == uuid).cloned().collect();
        for record in records {
            match self.offer(&record) {
                Ok(_) => {
                    tracing::info!(export = %record.name, listen = %record.listen, "export offered again");
                    self.export_trouble.remove(&record.name);
                }
                Err(error) => {
                    let what =
                        format!("export {} cannot be offered on {}", record.name, record.listen);
                    let note = Note::new(
                        EventKind::ExportOffline,
                        format!("export/{}", record.name),
                        what,
                    );
                    let remedy = format!(
                        "free the address, or: strake export remove {}, then strake export create",
                        record.name
                    );
                    self.record(note.cause(error.what.clone()).next(remedy));
                    self.export_trouble.insert(record.name, error.what);
                }
            }
        }
    }

    /// Every export with what it has done.
    #[must_use]
    pub fn exports(&self) -> Vec<ExportMessage> {
        self.config.exports.iter().map(|record| self.export_message(record)).collect()
    }

    fn export_message(&self, record: &ExportRecord) -> ExportMessage {
        let stats = self.servers.get(&record.listen).map(Server::exports).unwrap_or_default();
        let stats: Option<ExportStats> = stats.into_iter().find(|s| s.name == record.name);
        let running = self.running.iter().find(|r| r.uuid() == record.array);
        let name =
            self.config.arrays.iter().find(|a| a.uuid == record.array).map(|a| a.name.clone());
        let reason = match (&stats, running) {
            (Some(_), _) => String::new(),
            (None, None) => "its array is not running".to_owned(),
            (None, Some(_)) => self.export_trouble.get(&record.name).cloned().unwrap_or_default(),
        };
        let mut message = ExportMessage {
            name: record.name.clone(),
            array: name.unwrap_or_else(|| record.array.clone()),
            via: "nbd".to_owned(),
            listen: record.listen.clone(),
            read_only: record.read_only,
            uri: uri(&record.listen, &record.name),
            size_bytes: running.map_or(0, |r| r.array.device().info().bytes()),
            state: if stats.is_some() { "online" } else { "offline" }.to_owned(),
            reason,
            ..ExportMessage::default()
        };
        if let Some(stats) = stats {
            message.connections = stats.connections;
            message.reads = stats.reads;
            message.read_bytes = stats.read_bytes;
            message.writes = stats.writes;
            message.write_bytes = stats.written_bytes;
            message.flushes = stats.flushes;
            message.errors = stats.errors;
        }
        message
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
        let Some(at) = self.config.exports.iter().position(|e| e.name == request.name) else {
            let known: Vec<&str> = self.config.exports.iter().map(|e| e.name.as_str()).collect();
            let hint = if known.is_empty() {
                "there is none yet: strake export create ...".to_owned()
            } else {
                format!("there is: {}", known.join(", "))
            };
            let what = format!("there is no export {:?}; {hint}", request.name);
            return Err(ControlError::not_found(what));
        };
        let record = self.config.exports[at].clone();
        let change = self.export_change("changed", &record);
        let mut config = self.config.clone();
        config.exports.remove(at);
        let prepared = self.store.prepare(&config)?;
        self.withdraw(&record, if request.force { Removal::Force } else { Removal::IfUnused })?;
        self.config = prepared.commit()?;
        self.tell_withdrawn(&record, "by a command");
        Ok(change)
    }

    fn tell_withdrawn(&mut self, record: &ExportRecord, cause: &str) {
        self.export_trouble.remove(&record.name);
        let what = format!("export {} was withdrawn", record.name);
        let note = Note::new(EventKind::ExportWithdrawn, format!("export/{}", record.name), what);
        self.record(note.cause(cause));
    }
}
