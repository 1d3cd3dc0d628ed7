//! A subsystem: its namespaces, the hosts that may connect, and its change counters.

use crate::controller::{CONTROLLER_MAX, Controller, Host};
use crate::kept::Kept;
use crate::limits::{CONNECTIONS_PER_HOST_MAX, NAMESPACES_MAX, PAUSE_TIME_MAX};
use crate::namespace::{Export, Facts, Served};
use crate::range_lock::Gate;
use crate::stats::ControllerStats;
use crate::watch::Watches;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use strake_block::DeviceInfo;
use strake_export_net::{ConnectionSlots, ExportError, ExportErrorKind, ExportStats};
use strake_nvme_wire::Status;
use strake_nvme_wire::log::{Access, AccessGroup};
use strake_nvme_wire::reservation::{HostId, NoticeKind};
use strake_units::Nanos;

/// A subsystem of a target.
pub(crate) struct Subsystem {
    pub(crate) nqn: String,
    /// The hosts that may connect.
    hosts: Mutex<Vec<String>>,
    /// TLS is required.
    pub(crate) secure: bool,
    /// Its connection slots.
    pub(crate) connection_slots: ConnectionSlots,
    controllers: Mutex<Controllers>,
    /// Notified when a queue has left its controller, under the lock of the controllers.
    left: Condvar,
    namespaces: Mutex<Namespaces>,
    /// The change number of the last addition, removal or resize of a namespace.
    listed: AtomicU64,
    /// The change number of the last attach or detach of a device that is reported to hosts.
    reached: AtomicU64,
    /// The change number of the last attach or detach of any device, including pauses.
    moved: AtomicU64,
    /// The reservation changes that its I/O queues have applied.
    pub(crate) watches: Watches,
    /// The time for which commands wait for the next device of a paused namespace.
    pub(crate) pause_time_max: Nanos,
}

/// The controllers of a subsystem.
#[derive(Default)]
struct Controllers {
    there: Vec<Weak<Controller>>,
    /// The last assigned ID.
    last: u16,
}

impl Controllers {
    fn iter(&self) -> impl Iterator<Item = Arc<Controller>> {
        self.there.iter().filter_map(Weak::upgrade)
    }
}

#[derive(Default)]
struct Namespaces {
    there: BTreeMap<u32, Namespace>,
    /// The change number of each namespace; removed namespaces stay, because their removal is still reported.
    listed: BTreeMap<u32, u64>,
    /// The number of changes so far.
    changes: u64,
}

struct Namespace {
    uuid: [u8; 16],
    /// Its device. If the connection slots of the device are closed, the device is being removed.
    served: Option<Arc<Served>>,
    /// The change number of the last attach or detach of its device.
    reached: u64,
    /// The instance of the next device, if that device has every acknowledged write of this one.
    next: Option<[u8; 16]>,
    /// Whether commands wait for the next device, which is expected.
    is_paused: bool,
}

impl Namespace {
    fn online(&self) -> Option<&Arc<Served>> {
        self.served.as_ref().filter(|served| served.connection_slots.is_open())
    }

    /// The device whose commands wait for the next one.
    fn paused(&self) -> Option<&Arc<Served>> {
        self.served.as_ref().filter(|served| self.is_paused && !served.connection_slots.is_open())
    }

    /// The device that hosts see: the served device, or the device before the pause.
    fn seen(&self) -> Option<&Arc<Served>> {
        self.online().or_else(|| self.paused())
    }
}

/// Why a subsystem does not accept a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAdded {
    /// Another controller received the ID while the host authenticated.
    NumberTaken,
    /// The host was removed from the list of hosts while it authenticated.
    NotListed,
    /// Another host NQN uses the host identifier.
    IdInUse,
}

/// The state of a namespace as a host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// The namespace does not exist.
    Absent,
    /// The namespace exists and is inaccessible for now.
    Inaccessible,
    /// The namespace is accessible.
    Online(Facts),
}

impl strake_export_net::Export for Subsystem {
    fn connection_slots(&self) -> &ConnectionSlots {
        &self.connection_slots
    }
}

impl Subsystem {
    /// Creates the subsystem of an export, without namespaces.
    pub(crate) fn of(export: &Export, connection_slots: u32) -> Self {
        Self {
            nqn: export.nqn.clone(),
            hosts: Mutex::new(export.hosts.clone()),
            secure: export.secure,
            connection_slots: ConnectionSlots::new(connection_slots),
            controllers: Mutex::new(Controllers::default()),
            left: Condvar::new(),
            namespaces: Mutex::new(Namespaces::default()),
            listed: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            watches: Watches::default(),
            pause_time_max: PAUSE_TIME_MAX,
        }
    }

