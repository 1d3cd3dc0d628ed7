//! The subsystems of a target, and who may connect to which.

use crate::audit::Audit;
use crate::controller::{Controller, Host, Place};
use crate::discovery_connections::{DiscoveryConnection, DiscoveryConnections};
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
use strake_nvme_auth::{self as auth, Exchange, Fresh, Keys};
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

/// What a connection is for.
pub(crate) struct Admission {
    pub(crate) place: Place,
    pub(crate) room: Room,
}

/// Where there is room for a connection.
pub(crate) enum Room {
    /// At a subsystem.
    ConnectionSlot(ConnectionSlot<Subsystem>),
    /// At discovery.
    DiscoveryConnection(DiscoveryConnection),
}

/// What is to be waited for before an export is removed.
pub(crate) enum Withdrawn {
    /// It was the last namespace: all connected hosts leave.
    Subsystem(Arc<Subsystem>),
    /// There are others: the device of this one, if it has one, is let go.
    Namespace(Arc<Subsystem>, Option<Arc<Served>>),
}

/// All subsystems of a target. Control threads, and data cores for what admin queues ask.
pub(crate) struct Registry {
    /// `None` once the target is stopping.
    subsystems: Mutex<Option<BTreeMap<String, Arc<Subsystem>>>>,
    cores: Vec<CoreHandle>,
    connections_per_export: u32,
    pause_time_max: Nanos,
    /// Changes with every change of what discovery tells.
    generation: AtomicU64,
    pub(crate) discovery_connections: Arc<DiscoveryConnections>,
    /// Other discovery services that hosts are referred to.
    referrals: Mutex<Vec<Referral>>,
    /// Who changes reservations.
    pub(crate) reservation_thread: ReservationThread,
    /// What hosts have to prove themselves with, by their NQNs.
    keys: Mutex<BTreeMap<String, Keys>>,
    /// Keys of those that have to use TLS.
    pub(crate) tls: TlsKeys,
    /// Rejected hosts.
    pub(crate) audit: Audit,
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
            referrals: Mutex::new(Vec::new()),
            reservation_thread,
            keys: Mutex::new(BTreeMap::new()),
            tls: TlsKeys::default(),
            audit: Audit::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<BTreeMap<String, Arc<Subsystem>>>> {
        self.subsystems.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_change(&self) {
        // Release: a thread that sees the number sees what changed.
        self.generation.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// Has connections look at what changed.
    pub(crate) fn wake(&self) {
        for core in &self.cores {
            core.wake();
        }
    }

    /// Changes whenever what discovery tells may have.
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

    /// What of an export is to be served, if its device is there.
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
        // A device that lost what it had acknowledged is not served on: an array that was lost answers with errors
        // until it is started again, as another device.
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
        let served = Served::new(export.namespace, device, facts, kept, gate, self.cores.len());
        Ok(Some(Arc::new(served)))
    }

    /// The reservations that a namespace has yet, or those that are recorded.
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

    /// Why the last change of them that was to be written down was not.
    pub(crate) fn reservation_trouble(&self, nqn: &str, namespace: u32) -> Option<String> {
        self.place(nqn, namespace)?.kept.trouble()
    }

    /// Ends them; `None` when there is no such namespace.
    pub(crate) fn clear_reservations(&self, nqn: &str, namespace: u32) -> Option<Status> {
        let place = self.place(nqn, namespace)?;
        Some(self.reservation_thread.ask(&Asker::Operator, vec![place], Wish::Clear).wait())
    }

    /// Closes an export to new commands, and its subsystem to new connections if it has no other namespace. It stays in
    /// the registry until [`forget`](Self::forget): its name is not free before its last I/O has completed.
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

    /// Serves the device of a namespace no more, which stays without it.
    pub(crate) fn detach(&self, nqn: &str, namespace: u32) -> Leaving {
        let served = self.find(nqn).and_then(|subsystem| subsystem.close(namespace));
        self.wake();
        Leaving::new(served)
    }

    /// The same, but has commands wait for the next device.
    pub(crate) fn pause(&self, nqn: &str, namespace: u32) -> Leaving {
        let served = self.find(nqn).and_then(|subsystem| subsystem.pause(namespace));
        self.wake();
        Leaving::new(served)
    }

    /// Has the next device of a namespace count as the one that it had.
    pub(crate) fn keep_instance(&self, nqn: &str, namespace: u32) {
        if let Some(subsystem) = self.find(nqn) {
            subsystem.keep_instance(namespace);
        }
    }

    /// Takes back what was said of it.
    pub(crate) fn forget_instance(&self, nqn: &str, namespace: u32) {
        if let Some(subsystem) = self.find(nqn) {
            subsystem.forget_instance(namespace);
            self.wake();
        }
    }

    /// Removes a withdrawn export. Its reservations are no longer written when this returns.
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

    /// Ends the registry and returns what was in it.
    pub(crate) fn close(&self) -> Vec<Arc<Subsystem>> {
        self.lock().take().into_iter().flat_map(BTreeMap::into_values).collect()
    }

    pub(crate) fn stats(&self) -> Vec<ExportStats> {
        self.lock().iter().flat_map(BTreeMap::values).flat_map(|known| known.stats()).collect()
    }

    /// What the hosts of a subsystem have done; nothing when there is none of that name.
    pub(crate) fn controllers(&self, nqn: &str) -> Vec<ControllerStats> {
        let known = self.lock().as_ref().and_then(|subsystems| subsystems.get(nqn).cloned());
        known.map_or_else(Vec::new, |subsystem| subsystem.controller_stats())
    }

    pub(crate) fn offers(&self, nqn: &str, namespace: u32) -> bool {
        let subsystems = self.lock();
        let known = subsystems.as_ref().and_then(|subsystems| subsystems.get(nqn));
        known.is_some_and(|known| known.uuid(namespace).is_some())
    }

    /// True when there is nothing that a host could connect to.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().as_ref().is_none_or(BTreeMap::is_empty)
    }

