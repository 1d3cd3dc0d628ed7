//! The subsystems of a target, and the access of hosts to them.

use crate::audit::Audit;
use crate::controller::{Controller, Host, Place};
use crate::discovery_connections::{DiscoveryConnection, DiscoveryConnections};
use crate::discovery_log::{DiscoveryLog, Reader};
use crate::handshake::{Names, Refusal};
use crate::kept::Kept;
use crate::limits::{
    ADMIN_ENTRIES, CONNECTIONS_OF_HOST_MAX, EXPORTS_MAX, HOSTS_MAX, IO_ENTRIES, KEEP_ALIVE_MS_MAX,
    NAMESPACES_MAX,
};
use crate::namespace::{Export, Facts, Leaving, Served};
use crate::range_lock::Gate;
use crate::referral::{self, Referral};
use crate::reservation::Reservations;
use crate::reservation_thread::{self, Asker, ReservationThread, Wish};
use crate::stats::ControllerStats;
use crate::subsystem::{Subsystem, is_number};
use crate::target::TargetConfig;
use crate::tls::TlsKeys;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strake_export_net::{ConnectionSlot, ExportError, ExportErrorKind, ExportStats, Removal};
use strake_nvme_auth::{self as auth, Exchange, Fresh, Groups, Keys};
use strake_nvme_wire::fabrics::{ANY_CONTROLLER, Connect, ConnectData, Part};
use strake_nvme_wire::log::Security;
use strake_nvme_wire::{Status, log, nqn};
use strake_reactor::CoreHandle;
use strake_units::Nanos;

/// The subsystem that a host connects to.
pub(crate) struct Claim {
    pub(crate) controller: Arc<Controller>,
    pub(crate) queue: u16,
}

/// An admitted connection: its queue and its connection slot.
pub(crate) struct Admission {
    pub(crate) place: Place,
    pub(crate) room: Room,
}

/// The connection slot of a connection.
pub(crate) enum Room {
    /// A slot of a subsystem.
    ConnectionSlot(ConnectionSlot<Subsystem>),
    /// A slot of discovery.
    DiscoveryConnection(DiscoveryConnection),
}

/// The object that must be quiet before an export is removed.
pub(crate) enum Withdrawn {
    /// The export was the last namespace: all connected hosts are disconnected.
    Subsystem(Arc<Subsystem>),
    /// Other namespaces remain: only the device of this one is released, if it has one.
    Namespace(Arc<Subsystem>, Option<Arc<Served>>),
}

/// All subsystems of a target. It is used by control threads, and by data cores for admin commands.
pub(crate) struct Registry {
    /// `None` after the target was stopped.
    subsystems: Mutex<Option<BTreeMap<String, Arc<Subsystem>>>>,
    cores: Vec<CoreHandle>,
    connections_per_export: u32,
    pause_time_max: Nanos,
    /// Incremented by every change of the discovery log page.
    generation: AtomicU64,
    pub(crate) discovery_connections: Arc<DiscoveryConnections>,
    discovery_log: DiscoveryLog,
    /// Referrals to other discovery services.
    referrals: Mutex<Vec<Referral>>,
    /// The thread that changes reservations.
    pub(crate) reservation_thread: ReservationThread,
    /// The valid authentication keys of hosts, newest first, by NQN.
    keys: Mutex<BTreeMap<String, Vec<Keys>>>,
    /// TLS keys of hosts that must use TLS.
    pub(crate) tls: TlsKeys,
    /// Counters of rejected hosts.
    pub(crate) audit: Audit,
    /// The number of connections that have begun.
    begun: AtomicU64,
    /// The connections that had begun when a host was disconnected last. They get no controller, because they may have
    /// authenticated with secrets or keys that were replaced since.
    cutoffs: Mutex<BTreeMap<String, u64>>,
}