    /// No code panics while it holds the lock, so the list of a poisoned lock is consistent. The lock is taken for
    /// connects and admin commands, and when devices are attached and detached, never for an I/O command.
    fn lock(&self) -> MutexGuard<'_, Namespaces> {
        self.namespaces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list of a poisoned lock is consistent, as for namespaces.
    fn hosts(&self) -> MutexGuard<'_, Vec<String>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn admits(&self, host: &str) -> bool {
        self.hosts().iter().any(|allowed| allowed == host)
    }

    /// Replaces the list of hosts that may connect, and dismisses the controllers of the others. A host whose handshake
    /// is in progress gets no controller: [`add_controller`](Self::add_controller) reads the list again.
    pub(crate) fn set_hosts(&self, hosts: &[String]) {
        *self.hosts() = hosts.to_vec();
        self.dismiss(|host| !hosts.iter().any(|allowed| allowed == host));
    }

    /// Dismisses the controllers of certain hosts: their queues are closed at the next turn of their cores.
    pub(crate) fn dismiss(&self, whose: impl Fn(&str) -> bool) {
        for controller in self.controllers().iter().filter(|known| whose(&known.host.nqn)) {
            controller.dismiss();
        }
    }

    /// Records that a queue has left its controller.
    pub(crate) fn note_left(&self) {
        let _controllers = self.controllers();
        self.left.notify_all();
    }

    /// Waits until dismissed controllers have no queue left, and so no I/O in flight. Returns false after `deadline`.
    pub(crate) fn wait_dismissed(&self, deadline: Instant) -> bool {
        let has_left = |controllers: &Controllers| {
            controllers.iter().all(|known| !known.is_dismissed() || known.places() == 0)
        };
        let mut controllers = self.controllers();
        while !has_left(&controllers) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.left.wait_timeout(controllers, left);
            controllers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The list of a poisoned lock is consistent, as for namespaces.
    fn controllers(&self) -> MutexGuard<'_, Controllers> {
        self.controllers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An unused controller ID. IDs wrap around, and a controller may exist for long. There are far fewer controllers
    /// than IDs.
    pub(crate) fn next_number(&self) -> u16 {
        let mut controllers = self.controllers();
        loop {
            controllers.last = controllers.last % CONTROLLER_MAX + 1;
            if controllers.iter().all(|controller| controller.id != controllers.last) {
                return controllers.last;
            }
        }
    }

    /// Adds a controller, so that I/O queues find it.
    pub(crate) fn add_controller(&self, controller: &Arc<Controller>) -> Result<(), NotAdded> {
        let mut controllers = self.controllers();
        controllers.there.retain(|known| known.strong_count() > 0);
        if controllers.iter().any(|known| known.id == controller.id) {
            return Err(NotAdded::NumberTaken);
        }
        if !self.admits(&controller.host.nqn) {
            return Err(NotAdded::NotListed);
        }
        if self.is_id_in_use(&controllers, &controller.host) {
            return Err(NotAdded::IdInUse);
        }
        controllers.there.push(Arc::downgrade(controller));
        Ok(())
    }

    /// True if another host NQN uses the identifier of a host, for a controller or for a registration. Reservations
    /// identify a host by this identifier alone. Hosts without an identifier cannot register.
    fn is_id_in_use(&self, controllers: &Controllers, host: &Host) -> bool {
        let shares = |known: Arc<Controller>| {
            known.host.id == host.id && known.host.nqn != host.nqn && host.id != [0; 16]
        };
        let is_registered = |known: &Arc<Served>| known.kept.is_of_another(host);
        controllers.iter().any(shares)
            || self
                .lock()
                .there
                .values()
                .filter_map(|known| known.served.as_ref())
                .any(is_registered)
    }

    pub(crate) fn controller(&self, id: u16) -> Option<Arc<Controller>> {
        self.controllers().iter().find(|controller| controller.id == id)
    }

    /// The number of queues that a host has connected.
    pub(crate) fn taken_by(&self, host: &str) -> u32 {
        let controllers = self.controllers();
        let of_it = controllers.iter().filter(|controller| controller.host.nqn == host);
        of_it.map(|controller| controller.places()).sum()
    }

    /// The number of further queues that a host can connect here: limited by the free connection slots and by the limit
    /// of one host.
    pub(crate) fn room_for(&self, host: &str) -> u32 {
        CONNECTIONS_PER_HOST_MAX
            .saturating_sub(self.taken_by(host))
            .min(self.connection_slots.free())
    }

    /// Adds a namespace, or attaches the device of an existing one.
    pub(crate) fn put(
        &self,
        export: &Export,
        mut served: Option<Arc<Served>>,
    ) -> Result<(), ExportError> {
        let refuse = |kind, why: &str| {
            let what =
                format!("cannot export {:?}: namespace {} {why}", self.nqn, export.namespace);
            Err(ExportError::new(kind, what))
        };
        let mut namespaces = self.lock();
        if export.hosts != *self.hosts() {
            return refuse(ExportErrorKind::BadExport, "has other hosts than the others");
        }
        if export.secure != self.secure {
            return refuse(ExportErrorKind::BadExport, "is not secure as the others are, or alone");
        }
        if let Some(known) = namespaces.there.get(&export.namespace) {
            if known.uuid != export.uuid || known.online().is_some() {
                return refuse(ExportErrorKind::Duplicate, "is there already");
            }
            // The reservations stay those of the previous device until there is a new one.
            served = served.or_else(|| known.served.clone());
        } else if namespaces.there.values().any(|other| other.uuid == export.uuid) {
            return refuse(ExportErrorKind::Duplicate, "is there under another number");
        }
        namespaces.changes += 1;
        let now = namespaces.changes;
        let (next, is_paused) = (None, false);
        let namespace = Namespace { uuid: export.uuid, served, reached: now, next, is_paused };
        namespaces.there.insert(export.namespace, namespace);
        namespaces.listed.insert(export.namespace, now);
        self.note(now);
        Ok(())
    }

    /// The Release pairs with the Acquire in `listed`: a thread that reads the number finds the change.
    fn note(&self, now: u64) {
        self.note_reach(now);
        self.listed.store(now, Ordering::Release);
    }

    fn note_reach(&self, now: u64) {
        self.reached.store(now, Ordering::Release);
        self.moved.store(now, Ordering::Release);
    }

    /// Stops serving the device of a namespace; returns the device, because it may still be in use.
    pub(crate) fn close(&self, namespace: u32) -> Option<Arc<Served>> {
        let mut namespaces = self.lock();
        namespaces.changes += 1;
        let now = namespaces.changes;
        let known = namespaces.there.get_mut(&namespace)?;
        known.reached = now;
        known.is_paused = false;
        if let Some(served) = &known.served {
            served.connection_slots.close();
        }
        self.note_reach(now);
        known.served.clone()
    }

    /// As [`close`](Self::close), but commands wait for the next device of the namespace, and hosts see no change.
    pub(crate) fn pause(&self, namespace: u32) -> Option<Arc<Served>> {
        let mut namespaces = self.lock();
        namespaces.changes += 1;
        let now = namespaces.changes;
        let known = namespaces.there.get_mut(&namespace)?;
        let served = known.served.clone();
        if let Some(online) = known.online() {
            online.connection_slots.close();
            known.is_paused = true;
            self.moved.store(now, Ordering::Release);
        }
        served
    }

    /// Ends the pause of a namespace, if it is paused: the namespace becomes inaccessible. Returns whether it was
    /// paused.
    pub(crate) fn end_pause(&self, namespace: u32) -> bool {
        let mut namespaces = self.lock();
        let now = namespaces.changes + 1;
        let known = namespaces.there.get_mut(&namespace);
        let Some(known) = known.filter(|known| known.paused().is_some()) else { return false };
        known.is_paused = false;
        known.reached = now;
        namespaces.changes = now;
        self.note_reach(now);
        true
    }

    /// Devices whose commands wait for the next ones.
    pub(crate) fn paused(&self) -> Vec<Arc<Served>> {
        self.lock().there.values().filter_map(Namespace::paused).cloned().collect()
    }

    /// The range locks of a paused namespace. The next device continues with them, because they may cover blocks of
    /// waiting commands.
    pub(crate) fn paused_gate(&self, namespace: u32) -> Option<Arc<Gate>> {
        let namespaces = self.lock();
        Some(Arc::clone(&namespaces.there.get(&namespace)?.paused()?.gate))
    }

    /// Marks the next device of a namespace as the same instance as the detached one.
    pub(crate) fn keep_instance(&self, namespace: u32) {
        if let Some(known) = self.lock().there.get_mut(&namespace)
            && let Some(served) =
                known.served.as_ref().filter(|served| !served.connection_slots.is_open())
        {
            known.next = Some(served.facts.page.instance);
        }
    }

    /// Marks the next device of a namespace as another instance, and ends the pause.
    pub(crate) fn forget_instance(&self, namespace: u32) {
        if let Some(known) = self.lock().there.get_mut(&namespace) {
            known.next = None;
        }
        self.end_pause(namespace);
    }

    /// The instance of the next device of a namespace, if it is the previous one. A smaller device does not have all
    /// writes; and with another block size, hosts would address the wrong blocks.
    pub(crate) fn next_instance(&self, namespace: u32, info: &DeviceInfo) -> Option<[u8; 16]> {
        let namespaces = self.lock();
        let known = namespaces.there.get(&namespace)?;
        let before = &known.served.as_ref()?.facts.terms;
        let has_all = info.block_size == before.block && info.blocks >= before.blocks;
        known.next.filter(|_| has_all)
    }

    /// Removes a namespace, and stops the recording of its reservations; returns them, if it ever had a device.
    pub(crate) fn take(&self, namespace: u32) -> Option<Arc<Kept>> {
        let mut namespaces = self.lock();
        namespaces.changes += 1;
        let now = namespaces.changes;
        let taken = namespaces.there.remove(&namespace);
        namespaces.listed.insert(namespace, now);
        self.note(now);
        let kept = Arc::clone(&taken?.served?.kept);
        kept.end();
        Some(kept)
    }

    /// The change number of the last addition, removal or resize of a namespace.
    pub(crate) fn listed(&self) -> u64 {
        self.listed.load(Ordering::Acquire)
    }

    /// The change number of the last attach or detach of a device that is reported to hosts.
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// The change number of the last attach or detach of any device, including pauses.
    pub(crate) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Acquire)
    }

    /// Namespaces that were added, removed or resized after `then`.
    pub(crate) fn listed_after(&self, then: u64) -> Vec<u32> {
        let namespaces = self.lock();
        namespaces
            .listed
            .iter()
            .filter(|&(_, &when)| when > then)
            .map(|(&number, _)| number)
            .collect()
    }

    /// The namespace IDs in ascending order.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.lock().there.keys().copied().collect()
    }

    /// The served devices.
    pub(crate) fn online(&self) -> Vec<Arc<Served>> {
        self.lock().there.values().filter_map(Namespace::online).cloned().collect()
    }

    /// Stats of the served devices.
    pub(crate) fn stats(&self) -> Vec<ExportStats> {
        let connections = self.connection_slots.taken();
        let stats = |served: &Arc<Served>| {
            ExportStats::of(&self.nqn, served.namespace, connections, &served.counters)
        };
        self.online().iter().map(stats).collect()
    }

    /// Stats of the queues of its hosts, in the order of controller IDs.
    pub(crate) fn controller_stats(&self) -> Vec<ControllerStats> {
        let controllers: Vec<_> = self.controllers().iter().collect();
        let mut all: Vec<_> = controllers.iter().map(|controller| controller.stats()).collect();
        all.sort_by_key(|controller| controller.id);
        all
    }

    pub(crate) fn view(&self, namespace: u32) -> View {
        match self.lock().there.get(&namespace) {
            None => View::Absent,
            Some(known) => {
                known.seen().map_or(View::Inaccessible, |served| View::Online(served.facts))
            }
        }
    }

    pub(crate) fn uuid(&self, namespace: u32) -> Option<[u8; 16]> {
        self.lock().there.get(&namespace).map(|known| known.uuid)
    }

    /// The reservations of a namespace that has or had a device. They stay in force for a device that replaces a
    /// detached one.
    ///
    /// Returns a status if there is no such namespace, or if it never had a device.
    pub(crate) fn kept(&self, namespace: u32) -> Result<Arc<Kept>, Status> {
        let namespaces = self.lock();
        let known = namespaces.there.get(&namespace).ok_or(Status::INVALID_NAMESPACE)?;
        let served = known.served.as_ref().ok_or(Status::INACCESSIBLE)?;
        Ok(Arc::clone(&served.kept))
    }

    /// Adds notices about the reservations of a namespace to the controllers of the hosts concerned.
    pub(crate) fn notify(&self, namespace: u32, kept: &Kept, reported: &[(HostId, NoticeKind)]) {
        if reported.is_empty() {
            return;
        }
        for controller in self.controllers().iter() {
            let of_it = reported.iter().filter(|(host, _)| *host == controller.host.id);
            for &(_, kind) in of_it.filter(|(_, kind)| kept.tells(*kind)) {
                controller.notify(kind, namespace);
            }
        }
    }

    /// The access state of each namespace; every namespace has an ANA group of its own.
    pub(crate) fn groups(&self) -> Vec<AccessGroup> {
        let group = |(&number, known): (&u32, &Namespace)| AccessGroup {
            number,
            changes: known.reached,
            access: if known.seen().is_some() { Access::Optimized } else { Access::Inaccessible },
            namespace: number,
        };
        self.lock().there.iter().map(group).collect()
    }

    /// The serial number, which is derived from the NQN.
    pub(crate) fn serial(&self) -> String {
        // FNV-1a: offset basis and prime of 64 bits.
        let hash = self.nqn.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }
}

