//! The exports that are offered, each by the server of its address.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use strake_block::{BlockDevice, ExtentSource};
use strake_engine::Array;
use strake_export_nbd::{Removal, Rights, SharedRights};
use strake_export_nvmet::Leaving;
use strake_reactor::CoreHandle;
use strake_units::Nanos;

use crate::error::ControlError;
use crate::events::{EventKind, Note, WallClock};
use crate::exports::address_reports::AddressReports;
use crate::exports::keys::keys_of;
use crate::exports::limits_in_use::LimitsInUse;
use crate::exports::rejections::note_of;
use crate::exports::servers::{self, Clients, ExportServer};
use crate::record::store::{Config, ExportRecord};
use crate::state::records::Records;

/// What an export offers to clients.
pub(crate) struct Offered {
    /// The device.
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The source of unwritten blocks, if there is one.
    pub(crate) extents: Option<Arc<dyn ExtentSource>>,
    /// The description for clients.
    pub(crate) description: String,
}

impl Offered {
    /// Returns what an export of an array offers.
    pub(crate) fn array(array: &Array) -> Self {
        Self {
            device: array.device(),
            extents: Some(array.extents()),
            description: format!("Strake array {}", array.name()),
        }
    }

    /// Returns what an export of the volume `name`, as POOL/NAME, offers.
    pub(crate) fn volume(device: Arc<dyn BlockDevice>, name: &str) -> Self {
        Self { device, extents: None, description: format!("Strake volume {name}") }
    }
}

/// The servers by their addresses, and what was reported of them and of the exports.
#[derive(Default)]
pub(crate) struct Exports {
    servers: BTreeMap<String, Arc<ExportServer>>,
    address_reports: AddressReports,
    /// Why each recorded export that is not offered is not, by its name.
    pub(crate) trouble: BTreeMap<String, String>,
    /// When they were last tried again.
    pub(crate) retried: Option<Instant>,
    /// When the state directory last refused to record the end of replaced secrets and keys; `None` if it did not.
    pub(crate) withdrawal_refused: Option<Instant>,
    /// Exports whose reservations were reported as not recorded.
    unrecorded: BTreeSet<String>,
    /// What the reservations of each array leave to clients that cannot register, by the identity of the array.
    rights: BTreeMap<String, Arc<SharedRights>>,
    /// The limits of I/O.
    pub(crate) limits: LimitsInUse,
    clock: WallClock,
}

impl Exports {
    /// No servers. `clock` decides which replaced keys of hosts are still accepted.
    pub(crate) fn new(clock: WallClock, limits: LimitsInUse) -> Self {
        Self { clock, limits, ..Self::default() }
    }

    /// What serves an address.
    pub(crate) fn at(&self, listen: &str) -> Option<&Arc<ExportServer>> {
        self.servers.get(listen)
    }