impl Registry {
    pub(crate) fn new(
        cores: Vec<CoreHandle>,
        config: &TargetConfig,
        reservation_thread: ReservationThread,
    ) -> Self {
        Self {
            subsystems: Mutex::new(Some(BTreeMap::new())),
            cores,
            connections_per_export: config.connections_per_export_max,
            pause_time_max: config.pause_time_max,
            generation: AtomicU64::new(1),
            discovery_connections: Arc::new(DiscoveryConnections::new(config.visit_silence_max)),
            discovery_log: DiscoveryLog::default(),
            referrals: Mutex::new(Vec::new()),
            reservation_thread,
            keys: Mutex::new(BTreeMap::new()),
            tls: TlsKeys::default(),
            audit: Audit::default(),
            begun: AtomicU64::new(0),
            cutoffs: Mutex::new(BTreeMap::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<BTreeMap<String, Arc<Subsystem>>>> {
        self.subsystems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_change(&self) {
        // The Release pairs with the Acquire in `generation`: a thread that reads the number finds the change.
        self.generation.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// Wakes the cores, so that connections apply a change.
    pub(crate) fn wake(&self) {
        for core in &self.cores {
            core.wake();
        }
    }

    /// A number that changes with the discovery log page.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn add(&self, export: &Export) -> Result<(), ExportError> {
        let served = self.prepare(export)?;
        let mut subsystems = self.lock();
        let subsystems = subsystems.as_mut().ok_or_else(stopped)?;
        if let Some(known) =
            subsystems.get(&export.nqn).filter(|known| known.connection_slots.is_open())
        {
            known.put(export, served)?;
            self.wake();
            return Ok(());
        }
        if subsystems.len() >= EXPORTS_MAX {
            let what =
                format!("cannot export {:?}: there are {EXPORTS_MAX} subsystems", export.nqn);
            return Err(ExportError::new(ExportErrorKind::TooMany, what));
        }
        match subsystems.entry(export.nqn.clone()) {
            Entry::Occupied(entry) => {
                let what = format!("subsystem {:?} is being removed", entry.key());
                Err(ExportError::new(ExportErrorKind::Duplicate, what))
            }
            Entry::Vacant(entry) => {
                let mut subsystem = Subsystem::of(export, self.connections_per_export);
                subsystem.pause_time_max = self.pause_time_max;
                subsystem.put(export, served)?;
                entry.insert(Arc::new(subsystem));
                self.note_change();
                Ok(())
            }
        }
    }

    /// The device of an export as it is served, if there is a device.
    fn prepare(&self, export: &Export) -> Result<Option<Arc<Served>>, ExportError> {
        let refuse = |why: String| {
            let what = format!("cannot export {:?}: {why}", export.nqn);
            Err(ExportError::new(ExportErrorKind::BadExport, what))
        };
        for name in export.hosts.iter().chain([&export.nqn]) {
            if let Err(error) = nqn::check(name) {
                return refuse(format!("{name:?} is not a valid NQN: {error}"));
            }
        }
        if export.nqn == nqn::DISCOVERY {
            return refuse("this name belongs to discovery".to_owned());
        }
        if export.hosts.is_empty() || export.hosts.len() > HOSTS_MAX {
            return refuse(format!("1 to {HOSTS_MAX} hosts can be allowed to connect"));
        }
        if !is_number(export.namespace) {
            return refuse(format!("namespaces are numbered from 1 to {NAMESPACES_MAX}"));
        }
        let Some(device) = &export.device else { return Ok(None) };
        // A device that may have lost acknowledged writes gets a new instance: a failed array returns errors until it
        // is started again as another device.
        let (known, info) = (self.find(&export.nqn), device.info());
        let gate = known.as_ref().and_then(|known| known.paused_gate(export.namespace));
        let instance = match known.and_then(|known| known.next_instance(export.namespace, &info)) {
            Some(same) => same,
            None => fresh_instance(&export.nqn)?,
        };
        let Some(facts) = Facts::of(&info, export, instance) else {
            return refuse("its device takes less than 1 MiB at once".to_owned());
        };
        let (device, kept) = (Arc::clone(device), self.kept_of(export)?);
        let gate = gate.unwrap_or_else(|| Arc::new(Gate::new(self.cores.clone())));
        let served = Served::new(
            export.namespace,
            device,
            facts,
            kept,
            (gate, export.limits.clone()),
            self.cores.len(),
        );
        Ok(Some(Arc::new(served)))
    }

    /// The current reservations of a namespace, or the recorded ones.
    fn kept_of(&self, export: &Export) -> Result<Arc<Kept>, ExportError> {
        let known = self.find(&export.nqn).and_then(|known| known.kept(export.namespace).ok());
        if let Some(kept) = known {
            return Ok(kept);
        }
        Kept::open(export.ledger.clone()).map(Arc::new).map_err(|why| {
            let what = format!(
                "cannot export {:?}: the reservations of namespace {} cannot be known: {why}",
                export.nqn, export.namespace
            );
            ExportError::new(ExportErrorKind::BadReservations, what)
        })
    }

    fn place(&self, nqn: &str, namespace: u32) -> Option<reservation_thread::Place> {
        let subsystem = self.find(nqn)?;
        let kept = subsystem.kept(namespace).ok()?;
        Some(reservation_thread::Place { subsystem, namespace, kept })
    }

    /// The reservations of a namespace that has or had a device.
    pub(crate) fn reservations(&self, nqn: &str, namespace: u32) -> Option<Reservations> {
        self.place(nqn, namespace).map(|place| place.kept.reservations())
    }

    /// The reason why the last change of its reservations was not recorded.
    pub(crate) fn reservation_trouble(&self, nqn: &str, namespace: u32) -> Option<String> {
        self.place(nqn, namespace)?.kept.trouble()
    }

    /// Clears the reservations of a namespace; `None` if there is no such namespace.
    pub(crate) fn clear_reservations(&self, nqn: &str, namespace: u32) -> Option<Status> {
        let place = self.place(nqn, namespace)?;
        Some(self.reservation_thread.ask(&Asker::Operator, vec![place], Wish::Clear).wait())
    }

    /// Closes an export to new commands, and its subsystem to new connections if it has no other namespace. The export
    /// stays in the registry until [`forget`](Self::forget): its name is in use until its last I/O has completed.
    pub(crate) fn withdraw(
        &self,
        nqn: &str,
        namespace: u32,
        removal: Removal,
    ) -> Result<Withdrawn, ExportError> {
        let subsystems = self.lock();
        let subsystems = subsystems.as_ref().ok_or_else(stopped)?;
        let known = subsystems.get(nqn).filter(|known| known.uuid(namespace).is_some());
        let subsystem = known.ok_or_else(|| {
            let what = format!("there is no namespace {namespace} in a subsystem {nqn:?}");
            ExportError::new(ExportErrorKind::Unknown, what)
        })?;
        let taken = subsystem.connection_slots.taken();
        if removal == Removal::IfUnused && taken > 0 {
            let what = format!(
                "subsystem {nqn:?} has {taken} connected queues: disconnect its hosts or remove it by force"
            );
            return Err(ExportError::new(ExportErrorKind::InUse, what));
        }
        if subsystem.numbers().len() > 1 {
            let served = subsystem.close(namespace);
            self.wake();
            return Ok(Withdrawn::Namespace(Arc::clone(subsystem), served));
        }
        subsystem.connection_slots.close();
        self.note_change();
        Ok(Withdrawn::Subsystem(Arc::clone(subsystem)))
    }

    /// Replaces the hosts that may connect to a subsystem; `None` if there is no such subsystem.
    pub(crate) fn set_hosts(&self, nqn: &str, hosts: &[String]) -> Option<Arc<Subsystem>> {
        let subsystem = self.find(nqn)?;
        subsystem.set_hosts(hosts);
        self.note_change();
        Some(subsystem)
    }

    /// The number of a connection that begins now.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The map of a poisoned lock is consistent: each change is one step.
    fn cutoffs(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.cutoffs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if the host was disconnected after the connection with this number had begun.
    pub(crate) fn is_cut_off(&self, host: &str, began: u64) -> bool {
        self.cutoffs().get(host).is_some_and(|cutoff| began <= *cutoff)
    }

    /// Dismisses the controllers of a host, and returns the subsystems to which it had connected queues. Connections in
    /// progress get no controller.
    pub(crate) fn dismiss(&self, host: &str) -> Vec<Arc<Subsystem>> {
        {
            // This precedes the scan of the controllers: a connection adds its controller before it reads the number.
            let mut cutoffs = self.cutoffs();
            cutoffs.insert(host.to_owned(), self.begun.load(Ordering::Acquire));
            if cutoffs.len() > HOSTS_MAX {
                // A handshake has a time limit, so the oldest number is no longer needed.
                let oldest = cutoffs.iter().min_by_key(|(_, cutoff)| **cutoff);
                let oldest = oldest.map(|(host, _)| host.clone());
                oldest.and_then(|host| cutoffs.remove(&host));
            }
        }
        let mut known: Vec<_> = self.lock().iter().flat_map(BTreeMap::values).cloned().collect();
        known.retain(|subsystem| subsystem.taken_by(host) > 0);
        known.iter().for_each(|subsystem| subsystem.dismiss(|other| other == host));
        known
    }

    /// Stops serving the device of a namespace. The namespace remains without a device.
    pub(crate) fn detach(&self, nqn: &str, namespace: u32) -> Leaving {
        let served = self.find(nqn).and_then(|subsystem| subsystem.close(namespace));
        self.wake();
        Leaving::new(served)
    }

    /// As [`detach`](Self::detach), but commands wait for the next device.
    pub(crate) fn pause(&self, nqn: &str, namespace: u32) -> Leaving {
        let served = self.find(nqn).and_then(|subsystem| subsystem.pause(namespace));
        self.wake();
        Leaving::new(served)
    }

    /// Marks the next device of a namespace as the same instance.
    pub(crate) fn keep_instance(&self, nqn: &str, namespace: u32) {
        if let Some(subsystem) = self.find(nqn) {
            subsystem.keep_instance(namespace);
        }
    }

    /// Removes this mark.
    pub(crate) fn forget_instance(&self, nqn: &str, namespace: u32) {
        if let Some(subsystem) = self.find(nqn) {
            subsystem.forget_instance(namespace);
            self.wake();
        }
    }

    /// Removes a withdrawn export. Its reservations are no longer recorded after this returns.
    pub(crate) fn forget(&self, withdrawn: &Withdrawn, namespace: u32) {
        let kept = match withdrawn {
            Withdrawn::Namespace(subsystem, _) => {
                let kept = subsystem.take(namespace);
                self.wake();
                kept
            }
            Withdrawn::Subsystem(subsystem) => {
                if let Some(subsystems) = self.lock().as_mut() {
                    subsystems.remove(&subsystem.nqn);
                }
                subsystem.take(namespace)
            }
        };
        kept.iter().for_each(|kept| kept.wait_written());
    }

    /// Closes the registry and returns its subsystems.
    pub(crate) fn close(&self) -> Vec<Arc<Subsystem>> {
        self.lock().take().into_iter().flat_map(BTreeMap::into_values).collect()
    }

    pub(crate) fn stats(&self) -> Vec<ExportStats> {
        self.lock().iter().flat_map(BTreeMap::values).flat_map(|known| known.stats()).collect()
    }

    /// Stats of the controllers of a subsystem; empty if there is no subsystem of this name.
    pub(crate) fn controllers(&self, nqn: &str) -> Vec<ControllerStats> {
        let known = self.lock().as_ref().and_then(|subsystems| subsystems.get(nqn).cloned());
        known.map_or_else(Vec::new, |subsystem| subsystem.controller_stats())
    }

    pub(crate) fn offers(&self, nqn: &str, namespace: u32) -> bool {
        let subsystems = self.lock();
        let known = subsystems.as_ref().and_then(|subsystems| subsystems.get(nqn));
        known.is_some_and(|known| known.uuid(namespace).is_some())
    }

    /// True if there is no subsystem.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().as_ref().is_none_or(BTreeMap::is_empty)
    }

    fn referrals(&self) -> MutexGuard<'_, Vec<Referral>> {
        self.referrals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the list of referrals.
    pub(crate) fn refer(&self, referrals: Vec<Referral>) -> Result<(), ExportError> {
        referral::check(&referrals)?;
        let mut known = self.referrals();
        if *known != referrals {
            *known = referrals;
            drop(known);
            self.note_change();
        }
        Ok(())
    }

    /// The discovery log page for a host that reached this target at `address`: only the subsystems to which it may
    /// connect, and no referral to this address.
    pub(crate) fn discovery_page(&self, host: &str, address: SocketAddr) -> Arc<[u8]> {
        // The number is read before the contents: a host that gets an outdated number reads the page again.
        let generation = self.generation();
        let reader = Reader { host, address, has_key: self.tls.has(host) };
        self.discovery_log.page(reader, generation, || self.compose_discovery(reader, generation))
    }

    fn compose_discovery(&self, reader: Reader<'_>, generation: u64) -> Vec<u8> {
        let Reader { host, address, has_key } = reader;
        // The lock is held only for the copy, because hosts control how often they read the page.
        let known: Vec<_> = self.lock().iter().flat_map(BTreeMap::values).cloned().collect();
        let is_open =
            |known: &&Arc<Subsystem>| known.connection_slots.is_open() && known.admits(host);
        let open: Vec<_> = known.iter().filter(is_open).collect();
        let mut referrals = self.referrals().clone();
        referrals.retain(|referral| !referral.is_at(address));
        let records = open.len() + referrals.len();
        let mut page = log::discovery_header(generation, records as u64).to_vec();
        for subsystem in open {
            let is_secure = subsystem.secure || has_key;
            let security = if is_secure { Security::Tls } else { Security::None };
            referral::with_portal(address, security, |portal| {
                page.extend_from_slice(&log::discovery_entry(&subsystem.nqn, portal));
            });
        }
        page.extend(referrals.iter().flat_map(Referral::entry));
        page
    }

    fn find(&self, nqn: &str) -> Option<Arc<Subsystem>> {
        self.lock().as_ref()?.get(nqn).filter(|known| known.connection_slots.is_open()).cloned()
    }

    /// The number of further queues of a subsystem that a host can connect, within its limit for all subsystems.
    pub(crate) fn room_for(&self, subsystem: &Subsystem, host: &str) -> u32 {
        let taken: u32 =
            self.lock().iter().flat_map(BTreeMap::values).map(|known| known.taken_by(host)).sum();
        CONNECTIONS_OF_HOST_MAX.saturating_sub(taken).min(subsystem.room_for(host))
    }

    pub(crate) fn open_admin(
        &self,
        connect: &Connect,
        data: &ConnectData,
        names: Names<'_>,
    ) -> Result<Claim, Refusal> {
        if data.controller != ANY_CONTROLLER {
            return Err(Refusal::of(Part::Data, ConnectData::CONTROLLER_AT));
        }
        if !(1..ADMIN_ENTRIES).contains(&connect.size) {
            return Err(Refusal::of(Part::Command, Connect::SIZE_AT));
        }
        if connect.keep_alive_ms > KEEP_ALIVE_MS_MAX {
            return Err(Refusal::of(Part::Command, Connect::KEEP_ALIVE_AT));
        }
        let host = Host { nqn: names.host.to_owned(), id: data.host_id };
        let subsystem = self.admit(names)?;
        let id = match &subsystem {
            Some(subsystem) => subsystem.next_number(),
            None => self.discovery_connections.next_number(),
        };
        let controller = Arc::new(Controller::new(id, host, subsystem, self.cores.clone()));
        Ok(Claim { controller, queue: 0 })
    }

    /// True if any subsystem lists the host.
    pub(crate) fn lists(&self, host: &str) -> bool {
        self.lock().iter().flat_map(BTreeMap::values).any(|known| known.admits(host))
    }

    /// Whether a subsystem requires TLS.
    pub(crate) fn is_secure(&self, subsystem: &str) -> bool {
        self.find(subsystem).is_some_and(|known| known.secure)
    }

    /// The subsystem of a Connect command, if it lists the host. Discovery accepts a host that any subsystem lists.
    fn admit(&self, names: Names<'_>) -> Result<Option<Arc<Subsystem>>, Refusal> {
        let not_allowed = Refusal::plain(Status::INVALID_HOST);
        if names.subsystem == nqn::DISCOVERY {
            return if self.lists(names.host) { Ok(None) } else { Err(not_allowed) };
        }
        let found =
            self.find(names.subsystem).ok_or(Refusal::of(Part::Data, ConnectData::SUBSYSTEM_AT))?;
        if found.admits(names.host) { Ok(Some(found)) } else { Err(not_allowed) }
    }

    pub(crate) fn open_io(
        &self,
        connect: &Connect,
        data: &ConnectData,
        names: Names<'_>,
    ) -> Result<Claim, Refusal> {
        let found =
            self.find(names.subsystem).ok_or(Refusal::of(Part::Data, ConnectData::SUBSYSTEM_AT))?;
        let controller = found
            .controller(data.controller)
            .ok_or(Refusal::of(Part::Data, ConnectData::CONTROLLER_AT))?;
        // A host cannot connect to the controller of another host (Base, section 6.3).
        if (controller.host.nqn.as_str(), controller.host.id) != (names.host, data.host_id) {
            return Err(Refusal::of(Part::Data, ConnectData::HOST_AT));
        }
        if !(1..IO_ENTRIES).contains(&connect.size) {
            return Err(Refusal::of(Part::Command, Connect::SIZE_AT));
        }
        if connect.queue > crate::limits::QUEUES_MAX {
            return Err(Refusal::of(Part::Command, Connect::QUEUE_AT));
        }
        Ok(Claim { controller, queue: connect.queue })
    }

    /// Sets the valid authentication keys of a host, newest first; without keys, its NQN is sufficient. Existing
    /// connections stay.
    pub(crate) fn set_keys(&self, host: &str, keys: Vec<Keys>) {
        let mut known = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match keys.is_empty() {
            false => known.insert(host.to_owned(), keys),
            true => known.remove(host),
        };
    }

    /// The authentication that a host must complete, if it must. Discovery requires none, because it returns names
    /// only.
    pub(crate) fn proof(&self, names: Names<'_>) -> Result<Option<Exchange>, Refusal> {
        let known = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(keys) = known.get(names.host).filter(|_| names.subsystem != nqn::DISCOVERY) else {
            return Ok(None);
        };
        let mut fresh = Fresh { challenge: [0; 64], exponent: [0; 64], sequence: 0 };
        let mut sequence = [0; 4];
        for bytes in [&mut fresh.challenge[..], &mut fresh.exponent, &mut sequence] {
            getrandom::fill(bytes).map_err(|_| Refusal::plain(Status::INTERNAL))?;
        }
        // Zero would mean that there is no challenge (Base, section 8.13.5.4).
        fresh.sequence = u32::from_le_bytes(sequence).max(1);
        let names =
            auth::Names { host: names.host.to_owned(), subsystem: names.subsystem.to_owned() };
        Ok(Some(Exchange::new(names, keys.clone(), fresh, Groups::default())))
    }
}

fn fresh_instance(nqn: &str) -> Result<[u8; 16], ExportError> {
    let mut instance = [0; 16];
    getrandom::fill(&mut instance).map_err(|error| {
        let what = format!("cannot export {nqn:?}: no random numbers: {error}");
        ExportError::new(ExportErrorKind::System, what)
    })?;
    Ok(instance)
}

fn stopped() -> ExportError {
    ExportError::new(ExportErrorKind::Stopped, "the NVMe/TCP target is stopping")
}