/// True if a number is a valid namespace ID here.
pub(crate) const fn is_number(namespace: u32) -> bool {
    namespace >= 1 && namespace <= NAMESPACES_MAX
}

#[cfg(test)]
mod tests {
    use super::{NotAdded, Subsystem};
    use crate::controller::{CONTROLLER_MAX, Controller, Host};
    use crate::namespace::Export;
    use std::sync::Arc;

    fn export() -> Export {
        let (nqn, hosts) = (String::new(), vec![String::new()]);
        let (device, ledger, read_only, secure) = (None, None, false, false);
        let limits = None;
        Export {
            nqn,
            namespace: 1,
            uuid: [1; 16],
            device,
            read_only,
            ledger,
            hosts,
            secure,
            limits,
        }
    }

    #[test]
    fn a_host_that_is_removed_while_it_authenticates_gets_no_controller() {
        let subsystem = Subsystem::of(&export(), 4);
        let host = Host { nqn: String::new(), id: [0; 16] };
        let controller = Arc::new(Controller::new(1, host, None, Vec::new()));
        subsystem.set_hosts(&["another".to_owned()]);
        let refused = subsystem.add_controller(&controller);
        assert_eq!(refused, Err(NotAdded::NotListed), "the host is no longer allowed");
        subsystem.set_hosts(&[String::new()]);
        assert_eq!(subsystem.add_controller(&controller), Ok(()), "it is allowed again");
    }