    /// All servers.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Arc<ExportServer>> {
        self.servers.values()
    }

    /// The servers by their addresses, to be stopped.
    pub(crate) fn take(&mut self) -> BTreeMap<String, Arc<ExportServer>> {
        std::mem::take(&mut self.servers)
    }

    fn start(
        &self,
        record: &ExportRecord,
        records: &Records,
        cores: Vec<CoreHandle>,
    ) -> Result<ExportServer, ControlError> {
        let server = ExportServer::start(record, cores)?;
        let now_us = self.clock.now_us();
        // Known before there is anything to connect to.
        for host in &records.hosts {
            server.set_keys(&host.nqn, &keys_of(&host.at(now_us))?);
        }
        server.refer(&records.referrals)?;
        Ok(server)
    }

    /// The rights of clients of an array that cannot register. Until an export with reservations is offered, what is
    /// recorded decides.
    fn rights_of(&mut self, array: &str, records: &Records) -> Arc<SharedRights> {
        let known = self.rights.entry(array.to_owned()).or_insert_with(|| {
            let rights = SharedRights::default();
            rights.set(records.recorded_rights(array));
            Arc::new(rights)
        });
        Arc::clone(known)
    }

    /// The same, now; all if no export of the array was offered.
    pub(crate) fn rights(&self, array: &str) -> Rights {
        self.rights.get(array).map_or(Rights::All, |rights| rights.get())
    }

    /// Has what is recorded decide about the rights again: the export of the array with reservations is not offered.
    pub(crate) fn reread_rights(&self, array: &str, records: &Records) {
        if let Some(rights) = self.rights.get(array) {
            rights.set(records.recorded_rights(array));
        }
    }

    /// Forgets the rights of an array that has no exports: its reservations may be other ones when it is back.
    pub(crate) fn forget_rights(&mut self, array: &str) {
        self.rights.remove(array);
    }

    /// Puts an export on its server, which is started if need be. Returns the address, with its port.
    pub(crate) fn offer(
        &mut self,
        record: &ExportRecord,
        offered: &Offered,
        records: &Records,
        cores: Vec<CoreHandle>,
    ) -> Result<String, ControlError> {
        let rights = self.rights_of(&record.subject(), records);
        let ledger = Arc::new(records.ledger_of(record).obeyed(Arc::clone(&rights)));
        let limits = self.limits.gate_of(record, records);
        let add =
            |server: &ExportServer| server.add(record, offered, Clients { ledger, rights, limits });
        if let Some(server) = self.at(&record.listen) {
            add(server)?;
            return Ok(record.listen.clone());
        }
        let server = self.start(record, records, cores)?;
        add(&server)?;
        let address = server.address();
        let listen = address.map_or_else(|| record.listen.clone(), |address| address.to_string());
        self.servers.insert(listen.clone(), Arc::new(server));
        Ok(listen)
    }

    /// Lets hosts find an export that is not offered yet, if its address allows that, so that they wait: its array is
    /// not started yet, or an operator has to decide what to do. What cannot be announced is tried again with the
    /// array, and reported then.
    pub(crate) fn announce_if_absent(
        &mut self,
        record: &ExportRecord,
        records: &Records,
        cores: Vec<CoreHandle>,
    ) {
        if record.nvme.is_none() || self.at(&record.listen).is_some_and(|s| s.offers(record)) {
            return;
        }
        if let Err(error) = self.announce(record, records, cores) {
            tracing::warn!(export = %record.name, reason = %error, "export not announced");
        }
    }

    fn announce(
        &mut self,
        record: &ExportRecord,
        records: &Records,
        cores: Vec<CoreHandle>,
    ) -> Result<(), ControlError> {
        if let Some(server) = self.at(&record.listen) {
            return server.announce(record);
        }
        let server = self.start(record, records, cores)?;
        server.announce(record)?;
        self.servers.insert(record.listen.clone(), Arc::new(server));
        Ok(())
    }

    /// Withdraws an export, and stops its server when that has no other. The rights of other clients of the array stay
    /// as they are.
    pub(crate) fn withdraw(
        &mut self,
        record: &ExportRecord,
        removal: Removal,
    ) -> Result<(), ControlError> {
        let Some(server) = self.at(&record.listen) else { return Ok(()) };
        if server.offers(record) {
            server.remove(record, removal)?;
        }
        if server.is_empty()
            && let Some(server) = self.servers.remove(&record.listen)
        {
            servers::stop(server)?;
        }
        Ok(())
    }

    /// The exports of an array, each with what serves its address.
    pub(crate) fn of_array<'a>(
        &'a self,
        uuid: &str,
        config: &'a Config,
    ) -> impl Iterator<Item = (&'a ExportRecord, &'a ExportServer)> {
        let of_it = config.exports.iter().filter(move |e| e.array == uuid);
        of_it.filter_map(|record| Some((record, &**self.at(&record.listen)?)))
    }

    /// Has hosts of an array wait that goes out of service and will come back. What is in flight yet is returned.
    pub(crate) fn suspend(&self, uuid: &str, config: &Config) -> Vec<Leaving> {
        self.of_array(uuid, config).filter_map(|(record, server)| server.suspend(record)).collect()
    }

    /// The same for an array that is started again at once: what they send meanwhile waits for it.
    pub(crate) fn pause(&self, uuid: &str, config: &Config) -> Vec<Leaving> {
        self.of_array(uuid, config).filter_map(|(record, server)| server.pause(record)).collect()
    }

    /// Has these hosts go on with the array when it is back: it has everything that it acknowledged.
    pub(crate) fn keep_instances(&self, uuid: &str, config: &Config) {
        self.of_array(uuid, config).for_each(|(record, server)| server.keep_instance(record));
    }

    /// Has hosts that find it not back begin again with it, whenever it comes.
    pub(crate) fn forget_instances(&self, uuid: &str, config: &Config) {
        self.of_array(uuid, config).for_each(|(record, server)| server.forget_instance(record));
    }

    /// Disconnects those clients of such an array that cannot be made to wait. None of its requests is in flight.
    pub(crate) fn disconnect_clients(&mut self, uuid: &str, config: &Config) {
        for record in config.exports.iter().filter(|e| e.array == uuid && e.nvme.is_none()) {
            if let Err(error) = self.withdraw(record, Removal::Force) {
                tracing::warn!(export = %record.name, reason = %error, "clients not disconnected");
            }
        }
    }

    /// Why hosts of an export could not change reservations the last time.
    pub(crate) fn unrecorded(&self, record: &ExportRecord) -> Option<String> {
        let why = self.at(&record.listen)?.reservation_trouble(record)?;
        Some(format!("a change of its reservations could not be recorded and was refused: {why}"))
    }

    /// What to report of changes of reservations that could not be recorded, of each export once until one could
    /// be.
    pub(crate) fn unrecorded_news(&mut self, config: &Config) -> Vec<Note> {
        let known = config.exports.iter();
        let now: BTreeMap<String, String> = known
            .filter_map(|record| Some((record.name.clone(), self.unrecorded(record)?)))
            .collect();
        let news = now.iter().filter(|(name, _)| !self.unrecorded.contains(*name));
        let note = |(name, why): (&String, &String)| {
            let what = format!("hosts cannot change the reservations of export {name}");
            let note = Note::new(EventKind::ReservationsUnrecorded, format!("export/{name}"), what);
            let next = "make the state directory writable; hosts can retry at any time";
            note.cause(why.clone()).next(next)
        };
        let notes = news.map(note).collect();
        self.unrecorded = now.into_keys().collect();
        notes
    }

    /// What to report of addresses that turned connections away, or at which negotiations panicked.
    pub(crate) fn address_news(&mut self, now: Instant) -> Vec<Note> {
        let counts = self.servers.iter().map(|(at, server)| (at.clone(), server.counts()));
        self.address_reports.news(&counts.collect::<Vec<_>>(), now)
    }

    /// The listening addresses, each with the number of connections that it has turned away.
    pub(crate) fn turned_away(&self) -> Vec<(String, u64)> {
        self.servers.iter().map(|(at, server)| (at.clone(), server.turned_away())).collect()
    }

    /// What to report at `now` of hosts that were rejected.
    pub(crate) fn rejections(&self, now: Nanos) -> Vec<Note> {
        let due = |(listen, server): (&String, &Arc<ExportServer>)| -> Vec<Note> {
            let rejections = server.take_rejections(now);
            rejections.iter().map(|rejection| note_of(listen, rejection)).collect()
        };
        self.servers.iter().flat_map(due).collect()
    }
}