    fn referrals(&self) -> MutexGuard<'_, Vec<Referral>> {
        self.referrals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells hosts of these other services and no others.
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

    /// The discovery page for a host that reached this target at `address`: of what is here only what it may connect
    /// to, and no referral to where it is already, which it would follow for nothing.
    pub(crate) fn discovery_page(&self, host: &str, address: SocketAddr) -> Vec<u8> {
        // Read before the contents: a host that gets too old a number reads the page again.
        let generation = self.generation();
        // Copied out, because hosts ask for it as often as they like.
        let known: Vec<_> = self.lock().iter().flat_map(BTreeMap::values).cloned().collect();
        let is_open =
            |known: &&Arc<Subsystem>| known.connection_slots.is_open() && known.admits(host);
        let open: Vec<_> = known.iter().filter(is_open).collect();
        let mut referrals = self.referrals().clone();
        referrals.retain(|referral| !referral.is_at(address));
        let records = open.len() + referrals.len();
        let mut page = log::discovery_header(generation, records as u64).to_vec();
        for subsystem in open {
            let is_secure = subsystem.secure || self.tls.has(host);
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

    /// How many more queues of a subsystem a host can connect, of those it has everywhere.
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

    /// Whether any subsystem has a host on its list.
    pub(crate) fn lists(&self, host: &str) -> bool {
        self.lock().iter().flat_map(BTreeMap::values).any(|known| known.admits(host))
    }

    /// Whether a subsystem requires TLS.
    pub(crate) fn is_secure(&self, subsystem: &str) -> bool {
        self.find(subsystem).is_some_and(|known| known.secure)
    }

    /// Whether a host may connect: to a subsystem that has it on its list, and to discovery when any subsystem has.
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
        // No host joins the controller of another host (Base, section 6.3).
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

    /// What a host has to prove itself with from now on; `None` to believe it by its name. Those that are connected
    /// stay.
    pub(crate) fn set_keys(&self, host: &str, keys: Option<Keys>) {
        let mut known = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        match keys {
            Some(keys) => known.insert(host.to_owned(), keys),
            None => known.remove(host),
        };
    }

    /// The proof that a host owes, if it does. Discovery goes by names: it tells names only.
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
        // Zero would say that nothing was asked (Base, section 8.13.5.4).
        fresh.sequence = u32::from_le_bytes(sequence).max(1);
        let names =
            auth::Names { host: names.host.to_owned(), subsystem: names.subsystem.to_owned() };
        Ok(Some(Exchange::new(names, keys.clone(), fresh)))
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