    #[test]
    fn no_number_is_given_twice_while_its_controller_is_there() {
        let subsystem = Subsystem::of(&export(), 4);
        let controller = |id| {
            let host = Host { nqn: String::new(), id: [0; 16] };
            Arc::new(Controller::new(id, host, None, Vec::new()))
        };
        let lasting = controller(subsystem.next_number());
        assert_eq!(subsystem.add_controller(&lasting), Ok(()));
        let refused = subsystem.add_controller(&controller(lasting.id));
        assert_eq!(refused, Err(NotAdded::NumberTaken));
        let given: Vec<u16> = (0..CONTROLLER_MAX).map(|_| subsystem.next_number()).collect();
        assert!(!given.contains(&lasting.id), "it was given again");
        assert_eq!(given.iter().max(), Some(&CONTROLLER_MAX));
        assert_eq!(given.iter().min(), Some(&(lasting.id + 1)), "none is left out but that");
        drop(lasting);
        let free = controller(1);
        assert_eq!(subsystem.add_controller(&free), Ok(()), "it is free again");
    }

    /// A host could use the identifier, and so the reservations, of another host.
    #[test]
    fn an_identifier_belongs_to_one_host_name_while_a_controller_uses_it() {
        let subsystem = Subsystem::of(&export(), 4);
        subsystem.set_hosts(&["a".to_owned(), "b".to_owned()]);
        let controller = |nqn: &str, id| {
            let host = Host { nqn: nqn.to_owned(), id: [id; 16] };
            Arc::new(Controller::new(subsystem.next_number(), host, None, Vec::new()))
        };
        let all = [controller("a", 1), controller("a", 1), controller("a", 2)];
        for known in &all {
            assert_eq!(subsystem.add_controller(known), Ok(()), "one host, many controllers");
        }
        let (thief, other) = (controller("b", 1), controller("b", 3));
        assert_eq!(subsystem.add_controller(&thief), Err(NotAdded::IdInUse));
        assert_eq!(subsystem.add_controller(&other), Ok(()));
        drop(all);
        assert_eq!(subsystem.add_controller(&thief), Ok(()), "the identifier is not in use");
        let without = [controller("a", 0), controller("b", 0)];
        for known in &without {
            assert_eq!(subsystem.add_controller(known), Ok(()), "zero is no identifier");
        }
    }
}
